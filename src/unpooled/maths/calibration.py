"""Recalibrated intervals from a histogram of standardised residuals of held-out rows; counts add over clients.

Sends nothing. If the model were right, residuals divided by their predicted standard deviation would be standard
normal. Where they are not (heavy tails, noise that varies), quantiles of the histogram replace the normal ones,
provided that they predict better by leave-one-out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import norm

from unpooled.arrays import Array

EDGES = np.concatenate([-np.geomspace(60, 6.2, 24), np.linspace(-6, 6, 601), np.geomspace(6.2, 60, 24)])
MIDDLES = np.concatenate([[-60.0], 0.5 * (EDGES[1:] + EDGES[:-1]), [60.0]])  # the residual that stands for each bin
BINS = len(EDGES) + 1  # with one open bin at each end
MIN_RESIDUALS = 30  # with fewer, the model's own quantiles are kept


def histogram(values: Array, w: Array, edges: np.ndarray = EDGES) -> np.ndarray:  # (..., o, bins)
    """Weighted counts of values (..., n, o), such as standardised residuals, with weights w (..., n) or (..., n, o)."""
    bins: Any = np.searchsorted(edges, values)  # (..., n, o)
    *lead, _, o = bins.shape
    column, count = np.arange(int(np.prod(lead)) * o).reshape(*lead, 1, o), len(edges) + 1
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
    return np.interp(p * (total + 1), below, EDGES)


def improves(counts: np.ndarray, p: np.ndarray, raw: np.ndarray) -> bool:
    """Whether quantiles p = (lower, upper) of a histogram (BINS,) predict its residuals better than the `raw` ones.

    Each residual is scored by quantiles of the others, with the interval score; the gain must exceed its standard
    error. Raw quantiles whose coverage is within two standard errors of p[1] - p[0] are kept whatever the score.
    """
    total = counts.sum()
    if total < MIN_RESIDUALS + 1 or _covers(counts, p, raw):
        return False
    occupied = np.flatnonzero(counts)
    ends = np.stack([_quantile(_without(counts, int(b)), p) for b in occupied])  # (occupied, 2)
    gain = interval_score(MIDDLES[occupied], raw, p) - interval_score(MIDDLES[occupied], ends, p)
    weight = counts[occupied] / total
    mean = weight @ gain
    error = np.sqrt(weight @ (gain - mean) ** 2 / total)
    return bool(mean > error)


def _covers(counts: np.ndarray, p: np.ndarray, raw: np.ndarray) -> bool:
    """Whether the raw quantiles cover about p[1] - p[0] of the residuals."""
    total, nominal = counts.sum(), p[1] - p[0]
    inside = np.abs(MIDDLES - raw.mean()) <= 0.5 * (raw[1] - raw[0])
    error = np.sqrt(nominal * (1 - nominal) / total)
    return bool(abs(counts[inside].sum() / total - nominal) <= 2 * error)


def _without(counts: np.ndarray, bin: int) -> np.ndarray:
    """The histogram with one residual less in a bin."""
    fewer = counts.copy()
    fewer[bin] = max(fewer[bin] - 1.0, 0.0)
    return fewer


def interval_score(y: np.ndarray, ends: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Width of the interval `ends` (..., 2) plus a penalty for each y (...,) outside it; lower is better.

    References
    ----------
    Gneiting, Raftery, Strictly proper scoring rules, prediction, and estimation, JASA 2007.
    """
    lower, upper = ends[..., 0], ends[..., 1]
    outside = np.maximum(lower - y, 0.0) / p[0] + np.maximum(y - upper, 0.0) / (1 - p[1])
    return upper - lower + outside


def coverage(counts: np.ndarray, levels: Array) -> np.ndarray:  # (o, levels)
    """The share of residuals inside the normal central interval of each level, read off the histogram."""
    half = norm.ppf(0.5 + 0.5 * np.asarray(levels))
    below = np.concatenate([np.zeros((len(counts), 1)), np.cumsum(counts, 1)[:, :-1]], 1)[:, 1:]
    at = lambda z: np.stack([np.interp(z, EDGES, row) for row in below])  # noqa: E731
    return (at(half) - at(-half)) / np.maximum(counts.sum(1), 1e-300)[:, None]
