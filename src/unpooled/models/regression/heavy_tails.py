"""Heavy columns bent by arcsinh: straight about the median, logarithmic far out, so that no outlier sets a column's scale.

Median and quartiles are read off a histogram, whose counts add over clients. Its bins are finer towards the mean, since a
column with far outliers has nearly all its values there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float
from unpooled.tree import message

FINEST, FARTHEST, STEPS = 1e-4, 1e3, 187  # standard deviations from the mean; steps of 9 %
_AWAY = np.geomspace(FINEST, FARTHEST, STEPS)
EDGES = np.concatenate([-_AWAY[::-1], _AWAY])
MIDDLES = np.concatenate([[-FARTHEST], 0.5 * (EDGES[1:] + EDGES[:-1]), [FARTHEST]])  # a value for each bin
QUARTILE = 1.349  # interquartile range of a normal law, in standard deviations
HEAVY = (
    1.1  # a column is heavy whose standard deviation is more than so many times that of a normal law with its quartiles
)


@message("regression.Bend")
class Bend(NamedTuple):
    """Heavy columns become arcsinh((x - centre) / spread), the others stay as they are."""

    heavy: Float[Array, "d", ">=0"]  # 1 where a column is bent, 0 where not
    centre: Float[Array, "d"]
    spread: Float[Array, "d", ">=0"]


def bend(counts: np.ndarray) -> Bend:
    """Which columns are heavy, their medians and robust standard deviations, from counts (d, bins) of standardised values."""
    lower, centre, upper = _quantiles(counts, np.array([0.25, 0.5, 0.75]))
    spread = (upper - lower) / QUARTILE
    heavy = (HEAVY * spread < 1.0).astype(np.float64)
    return Bend(
        heavy, centre, np.where(spread > 0, spread, 1.0)
    )  # 0: most values are one, and 1 is the standard deviation


def _quantiles(counts: np.ndarray, p: np.ndarray) -> np.ndarray:  # (p, d)
    share = np.cumsum(counts, 1) / np.maximum(counts.sum(1, keepdims=True), 1e-300)
    return MIDDLES[np.stack([np.minimum((share < q).sum(1), len(MIDDLES) - 1) for q in p])]


def bent(how: Bend, x: Array) -> np.ndarray:
    return np.where(how.heavy > 0, np.arcsinh((x - how.centre) / how.spread), x)


def moments(how: Bend, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations (d,) of the columns as `bent` leaves them, as near as the bins tell."""
    values = bent(how, MIDDLES[:, None])  # (bins, d)
    weight = counts.T / np.maximum(counts.sum(1), 1e-300)
    mean = (weight * values).sum(0)
    scale = np.sqrt((weight * (values - mean) ** 2).sum(0))
    return mean, np.where(scale > 0, scale, 1.0)
