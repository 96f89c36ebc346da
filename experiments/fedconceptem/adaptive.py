"""Figures 7 and 11: started with six or eight models, adaptive FedConceptEM ends with as many as there are concepts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import _jobs as jobs
import _tables

SEEDS = 10
DIFFERS = (
    _tables.DIFFERS + " A model also goes when its own rows lose less than a tenth of their information without it."
)


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    if small:
        return _tables.run(jobs.adaptive([0], 60, [6]) + jobs.adaptive([0], 60, [3], concepts=1), small, out, say)
    return _tables.run(
        jobs.adaptive(range(seeds)) + jobs.adaptive(range(seeds), begin=[6], concepts=1), small, out, say
    )
