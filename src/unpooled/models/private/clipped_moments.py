"""How far rows are clipped in an E-step, what clipping takes away, and how much noise each part of its answer gets. Sends nothing.

One row moves the answer by at most 1. That 1 is divided over three blocks, counts, means and second moments: the weights a, b, c with
a^2 + b^2 + c^2 = 1. The larger a block's weight, the smaller the noise on it.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammainc, gammaincc

from unpooled.models.private.packing import n_numbers

WIDEST = 1e6  # a radius beyond which nothing would be clipped
LEAST_COUNT_SHARE = 0.02  # of the squared weights, for counts


def clip_radius(d: int) -> float:
    """How long a row may be in whitened coordinates: a little more than a typical row is."""
    return float(np.sqrt(d) + 1)


def usable_radius(radius: float, d: int) -> float:
    """A radius that neither overflows nor is below that of a typical row, so that rows with missing values fit into it."""
    typical = float(np.sqrt(d))
    return float(np.clip(radius, typical, WIDEST)) if np.isfinite(radius) else typical


def clipped_share(d: int, radius: float) -> float:
    """What clipping at `radius` leaves of the second moment of a standard Gaussian of d columns.

    E[min(|y|, radius)^2] / d, from chi-square distributions with d + 2 and d degrees of freedom.
    """
    half = radius**2 / 2
    inside = gammainc(d / 2 + 1, half)
    outside = gammaincc(d / 2, half)
    return float(inside + radius**2 * outside / d)


def max_length(n_missing: np.ndarray, radius: float, d: int, shape: str) -> np.ndarray:
    """How long rows may be, in radii, so that the conditional covariance of their missing values fits in as well.

    That covariance is a projection of rank `n_missing`: a matrix of norm sqrt(n_missing), and of trace n_missing, which is what
    "spherical" sends.
    """
    share = clipped_share(d, radius)
    if shape == "spherical":
        return np.sqrt(np.maximum(1 - share * n_missing / radius**2, 0.0))
    return np.maximum(1 - share**2 * n_missing / radius**4, 0.0) ** 0.25


def best_block_weights(shape: str, k: int, d: int, radius: float) -> np.ndarray:
    """Weights of counts, means and second moments under which noise costs the least log-likelihood."""
    cost = np.array([0.5, 0.5 * d * radius**2, 0.25 * _second_moment_cost(shape, k, d) * radius**4])
    squared_weights = np.sqrt(cost) / np.sqrt(cost).sum()
    squared_weights[0] = max(squared_weights[0], LEAST_COUNT_SHARE)
    return np.sqrt(squared_weights / squared_weights.sum())


def _second_moment_cost(shape: str, k: int, d: int) -> float:
    """How much noise on second moments lowers the log-likelihood, as a number of noisy entries per component."""
    if shape == "tied":
        return n_numbers(shape, d) / k**2
    if shape == "spherical":
        return 1 / d
    return n_numbers(shape, d)
