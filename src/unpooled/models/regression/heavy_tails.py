"""Columns with heavy tails compressed by arcsinh: linear about the median, logarithmic far out. Sends nothing of its own.

Median and quartiles are read off a histogram, whose counts add over clients. Its bins are finer towards the mean, because a column with
far outliers has nearly all its values there, and about as wide as 5 % of a standard deviation where most values of other columns are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float
from unpooled.tree import message

FARTHEST = 1e3
_DISTANCES = np.concatenate(  # edges in standard deviations from the mean: finest relative to the distance, then even, then coarser
    [
        np.geomspace(1e-4, 0.04, 20),
        np.arange(0.05, 1.5, 0.05),
        np.arange(1.5, 3.0, 0.1),
        np.geomspace(3.0, FARTHEST, 25),
    ]
)
EDGES = np.concatenate([-_DISTANCES[::-1], _DISTANCES])
BINS = len(EDGES) + 1  # with one open bin at each end
MIDDLES = np.concatenate([[-FARTHEST], 0.5 * (EDGES[1:] + EDGES[:-1]), [FARTHEST]])  # a value per bin
NORMAL_IQR = 1.349  # interquartile range of a normal distribution, in standard deviations
HEAVY = (
    1.1  # a column is heavy if its standard deviation is over this many times that of a normal one with its quartiles
)


@message("regression.Bend")
class Bend(NamedTuple):
    """Heavy columns become arcsinh((x - centre) / spread), the others stay as they are."""

    heavy: Float[Array, "d", ">=0"]  # 1 for a heavy column, else 0
    centre: Float[Array, "d"]
    spread: Float[Array, "d", ">=0"]


def find_heavy(counts: np.ndarray) -> Bend:
    """Heavy columns, medians and robust standard deviations, from counts (d, bins) of standardised values."""
    lower, centre, upper = _quantiles(counts, np.array([0.25, 0.5, 0.75]))
    spread = (upper - lower) / NORMAL_IQR
    heavy = (HEAVY * spread < 1.0).astype(np.float64)
    return Bend(heavy, centre, np.where(spread > 0, spread, 1.0))  # equal quartiles: keep the standard deviation, 1


def _quantiles(counts: np.ndarray, p: np.ndarray) -> np.ndarray:  # (p, d)
    share = np.cumsum(counts, 1) / np.maximum(counts.sum(1, keepdims=True), 1e-300)
    return MIDDLES[np.stack([np.minimum((share < q).sum(1), len(MIDDLES) - 1) for q in p])]


def compress(bend: Bend, x: Array) -> np.ndarray:
    """Rows x (..., d) with their heavy columns compressed."""
    return np.where(bend.heavy > 0, np.arcsinh((x - bend.centre) / bend.spread), x)


def moments(bend: Bend, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations (d,) of the compressed columns, to the resolution of the bins."""
    values = compress(bend, MIDDLES[:, None])  # (bins, d)
    weight = counts.T / np.maximum(counts.sum(1), 1e-300)
    mean = (weight * values).sum(0)
    scale = np.sqrt((weight * (values - mean) ** 2).sum(0))
    return mean, np.where(scale > 0, scale, 1.0)
