"""Nodes as real processes for tests and benchmarks: written to a folder, started, killed, restarted, always cleaned up."""

from __future__ import annotations

import csv
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path

import numpy as np
import psutil

from unpooled.client import Client
from unpooled.flower import Link, fleet
from unpooled.flower.server import admit
from unpooled.node.policy import TEMPLATE
from unpooled.node.rows import Source
from unpooled.node.site import Site
from unpooled.remote import keys

# where the nodes find toy.py, and the questions of the benchmarks
_OWN = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "benchmarks")]
PLACES = os.pathsep.join([p for p in (os.environ.get("PYTHONPATH", ""), *_OWN) if p])
OPENED = {  # what tests ask for goes beyond what a node answers unless its owner says so
    "trust_coordinator = false": "trust_coordinator = true",
    "gather = false": "gather = true",
    "min_rows_per_component = 5": "min_rows_per_component = 0",
    "max_parameters_per_row = 0.33": "max_parameters_per_row = 1e9",
}
OPEN_POLICY = reduce(lambda text, rule: text.replace(*rule), OPENED.items(), TEMPLATE)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def write_node(
    folder: Path, name: str, address: str, link: Path, data: str, *, policy: str = OPEN_POLICY, questions=("toy",)
) -> Path:
    """node.toml, policy.toml and an admitted key in a new folder; `data` is the [data] section."""
    folder.mkdir(parents=True)
    admit(link, keys.make_node_key(folder / "node.key").rename(folder / f"{name}.pub"))
    (folder / "policy.toml").write_text(policy)
    top = {"name": name, "link": address, "ca": str(link / "ca.crt"), "key": "node.key", "questions": list(questions)}
    lines = [f"{k} = {json.dumps(v)}" for k, v in top.items()]
    (folder / "node.toml").write_text("\n".join([*lines, "[data]", data, ""]))
    return folder / "node.toml"


def save_rows(path: Path, rows: list[dict]) -> None:
    """A benchmark's table as csv."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="") as out:
        writer = csv.DictWriter(out, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def cpu(processes) -> float:
    """CPU seconds of these processes and all they started."""
    total = 0.0
    for p in processes:
        for q in [p, *p.children(recursive=True)]:
            try:
                times = q.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
            except psutil.NoSuchProcess:
                pass
    return total


class NodeProcess:
    """`unpooled node start` as a person would start it."""

    def __init__(self, config: Path, *options: str):
        self.command = [sys.executable, "-m", "unpooled.cli", "node", "start", str(config), *options]
        self.log = config.parent / "node.log"
        self.process: subprocess.Popen | None = None

    def start(self) -> NodeProcess:
        with open(self.log, "ab") as out:
            env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": PLACES}
            self.process = subprocess.Popen(self.command, stdout=out, stderr=out, env=env, stdin=subprocess.DEVNULL)
        return self

    def kill(self) -> None:
        """As the power cut does."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """As Ctrl-C does."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.process.wait(20)

    def said(self, text: str, seconds: float = 30) -> str:
        """The log, once it holds `text`."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            log = self.log.read_text() if self.log.exists() else ""
            if text in log:
                return log
            time.sleep(0.05)
        raise AssertionError(f"{text!r} is not in the log: {log[-2000:]}")


@contextmanager
def started(*nodes: NodeProcess) -> Iterator[None]:
    try:
        for node in nodes:
            node.start()
        yield
    finally:
        for node in nodes:
            if node.process is not None and node.process.poll() is None:
                node.process.kill()
                node.process.wait()


def answer_once(link: Link, key: Path, seconds: float = 10) -> None:
    """Connect as a node would, in this process, for so long."""
    stop = threading.Event()
    timer = threading.Timer(seconds, stop.set)
    timer.start()
    try:
        fleet.run(Site("x", Source(Client("x", np.ones((2, 2)))), {}), link, keys.read_node_key(key), stop)
    finally:
        timer.cancel()
