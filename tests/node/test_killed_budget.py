"""kill -9 at any write: no charge is lost and none is made twice."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from memory import MemoryTransport

from unpooled.client import Client
from unpooled.layers.private.nodes import PrivateNodes
from unpooled.models.private import ColumnMoments, PrivateKMeans
from unpooled.node.budget import Budget
from unpooled.node.ledger import Ledger, verify
from unpooled.node.policy import Policy
from unpooled.node.rows import Source
from unpooled.node.secrets import SECRET
from unpooled.node.site import Site
from unpooled.node.vault import Folder
from unpooled.remote import Remote

HERE = Path(__file__)
PARENT = """
import os, signal, sys
from test_killed_budget import fit_in

def run(at, folder):
    count, sync = 0, os.fsync

    def dying_sync(handle):
        nonlocal count
        count += 1
        if count == at:  # what was written may or may not be on the disk
            os.kill(os.getpid(), signal.SIGKILL)
        sync(handle)
        if count == -at:
            os.kill(os.getpid(), signal.SIGKILL)

    os.fsync = dying_sync
    fit_in(folder)
    return count

for line in sys.stdin:  # a child for each line, which need not import anything again
    at, folder = line.split(maxsplit=1)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, str(run(int(at), folder.strip())).encode())
        os._exit(0)
    os.close(write)
    _, status = os.waitpid(child, 0)
    said = os.read(read, 100).decode() or "0"
    os.close(read)
    print(os.waitstatus_to_exitcode(status), said, flush=True)
"""


def fit_in(folder):
    """Two private models over two nodes that keep everything on disk."""
    names, rules = ["a", "b"], Policy(privacy=Budget(4.0, 1e-6))
    rows = {n: np.random.default_rng(i).normal(size=(500, 2)) for i, n in enumerate(names)}
    sites = [
        Site(
            n,
            Source(Client(n, rows[n]), ["x", "y"]),
            Folder(Path(folder) / n),
            policy=lambda: rules,
            ledger=Ledger(Path(folder) / f"{n}.jsonl"),
        )
        for n in names
    ]
    for model in (ColumnMoments(), PrivateKMeans(2, random_state=0)):
        fed = Remote(MemoryTransport(sites), names=names, columns=["x", "y"], wait=2, timeout=2)
        private = PrivateNodes(fed, epsilon=1.0, delta=1e-6, bounds={"x": (-5, 5), "y": (-5, 5)}, masked=False)
        model.fit(private)


@pytest.fixture(scope="module")
def run():
    """run(folder, at) -> (exit code, number of syncs) of `fit_in` in a process of its own, killed at sync `at`."""
    path = os.pathsep.join([str(HERE.parent), *filter(None, sys.path)])
    command, pipe = [sys.executable, "-c", PARENT], subprocess.PIPE
    with subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": path}, stdin=pipe, stdout=pipe, text=True
    ) as parent:

        def ask(folder, at=0):
            print(at, folder, file=parent.stdin, flush=True)
            return tuple(map(int, parent.stdout.readline().split()))

        yield ask
        parent.stdin.close()


@pytest.fixture(scope="module")
def syncs(tmp_path_factory, run):
    """How often an undisturbed run writes to the disk."""
    code, count = run(tmp_path_factory.mktemp("undisturbed"))
    assert code == 0
    assert count > 20
    return count


@pytest.mark.parametrize("part", [0.02, 0.3, 0.5, 0.8])
def test_a_kill_neither_loses_nor_doubles_a_charge(tmp_path, run, syncs, part):
    for sign in (1, -1):  # before the write is on disk, and just after
        assert run(tmp_path, sign * max(1, round(part * syncs)))[0] == -signal.SIGKILL
    assert run(tmp_path)[0] == 0
    again = tmp_path / "again"
    for name in ("a", "b"):
        verify(tmp_path / f"{name}.jsonl")
        (again / name).mkdir(parents=True)
        shutil.copy(tmp_path / name / SECRET, again / name)  # the same secret: the same noise
    assert run(again)[0] == 0
    for name in ("a", "b"):
        assert Ledger(tmp_path / f"{name}.jsonl").looks == Ledger(again / f"{name}.jsonl").looks
