"""Figures 5, 6, 10 and Tables 4 and 5: noise on the label table, few clients a round, concepts, Adam."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import _jobs as jobs
import _tables

SEEDS = 3
DIFFERS = _tables.DIFFERS + " The paper's ablations are on CIFAR10, so no figure of theirs stands beside ours."


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    if small:
        options = ({}, {"noise": 5.0}, {"fraction": 0.2}, {"adam": True})
        wanted = [
            jobs.job("ablations", "FedConceptEM, 3 models from the start", 0, rounds=30, options=o) for o in options
        ]
        return _tables.run(wanted, small, out, say)
    several = range(seeds)
    wanted = [
        *jobs.noise(several, levels=(0.0, 10.0, 50.0)),
        *jobs.participation(several, shares=(0.2, 0.4, 0.6, 0.8, 1.0)),
        *jobs.counts(several),
        *jobs.variants(several),
    ]
    return _tables.run(wanted, small, out, say)
