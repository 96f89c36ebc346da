"""Flower's simulation runtime: what a message costs above the work itself, with 100 clients and 80 kB each way.

    python benchmarks/flower_simulation.py [--clients 100] [--rounds 10]

The same questions over the same clients, in turns: through Flower (Ray actors, real messages), in process one by one, and as bare
messages of Flower's with the same bytes and nothing of ours in them, which is what the runtime itself takes.
CPU seconds are those of all processes together: on a busy machine they say more than the clock.
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
import psutil

PLACES = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "tests" / "flower")]
sys.path[:0] = PLACES
os.environ["PYTHONPATH"] = os.pathsep.join([*PLACES, os.environ.get("PYTHONPATH", "")])
from big_question import Down, big  # noqa: E402
from flwr.app import ConfigRecord, Context, Message, RecordDict  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.serverapp import Grid, ServerApp  # noqa: E402
from flwr.simulation import run_simulation  # noqa: E402
from network import cpu  # noqa: E402

from unpooled.client import Client  # noqa: E402
from unpooled.flower import Flower, client_app  # noqa: E402
from unpooled.local import Local  # noqa: E402

NUMBERS = 10_000


def make(i: int) -> Client:
    return Client(f"c{i:03}", np.random.default_rng(i).normal(size=(50, 4)))


def find(context: Context) -> Client:
    import big_question  # noqa: F401  # registers the question in the actor's process

    return make(int(context.node_config["partition-id"]))


def app() -> ClientApp:
    """Ours, which also answers a bare message with its own bytes."""
    both = client_app(find)

    @both.query("bare")
    def echo(message: Message, context: Context) -> Message:
        return Message(RecordDict({"r": ConfigRecord({"b": message.content["r"]["b"]})}), reply_to=message)

    return both


def bare(grid: Grid, fill: int) -> None:
    """A round of Flower's own: the same bytes there and back, looked for as often as its own loop does."""
    content = RecordDict({"r": ConfigRecord({"b": bytes([fill]) * (8 * NUMBERS)})})
    found = grid.send_and_receive([Message(content, n, "query.bare") for n in grid.get_node_ids()])
    assert not any(m.has_error() for m in found)


def server(clients: int, rounds: int, told: dict) -> ServerApp:
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        fed = Flower(grid, min_clients=clients, wait=600)
        here = Local([make(i) for i in range(clients)], mode="one by one", threads=1)
        first = time.perf_counter()
        start = fed.sum(big, Down(np.zeros(NUMBERS)))  # actors start, clients say who they are
        told["first_s"] = time.perf_counter() - first
        assert np.array_equal(start.x, here.sum(big, Down(np.zeros(NUMBERS))).x)
        ways = {
            "flower": lambda r: fed.sum(big, Down(np.full(NUMBERS, float(r)))),
            "here": lambda r: here.sum(big, Down(np.full(NUMBERS, float(r)))),
            "bare": lambda r: bare(grid, r),
        }
        took: dict[str, list] = {name: [] for name in ways}
        for r in range(rounds):
            for name, way in ways.items():
                took[name].append(timed(way, r))
        told.update(summary(took, clients), refusals=len(fed.journal.refusals), load=os.getloadavg()[0])

    return app


def timed(way, r: int) -> tuple[float, float]:
    """(wall, CPU) seconds of a round."""
    me = psutil.Process()
    used, begin = cpu([me]), time.perf_counter()
    way(r)
    took = time.perf_counter() - begin
    return took, cpu([me]) - used


def summary(took: dict, clients: int) -> dict:
    """Milliseconds a message above the work itself, by the clock and in CPU seconds of all processes."""
    wall, used = ({k: np.array(v)[:, i] for k, v in took.items()} for i in (0, 1))
    over = lambda a, k: 1e3 * float(np.median(a[k] - a["here"])) / clients  # noqa: E731
    return {
        "ms_a_message": over(wall, "flower"),
        "ms_of_flower_alone": over(wall, "bare"),
        "cpu_ms_a_message": over(used, "flower"),
        "cpu_ms_of_flower_alone": over(used, "bare"),
        "quartiles_ms": [1e3 * float(q) / clients for q in np.quantile(wall["flower"] - wall["here"], (0.25, 0.75))],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("out/flower_simulation.json"))
    args, told = parser.parse_args(), {}
    backend = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"include_dashboard": False}}
    run_simulation(server(args.clients, args.rounds, told), app(), args.clients, backend_config=backend)
    low, high = told["quartiles_ms"]
    print(f"above the work itself, {args.clients} clients, load {told['load']:.1f}:")
    print(
        f"through unpooled  {told['ms_a_message']:.1f} ms a message ({low:.1f} to {high:.1f}), CPU {told['cpu_ms_a_message']:.1f} ms"
    )
    print(
        f"Flower alone      {told['ms_of_flower_alone']:.1f} ms a message, CPU {told['cpu_ms_of_flower_alone']:.1f} ms"
    )
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
