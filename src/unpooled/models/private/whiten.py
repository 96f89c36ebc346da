"""Rows in whitened coordinates of each component, missing values at their conditional mean: pure functions of arrays. Sends nothing.

With covariance L L', a complete row z becomes y = L^-1 (z - mean), which is standard normal under the component. Of a row with missing
values only A y is seen, A being the rows of L that belong to the columns present. Given that, y has mean A' (A A')^-1 (seen - mean), and
its covariance is the projection onto what A does not see, I - A' (A A')^-1 A.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Whitened(NamedTuple):
    """All rows under all components."""

    y: np.ndarray  # (k, n, d) conditional means
    log_density: np.ndarray  # (n, k) of the values that are present
    n_missing: np.ndarray  # (n,) missing values
    incomplete: list[Incomplete]  # rows with missing values, by pattern


class Incomplete(NamedTuple):
    """Rows that miss the same columns."""

    rows: np.ndarray  # indices
    covariance: np.ndarray  # (k, d, d) of y given the values that are present, a projection


class Conditional(NamedTuple):
    """Rows of one pattern under one component: y given the values that are present."""

    mean: np.ndarray  # (n, d)
    log_density: np.ndarray  # (n,)
    covariance: np.ndarray  # (d, d)


def whiten(z: np.ndarray, means: np.ndarray, cholesky: np.ndarray) -> Whitened:
    """Rows z (n, d) under components of means (k, d) and lower factors (k, d, d) of their covariances."""
    (n, d), k = z.shape, len(means)
    y = np.zeros((k, n, d))
    log_density = np.zeros((n, k))
    incomplete = []
    missing = np.isnan(z)
    for pattern, rows in _rows_by_pattern(missing):
        present = ~pattern
        values = z[rows][:, present]
        covariance = np.zeros((k, d, d))
        for j in range(k):
            with np.errstate(all="ignore"):
                given = _conditional(values - means[j, present], cholesky[j][present])
            y[j, rows], log_density[rows, j], covariance[j] = given
        if pattern.any():
            incomplete.append(Incomplete(rows, covariance))
    return Whitened(y, log_density, missing.sum(1), incomplete)


def _rows_by_pattern(missing: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """(missing columns (d,), indices of the rows that miss these), for each pattern that occurs."""
    n = len(missing)
    if not missing.any():
        return [(row, np.arange(n)) for row in missing[:1]]
    patterns, which = np.unique(missing, axis=0, return_inverse=True)
    return [(pattern, np.flatnonzero(which.ravel() == p)) for p, pattern in enumerate(patterns)]


def _conditional(deviations: np.ndarray, factor: np.ndarray) -> Conditional:
    """y given deviations (n, m) from the mean, for the rows `factor` (m, d) of L that belong to the columns present.

    By a QR factorisation, whose projections are exact however the parameters are chosen.
    """
    (m, d), n = factor.shape, len(deviations)
    if m == 0:
        return Conditional(np.zeros((n, d)), np.zeros(n), np.eye(d))
    basis, upper = np.linalg.qr(factor.T)
    unseen = np.eye(d) - basis @ basis.T
    diagonal = np.diag(upper)
    if not np.all(diagonal):
        return Conditional(np.full((n, d), np.nan), np.full(n, np.nan), unseen)
    standard = deviations @ np.linalg.inv(upper)
    log_det = np.log(np.abs(diagonal)).sum()
    log_density = -0.5 * (standard * standard).sum(-1) - log_det - 0.5 * m * np.log(2 * np.pi)
    return Conditional(standard @ basis.T, log_density, unseen)


def responsibilities(log_joint: np.ndarray) -> np.ndarray:
    """Responsibilities of the components for each row (n, k), which add up to 1; all 0 where a number is not finite."""
    with np.errstate(all="ignore"):
        shares = np.exp(log_joint - log_joint.max(-1, keepdims=True))
        shares = shares / shares.sum(-1, keepdims=True)
    return np.where(np.isfinite(shares).all(-1, keepdims=True), shares, 0.0)


def log_mixture(log_joint: np.ndarray) -> np.ndarray:
    """log of the sum over components, (n, k) to (n,)."""
    with np.errstate(all="ignore"):
        top = log_joint.max(-1)
        return top + np.log(np.exp(log_joint - top[:, None]).sum(-1))
