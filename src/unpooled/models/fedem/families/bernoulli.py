"""Mixture of independent columns of zeros and ones; k components of d columns have k (1 + d) statistics. Nothing is sent here."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float
from unpooled.models.fedem.families import base
from unpooled.models.fedem.families.columns import ColumnMixture, Stats
from unpooled.tree import message


@message("families.bernoulli.Params")
class Params(NamedTuple):
    """Weights of components, and the probability of a one in each column."""

    weights: Float[Array, "k", ">=0"]
    probs: Float[Array, "k d", ">=0"]


class BernoulliMixture(ColumnMixture):
    """Mixture of independent columns of zeros and ones; cells may be missing.

    Parameters
    ----------
    n_components : int, default=2
        Number of components.
    floor : float, default=1e-6
        Least weight of a component, and least distance of a probability from 0 and 1.
    """

    params = Params
    wants = "zeros and ones"

    def bad_rows(self, x: np.ndarray) -> np.ndarray:
        """(n,) True for rows that do not suit the family."""
        return ~base.whole(x, 0, 1)

    def start(self, mean: np.ndarray, scale: np.ndarray, rng: np.random.Generator) -> Params:
        """Random parameters in the frame, for columns of this mean and scale."""
        k = self.n_components
        random = rng.random((k, len(mean)))
        return Params(np.full(k, 1 / k), 0.5 * np.clip(mean, 0.05, 0.95) + 0.5 * random)

    def log_joint(self, params: Params, x: np.ndarray) -> np.ndarray:  # (n, d) -> (n, k)
        """Log of weight times density of each row under each component, (n, k)."""
        seen = ~np.isnan(x)
        values = np.where(seen, x, 0.0)
        log_zero = np.log1p(-params.probs)  # (k, d) log-probability of a zero
        logit = np.log(params.probs) - log_zero
        return values @ logit.T + seen @ log_zero.T + np.log(params.weights)

    def project(self, stats: Stats) -> tuple[Stats, bool]:
        """The statistics within the feasible set, and whether they had left it."""
        n = np.maximum(stats.n, self.floor)
        low = self.floor * n[:, None]
        high = (1 - self.floor) * n[:, None]
        too_few = (stats.n < self.floor).any()
        too_many_ones = (stats.x > n[:, None] * (1 + 1e-12)).any()
        outside = too_few or (stats.x < 0).any() or too_many_ones
        return Stats(n, np.clip(stats.x, low, high)), bool(outside)

    def sample(self, params: Params, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw `n` rows."""
        probs = params.probs[base.labels(params.weights, n, rng)]
        return (rng.random(probs.shape) < probs).astype(np.float64)
