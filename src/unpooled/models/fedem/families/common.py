"""Gaussian mixture with one common covariance, as the paper has it: k (1 + d) statistics, no second moments.

The covariance is known ("known"), or that of all rows together is, and the common one is that less the scatter of the means ("implied").
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
    weights: Float[Array, "k", ">=0"]
    means: Float[Array, "k d"]
    cov: Float[Array, "d d"]
    centre: Float[Array, "d"]  # the mean of all rows, and
    total: Float[Array, "d d"]  # their covariance: not learned


@message("families.common.Stats")
class Stats(NamedTuple):
    n: Float[Array, "k"]  # r
    x: Float[Array, "k d"]  # r x


@message("families.common.Numbers")
class Numbers(NamedTuple):
    n_components: int = 2
    covariance: str = "implied"
    floor: float = 1e-6  # of weights and of the covariance's eigenvalues


class CommonCovariance(base.Standardised, Numbers):
    wants = "numbers without gaps"

    def check(self) -> None:
        at_least("n_components", self.n_components, 1)
        within("floor", self.floor, 0, 0.1, "the least weight and eigenvalue")
        if self.covariance not in ("implied", "known"):
            raise BadParameter(f"covariance={self.covariance!r} is not known: use 'implied' or 'known'")

    def bad_rows(self, x: np.ndarray) -> np.ndarray:
        return ~np.isfinite(x).all(axis=1)

    def start(self, mean: np.ndarray, scale: np.ndarray, rng: np.random.Generator) -> Params:
        """Columns are taken as uncorrelated: give params_init to say more."""
        k = self.n_components
        means = mean + scale * rng.normal(size=(k, len(mean)))
        return self.from_clusters(np.full(k, 1 / k), means, np.tile(scale**2, (k, 1)))

    def from_clusters(
        self, weights: np.ndarray, means: np.ndarray, variances: np.ndarray
    ) -> Params:  # (k,), (k, d), (k, d)
        centre = weights @ means
        within, between = np.diag(weights @ variances), (weights[:, None] * (means - centre)).T @ (means - centre)
        return Params(weights, means, within, centre, within + between)

    def log_joint(self, params: Params, x: np.ndarray) -> np.ndarray:  # (n, d) -> (n, k)
        factor = np.linalg.cholesky(params.cov)
        white = solve_triangular(factor, x.T, lower=True).T
        centres = solve_triangular(factor, params.means.T, lower=True).T
        square = (white**2).sum(axis=1, keepdims=True) - 2 * white @ centres.T + (centres**2).sum(axis=1)
        log_det = np.log(np.diag(factor)).sum()
        return -0.5 * square - log_det - 0.5 * x.shape[1] * np.log(2 * np.pi) + np.log(params.weights)

    def statistics(self, params: Params, x: np.ndarray, w: np.ndarray) -> base.Sum:
        r, loglik = base.responsibilities(self.log_joint(params, x), w)
        return base.Sum(Stats(r.sum(axis=0), r.T @ x), loglik)

    def maximize(self, stats: Stats, params: Params) -> Params:
        stats, _ = self.project(stats)
        w, means = base.weights(stats.n, self.floor), stats.x / stats.n[:, None]
        if self.covariance == "known":
            return params._replace(weights=w, means=means)
        away = means - params.centre
        values, vectors = np.linalg.eigh(params.total - (w[:, None] * away).T @ away)
        cov = (vectors * np.maximum(values, self.floor)) @ vectors.T
        return params._replace(weights=w, means=means, cov=cov)

    def project(self, stats: Stats) -> tuple[Stats, bool]:
        return Stats(np.maximum(stats.n, self.floor), stats.x), bool((stats.n < self.floor).any())

    def moments(self, params: Params) -> Stats:
        return Stats(params.weights, params.weights[:, None] * params.means)

    def sample(self, params: Params, n: int, rng: np.random.Generator) -> np.ndarray:
        noise = rng.normal(size=(n, params.means.shape[1])) @ np.linalg.cholesky(params.cov).T
        return params.means[base.labels(params.weights, n, rng)] + noise

    def unscale(self, params: Params, shift: np.ndarray, unit: np.ndarray) -> Params:
        square = np.outer(unit, unit)
        means, centre = shift + unit * params.means, shift + unit * params.centre
        return Params(params.weights, means, params.cov * square, centre, params.total * square)
