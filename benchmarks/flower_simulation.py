"""Flower's simulation runtime: what a message costs above the work itself, with 100 clients.

    python benchmarks/flower_simulation.py [--clients 100] [--rounds 10]

The same questions over the same clients, in turns: through Flower (Ray actors, real messages) and in process, one by one.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
from big_question import Down, big
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from unpooled.client import Client
from unpooled.flower import Flower, client_app
from unpooled.local import Local

NUMBERS = 10_000


def make(i: int) -> Client:
    return Client(f"c{i:03}", np.random.default_rng(i).normal(size=(50, 4)))


def find(context: Context) -> Client:
    import big_question  # noqa: F401  # registers the question in the actor's process

    return make(int(context.node_config["partition-id"]))


def server(clients: int, rounds: int, told: dict) -> ServerApp:
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        fed, here = (
            Flower(grid, min_clients=clients, wait=600),
            Local([make(i) for i in range(clients)], mode="one by one", threads=1),
        )
        first = time.perf_counter()
        start = fed.sum(big, Down(np.zeros(NUMBERS)))  # actors start, clients say who they are
        told["first_s"] = time.perf_counter() - first
        assert np.array_equal(start.x, here.sum(big, Down(np.zeros(NUMBERS))).x)
        walls: dict[str, list[float]] = {"flower": [], "here": []}
        for r in range(rounds):
            for name, engine in (("flower", fed), ("here", here)):
                begin = time.perf_counter()
                engine.sum(big, Down(np.full(NUMBERS, float(r))))
                walls[name].append(time.perf_counter() - begin)
        over = np.median(np.subtract(walls["flower"], walls["here"])) / clients
        told.update(round_s=float(np.median(walls["flower"])), here_s=float(np.median(walls["here"])))
        told.update(ms_a_message=1e3 * float(over), refusals=len(fed.journal.refusals), load=os.getloadavg()[0])

    return app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("out/flower_simulation.json"))
    args, told = parser.parse_args(), {}
    backend = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"include_dashboard": False}}
    run_simulation(server(args.clients, args.rounds, told), client_app(find), args.clients, backend_config=backend)
    print(json.dumps(told))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
