"""A mixture of K Gaussians fitted to cells instead of rows: EM on counts, means and covariances; nothing is sent.

A cell is a group of rows of which the server knows the weight, the mean and the covariance. All rows of a cell share their
responsibilities, so that the E-step needs the cell's moments only and the log-likelihood is a lower bound of that of the rows
(Bradley, Fayyad and Reina 1998; Vasconcelos and Lippman 1998). Covariances carry an inverse-Wishart prior at the covariance
within cells, so that no component collapses on a cell of few rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

LEAST = 1e-8  # the least eigenvalue of a covariance, where columns have variance 1
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


class Matrices:
    """Covariances as (..., d, d)."""

    def __init__(self, tied: bool):
        """Covariances as matrices; `tied` pools them over components."""
        self.pools = tied

    def positive(self, covs: np.ndarray, least: float = LEAST) -> np.ndarray:
        """The nearest covariances whose eigenvalues are not tiny."""
        values, vectors = np.linalg.eigh((covs + np.swapaxes(covs, -1, -2)) / 2)
        return (vectors * np.maximum(values, least)[..., None, :]) @ np.swapaxes(vectors, -1, -2)

    def outer(self, x: np.ndarray) -> np.ndarray:
        """x x' of every vector."""
        return x[..., :, None] * x[..., None, :]

    def log_det(self, covs: np.ndarray) -> np.ndarray:
        """Logarithms of the determinants."""
        return 2 * np.log(np.einsum("...ii->...i", np.linalg.cholesky(covs))).sum(-1)

    def inverse(self, covs: np.ndarray) -> np.ndarray:
        """Precisions."""
        return np.linalg.inv(covs)

    def times(self, covs: np.ndarray, x: np.ndarray) -> np.ndarray:  # (k, d, d), (k, d) -> (k, d)
        """Each matrix times its vector."""
        return np.einsum("kij,kj->ki", covs, x)

    def pooled(self, covs: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """One covariance for all components."""
        return np.broadcast_to(np.einsum("k,kij->ij", weights, covs), covs.shape)

    def root(self, cov: np.ndarray) -> np.ndarray:
        """The Cholesky factor."""
        return np.linalg.cholesky(cov)

    def diagonal(self, cov: np.ndarray) -> np.ndarray:
        """The variances."""
        return np.einsum("...ii->...i", cov)

    def change(self, cells: Cells, centre: np.ndarray, root: np.ndarray) -> Cells:
        """The cells in coordinates in which `root root'` is the identity about `centre`."""
        back = np.linalg.inv(root)
        return Cells(cells.n, (cells.means - centre) @ back.T, self.positive(back @ cells.covs @ back.T, 1e-6))

    def undo(self, fit: Fit, centre: np.ndarray, root: np.ndarray) -> Fit:
        """The fit in the units before `change`."""
        return fit._replace(means=centre + fit.means @ root.T, covs=root @ fit.covs @ root.T)

    def long_axis(self, cov: np.ndarray, between: np.ndarray) -> np.ndarray:
        """The direction (d,) in which cell means differ most, measured in the component's own spread."""
        values, vectors = np.linalg.eigh(cov)
        root = vectors / np.sqrt(values)
        return root @ np.linalg.eigh(root.T @ between @ root)[1][:, -1]


class Variances:
    """Covariances as (..., d): columns are independent within a component."""

    def __init__(self, spherical: bool):
        """Covariances as variances per column; `spherical` pools them over columns."""
        self.pools = spherical

    def positive(self, covs: np.ndarray, least: float = LEAST) -> np.ndarray:
        """Variances of at least `least`."""
        return np.maximum(covs, least)

    def outer(self, x: np.ndarray) -> np.ndarray:
        """x^2 of every vector."""
        return x**2

    def log_det(self, covs: np.ndarray) -> np.ndarray:
        """Logarithms of the determinants."""
        return np.log(covs).sum(-1)

    def inverse(self, covs: np.ndarray) -> np.ndarray:
        """Precisions."""
        return 1 / covs

    def times(self, covs: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Each vector scaled by its variances."""
        return covs * x

    def pooled(self, covs: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """One variance for all columns."""
        return np.broadcast_to(covs.mean(-1, keepdims=True), covs.shape)

    def root(self, cov: np.ndarray) -> np.ndarray:
        """Standard deviations."""
        return np.sqrt(cov)

    def diagonal(self, cov: np.ndarray) -> np.ndarray:
        """The variances themselves."""
        return cov

    def change(self, cells: Cells, centre: np.ndarray, root: np.ndarray) -> Cells:
        """The cells in units in which all rows have mean 0 and variance 1."""
        return Cells(cells.n, (cells.means - centre) / root, self.positive(cells.covs / root**2, 1e-6))

    def undo(self, fit: Fit, centre: np.ndarray, root: np.ndarray) -> Fit:
        """The fit in the units before `change`."""
        return fit._replace(means=centre + fit.means * root, covs=fit.covs * root**2)

    def long_axis(self, cov: np.ndarray, between: np.ndarray) -> np.ndarray:
        """The column along which cells lie farthest apart."""
        return np.eye(len(cov))[np.argmax(between / cov)]


def kind_of(shape: str) -> Any:
    """How the covariances of this shape are kept."""
    return Matrices(shape == "tied") if shape in ("full", "tied") else Variances(shape == "spherical")


# ---- moments of all cells ----


def centre_of(cells: Cells) -> np.ndarray:
    """The mean of all rows."""
    return cells.n @ cells.means / cells.n.sum()


def within(cells: Cells) -> np.ndarray:
    """The covariance within cells, pooled."""
    return np.tensordot(cells.n / cells.n.sum(), cells.covs, 1)


def total(cells: Cells, kind: Any) -> np.ndarray:
    """The covariance of all rows."""
    between = kind.outer(cells.means - centre_of(cells))
    return within(cells) + np.tensordot(cells.n / cells.n.sum(), between, 1)


# ---- EM ----


def prior_rows(d: int) -> float:
    """How many rows the prior of a covariance counts for."""
    return d + 2.0


def moments(cells: Cells, kind: Any) -> Moments:
    """Counts, means and second moments of the cells."""
    return Moments(cells.n, cells.means, cells.covs + kind.outer(cells.means))


def fit(seen: Moments, shares: np.ndarray, kind: Any, least: float = GAIN) -> Fit:
    """EM from responsibilities (m, k), where the covariance within cells is the identity."""
    found = update(seen, shares, kind)
    for _ in range(ROUNDS):
        following = update(seen, found.shares, kind)
        gained, found = following.score - found.score, following
        if gained < least:
            break
    return found


def update(seen: Moments, shares: np.ndarray, kind: Any) -> Fit:
    """An M-step at these responsibilities, then an E-step: the mixture, its score and its own responsibilities."""
    weights, means, covs = _m_step(seen, shares, kind)
    precisions, log_dets = kind.inverse(covs), kind.log_det(covs)
    shares, by_cell = _shares(_log_joint(seen, weights, means, precisions, log_dets, kind))
    loglik = seen.n @ by_cell
    score = (loglik + _log_prior(precisions, log_dets, kind)) / seen.n.sum()
    return Fit(float(score), weights, means, covs, shares)


def responsibilities(seen: Moments, fit: Fit, kind: Any) -> np.ndarray:
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


def components(seen: Moments, held: np.ndarray, kind: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(rows, means, covariances under their prior) of components that hold `held` (m, k) rows of the cells."""
    n = held.sum(0) + NOTHING
    means = held.T @ seen.means / n[:, None]
    second = np.tensordot(held.T, seen.second, 1)
    scatter = second - _beside(n, second) * kind.outer(means)
    d = means.shape[1]
    nu = prior_rows(d)
    covs = (scatter + nu * _identity(d, kind)) / _beside(n + nu, scatter)
    return n, means, covs


def _m_step(seen: Moments, shares: np.ndarray, kind: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, means and covariances from expected shares (cells, components)."""
    n, means, covs = components(seen, shares * seen.n[:, None], kind)
    weights = n / n.sum()
    return weights, means, kind.pooled(covs, weights) if kind.pools else covs


def _log_joint(
    seen: Moments, weights: np.ndarray, means: np.ndarray, precisions: np.ndarray, log_dets: np.ndarray, kind: Any
) -> np.ndarray:
    """The mean over each cell's rows of log (weight times density), (m, k)."""
    m, k, d = len(seen.n), len(weights), means.shape[1]
    towards = kind.times(precisions, means)
    squares = seen.second.reshape(m, -1) @ precisions.reshape(k, -1).T
    distances = squares - 2 * seen.means @ towards.T + (means * towards).sum(-1)
    return np.log(weights) - (distances + log_dets + d * np.log(2 * np.pi)) / 2


def _log_prior(precisions: np.ndarray, log_dets: np.ndarray, kind: Any) -> float:
    """Log of the prior of the covariances, up to a constant."""
    traces = kind.diagonal(precisions).sum(-1)
    return float(-prior_rows(precisions.shape[1]) / 2 * (log_dets + traces).sum())


def _identity(d: int, kind: Any) -> np.ndarray:
    """The identity, as a matrix or as variances."""
    return np.eye(d) if isinstance(kind, Matrices) else np.ones(d)


def _beside(n: np.ndarray, a: np.ndarray) -> np.ndarray:
    """Counts with axes to multiply covariances."""
    return n.reshape((-1,) + (1,) * (a.ndim - 1))
