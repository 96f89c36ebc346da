"""Flower as an engine of `unpooled.remote.engines`: the functions that commands call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from unpooled.flower.attach import connect, explained
from unpooled.flower.server import admit, nodes, runs, supervised
from unpooled.remote.keys import read_node_key
from unpooled.remote.link import Link

__all__ = ["admit", "connect", "run_node", "run_worker", "serve", "status"]


def serve(
    folder: Path,
    address: str,
    stop: threading.Event,
    started: Callable[[Link], None],
    *,
    hosts: Sequence[str],
    insecure: bool,
) -> None:
    """Run a SuperLink until `stop` is set; RunError if it ends before.

    Parameters
    ----------
    folder : Path
        The link: certificates, admitted keys, the coordinator's token.
    address : str
        HOST:PORT to listen on.
    stop : threading.Event
        Ends the server when it is set.
    started : callable
        Told the link once nodes can connect.
    hosts : sequence of str
        Further names that the certificate holds for.
    insecure : bool
        Without TLS and keys, on loopback alone.
    """
    with supervised(folder, address, hosts=hosts, insecure=insecure) as server:
        started(server.link)
        while not stop.wait(0.5):
            server.check()


def status(link: Link) -> dict[str, Any]:
    """The link's nodes and runs."""
    return {"nodes": explained(link, lambda: nodes(link)), "runs": explained(link, lambda: runs(link))}


def run_node(site: Any, link: Link, key: Path | None, stop: threading.Event) -> None:
    """Answer for a node on Flower's fleet connection until `stop` is set."""
    from unpooled.flower import fleet

    fleet.run(site, link, None if key is None else read_node_key(key), stop)


def run_worker(site: Any, address: str, stop: threading.Event) -> None:
    """Answer for a node behind a stock SuperNode until `stop` is set."""
    from unpooled.flower import worker

    worker.run(site, address, stop)
