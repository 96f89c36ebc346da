"""Harrell's concordance from counts by step of time and cell of score: no pair of rows is ever compared one by one.

A pair counts if one dies while the other is known to live longer: it leaves in a later step, or is censored in the same one.
It is right if the one that dies has the higher score, half right if the scores are in the same cell.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Pairs(NamedTuple):
    right: float
    same: float
    all: float


def pairs(died: np.ndarray, censored: np.ndarray) -> Pairs:
    """Pairs from counts (g, s) of those who die and of those censored, by step of time and cell of score, both in order."""
    later = _later(died) + _later(censored) + censored  # (g, s): who lives longer than a death of this step
    lower = later.cumsum(1) - later
    return Pairs(float((died * lower).sum()), float((died * later).sum()), float((died.sum(1) * later.sum(1)).sum()))


def _later(a: np.ndarray) -> np.ndarray:
    """Sums over the steps after each."""
    return a[::-1].cumsum(0)[::-1] - a


def index(found: Pairs) -> float:
    """Right pairs and half of the even ones among all; NaN if there are none."""
    return (found.right + found.same / 2) / found.all if found.all > 0 else float("nan")


def of_rows(time: np.ndarray, died: np.ndarray, score: np.ndarray, w: np.ndarray | None = None) -> Pairs:
    """Pairs of rows in one place: time (n,), deaths (n,) bool, score (n,); a high score should die early."""
    w = np.ones(len(time)) if w is None else w
    right = same = every = 0.0
    scores, cell = np.unique(score, return_inverse=True)
    for t in np.unique(time[died & (w > 0)]):
        now = died & (time == t)
        longer = (time > t) | ((time == t) & ~died)
        later = np.bincount(cell[longer], w[longer], len(scores))
        lower = later.cumsum() - later
        right += float((w[now] * lower[cell[now]]).sum())
        same += float((w[now] * later[cell[now]]).sum())
        every += float(w[now].sum() * later.sum())
    return Pairs(right, same, every)
