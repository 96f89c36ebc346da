"""Sites x dates table of low rank with missing cells: one statistic per cell.

Rows are visits (site, date, value), sites and dates as whole numbers from 0. The complete data of one observer is the whole table, so a
visit says its own cell and every other one is at its mean. `visits` is how many visits one observer stands for: 1 as in the
paper, and up to rows / (visits of the most visited cell) the likelihood rises every round, the faster the more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import expit, gammaln

from unpooled.arrays import Array, Float
from unpooled.errors import BadParameter
from unpooled.models.fedem.families import base
from unpooled.parameters import at_least
from unpooled.tree import message

INNER = 10  # proximal steps of one maximisation, where it has no closed form
CELLS = ("gaussian", "poisson", "binomial")


@message("families.lowrank.Params")
class Params(NamedTuple):
    """Factors of the table of natural parameters, left @ right.T."""

    left: Float[Array, "j r"]  # natural parameters are left @ right.T
    right: Float[Array, "l r"]


@message("families.lowrank.Stats")
class Stats(NamedTuple):
    """The value of every cell, its expectation where there is none."""

    filled: Float[Array, "j l"]  # the value of every cell, expected where there is none


@message("families.lowrank.Numbers")
class Numbers(NamedTuple):
    """The settings of the family; they travel with every question."""

    n_sites: int = 1
    n_dates: int = 1
    rank: int = 1
    cells: str = "gaussian"  # of variance 1; or "poisson", or "binomial" out of `trials`
    penalty: float = 0.0  # half the squared size of all natural parameters, times this
    visits: float = 1.0
    trials: int = 1


class LowRank(base.Plain, Numbers):
    """A table of sites by dates whose natural parameters have low rank; most cells may be missing.

    Parameters
    ----------
    n_sites, n_dates : int, default=1
        Sides of the table.
    rank : int, default=1
        Rank of the natural parameters.
    cells : {"gaussian", "poisson", "binomial"}, default="gaussian"
        Distribution of a cell: of variance 1, a count, or a count out of `trials`.
    penalty : float, default=0.0
        Times half the squared size of the natural parameters, what is added to the loss.
    visits : float, default=1.0
        How many visits one observer stands for; see the head of this file.
    trials : int, default=1
        Trials of a binomial cell.
    """

    @property
    def wants(self) -> str:
        """What rows must hold, for messages."""
        values = {"gaussian": "a number", "poisson": "a count", "binomial": f"a count up to trials={self.trials}"}
        return f"(site, date, value): a site below {self.n_sites}, a date below {self.n_dates}, {values[self.cells]}"

    def check(self) -> None:
        """Refuse numbers of the family that are out of range."""
        for name in ("n_sites", "n_dates", "rank", "trials"):
            at_least(name, getattr(self, name), 1)
        if self.cells not in CELLS:
            raise BadParameter(f"cells={self.cells!r} is not known: use one of {', '.join(CELLS)}")
        if self.rank > min(self.n_sites, self.n_dates):
            raise BadParameter(
                f"rank={self.rank} must be at most {min(self.n_sites, self.n_dates)}, as the table's sides are"
            )
        if self.penalty < 0 or not self.visits > 0:
            raise BadParameter(f"penalty={self.penalty} must be at least 0 and visits={self.visits} above 0")

    def bad_rows(self, x: np.ndarray) -> np.ndarray:
        """(n,) True for rows that do not suit the family."""
        if x.shape[1] != 3:
            return np.ones(len(x), bool)
        places = base.whole(x[:, :1], 0, self.n_sites - 1) & base.whole(x[:, 1:2], 0, self.n_dates - 1)
        if self.cells == "gaussian":
            values = np.isfinite(x[:, 2])
        else:
            values = base.whole(x[:, 2:], 0, self.trials if self.cells == "binomial" else np.inf)
        return ~(places & values) | np.isnan(x).any(axis=1)

    def start(self, mean: np.ndarray, scale: np.ndarray, rng: np.random.Generator) -> Params:
        """A constant table at the link of the mean value, and a little noise for the other factors."""
        level = self._link(np.asarray(mean[2]))
        left = rng.normal(scale=0.1, size=(self.n_sites, self.rank))
        right = rng.normal(scale=0.1, size=(self.n_dates, self.rank))
        left[:, 0] = right[:, 0] = np.sqrt(abs(level))
        left[:, 0] *= np.sign(level)
        return Params(left, right)

    def statistics(self, params: Params, x: np.ndarray, w: np.ndarray) -> base.Sum:
        """Sum over rows of the expected sufficient statistics, and the log-likelihood."""
        theta = params.left @ params.right.T
        mean = self._mean(theta)
        cell = x[:, 0].astype(np.int64) * self.n_dates + x[:, 1].astype(np.int64)
        surprise = np.bincount(cell, w * (x[:, 2] - mean.ravel()[cell]), mean.size).reshape(mean.shape)
        return base.Sum(
            Stats(w.sum() * mean + self.visits * surprise), float(w @ self._loglik(theta.ravel()[cell], x[:, 2]))
        )

    def maximize(self, stats: Stats, params: Params) -> Params:
        """The parameters that mean statistics stand for."""
        stats, _ = self.project(stats)
        if self.cells == "gaussian":
            return _truncate(stats.filled / (1 + self.penalty), self.rank)[0]
        starts = [params, _truncate(self._link(stats.filled), self.rank)[0]]
        best = min(starts, key=lambda p: self._loss(p.left @ p.right.T, stats.filled))
        return self._descend(best, stats.filled)

    def project(self, stats: Stats) -> tuple[Stats, bool]:
        """The statistics within the feasible set, and whether they had left it."""
        low, high = {"gaussian": (-np.inf, np.inf), "poisson": (0.0, np.inf), "binomial": (0.0, self.trials)}[
            self.cells
        ]
        inside = np.clip(stats.filled, low, high)
        return Stats(inside), bool((inside != stats.filled).any())

    def moments(self, params: Params) -> Stats:
        """Mean statistics under the parameters themselves."""
        theta = params.left @ params.right.T
        mean = self._mean(theta)
        return Stats(mean + self.penalty * theta)

    def sample(self, params: Params, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw `n` rows."""
        j = rng.integers(self.n_sites, size=n)
        l = rng.integers(self.n_dates, size=n)
        mean = self._mean((params.left[j] * params.right[l]).sum(axis=1))
        draws = {
            "gaussian": lambda: rng.normal(mean),
            "poisson": lambda: rng.poisson(mean),
            "binomial": lambda: rng.binomial(self.trials, mean / self.trials),
        }
        return np.column_stack([j, l, draws[self.cells]()]).astype(np.float64)

    def change(self, old: Params, new: Params) -> float:
        """Of the natural parameters: factors may rotate without changing them."""
        before = old.left @ old.right.T
        after = new.left @ new.right.T
        return float(np.sqrt(np.mean((after - before) ** 2)) / max(np.sqrt(np.mean(before**2)), 1e-3))

    # ---- cells: mean, its inverse, log likelihood, and the loss of a table of natural parameters ----

    def _mean(self, theta: np.ndarray) -> np.ndarray:
        """The mean of a cell with natural parameter theta."""
        if self.cells == "gaussian":
            return theta
        return np.exp(np.minimum(theta, 50.0)) if self.cells == "poisson" else self.trials * expit(theta)

    def _link(self, mean: np.ndarray) -> np.ndarray:
        """The inverse of `_mean`."""
        if self.cells == "gaussian":
            return mean
        if self.cells == "poisson":
            return np.log(np.maximum(mean, 1e-6))
        share = np.clip(mean / self.trials, 1e-6, 1 - 1e-6)
        return np.log(share / (1 - share))

    def _psi(self, theta: np.ndarray) -> np.ndarray:
        """The log-partition function, whose derivative is the mean."""
        if self.cells == "gaussian":
            return theta**2 / 2
        if self.cells == "poisson":
            return np.exp(np.minimum(theta, 50.0))
        return self.trials * np.logaddexp(0, theta)

    def _loglik(self, theta: np.ndarray, value: np.ndarray) -> np.ndarray:
        """Log-likelihood of each value."""
        if self.cells == "gaussian":
            base_measure = -0.5 * value**2 - 0.5 * np.log(2 * np.pi)
        elif self.cells == "poisson":
            base_measure = -gammaln(value + 1)
        else:
            base_measure = gammaln(self.trials + 1) - gammaln(value + 1) - gammaln(self.trials - value + 1)
        return value * theta - self._psi(theta) + base_measure

    def _loss(self, theta: np.ndarray, filled: np.ndarray) -> float:
        """What `maximize` makes small: negative log-likelihood of the filled table and penalty."""
        return float((self._psi(theta) - filled * theta).sum() + self.penalty / 2 * (theta**2).sum())

    def _descend(self, params: Params, filled: np.ndarray) -> Params:
        """Proximal steps with a step size that halves until the loss falls."""
        theta = params.left @ params.right.T
        loss = self._loss(theta, filled)
        size = 4 / self.trials if self.cells == "binomial" else 1 / max(float(filled.max()), 1e-6)
        for _ in range(INNER):
            slope = self._mean(theta) - filled + self.penalty * theta
            new, next_theta = _truncate(theta - size * slope, self.rank)
            next_loss = self._loss(next_theta, filled)
            if next_loss <= loss:
                params = new
                theta = next_theta
                loss = next_loss
                size = size * 2
            else:
                size /= 4
        return params


def _truncate(table: np.ndarray, rank: int) -> tuple[Params, np.ndarray]:
    """The nearest table of this rank, as factors and whole."""
    u, s, v = np.linalg.svd(table, full_matrices=False)
    root = np.sqrt(s[:rank])
    params = Params(u[:, :rank] * root, v[:rank].T * root)
    return params, params.left @ params.right.T
