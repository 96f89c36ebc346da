"""kill -9 at any write: no charge is lost and none is made twice."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from unpooled.node.ledger import Ledger, verify
from unpooled.node.secrets import SECRET

HERE = Path(__file__)
CHILD = """
import os, signal, sys
at, folder = int(sys.argv[1]), sys.argv[2]
count, sync = 0, os.fsync

def dying_sync(handle):
    global count
    count += 1
    if count == at:  # what was written may or may not be on the disk
        os.kill(os.getpid(), signal.SIGKILL)
    sync(handle)
    if count == -at:
        os.kill(os.getpid(), signal.SIGKILL)

os.fsync = dying_sync
from test_killed_budget import fit_in
fit_in(folder)
print(count)
"""


def fit_in(folder):
    """Two private models over two nodes that keep everything on disk."""
    sys.path.insert(0, str(HERE.parents[1] / "remote"))
    import numpy as np
    from memory import MemoryTransport

    from unpooled.client import Client
    from unpooled.layers.private.nodes import PrivateNodes
    from unpooled.models.private import ColumnMoments, PrivateKMeans
    from unpooled.node.budget import Budget
    from unpooled.node.policy import Policy
    from unpooled.node.rows import Source
    from unpooled.node.site import Site
    from unpooled.node.vault import Folder
    from unpooled.remote import Remote

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


def run(folder, at=0):
    path = os.pathsep.join([str(HERE.parent), *filter(None, sys.path)])
    child = [sys.executable, "-c", CHILD, str(at), str(folder)]
    return subprocess.run(child, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def syncs(tmp_path_factory):
    """How often an undisturbed run writes to the disk."""
    done = run(tmp_path_factory.mktemp("undisturbed"))
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[0])


@pytest.mark.parametrize("part", [0.02, 0.3, 0.5, 0.8])
def test_a_kill_neither_loses_nor_doubles_a_charge(tmp_path, syncs, part):
    for sign in (1, -1):  # before the write is on disk, and just after
        killed = run(tmp_path, sign * max(1, round(part * syncs)))
        assert killed.returncode == -signal.SIGKILL
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    again = tmp_path / "again"
    for name in ("a", "b"):
        verify(tmp_path / f"{name}.jsonl")
        (again / name).mkdir(parents=True)
        shutil.copy(tmp_path / name / SECRET, again / name)  # the same secret: the same noise
    assert run(again).returncode == 0
    for name in ("a", "b"):
        assert Ledger(tmp_path / f"{name}.jsonl").looks == Ledger(again / f"{name}.jsonl").looks
