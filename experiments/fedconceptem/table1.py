"""Table 1 on Fashion-MNIST: FedConceptEM's models serve every concept, unseen clients too, where the peers' do not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import _jobs as jobs
import _tables
from _measure import BASELINES

SEEDS = 3
DIFFERS = _tables.DIFFERS


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    if small:
        methods = ("FedConceptEM, 3 models from the start", *BASELINES)
        wanted = [jobs.job("table1", m, 0, rounds=40) for m in methods]
    else:
        wanted = jobs.table1(range(seeds))
    return _tables.run(wanted, small, out, say)
