"""Squared distances of rows to centres, by one matrix product. Sends nothing."""

from __future__ import annotations

import numpy as np

from unpooled.arrays import Array


def nearest(x: Array, centres: Array) -> np.ndarray:
    """Index (...,) of the centre in `centres` (k, d) that is nearest to each row of x (..., d)."""
    return ((centres**2).sum(-1) - 2 * x @ centres.T).argmin(-1)


def squared(x: Array, centres: Array) -> Array:
    """Squared distances (..., n, k) of rows x (..., n, d) to centres (k, d) or (..., k, d)."""
    cross = x @ np.swapaxes(centres, -1, -2)
    return np.maximum((x**2).sum(-1)[..., None] + (centres**2).sum(-1)[..., None, :] - 2 * cross, 0.0)
