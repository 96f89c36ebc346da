"""What waiting costs and how fast many nodes answer: SuperLink on loopback with TLS and node keys, nodes as threads of this process.

    python benchmarks/many_nodes.py [--nodes 50] [--rounds 5] [--idle 20]

Prints the SuperLink's CPU share with three idle nodes and during a slow round, then the seconds that `--nodes` nodes take to
be found and to answer a round. The load average is printed beside each figure: on a busy machine the clock says little.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "flower"))
from network import free_port
from toy import Centre, pause, total

from unpooled.client import Client
from unpooled.flower import Link, connect, fleet
from unpooled.flower.server import Server, admit, supervised
from unpooled.node.rows import Source
from unpooled.node.site import Site
from unpooled.remote import keys

COLUMNS = ["a", "b", "c"]


@contextmanager
def network(n: int) -> Iterator[Server]:
    """A SuperLink with `n` connected nodes."""
    folder, stop, rng = Path(tempfile.mkdtemp(prefix="many-")), threading.Event(), np.random.default_rng(0)
    link, names = folder / "link", [f"n{i:02}" for i in range(n)]
    for name in names:
        admit(link, keys.make_node_key(folder / f"{name}.key", name))
    with supervised(link, f"127.0.0.1:{free_port()}") as server:
        public = Link(server.link.address, server.link.ca)
        for name in names:
            site = Site(name, Source(Client(name, rng.normal(size=(20, 3))), COLUMNS), {}, also=["toy"])
            key = keys.read_node_key(folder / f"{name}.key")
            threading.Thread(target=fleet.run, args=(site, public, key, stop), daemon=True).start()
        try:
            yield server
        finally:
            stop.set()
            time.sleep(0.5)


def cpu_share(server: Server, seconds: float) -> float:
    """The share of one core that the SuperLink uses."""
    process = psutil.Process(server.process.pid)
    before = sum(process.cpu_times()[:2])
    time.sleep(seconds)
    return (sum(process.cpu_times()[:2]) - before) / seconds


def waiting(seconds: float) -> dict:
    """CPU shares with three nodes: idle, and while they compute an answer for `seconds`."""
    with network(3) as server:
        time.sleep(5)
        row = {"idle": cpu_share(server, seconds)}
        with connect(Link.open(server.link.folder), min_clients=3, wait=120) as fed:
            fed.sum(total, Centre(np.zeros(3)))
            ask = threading.Thread(target=fed.sum, args=(pause.using(seconds=seconds), Centre(np.zeros(3))))
            ask.start()
            row["slow_round"] = cpu_share(server, 0.8 * seconds)
            ask.join()
    return {**row, "load": os.getloadavg()[0]}


def rounds_of(n: int, rounds: int) -> dict:
    """Seconds until `n` nodes are found, and per round; CPU seconds of SuperLink, nodes and coordinator together."""
    with network(n) as server:
        processes = [psutil.Process(server.process.pid), psutil.Process()]
        start = time.perf_counter()
        with connect(Link.open(server.link.folder), min_clients=n, wait=300) as fed:
            assert len(fed.names) == n
            found, walls = time.perf_counter() - start, []
            used = sum(sum(p.cpu_times()[:2]) for p in processes)
            for _ in range(rounds):
                start = time.perf_counter()
                fed.sum(total, Centre(np.zeros(3)))
                walls.append(time.perf_counter() - start)
                assert fed.journal.exchanges[-1].answered == n
            used = sum(sum(p.cpu_times()[:2]) for p in processes) - used
    figures = {"median_s": float(np.median(walls)), "worst_s": max(walls), "cpu_s": used / rounds}
    return {"nodes": n, "found_s": found, **figures, "load": os.getloadavg()[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--idle", type=float, default=20.0, help="seconds to measure the CPU share over")
    parser.add_argument("--out", type=Path, default=Path("out/many_nodes.json"))
    args = parser.parse_args()
    idle = waiting(args.idle)
    print(
        f"SuperLink, 3 nodes: {idle['idle']:.1%} of a core idle, {idle['slow_round']:.1%} during a slow round; load {idle['load']:.1f}"
    )
    row = rounds_of(args.nodes, args.rounds)
    figures = f"{row['median_s']:.2f} s per round (median), {row['worst_s']:.2f} s at most, {row['cpu_s']:.2f} s CPU"
    print(f"{row['nodes']} nodes: found in {row['found_s']:.1f} s, {figures}; load {row['load']:.1f}")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({"waiting": idle, "many": row}, indent=1))


if __name__ == "__main__":
    main()
