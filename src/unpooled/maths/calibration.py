"""Recalibrated intervals from a histogram of standardised residuals of held-out rows; counts add over clients.

Sends nothing. If the model were right, residuals divided by their predicted standard deviation would be standard
normal. Where they are not (heavy tails, noise that varies), the ends of intervals move to quantiles of the histogram,
all the way where the difference is far beyond their standard error, and hardly where it is within it. Quantiles of neighbouring levels are
averaged, each as its distance from a normal quantile: one quantile alone rests on the few residuals next to it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import norm

from unpooled.arrays import Array

EDGES = np.concatenate([-np.geomspace(60, 3.1, 24), np.linspace(-3, 3, 121), np.geomspace(3.1, 60, 24)])
BINS = len(EDGES) + 1  # with one open bin at each end
MIN_RESIDUALS = 30  # with fewer, the model's own quantiles are kept
# levels averaged on either side: a fraction of the probability beyond the quantile, at most so much
WINDOW, WIDEST = (0.3, 0.015)
NEIGHBOURS = np.linspace(-1.0, 1.0, 21)


def histogram(values: Array, w: Array, edges: np.ndarray = EDGES) -> np.ndarray:  # (..., o, bins)
    """Weighted counts of values (..., n, o), such as standardised residuals, with weights w (..., n) or (..., n, o)."""
    bins: Any = np.searchsorted(edges, values)  # (..., n, o)
    *lead, _, o = bins.shape
    column = np.arange(int(np.prod(lead)) * o).reshape(*lead, 1, o)
    count = len(edges) + 1
    weights = np.broadcast_to(w if w.ndim == bins.ndim else w[..., None], bins.shape)
    flat = np.bincount((column * count + bins).ravel(), weights.ravel(), minlength=column.size * count)
    return flat.reshape(*lead, o, count)


def quantile(counts: np.ndarray, p: Array) -> np.ndarray:  # (o, *p.shape)
    """Quantiles of the residuals in each histogram (o, BINS), allowing for the row to come, as in conformal prediction."""
    p = np.asarray(p, dtype=np.float64)
    return np.stack([_quantile(row, p) for row in counts])


def _quantile(counts: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Quantiles p of one histogram (BINS,); normal quantiles where it has fewer than MIN_RESIDUALS."""
    total = counts.sum()
    if total < MIN_RESIDUALS:
        return norm.ppf(p)
    below = np.cumsum(counts[:-1]) + 0.5  # (edges,) rows below each edge
    window = np.minimum(WINDOW * np.minimum(p, 1 - p), WIDEST)
    levels = p[..., None] + window[..., None] * NEIGHBOURS
    above_normal = np.interp(levels * (total + 1), below, EDGES) - norm.ppf(levels)
    return norm.ppf(p) + above_normal.mean(-1)


def moved(raw: np.ndarray, found: np.ndarray, p: np.ndarray, total: float) -> np.ndarray:  # (n, 2)
    """The ends of intervals `raw` (n, 2), moved towards those of `total` residuals, `found` (n, 2), at levels p = (lower, upper).

    With d^2 the mean squared difference of the ends and s^2 the squared standard error of the mean of two quantiles, both relative to
    half the width, they move by d^2 / (d^2 + s^2) of the way: a difference that chance explains hardly counts.
    """
    half = 0.5 * (raw[:, 1] - raw[:, 0])
    difference = (((found - raw) / half[:, None]) ** 2).mean(1)
    share = difference / (difference + 0.5 * _quantile_error(p) ** 2 / total)
    return raw + share[:, None] * (found - raw)


def _quantile_error(p: np.ndarray) -> float:
    """The standard error of a sample quantile at p[1] of one normal residual, relative to the quantile."""
    z = norm.ppf(p[1])
    return float(np.sqrt(p[1] * (1 - p[1])) / (norm.pdf(z) * z))
