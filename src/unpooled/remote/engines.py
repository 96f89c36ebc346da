"""The one place that chooses an engine: which package carries a link's messages.

An engine is a module with the functions of `Engine`. A second engine is a module of its own and one line in `ENGINES`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from unpooled.errors import BadParameter, suggest
from unpooled.remote.federation import Remote
from unpooled.remote.link import Link

ENGINES = {"flower": "unpooled.flower.engine"}  # name in link.json -> module


class Engine(Protocol):
    """What a module must define to carry a link's messages."""

    def connect(self, link: Link, **options: Any) -> AbstractContextManager[Remote]:
        """A federation over the link's nodes for one run; the options are those of `Remote`."""
        ...

    def serve(
        self,
        folder: Path,
        address: str,
        stop: threading.Event,
        started: Callable[[Link], None],
        *,
        hosts: Sequence[str],
        insecure: bool,
    ) -> None:
        """Run the link's server until `stop` is set.

        Calls `started` once nodes can connect; raises RunError if the server dies.
        """
        ...

    def admit(self, folder: Path, key: Path, name: str | None) -> str:
        """Admit a node's public key; returns the name it is admitted under."""
        ...

    def status(self, link: Link) -> dict[str, Any]:
        """The link's nodes and runs."""
        ...

    def run_node(self, site: Any, link: Link, key: Path | None, stop: threading.Event) -> None:
        """Answer for a node until `stop` is set."""
        ...

    def run_worker(self, site: Any, address: str, stop: threading.Event) -> None:
        """Answer for a node behind the engine's own node program, which listens at `address`, until `stop` is set."""
        ...


def engine(name: str = "flower") -> Engine:
    """The engine of that name.

    Parameters
    ----------
    name : str, default="flower"
        A key of `ENGINES`.

    Returns
    -------
    Engine
        Its module, imported now, so that its dependencies load only for those who use it.
    """
    if name not in ENGINES:
        raise BadParameter(f"engine {name!r} is not known: {suggest(name, ENGINES)}")
    return cast(Engine, import_module(ENGINES[name]))


def connect(folder: Path, **options: Any) -> AbstractContextManager[Remote]:
    """A federation over the nodes of a link, for one run.

    Parameters
    ----------
    folder : Path
        The link's folder, as made by `unpooled serve`.
    **options
        As of `Remote`: min_clients, names, columns, timeout, wait, max_bytes, say.

    Returns
    -------
    context manager of Remote
        `with connect(folder) as fed: model.fit(fed)`.
    """
    link = Link.open(folder)
    return engine(link.engine).connect(link, **options)
