"""Rows in each component's own standard coordinates, missing values at their conditional mean: pure functions of arrays.

With covariance L L', a complete row z becomes y = L^-1 (z - mean), which is standard normal under the component. Of a row with gaps only
A y is seen, A being the rows of L that belong to values which are there; y is then A' (A A')^-1 (seen - mean) on average, and its
covariance is the projection onto what A does not see.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Whitened(NamedTuple):
    """All rows under all components."""

    y: np.ndarray  # (k, n, d) conditional means
    log_density: np.ndarray  # (n, k) of the values that are there
    unseen: np.ndarray  # (n,) missing values
    groups: list[Group]  # rows with gaps, by pattern


class Group(NamedTuple):
    """Rows that miss the same values."""

    rows: np.ndarray  # indices
    covariance: np.ndarray  # (k, d, d) of y given what is there, a projection


def whiten(z: np.ndarray, means: np.ndarray, factors: np.ndarray) -> Whitened:
    """Rows z (n, d) under components of means (k, d) and lower factors (k, d, d) of their covariances."""
    (n, d), k = z.shape, len(means)
    y, log_density, groups = np.zeros((k, n, d)), np.zeros((n, k)), []
    gone = np.isnan(z)
    patterns, which = np.unique(gone, axis=0, return_inverse=True) if gone.any() else (gone[:1], np.zeros(n, int))
    for p, pattern in enumerate(patterns):
        rows = np.flatnonzero(which.ravel() == p) if len(patterns) > 1 else np.arange(n)
        seen = ~pattern
        away = z[rows][:, seen]
        unseen = np.zeros((k, d, d))
        for j in range(k):
            with np.errstate(all="ignore"):
                y[j, rows], log_density[rows, j], unseen[j] = _under(away - means[j, seen], factors[j][seen])
        if pattern.any():
            groups.append(Group(rows, unseen))
    return Whitened(y, log_density, gone.sum(1), groups)


def _under(away: np.ndarray, seen_factor: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(y, log density, covariance of y) of rows about a mean, from the rows of the factor that belong to what is there.

    By a QR factorisation, whose projections are exact however the parameters are chosen.
    """
    (m, d), n = seen_factor.shape, len(away)
    if m == 0:
        return np.zeros((n, d)), np.zeros(n), np.eye(d)
    basis, upper = np.linalg.qr(seen_factor.T)
    diagonal = np.diag(upper)
    if not np.all(diagonal):
        return np.full((n, d), np.nan), np.full(n, np.nan), np.eye(d) - basis @ basis.T
    short = away @ np.linalg.inv(upper)
    log_density = -0.5 * (short * short).sum(-1) - np.log(np.abs(diagonal)).sum() - 0.5 * m * np.log(2 * np.pi)
    return short @ basis.T, log_density, np.eye(d) - basis @ basis.T


def responsibilities(log_joint: np.ndarray) -> np.ndarray:
    """Shares of each component in each row (n, k), which add up to 1; all 0 where a number is not finite."""
    with np.errstate(all="ignore"):
        shares = np.exp(log_joint - log_joint.max(-1, keepdims=True))
        shares = shares / shares.sum(-1, keepdims=True)
    return np.where(np.isfinite(shares).all(-1, keepdims=True), shares, 0.0)


def log_mixture(log_joint: np.ndarray) -> np.ndarray:
    """log of the sum over components, (n, k) to (n,)."""
    with np.errstate(all="ignore"):
        top = log_joint.max(-1)
        return top + np.log(np.exp(log_joint - top[:, None]).sum(-1))
