"""Figures 7 and 11: how many concepts there are, which nobody tells FedConceptEM; it finds out before the first round."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import _jobs as jobs
import _tables

SEEDS = 3
DIFFERS = (
    _tables.DIFFERS + " The paper begins with six or eight models and removes those with less than 5 % of the rows."
)


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    rounds, three = (60, [0]) if small else (100, range(seeds))
    return _tables.run(jobs.number(three, rounds) + jobs.number(three, rounds, concepts=1), small, out, say)
