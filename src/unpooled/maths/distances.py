"""Squared distances of rows to centres, by one matrix product."""

from __future__ import annotations

import numpy as np

from unpooled.arrays import Array


def nearest(x: Array, centres: Array) -> np.ndarray:
    """(...,) the nearest centre of each row (..., d)."""
    return ((centres**2).sum(-1) - 2 * x @ centres.T).argmin(-1)


def squared(x: Array, centres: Array) -> Array:
    """x (..., n, d) and centres (k, d) or (..., k, d) to (..., n, k)."""
    cross = x @ np.swapaxes(centres, -1, -2)
    return np.maximum((x**2).sum(-1)[..., None] + (centres**2).sum(-1)[..., None, :] - 2 * cross, 0.0)
