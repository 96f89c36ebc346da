"""Rows that belong together because they have the very same value in a column: a day, a visit, a machine.

Values are known by a hash, whose counts add over clients. Whether equal values tell more than near ones follows from sums of
residuals by hash: the evidence of an offset for each value, once what all values of the neighbourhood share is taken off.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import norm

from unpooled.arrays import Array, Float
from unpooled.models.regression.held_out_rows import mix
from unpooled.tree import message

HASHES = 2**18  # of the values of a column that marks groups: so many that two values hardly ever share one
HOODS = 32  # neighbourhoods of a column, cut at the quantiles of a normal law
EDGES = norm.ppf(np.arange(1, HOODS) / HOODS)
RATIOS = np.exp(np.linspace(-8.0, 4.0, 49))  # variance of an offset over the noise


@message("regression.Groups")
class Groups(NamedTuple):
    """The values of a column that have an offset."""

    column: Float[Array, "", ">=0"]
    keys: Float[Array, "g", ">=0"]  # their hashes, in ascending order


def hashed(values: np.ndarray, size: int) -> np.ndarray:
    """0 to size - 1 for each value, as good as random; a value in single precision is the same as in double."""
    bits = (np.asarray(values, dtype=np.float32) + np.float32(0.0)).view(np.uint32)  # + 0.0: one zero, not two
    return (mix(bits.astype(np.uint64)) % np.uint64(size)).astype(np.int64)


def members(groups: Groups | None, x: np.ndarray) -> np.ndarray | None:  # (..., n)
    """The group of each row of x (..., n, d), -1 for a value that has none or is missing; nothing without groups."""
    if groups is None or len(groups.keys) == 0:
        return None
    values = x[..., int(groups.column)]
    key = hashed(values, HASHES)
    at = np.minimum(np.searchsorted(groups.keys, key), len(groups.keys) - 1)
    return np.where((groups.keys[at] == key) & ~np.isnan(values), at, -1)


def table(raw: np.ndarray, near: np.ndarray, weights: np.ndarray, size: int) -> np.ndarray:  # (HOODS * size, c)
    """Sums of weights (n, c) by neighbourhood and hash of a column: `raw` its values (n,), `near` standardised; missing ones left out."""
    there = ~np.isnan(raw)
    cell = np.searchsorted(EDGES, near[there]) * size + hashed(raw[there], size)
    return np.stack([np.bincount(cell, w[there], minlength=HOODS * size) for w in weights.T], 1)


def gain(count: np.ndarray, away: np.ndarray) -> float:
    """How much more probable an offset for every value makes residuals, in logs: 0 if not at all.

    `count` (cells,) rows and `away` (cells, o) sums of residuals of unit variance, by neighbourhood and hash.
    """
    n, r = count.reshape(HOODS, -1), away.reshape(HOODS, -1, away.shape[-1])
    mean = r.sum(1, keepdims=True) / np.maximum(n.sum(1), 1e-300)[:, None, None]
    several = n > 1  # a value of one row says nothing of what rows share
    squares, n = ((r - n[..., None] * mean)[several] ** 2).sum(1), n[several]  # (values,)
    grows = 1 + RATIOS[:, None] * n  # (ratios, values)
    logs = 0.5 * (squares * RATIOS[:, None] / grows - r.shape[-1] * np.log(grows)).sum(1)
    return max(float(logs.max()), 0.0)
