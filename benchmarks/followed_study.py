"""What following a study costs a node, how fast a restarted node catches up, and whether 200 changed bits are found.

    python benchmarks/followed_study.py

Three nodes in this process over an in-memory transport, so that only the node's own work is timed; CPU seconds.
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / "node"), str(ROOT / "tests" / "remote")]

import test_study as studies  # noqa: E402
from memory import MemoryTransport  # noqa: E402

from unpooled import certificate, store  # noqa: E402
from unpooled.node import session  # noqa: E402

ROUNDS, ROWS, COLUMNS, COMPONENTS = 100, 100_000, 8, 5


def follow_cost() -> tuple[float, float]:
    """(CPU of the follower over CPU of the node's whole work, seconds to replay the totals after a restart)."""
    names = [f"x{j}" for j in range(COLUMNS)]
    studies.COLUMNS[:] = names
    rows = {n: np.random.default_rng(i).normal(size=(ROWS, COLUMNS)) + i for i, n in enumerate(studies.NAMES)}
    model = (
        f'name = "GaussianMixture"\nn_components = {COMPONENTS}\ninit_params = "random"\n'
        f"random_state = 0\nmax_iter = {ROUNDS}\ntol = 0.0"
    )
    approved = studies.masked_study(model)
    with tempfile.TemporaryDirectory() as folder:
        vaults: dict[str, dict] = {n: {} for n in studies.NAMES}
        sites = studies.make_sites(Path(folder), approved, rows=rows, vaults=vaults)
        begin = time.process_time()
        studies.fit(approved, studies.coordinator(MemoryTransport(sites), approved))
        whole = (time.process_time() - begin) / 3  # of one node, coordinator included
        run = next(k.partition("/")[0] for k in vaults["basel"] if "/total-" in k)
        begin = time.process_time()
        again = session.Session(run, approved, "basel", vaults["basel"], lambda total, asked: total)
        replay = time.process_time() - begin
        again.stop()
    return replay / whole, replay


def tampering(changes: int = 200) -> int:
    """How many of so many single changed bits are found."""
    found = 0
    with tempfile.TemporaryDirectory() as folder:
        run, ledgers = studies.certified(Path(folder))
        totals = sorted((run / "totals").glob("*.zip"))
        files = [run / "study.toml", run / "model" / "model.zip", *totals, *ledgers]
        rng = np.random.default_rng(1)
        for k in range(changes):
            path = files[k % len(files)]
            good = path.read_bytes()
            bad = bytearray(good)
            bad[int(rng.integers(len(bad)))] ^= 1 << int(rng.integers(8))
            store.write_file(path, bytes(bad))
            found += any(f.wrong for f in certificate.verify(run, ledgers))
            store.write_file(path, good)
    return found


def main() -> None:
    warnings.simplefilter("ignore")
    print(f"tampering: {tampering()} of 200 changed bits found")
    share, replay = follow_cost()
    print(f"following: {share:.1%} of a node's own work; {ROUNDS} rounds replayed in {replay:.2f} s of CPU")


if __name__ == "__main__":
    main()
