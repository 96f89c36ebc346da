"""Noise and prior variances that maximise the evidence, along the eigenvectors of the Gram matrix. Sends nothing.

In all functions `values` (k,) are the eigenvalues, `along2` (k, o) the squared products of features and targets along the eigenvectors,
`yy` (o,) the sums of squares of the targets and `dof` the rows less the intercept.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from unpooled.arrays import Array

GRID = 121  # ratios noise / prior evaluated before the best is refined


def log_evidence(values: Array, along2: Array, yy: Array, dof: float, noise: Array, prior: Array) -> np.ndarray:  # (o,)
    """log p(y) per output, (o,), weights integrated out."""
    log_det = np.log1p(values[:, None] * (prior / noise)).sum(0)
    ratios = np.atleast_1d(noise / prior)
    squares = np.array([unexplained(values, along2[:, j], yy[j], ratios[j]) for j in range(len(yy))])
    return -0.5 * (dof * np.log(2 * np.pi * noise) + log_det + squares / noise)


def unexplained(values: Array, along2: Array, yy: float, ratio: Array) -> np.ndarray:
    """yy - sum along2 / (values + ratio) for each ratio (...,).

    Accurate also where features explain nearly all of y.
    """
    positive = values > 0
    values = values[positive]
    along2 = along2[positive]
    ratio = np.asarray(ratio)[..., None]
    residual = yy - (along2 / values).sum()  # the residual sum of squares of least squares
    residual = residual if residual > 1e-11 * yy else 0.0
    return np.maximum(residual + (along2 / values * (ratio / (values + ratio))).sum(-1), 1e-300)


def best_variances(values: Array, along2: Array, yy: Array, dof: float) -> tuple[np.ndarray, np.ndarray]:
    """(noise, prior), (o,) each, that maximise the evidence; given their ratio, the noise has a closed form."""
    ratios = []
    noises = []
    for along2_j, yy_j in zip(along2.T, yy):
        ratio = _best_ratio(values, along2_j, yy_j, dof)
        ratios.append(ratio)
        noises.append(unexplained(values, along2_j, yy_j, ratio) / dof)
    noise = np.array(noises)
    return noise, noise / np.array(ratios)


def _best_ratio(values: Array, along2: Array, yy: float, dof: float) -> float:
    """The ratio noise / prior that maximises the evidence: the best of a grid, refined to a root of the derivative."""

    def slope(t: float) -> float:
        """Derivative of -2 log evidence by t = log ratio."""
        ratio = np.exp(t)
        total = values + ratio  # its square could be too small for a float
        shrunk = along2 / total * (ratio / total)
        fitted = shrunk.sum() * dof / unexplained(values, along2, yy, ratio)
        return float(fitted - (values / (values + ratio)).sum())

    grid = np.log(values.max(initial=0.0) or 1.0) + np.linspace(-28.0, 14.0, GRID)
    cost = dof * np.log(unexplained(values, along2, yy, np.exp(grid))) + np.log1p(values / np.exp(grid)[:, None]).sum(1)
    best = int(np.argmin(cost))
    lo = grid[max(best - 1, 0)]
    hi = grid[min(best + 1, GRID - 1)]
    if slope(lo) < 0 < slope(hi):
        return float(np.exp(brentq(slope, lo, hi, xtol=1e-14, rtol=1e-14)))
    return float(np.exp(grid[best]))
