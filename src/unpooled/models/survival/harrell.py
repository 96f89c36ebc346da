"""Harrell's concordance index from counts by time step and score bin, without comparing pairs of rows. Sends nothing.

A pair counts if one row dies while the other is known to live longer: it leaves in a later step, or is censored in the
same one. The pair is concordant if the row that dies has the higher score, and counts half if both are in the same bin.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

BLOCK = 512  # rows per block; within a block rows are compared pair by pair


class Pairs(NamedTuple):
    """Weights of the concordant pairs, of those with tied scores, and of all pairs that can be compared."""

    right: float
    same: float
    all: float


def pairs(died: np.ndarray, censored: np.ndarray) -> Pairs:
    """Pairs from counts (g, s) of deaths and censored rows, by time step and score bin, in ascending order."""
    later = _later(died) + _later(censored) + censored  # (g, s): rows that survive a death in this step
    lower = later.cumsum(1) - later
    return Pairs(float((died * lower).sum()), float((died * later).sum()), float((died.sum(1) * later.sum(1)).sum()))


def _later(a: np.ndarray) -> np.ndarray:
    """Sums (g, s) over the later steps of each step."""
    return a[::-1].cumsum(0)[::-1] - a


def index(found: Pairs) -> float:
    """The share of concordant pairs plus half of the tied ones; NaN if there are no pairs."""
    return (found.right + found.same / 2) / found.all if found.all > 0 else float("nan")


def of_rows(time: np.ndarray, died: np.ndarray, score: np.ndarray, w: np.ndarray | None = None) -> Pairs:
    """Pairs of rows in one place: time (n,), deaths (n,) bool, score (n,); rows with a high score should die early.

    Rows are ordered by when they leave, deaths before censored rows of the same time, and compared block by block: the
    deaths of a block with all later rows at once, and with the rows of the same block one time after the other.
    """
    w = np.ones(len(time)) if w is None else w
    exits = 2 * np.unique(time, return_inverse=True)[1] + ~died  # a row survives every death with a smaller number
    order = np.argsort(exits, kind="stable")
    exits = exits[order]
    died = died[order]
    score = score[order]
    w = w[order]
    found = np.zeros(3)
    for start, end in _blocks(exits):
        rows = slice(start, end)
        later = slice(end, None)
        found += _against(score[rows][died[rows]], w[rows][died[rows]], score[later], w[later])
        for exit in np.unique(exits[rows][died[rows]]):
            now = exits[rows] == exit
            longer = exits[rows] > exit
            found += _against(score[rows][now], w[rows][now], score[rows][longer], w[rows][longer])
    return Pairs(*(float(n) for n in found))


def _blocks(exits: np.ndarray) -> list[tuple[int, int]]:
    """Runs of about `BLOCK` rows, cut only between rows with different exit times."""
    bounds = [0]
    for end in np.flatnonzero(np.diff(exits)) + 1:
        if end - bounds[-1] >= BLOCK:
            bounds.append(int(end))
    return list(pairwise([*bounds, len(exits)]))


def _against(score: np.ndarray, w: np.ndarray, others: np.ndarray, other_w: np.ndarray) -> np.ndarray:
    """(concordant, tied, all) pairs of deaths with rows that survive them."""
    order = np.argsort(others, kind="stable")
    weight = np.concatenate([[0.0], np.cumsum(other_w[order])])
    below = weight[np.searchsorted(others[order], score, side="left")]  # weight of smaller scores
    upto = weight[np.searchsorted(others[order], score, side="right")]
    return np.array([w @ below, w @ (upto - below), w.sum() * weight[-1]])
