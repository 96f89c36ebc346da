"""A mixture of K Gaussians fitted to cells instead of rows: EM on counts, means and covariances; nothing is sent.

A cell is a group of rows of which the server knows the weight, the mean and the covariance. All rows of a cell share their
responsibilities, so that the E-step needs the cell's moments only and the log-likelihood is a lower bound of that of the rows
(Bradley, Fayyad and Reina 1998; Vasconcelos and Lippman 1998). Covariances carry an inverse-Wishart prior at the covariance
within cells, so that no component collapses on a cell of few rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.models.initialization.covariance_kinds import CovarianceKind

ROUNDS = 50  # of EM, at most
GAIN = 1e-5  # per row, in the bound: less stops EM
NOTHING = 1e-9  # rows added to each component, so that an empty one divides by something


class Cells(NamedTuple):
    """Groups of rows in the standardised frame; covariances are matrices, or variances by column."""

    n: np.ndarray  # (m,)
    means: np.ndarray  # (m, d)
    covs: np.ndarray  # (m, d, d) or (m, d)


class Moments(NamedTuple):
    """Cells as EM reads them."""

    n: np.ndarray  # (m,)
    means: np.ndarray  # (m, d)
    second: np.ndarray  # second moments about the origin, (m, d, d) or (m, d)


class Fit(NamedTuple):
    """A mixture of the cells, and its penalised log-likelihood per row."""

    score: float
    weights: np.ndarray  # (k,)
    means: np.ndarray  # (k, d)
    covs: np.ndarray  # (k, d, d) or (k, d)
    shares: np.ndarray  # (m, k) responsibilities


# ---- moments of all cells ----


def centre_of(cells: Cells) -> np.ndarray:
    """The mean of all rows."""
    return cells.n @ cells.means / cells.n.sum()


def within(cells: Cells) -> np.ndarray:
    """The covariance within cells, pooled."""
    return np.tensordot(cells.n / cells.n.sum(), cells.covs, 1)


def total(cells: Cells, kind: CovarianceKind) -> np.ndarray:
    """The covariance of all rows."""
    between = kind.outer(cells.means - centre_of(cells))
    return within(cells) + np.tensordot(cells.n / cells.n.sum(), between, 1)


# ---- EM ----


def prior_rows(d: int) -> float:
    """How many rows the prior of a covariance counts for."""
    return d + 2.0


def moments(cells: Cells, kind: CovarianceKind) -> Moments:
    """Counts, means and second moments of the cells."""
    return Moments(cells.n, cells.means, cells.covs + kind.outer(cells.means))


def fit(seen: Moments, shares: np.ndarray, kind: CovarianceKind, least: float = GAIN) -> Fit:
    """EM from responsibilities (m, k), where the covariance within cells is the identity."""
    found = update(seen, shares, kind)
    for _ in range(ROUNDS):
        following = update(seen, found.shares, kind)
        gained = following.score - found.score
        found = following
        if gained < least:
            break
    return found


def update(seen: Moments, shares: np.ndarray, kind: CovarianceKind) -> Fit:
    """An M-step at these responsibilities, then an E-step: the mixture, its score and its own responsibilities."""
    weights, means, covs = _m_step(seen, shares, kind)
    precisions = kind.inverse(covs)
    log_dets = kind.log_det(covs)
    shares, by_cell = _shares(_log_joint(seen, weights, means, precisions, log_dets, kind))
    loglik = seen.n @ by_cell
    score = (loglik + _log_prior(precisions, log_dets, kind)) / seen.n.sum()
    return Fit(float(score), weights, means, covs, shares)


def responsibilities(seen: Moments, fit: Fit, kind: CovarianceKind) -> np.ndarray:
    """Of a mixture fitted elsewhere, for these cells (m, k)."""
    covs = kind.positive(fit.covs)
    joint = _log_joint(seen, fit.weights, fit.means, kind.inverse(covs), kind.log_det(covs), kind)
    return _shares(joint)[0]


def _shares(joint: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(responsibilities (m, k), log densities (m,)) from log joint densities."""
    top = joint.max(1, keepdims=True)
    odds = np.exp(joint - top)
    mass = odds.sum(1, keepdims=True)
    return odds / mass, (top + np.log(mass))[:, 0]


def components(seen: Moments, held: np.ndarray, kind: CovarianceKind) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(rows, means, covariances under their prior) of components that hold `held` (m, k) rows of the cells."""
    n = held.sum(0) + NOTHING
    means = held.T @ seen.means / n[:, None]
    second = np.tensordot(held.T, seen.second, 1)
    scatter = second - _beside(n, second) * kind.outer(means)
    d = means.shape[1]
    nu = prior_rows(d)
    covs = (scatter + nu * kind.identity(d)) / _beside(n + nu, scatter)
    return n, means, covs


def _m_step(seen: Moments, shares: np.ndarray, kind: CovarianceKind) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, means and covariances from expected shares (cells, components)."""
    n, means, covs = components(seen, shares * seen.n[:, None], kind)
    weights = n / n.sum()
    return weights, means, kind.pooled(covs, weights) if kind.pools else covs


def _log_joint(
    seen: Moments,
    weights: np.ndarray,
    means: np.ndarray,
    precisions: np.ndarray,
    log_dets: np.ndarray,
    kind: CovarianceKind,
) -> np.ndarray:
    """The mean over each cell's rows of log (weight times density), (m, k)."""
    m = len(seen.n)
    k = len(weights)
    d = means.shape[1]
    towards = kind.times(precisions, means)
    squares = seen.second.reshape(m, -1) @ precisions.reshape(k, -1).T
    distances = squares - 2 * seen.means @ towards.T + (means * towards).sum(-1)
    return np.log(weights) - (distances + log_dets + d * np.log(2 * np.pi)) / 2


def _log_prior(precisions: np.ndarray, log_dets: np.ndarray, kind: CovarianceKind) -> float:
    """Log of the prior of the covariances, up to a constant."""
    traces = kind.diagonal(precisions).sum(-1)
    return float(-prior_rows(precisions.shape[1]) / 2 * (log_dets + traces).sum())


def _beside(n: np.ndarray, a: np.ndarray) -> np.ndarray:
    """Counts with axes to multiply covariances."""
    return n.reshape((-1,) + (1,) * (a.ndim - 1))
