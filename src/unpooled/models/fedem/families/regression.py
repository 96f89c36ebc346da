"""Mixture of linear regressions: each component has an intercept, coefficients and a noise variance. Nothing is sent here.

Rows are d inputs with the target as their last column; p = d + 1 coefficients include the intercept. k components have
k p (p + 3) / 2 + 2 k statistics.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float
from unpooled.models.fedem.families import base
from unpooled.parameters import at_least, within
from unpooled.tree import message


@message("families.regression.Params")
class Params(NamedTuple):
    """Weights, coefficients (the intercept last) and noise variances of the components."""

    weights: Float[Array, "k", ">=0"]
    coefs: Float[Array, "k p"]  # the intercept last
    variances: Float[Array, "k", ">=0"]


@message("families.regression.Stats")
class Stats(NamedTuple):
    """Expected rows and second moments of inputs and target by component."""

    n: Float[Array, "k"]  # sum of r, the responsibilities
    zz: Float[Array, "k t"]  # sum of r z z', packed triangle, z = (x, 1)
    zy: Float[Array, "k p"]  # sum of r z y
    yy: Float[Array, "k"]  # sum of r y^2


@message("families.regression.Numbers")
class Numbers(NamedTuple):
    """The settings of the family; they travel with every question."""

    n_components: int = 2
    floor: float = 1e-6  # of weights, of noise variances and of the inputs' second moments


class RegressionMixture(base.Standardised, Numbers):
    """Mixture of linear regressions; the last column of a row is its target.

    Parameters
    ----------
    n_components : int, default=2
        Number of components.
    floor : float, default=1e-6
        Least weight, noise variance and second moment of the inputs, in standardised columns.
    """

    wants = "inputs and a target without gaps"
    supervised = True

    def check(self) -> None:
        """Refuse numbers of the family that are out of range."""
        at_least("n_components", self.n_components, 1)
        within("floor", self.floor, 0, 0.1, "the least weight and noise variance")

    def bad_rows(self, x: np.ndarray) -> np.ndarray:
        """(n,) True for rows that do not suit the family."""
        return ~np.isfinite(x).all(axis=1)

    def start(self, mean: np.ndarray, scale: np.ndarray, rng: np.random.Generator) -> Params:
        """Random parameters in the frame, for columns of this mean and scale."""
        k = self.n_components
        return Params(np.full(k, 1 / k), rng.normal(size=(k, len(mean))), np.ones(k))

    def log_joint(self, params: Params, x: np.ndarray) -> np.ndarray:  # (n, d + 1) -> (n, k)
        """Log of weight times density of each row under each component, (n, k)."""
        z, y = _design(x)
        residual = y[:, None] - z @ params.coefs.T
        log_density = -0.5 * (residual**2 / params.variances + np.log(2 * np.pi * params.variances))
        return log_density + np.log(params.weights)

    def statistics(self, params: Params, x: np.ndarray, w: np.ndarray) -> base.Sum:
        """Sum over rows of the expected sufficient statistics, and the log-likelihood."""
        r, loglik = base.responsibilities(self.log_joint(params, x), w)
        z, y = _design(x)
        upper = np.triu_indices(z.shape[1])
        zz = np.einsum("nk,np,nq->kpq", r, z, z, optimize=True)[:, *upper]
        return base.Sum(Stats(r.sum(axis=0), zz, r.T @ (z * y[:, None]), r.T @ y**2), loglik)

    def maximize(self, stats: Stats, params: Params) -> Params:
        """The parameters that mean statistics stand for."""
        stats, _ = self.project(stats)
        zz = _unpack(stats.zz)
        coefs = np.linalg.solve(zz, stats.zy[:, :, None])[:, :, 0]
        variances = (stats.yy - (coefs * stats.zy).sum(axis=1)) / stats.n
        return Params(base.weights(stats.n, self.floor), coefs, np.maximum(variances, self.floor))

    def project(self, stats: Stats) -> tuple[Stats, bool]:
        """The statistics within the feasible set, and whether they had left it."""
        n = np.maximum(stats.n, self.floor)
        values, vectors = np.linalg.eigh(_unpack(stats.zz))
        least = self.floor * n[:, None]
        outside = bool((stats.n < self.floor).any() or (values < 0).any() or (stats.yy < 0).any())
        if not outside and not (values < least).any():
            return stats, False
        inside = np.einsum("kpe,ke,kqe->kpq", vectors, np.maximum(values, least), vectors)
        return Stats(n, inside[:, *np.triu_indices(inside.shape[1])], stats.zy, stats.yy), outside

    def moments(self, params: Params) -> Stats:
        """Mean statistics under the parameters, for inputs of mean 0 and unit covariance, as after standardising."""
        w = params.weights
        p = params.coefs.shape[1]
        zz = np.tile(np.eye(p)[np.triu_indices(p)], (len(w), 1)) * w[:, None]
        yy = w * ((params.coefs**2).sum(axis=1) + params.variances)
        return Stats(w, zz, w[:, None] * params.coefs, yy)

    def sample(self, params: Params, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw `n` rows."""
        x = rng.normal(size=(n, params.coefs.shape[1] - 1))
        z = np.append(x, np.ones((n, 1)), axis=1)  # with a column for the intercept
        component = base.labels(params.weights, n, rng)
        noise = rng.normal(size=n) * np.sqrt(params.variances[component])
        y = (z * params.coefs[component]).sum(axis=1) + noise
        return np.append(x, y[:, None], axis=1)

    def unscale(self, params: Params, shift: np.ndarray, unit: np.ndarray) -> Params:
        """The parameters of rows x as those of rows shift + unit x."""
        y_unit = unit[-1]
        slopes = params.coefs[:, :-1] * y_unit / unit[:-1]
        intercepts = shift[-1] + y_unit * params.coefs[:, -1] - slopes @ shift[:-1]
        coefs = np.append(slopes, intercepts[:, None], axis=1)
        return Params(params.weights, coefs, params.variances * y_unit**2)


def _design(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(inputs with a last column of ones, targets) of rows x."""
    return np.append(x[:, :-1], np.ones((len(x), 1)), axis=1), x[:, -1]


def _unpack(packed: np.ndarray) -> np.ndarray:  # (k, t) -> (k, p, p)
    """Packed triangles (k, t) as symmetric matrices (k, p, p)."""
    p = int((np.sqrt(8 * packed.shape[1] + 1) - 1) / 2)
    full = np.zeros((len(packed), p, p))
    full[:, *np.triu_indices(p)] = packed
    return full + np.triu(full, 1).transpose(0, 2, 1)
