"""Honest intervals from a histogram of standardised residuals on rows the model was not fitted to: counts add.

If the model were right, residuals over their predicted standard deviation would be normal. Where they are not (heavy
tails, noise that varies), quantiles of the histogram replace the normal ones: `quantile(counts, p)` for `norm.ppf(p)`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import norm

from unpooled.arrays import Array

EDGES = np.concatenate([-np.geomspace(60, 6.2, 24), np.linspace(-6, 6, 601), np.geomspace(6.2, 60, 24)])
BINS = len(EDGES) + 1  # one more at each end
FEWEST = 30  # residuals below which the normal quantiles are kept


def histogram(values: Array, w: Array, edges: np.ndarray = EDGES) -> np.ndarray:  # (..., o, bins)
    """Weighted counts of values (..., n, o), standardised residuals say, with weights w (..., n) or (..., n, o)."""
    bins: Any = np.searchsorted(edges, values)  # (..., n, o)
    *lead, _, o = bins.shape
    column, count = np.arange(int(np.prod(lead)) * o).reshape(*lead, 1, o), len(edges) + 1
    weights = np.broadcast_to(w if w.ndim == bins.ndim else w[..., None], bins.shape)
    flat = np.bincount((column * count + bins).ravel(), weights.ravel(), minlength=column.size * count)
    return flat.reshape(*lead, o, count)


def quantile(counts: np.ndarray, p: Array, clients: int = 0) -> np.ndarray:  # (o, *p.shape)
    """Quantiles of the residuals in each histogram (o, BINS); half a count at each end stands for the row to come.

    With `clients`, the residuals are those of so many clients left out, and the ends stand for a client to come: the share of one
    among so many and one. Too few to promise p (9 clients for 90 %), the quantile is the largest residual seen.
    """
    p = np.asarray(p, dtype=np.float64)
    return np.stack([_quantile(row, p, clients) for row in counts])


def _quantile(counts: np.ndarray, p: np.ndarray, clients: int) -> np.ndarray:
    total = counts.sum()
    if total < FEWEST:
        return norm.ppf(p)
    ahead = total / clients if clients else 1.0  # rows to come
    below = np.cumsum(counts[:-1]) + 0.5 * ahead  # (edges,) rows below each edge
    found = np.interp(p * (total + ahead), below, EDGES)
    seen = np.flatnonzero(counts)
    ends = EDGES[max(seen[0] - 1, 0)], EDGES[min(seen[-1], len(EDGES) - 1)]
    return np.clip(found, *ends) if clients else found


def coverage(counts: np.ndarray, levels: Array) -> np.ndarray:  # (o, levels)
    """The share of residuals inside the normal central interval of each level, read off the histogram."""
    half = norm.ppf(0.5 + 0.5 * np.asarray(levels))
    below = np.concatenate([np.zeros((len(counts), 1)), np.cumsum(counts, 1)[:, :-1]], 1)[:, 1:]
    at = lambda z: np.stack([np.interp(z, EDGES, row) for row in below])  # noqa: E731
    return (at(half) - at(-half)) / np.maximum(counts.sum(1), 1e-300)[:, None]
