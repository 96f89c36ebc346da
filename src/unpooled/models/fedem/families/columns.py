"""What mixtures share whose columns are independent and described by one number each, its mean: k (1 + d) statistics."""

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

    n: Float[Array, "k"]  # r
    x: Float[Array, "k d"]  # r x


@message("families.columns.Numbers")
class Numbers(NamedTuple):
    """The settings of the family; they travel with every question."""

    n_components: int = 2
    floor: float = 1e-6  # of weights and means


class ColumnMixture(base.Plain, Numbers):
    """A family says what it `wants`, its `params` (weights and means), its `log_joint`, `start`, `project` and `sample`."""

    params: type

    def check(self) -> None:
        """Refuse numbers of the family that are out of range."""
        at_least("n_components", self.n_components, 1)
        within("floor", self.floor, 0, 0.1, "the least weight and mean")

    def log_joint(self, params: Any, x: np.ndarray) -> np.ndarray:  # (n, d) -> (n, k)
        """To be given by the family: log of weight times density, (n, k)."""
        raise NotImplementedError("abstract")

    def project(self, stats: Stats) -> tuple[Stats, bool]:
        """To be given by the family."""
        raise NotImplementedError("abstract")

    def statistics(self, params: Any, x: np.ndarray, w: np.ndarray) -> base.Sum:
        """Sum over rows of the expected sufficient statistics, and the log-likelihood."""
        r, loglik = base.responsibilities(self.log_joint(params, x), w)
        seen, (_, means) = ~np.isnan(x), params
        total = r.T @ np.where(seen, x, 0.0) + (r.T @ ~seen) * means
        return base.Sum(Stats(r.sum(axis=0), total), loglik)

    def maximize(self, stats: Stats, params: Any) -> Any:
        """The parameters that mean statistics stand for."""
        stats, _ = self.project(stats)
        return self.params(base.weights(stats.n, self.floor), stats.x / stats.n[:, None])

    def moments(self, params: Any) -> Stats:
        """Mean statistics under the parameters themselves."""
        weights, means = params
        return Stats(weights, weights[:, None] * means)
