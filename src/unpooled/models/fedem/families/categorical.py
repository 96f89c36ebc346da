"""Mixtures of independent categories: k (1 + d m) statistics for m categories per column; two categories are Bernoulli's."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float
from unpooled.models.fedem.families import base
from unpooled.parameters import at_least, within
from unpooled.tree import message


@message("families.categorical.Params")
class Params(NamedTuple):
    """Weights of components, and the probability of each of m categories in each column."""

    weights: Float[Array, "k", ">=0"]
    probs: Float[Array, "k d m", ">=0"]


@message("families.categorical.Stats")
class Stats(NamedTuple):
    """Expected rows by component, and by component, column and category."""

    n: Float[Array, "k"]  # r
    x: Float[Array, "k d m"]  # r [x = m]


@message("families.categorical.Numbers")
class Numbers(NamedTuple):
    """The settings of the family; they travel with every question."""

    n_components: int = 2
    n_categories: int = 2
    floor: float = 1e-6  # of weights and probabilities


class CategoricalMixture(base.Plain, Numbers):
    """Mixture of independent columns of categories, coded 0 to m - 1; cells may be missing.

    Parameters
    ----------
    n_components : int, default=2
        Number of components.
    n_categories : int, default=2
        Categories of every column.
    floor : float, default=1e-6
        Least weight of a component, and least probability of a category.
    """

    @property
    def wants(self) -> str:
        """What rows must hold, for messages."""
        return f"whole numbers from 0 to n_categories - 1 = {self.n_categories - 1}"

    def check(self) -> None:
        """Refuse numbers of the family that are out of range."""
        at_least("n_components", self.n_components, 1)
        at_least("n_categories", self.n_categories, 2)
        within("floor", self.floor, 0, 0.1, "the least weight and probability")

    def bad_rows(self, x: np.ndarray) -> np.ndarray:
        """(n,) True for rows that do not suit the family."""
        return ~base.whole(x, 0, self.n_categories - 1)

    def start(self, mean: np.ndarray, scale: np.ndarray, rng: np.random.Generator) -> Params:
        """Random parameters in the frame, for columns of this mean and scale."""
        k = self.n_components
        probs = rng.dirichlet(np.full(self.n_categories, 5.0), size=(k, len(mean)))
        return Params(np.full(k, 1 / k), probs)

    def log_joint(self, params: Params, x: np.ndarray) -> np.ndarray:  # (n, d) -> (n, k)
        """Log of weight times density of each row under each component, (n, k)."""
        k = len(params.weights)
        return self._one_hot(x) @ np.log(params.probs).reshape(k, -1).T + np.log(params.weights)

    def statistics(self, params: Params, x: np.ndarray, w: np.ndarray) -> base.Sum:
        """Sum over rows of the expected sufficient statistics, and the log-likelihood."""
        r, loglik = base.responsibilities(self.log_joint(params, x), w)
        seen = (r.T @ self._one_hot(x)).reshape(params.probs.shape)
        missing = r.T @ np.isnan(x)
        return base.Sum(Stats(r.sum(axis=0), seen + missing[:, :, None] * params.probs), loglik)

    def maximize(self, stats: Stats, params: Params) -> Params:
        """The parameters that mean statistics stand for."""
        stats, _ = self.project(stats)
        return Params(base.weights(stats.n, self.floor), stats.x / stats.x.sum(axis=2, keepdims=True))

    def project(self, stats: Stats) -> tuple[Stats, bool]:
        """The statistics within the feasible set, and whether they had left it."""
        n = np.maximum(stats.n, self.floor)
        least = self.floor * n[:, None, None]
        return Stats(n, np.maximum(stats.x, least)), bool((stats.n < self.floor).any() or (stats.x < 0).any())

    def moments(self, params: Params) -> Stats:
        """Mean statistics under the parameters themselves."""
        return Stats(params.weights, params.weights[:, None, None] * params.probs)

    def sample(self, params: Params, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw `n` rows."""
        component = base.labels(params.weights, n, rng)
        edges = params.probs.cumsum(axis=2)[component]  # (n, d, m)
        drawn = rng.random(edges.shape[:2])[:, :, None]
        return (drawn > edges[:, :, :-1]).sum(axis=2).astype(np.float64)

    def _one_hot(self, x: np.ndarray) -> np.ndarray:  # (n, d) -> (n, d m); a missing value is in no category
        """Indicators (n, d m) of the categories; a missing cell has none."""
        return (x[:, :, None] == np.arange(self.n_categories)).reshape(len(x), -1).astype(np.float64)
