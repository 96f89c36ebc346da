"""How long a round takes on loopback: three nodes, 80 kB of statistics each way, TLS and node keys on. Median of 20.

    python benchmarks/flower_round.py [--rounds 20] [--stock] [--peer 3]

Ours: `unpooled node start` (a process that holds the data, on Flower's fleet connection). `--stock`: Flower's own SuperNodes with
our worker behind them. `--peer N`: Flower's own loop (`send_and_receive`, SuperNodes that start a process for each message).
CPU seconds are those of all processes together: on a busy machine they say more than the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "flower"))
sys.path.insert(0, str(Path(__file__).parent))
from big_question import Down, big
from network import NodeProcess, cpu, free_port, started, write_node

from unpooled.flower import clients, connect
from unpooled.flower.server import serving, stop

NUMBERS = 10_000  # of 8 bytes, each way


class Traffic:
    """Bytes of the coordinator's requests and responses, bodies and headers."""

    def __init__(self):
        self.bytes, self.requests, inner = 0, 0, clients.Token.intercept

        def counted(token, context, call_next):
            response = inner(token, context, call_next)
            request = context.request
            self.bytes += len(request.content) + len(response.content) + _headers(request) + _headers(response)
            self.requests += 1
            return response

        clients.Token.intercept = counted


def _headers(message) -> int:
    return sum(len(k) + len(v) + 4 for k, v in message.headers.raw)


def measure(fed, rounds: int, traffic: Traffic) -> dict:
    fed.sum(big, Down(np.zeros(NUMBERS)))  # the first also reads the data
    me, walls, sent, used = psutil.Process(), [], traffic.bytes, cpu([psutil.Process()])
    for r in range(rounds):
        start = time.perf_counter()
        fed.sum(big, Down(np.full(NUMBERS, float(r))))
        walls.append(time.perf_counter() - start)
    messages = 2 * len(fed.names)
    statistics = (1 + len(fed.names)) * NUMBERS * 8  # down once, up from each node
    per_round = (traffic.bytes - sent) / rounds
    return {
        "median_s": float(np.median(walls)),
        "quartiles_s": [float(q) for q in np.quantile(walls, (0.25, 0.75))],
        "cpu_s_a_round": (cpu([me]) - used) / rounds,
        "bytes_a_round": per_round,
        "allowed_bytes": 1.05 * statistics + 4096 * messages,
        "load": os.getloadavg()[0],
    }


def table(folder: Path) -> str:
    (folder / "rows.csv").write_text("a,b\n" + "1,2\n3,5\n" * 50)
    return f'path = "{folder / "rows.csv"}"'


def stock_node(stack: ExitStack, config: Path, address: str, link: Path, isolation: str) -> None:
    """A SuperNode of Flower's, with our worker behind it if `isolation` is process."""
    path = (
        f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # the SuperNode starts Flower's other programs
    )
    port, env = free_port(), {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "PATH": path}
    command = [
        Path(sys.executable).parent / "flower-supernode",
        "--superlink",
        address,
        "--root-certificates",
        link / "ca.crt",
    ]
    command += ["--auth-supernode-private-key", config.parent / "node.key", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--isolation", isolation, "--node-config", f'unpooled="{config}"']
    with open(config.parent / "supernode.log", "ab") as log:
        process = subprocess.Popen([str(c) for c in command], env=env, stdout=log, stderr=log)
    stack.callback(stop, process)
    if isolation == "process":
        stack.enter_context(started(NodeProcess(config, "--behind", f"127.0.0.1:{port}")))


def run(kind: str, rounds: int, traffic: Traffic) -> dict:
    folder, address = Path(tempfile.mkdtemp(prefix="round-")), f"127.0.0.1:{free_port()}"
    link, data = folder / "link", table(folder)
    configs = [write_node(folder / f"n{i}", f"n{i}", address, link, data, questions=["big_question"]) for i in range(3)]
    with ExitStack() as stack:
        opened = stack.enter_context(serving(link, address))
        for config in configs:
            if kind == "ours":
                stack.enter_context(started(NodeProcess(config)))
            else:
                stock_node(stack, config, address, link, "process" if kind == "stock" else "subprocess")
        fed = stack.enter_context(connect(opened, min_clients=3, wait=120))
        if kind == "peer":
            return {"kind": kind, **peer(fed, rounds)}
        return {"kind": kind, **measure(fed, rounds, traffic)}


def peer(fed, rounds: int) -> dict:
    """Flower's own loop over the same messages."""
    from flwr.app import Message

    from unpooled.flower.transport import to_records

    grid, walls = fed.transport.grid, []
    end = time.monotonic() + 120
    while len(nodes := list(grid.get_node_ids())) < 3 and time.monotonic() < end:
        time.sleep(0.5)
    for _ in range(rounds):
        start = time.perf_counter()
        messages = [Message(to_records(bytes(NUMBERS * 8)), n, "query") for n in nodes]
        assert len(list(grid.send_and_receive(messages, timeout=300))) == 3
        walls.append(time.perf_counter() - start)
    return {"median_s": float(np.median(walls)), "load": os.getloadavg()[0]}


def told(row: dict) -> str:
    names = {"ours": "our nodes", "stock": "stock SuperNodes, our worker", "peer": "Flower's own loop"}
    text = f"{names[row['kind']]:29} {row['median_s']:.2f} s a round (median)"
    if "quartiles_s" in row:
        low, high = row["quartiles_s"]
        text += f", quartiles {low:.2f} to {high:.2f}, {row['cpu_s_a_round']:.2f} s CPU of all processes"
        text += f", {row['bytes_a_round'] / 1e3:.0f} kB of {row['allowed_bytes'] / 1e3:.0f} kB allowed"
    return f"{text}; load {row['load']:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument(
        "--stock", type=int, default=10, metavar="N", help="N rounds with stock SuperNodes and our worker"
    )
    parser.add_argument("--peer", type=int, default=3, metavar="N", help="N rounds of Flower's own loop")
    parser.add_argument("--out", type=Path, default=Path("out/flower_round.json"))
    args, traffic = parser.parse_args(), Traffic()
    rows = []
    for kind, rounds in (("ours", args.rounds), ("stock", args.stock), ("peer", args.peer)):
        if rounds:
            rows.append(run(kind, rounds, traffic))
            print(told(rows[-1]), flush=True)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
