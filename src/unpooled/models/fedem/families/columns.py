"""Base class of mixtures with independent columns of one parameter each, the mean: k (1 + d) statistics. Nothing is sent here."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float
from unpooled.models.fedem.families import base
from unpooled.parameters import at_least, within
from unpooled.tree import message


@message("families.columns.Stats")
class Stats(NamedTuple):
    """Expected rows and expected sums of columns by component."""

    n: Float[Array, "k"]  # sum of r, the responsibilities
    x: Float[Array, "k d"]  # sum of r x, with the component's mean for missing cells


@message("families.columns.Numbers")
class Numbers(NamedTuple):
    """The settings of the family; they travel with every question."""

    n_components: int = 2
    floor: float = 1e-6  # of weights and means


class ColumnMixture(base.Plain, Numbers):
    """Base class: a subclass defines `wants`, `params` (the class of weights and means), `log_joint`, `start`, `project` and `sample`."""

    params: type

    def check(self) -> None:
        """Refuse numbers of the family that are out of range."""
        at_least("n_components", self.n_components, 1)
        within("floor", self.floor, 0, 0.1, "the least weight and mean")

    def log_joint(self, params: Any, x: np.ndarray) -> np.ndarray:  # (n, d) -> (n, k)
        """To be given by the family: log of weight times density, (n, k)."""
        raise NotImplementedError("abstract")

    def project(self, stats: Stats) -> tuple[Stats, bool]:
        """To be given by the family: the statistics within the feasible set, and whether they had left it."""
        raise NotImplementedError("abstract")

    def statistics(self, params: Any, x: np.ndarray, w: np.ndarray) -> base.Sum:
        """Sum over rows of the expected sufficient statistics, and the log-likelihood."""
        r, loglik = base.responsibilities(self.log_joint(params, x), w)
        _, means = params
        seen = ~np.isnan(x)
        total = r.T @ np.where(seen, x, 0.0) + (r.T @ ~seen) * means  # missing cells count as the component's mean
        return base.Sum(Stats(r.sum(axis=0), total), loglik)

    def maximize(self, stats: Stats, params: Any) -> Any:
        """The parameters that mean statistics stand for."""
        stats, _ = self.project(stats)
        return self.params(base.weights(stats.n, self.floor), stats.x / stats.n[:, None])

    def moments(self, params: Any) -> Stats:
        """Mean statistics under the parameters themselves."""
        weights, means = params
        return Stats(weights, weights[:, None] * means)
