"""Gaussian mixture with one common covariance, as in the paper: k (1 + d) statistics, no second moments.

The common covariance is given ("known"), or it is the covariance of all rows minus the scatter of the means ("implied").
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from unpooled.arrays import Array, Float
from unpooled.errors import BadParameter
from unpooled.models.fedem.families import base
from unpooled.parameters import at_least, within
from unpooled.tree import message


@message("families.common.Params")
class Params(NamedTuple):
    """Weights, means and the common covariance; centre and covariance of all rows are kept beside them."""

    weights: Float[Array, "k", ">=0"]
    means: Float[Array, "k d"]
    cov: Float[Array, "d d"]
    centre: Float[Array, "d"]  # the mean of all rows, and
    total: Float[Array, "d d"]  # their covariance: not learned


@message("families.common.Stats")
class Stats(NamedTuple):
    """Expected rows and expected sums of columns by component."""

    n: Float[Array, "k"]  # r
    x: Float[Array, "k d"]  # r x


@message("families.common.Numbers")
class Numbers(NamedTuple):
    """The settings of the family; they travel with every question."""

    n_components: int = 2
    covariance: str = "implied"
    floor: float = 1e-6  # of weights and of the covariance's eigenvalues


class CommonCovariance(base.Clustered, Numbers):
    """Gaussian mixture whose components share one covariance, without second moments in its statistics.

    Parameters
    ----------
    n_components : int, default=2
        Number of components.
    covariance : {"implied", "known"}, default="implied"
        Whether the covariance is that of all rows less the scatter of the means, or stays as it was given.
    floor : float, default=1e-6
        Least weight, and least eigenvalue of the covariance in standardised columns.
    """

    wants = "numbers without gaps"

    def check(self) -> None:
        """Refuse numbers of the family that are out of range."""
        at_least("n_components", self.n_components, 1)
        within("floor", self.floor, 0, 0.1, "the least weight and eigenvalue")
        if self.covariance not in ("implied", "known"):
            raise BadParameter(f"covariance={self.covariance!r} is not known: use 'implied' or 'known'")

    def bad_rows(self, x: np.ndarray) -> np.ndarray:
        """(n,) True for rows that do not suit the family."""
        return ~np.isfinite(x).all(axis=1)

    def from_clusters(
        self, weights: np.ndarray, means: np.ndarray, variances: np.ndarray
    ) -> Params:  # (k,), (k, d), (k, d)
        """Parameters of clusters with weights (k,), means (k, d) and variances (k, d)."""
        centre = weights @ means
        within = np.diag(weights @ variances)
        between = (weights[:, None] * (means - centre)).T @ (means - centre)
        return Params(weights, means, within, centre, within + between)

    def log_joint(self, params: Params, x: np.ndarray) -> np.ndarray:  # (n, d) -> (n, k)
        """Log of weight times density of each row under each component, (n, k)."""
        factor = np.linalg.cholesky(params.cov)
        white = solve_triangular(factor, x.T, lower=True).T
        centres = solve_triangular(factor, params.means.T, lower=True).T
        square = (white**2).sum(axis=1, keepdims=True) - 2 * white @ centres.T + (centres**2).sum(axis=1)
        log_det = np.log(np.diag(factor)).sum()
        return -0.5 * square - log_det - 0.5 * x.shape[1] * np.log(2 * np.pi) + np.log(params.weights)

    def statistics(self, params: Params, x: np.ndarray, w: np.ndarray) -> base.Sum:
        """Sum over rows of the expected sufficient statistics, and the log-likelihood."""
        r, loglik = base.responsibilities(self.log_joint(params, x), w)
        return base.Sum(Stats(r.sum(axis=0), r.T @ x), loglik)

    def maximize(self, stats: Stats, params: Params) -> Params:
        """The parameters that mean statistics stand for."""
        stats, _ = self.project(stats)
        w = base.weights(stats.n, self.floor)
        means = stats.x / stats.n[:, None]
        if self.covariance == "known":
            return params._replace(weights=w, means=means)
        away = means - params.centre
        values, vectors = np.linalg.eigh(params.total - (w[:, None] * away).T @ away)
        cov = (vectors * np.maximum(values, self.floor)) @ vectors.T
        return params._replace(weights=w, means=means, cov=cov)

    def project(self, stats: Stats) -> tuple[Stats, bool]:
        """The statistics within the feasible set, and whether they had left it."""
        return Stats(np.maximum(stats.n, self.floor), stats.x), bool((stats.n < self.floor).any())

    def moments(self, params: Params) -> Stats:
        """Mean statistics under the parameters themselves."""
        return Stats(params.weights, params.weights[:, None] * params.means)

    def sample(self, params: Params, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw `n` rows."""
        noise = rng.normal(size=(n, params.means.shape[1])) @ np.linalg.cholesky(params.cov).T
        return params.means[base.labels(params.weights, n, rng)] + noise

    def unscale(self, params: Params, shift: np.ndarray, unit: np.ndarray) -> Params:
        """The parameters of rows x as those of rows shift + unit x."""
        square = np.outer(unit, unit)
        means = shift + unit * params.means
        centre = shift + unit * params.centre
        return Params(params.weights, means, params.cov * square, centre, params.total * square)
