"""Mixture of independent Poisson counts; k components of d columns have k (1 + d) statistics. Nothing is sent here."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from unpooled.arrays import Array, Float
from unpooled.models.fedem.families import base
from unpooled.models.fedem.families.columns import ColumnMixture, Stats
from unpooled.tree import message


@message("families.poisson.Params")
class Params(NamedTuple):
    """Weights of components, and the rate of each column."""

    weights: Float[Array, "k", ">=0"]
    rates: Float[Array, "k d", ">=0"]


class PoissonMixture(ColumnMixture):
    """Mixture of independent columns of counts; cells may be missing.

    Parameters
    ----------
    n_components : int, default=2
        Number of components.
    floor : float, default=1e-6
        Least weight of a component, and least rate.
    """

    params = Params
    wants = "whole numbers of at least 0"

    def bad_rows(self, x: np.ndarray) -> np.ndarray:
        """(n,) True for rows that do not suit the family."""
        return ~base.whole(x, 0, np.inf)

    def start(self, mean: np.ndarray, scale: np.ndarray, rng: np.random.Generator) -> Params:
        """Random parameters in the frame, for columns of this mean and scale."""
        k = self.n_components
        spread = np.exp(rng.normal(scale=0.5, size=(k, len(mean))))
        return Params(np.full(k, 1 / k), np.maximum(mean, self.floor) * spread)

    def log_joint(self, params: Params, x: np.ndarray) -> np.ndarray:  # (n, d) -> (n, k)
        """Log of weight times density of each row under each component, (n, k)."""
        seen = ~np.isnan(x)
        values = np.where(seen, x, 0.0)
        constant = (seen * gammaln(values + 1)).sum(axis=1, keepdims=True)  # log x! of the cells seen
        return values @ np.log(params.rates).T - seen @ params.rates.T + np.log(params.weights) - constant

    def project(self, stats: Stats) -> tuple[Stats, bool]:
        """The statistics within the feasible set, and whether they had left it."""
        n = np.maximum(stats.n, self.floor)
        inside = Stats(n, np.maximum(stats.x, self.floor * n[:, None]))
        return inside, bool((stats.n < self.floor).any() or (stats.x < 0).any())

    def sample(self, params: Params, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw `n` rows."""
        return rng.poisson(params.rates[base.labels(params.weights, n, rng)]).astype(np.float64)
