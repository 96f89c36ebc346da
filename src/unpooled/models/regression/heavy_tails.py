"""Columns with heavy tails compressed by arcsinh: linear about the median, logarithmic far out. Sends nothing itself.

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
MAX_THINNING = 5
NORMAL_IQR = 1.349  # interquartile range of a normal distribution, in standard deviations
HEAVY = 1.1  # a column is heavy if its standard deviation is more than this many times its robust one


def thinned_edges(thinning: int) -> np.ndarray:
    """One in `thinning` of the edges, counted from the farthest, alike on both sides."""
    kept = _DISTANCES[::-1][::thinning]
    return np.concatenate([-kept, kept[::-1]])


def spread_out(counts: np.ndarray, thinning: int) -> np.ndarray:  # (d, BINS)
    """Counts of bins between thinned edges as counts of all bins: those of a wide bin are in the middle one of its bins."""
    place = np.searchsorted(EDGES, thinned_edges(thinning))
    first = np.append(0, place + 1)
    last = np.append(place, BINS - 1)
    full = np.zeros((len(counts), BINS))
    full[:, (first + last) // 2] = counts
    return full


@message("regression.Bend")
class HeavyTails(NamedTuple):
    """Columns with heavy tails become arcsinh((x - median) / robust_std), the others stay as they are."""

    heavy: Float[Array, "d", ">=0"]  # 1 for a heavy column, else 0
    median: Float[Array, "d"]
    robust_std: Float[Array, "d", ">=0"]  # standard deviation of a normal distribution with the same quartiles


def find_heavy(counts: np.ndarray) -> HeavyTails:
    """Heavy columns, medians and robust standard deviations, from counts (d, bins) of standardised values."""
    lower, median, upper = _quantiles(counts, np.array([0.25, 0.5, 0.75]))
    robust_std = (upper - lower) / NORMAL_IQR
    heavy = (HEAVY * robust_std < 1.0).astype(np.float64)
    # 1, the standard deviation, if quartiles are equal
    return HeavyTails(heavy, median, np.where(robust_std > 0, robust_std, 1.0))


def _quantiles(counts: np.ndarray, p: np.ndarray) -> np.ndarray:  # (p, d)
    """Quantiles of every column from its histogram."""
    share = np.cumsum(counts, 1) / np.maximum(counts.sum(1, keepdims=True), 1e-300)
    return MIDDLES[np.stack([np.minimum((share < q).sum(1), len(MIDDLES) - 1) for q in p])]


def compress(tails: HeavyTails, x: Array) -> np.ndarray:
    """Rows x (..., d) with their heavy columns compressed."""
    return np.where(tails.heavy > 0, np.arcsinh((x - tails.median) / tails.robust_std), x)


def moments(tails: HeavyTails, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations (d,) of the compressed columns, to the resolution of the bins."""
    values = compress(tails, MIDDLES[:, None])  # (bins, d)
    weight = counts.T / np.maximum(counts.sum(1), 1e-300)
    mean = (weight * values).sum(0)
    scale = np.sqrt((weight * (values - mean) ** 2).sum(0))
    return mean, np.where(scale > 0, scale, 1.0)
