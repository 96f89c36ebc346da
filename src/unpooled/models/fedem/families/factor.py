"""Factor analysis of d columns by r factors, or probabilistic PCA with one noise variance for all columns.

The statistics are d (r + 2) + r (r + 1) numbers. Nothing is sent here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from unpooled.arrays import Array, Float
from unpooled.errors import BadParameter
from unpooled.models.fedem.families import base
from unpooled.parameters import at_least, within
from unpooled.tree import message


@message("families.factor.Params")
class Params(NamedTuple):
    """Mean, loadings and noise variance of each column."""

    mean: Float[Array, "d"]
    loadings: Float[Array, "d r"]
    noise: Float[Array, "d", ">=0"]


@message("families.factor.Stats")
class Stats(NamedTuple):
    """Sums of x, of the expected factors z, and of their products."""

    x: Float[Array, "d"]
    z: Float[Array, "r"]  # E z
    xx: Float[Array, "d"]  # x^2
    xz: Float[Array, "d r"]  # x E z'
    zz: Float[Array, "r r"]  # E z z'


@message("families.factor.Numbers")
class Numbers(NamedTuple):
    """The settings of the family; they travel with every question."""

    n_factors: int = 1
    noise: str = "diag"  # "one" is probabilistic PCA
    floor: float = 1e-6  # of noise variances


class FactorAnalysis(base.Standardised, Numbers):
    """Factor analysis: x = mean + loadings z + noise with standard normal factors z.

    Parameters
    ----------
    n_factors : int, default=1
        Number of factors.
    noise : {"diag", "one"}, default="diag"
        One noise variance per column, or one for all, which is probabilistic PCA.
    floor : float, default=1e-6
        Least noise variance, in standardised columns.
    """

    wants = "numbers without gaps"

    def check(self) -> None:
        """Refuse numbers of the family that are out of range."""
        at_least("n_factors", self.n_factors, 1)
        within("floor", self.floor, 0, 0.1, "the least noise variance")
        if self.noise not in ("diag", "one"):
            raise BadParameter(
                f"noise={self.noise!r} is not known: use 'diag' (factor analysis) or 'one' (probabilistic PCA)"
            )

    def bad_rows(self, x: np.ndarray) -> np.ndarray:
        """(n,) True for rows that do not suit the family."""
        return ~np.isfinite(x).all(axis=1)

    def start(self, mean: np.ndarray, scale: np.ndarray, rng: np.random.Generator) -> Params:
        """Random parameters in the frame, for columns of this mean and scale."""
        d = len(mean)
        return Params(np.zeros(d), rng.normal(scale=0.5, size=(d, self.n_factors)), np.full(d, 0.5))

    def statistics(self, params: Params, x: np.ndarray, w: np.ndarray) -> base.Sum:
        """Sum over rows of the expected sufficient statistics, and the log-likelihood."""
        centred = x - params.mean
        weighted = params.loadings / params.noise[:, None]
        precision = np.eye(params.loadings.shape[1]) + params.loadings.T @ weighted  # of z given x
        factor = cho_factor(precision)
        z = cho_solve(factor, weighted.T @ centred.T).T  # (n, r) E z
        log_det = np.log(params.noise).sum() + 2 * np.log(np.diag(factor[0])).sum()
        quadratic = (centred**2 / params.noise).sum(axis=1) - ((centred @ weighted) * z).sum(axis=1)
        loglik = -0.5 * (w.sum() * (x.shape[1] * np.log(2 * np.pi) + log_det) + w @ quadratic)
        wz = w[:, None] * z
        covariance = cho_solve(factor, np.eye(len(precision)))
        stats = Stats(w @ x, wz.sum(axis=0), w @ x**2, x.T @ wz, wz.T @ z + w.sum() * covariance)
        return base.Sum(stats, float(loglik))

    def maximize(self, stats: Stats, params: Params) -> Params:
        """The parameters from mean statistics: a regression of x on (z, 1)."""
        stats, _ = self.project(stats)
        r = len(stats.z)
        zz = np.block([[stats.zz, stats.z[:, None]], [stats.z[None], np.ones((1, 1))]])
        xz = np.append(stats.xz, stats.x[:, None], axis=1)
        coefs = np.linalg.solve(zz, xz.T).T  # (d, r + 1)
        noise = stats.xx - (coefs * xz).sum(axis=1)
        noise = np.full_like(noise, noise.mean()) if self.noise == "one" else noise
        return Params(coefs[:, r], coefs[:, :r], np.maximum(noise, self.floor))

    def project(self, stats: Stats) -> tuple[Stats, bool]:
        """The statistics with a positive definite covariance of the factors, and whether it was not."""
        covariance = stats.zz - np.outer(stats.z, stats.z)
        values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
        outside = bool((values < self.floor).any())
        if not outside:
            return stats, False
        inside = (vectors * np.maximum(values, self.floor)) @ vectors.T + np.outer(stats.z, stats.z)
        return stats._replace(zz=inside), outside

    def moments(self, params: Params) -> Stats:
        """Mean statistics under the parameters themselves."""
        r = params.loadings.shape[1]
        xx = params.mean**2 + (params.loadings**2).sum(axis=1) + params.noise
        return Stats(params.mean, np.zeros(r), xx, params.loadings, np.eye(r))

    def sample(self, params: Params, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw `n` rows."""
        z = rng.normal(size=(n, params.loadings.shape[1]))
        return params.mean + z @ params.loadings.T + rng.normal(size=(n, len(params.mean))) * np.sqrt(params.noise)

    def unscale(self, params: Params, shift: np.ndarray, unit: np.ndarray) -> Params:
        """The parameters of rows x as those of rows shift + unit x."""
        return Params(shift + unit * params.mean, params.loadings * unit[:, None], params.noise * unit**2)
