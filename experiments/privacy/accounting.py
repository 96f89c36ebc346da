"""Epsilon of 200 drawn compositions, beside Google's accountant of privacy loss distributions (dp-accounting)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from unpooled.privacy.accountant import epsilon_of

SEEDS = 200
DIFFERS = "there is no paper; dp-accounting must be installed."


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    import dp_accounting

    rng, apart = np.random.default_rng(0), []
    for i in range(20 if small else seeds):
        mus = 10.0 ** rng.uniform(-2, 0.2, size=rng.integers(1, 12))
        delta = 10.0 ** rng.uniform(-9, -2)
        theirs = dp_accounting.pld.PLDAccountant()
        for mu in mus:
            theirs.compose(dp_accounting.GaussianDpEvent(1 / mu))
        ours = epsilon_of(float(np.sqrt((mus**2).sum())), delta)
        apart.append(theirs.get_epsilon(delta) - ours)
        if i % 20 == 0:
            say(f"{i}: epsilon {ours:.4f}, {apart[-1]:+.1e}")
    largest, median = float(np.max(np.abs(apart))), float(np.median(np.abs(apart)))
    return [{"compositions": len(apart), "largest difference": largest, "median difference": median, "goal": "1e-4"}]
