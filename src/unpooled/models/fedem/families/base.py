"""The protocol of a family, and what families share.

A model of the exponential family is two functions: `statistics`, the sum over rows of E[s(x, z) | x; params], and `maximize`, the params
that a mean statistic stands for. Everything else (who sends what, how it is compressed, how the server steps) is generic in them.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from unpooled import tree
from unpooled.tree import message

Params = Any  # a NamedTuple of arrays, one type per family
Stats = Any  # a NamedTuple of arrays, linear in the rows


@message("families.base.Sum")
class Sum(NamedTuple):
    """Over the rows of one client."""

    stats: Stats  # sum of w E[s(x, z) | x]
    loglik: float  # sum of w log p(x)


class Family(Protocol):
    """A NamedTuple of numbers (so that it can be saved and sent) with these methods; rows are (n, d), NaN where a value is missing."""

    wants: str  # "whole numbers of at least 0": what the rows must hold
    supervised: bool  # whether the last column of the rows is the target

    def check(self) -> None:
        """Refuse invalid numbers."""

    def bad_rows(self, x: np.ndarray) -> np.ndarray:
        """(n,) True for rows that do not suit the family."""

    def frame(self, mean: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(shift, unit) of the frame in which rows come, for columns of this mean and scale; (0, 1) leaves them as they are."""

    def start(self, mean: np.ndarray, scale: np.ndarray, rng: np.random.Generator) -> Params:
        """Random params in the frame, for columns that have this mean and scale there."""

    def statistics(self, params: Params, x: np.ndarray, w: np.ndarray) -> Sum: ...

    def maximize(self, stats: Stats, params: Params) -> Params:
        """The params of mean statistics in the feasible set; what a family does not learn is taken from the params before."""

    def project(self, stats: Stats) -> tuple[Stats, bool]:
        """The statistics in the feasible set, and whether they had left it."""

    def moments(self, params: Params) -> Stats:
        """Mean statistics under the params themselves: maximize(moments(params)) == params."""

    def sample(self, params: Params, n: int, rng: np.random.Generator) -> np.ndarray: ...

    def unscale(self, params: Params, shift: np.ndarray, unit: np.ndarray) -> Params:
        """The params of rows x as those of rows shift + unit x."""

    def whiten(self, params: Params, stats: Stats) -> list[np.ndarray]:
        """The statistics as matrices whose numbers have like sizes along a row: a linear map that both ends know from the params."""

    def unwhiten(self, params: Params, blocks: list[np.ndarray]) -> Stats: ...

    def change(self, old: Params, new: Params) -> float:
        """The length of a step, in units in which 1 is large."""


# ---- what families share ----


class Plain:
    """A family whose rows are not standardised (counts, categories) and whose statistics have similar sizes."""

    supervised = False

    def moments(self, params: Params) -> Stats:
        """To be given by the family."""
        raise NotImplementedError("abstract")

    def frame(self, mean: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows as they are: shift 0, unit 1."""
        return np.zeros_like(mean), np.ones_like(scale)

    def unscale(self, params: Params, shift: np.ndarray, unit: np.ndarray) -> Params:
        """The parameters as they are."""
        return params

    def whiten(self, params: Params, stats: Stats) -> list[np.ndarray]:
        """The statistics themselves, as one row."""
        return [tree.flatten(stats)[None]]

    def unwhiten(self, params: Params, blocks: list[np.ndarray]) -> Stats:
        """The inverse of `whiten`."""
        return tree.unflatten(blocks[0][0], self.moments(params))

    def change(self, old: Params, new: Params) -> float:
        """The largest relative change of an array, by its root mean square; weights by the logarithm of their ratio."""
        moves = [_relative(a, b) for a, b in zip(tree.leaves(old), tree.leaves(new))]
        if hasattr(old, "weights"):
            moves.append(float(np.abs(np.log(new.weights / old.weights)).max()))
        return max(moves)


class Standardised(Plain):
    """A family that is closed under shifting and scaling of columns."""

    def frame(self, mean: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows standardised to mean 0 and variance 1."""
        return mean, scale


class Clustered(Standardised):
    """A Gaussian family that can start from clusters: their weights, means and variances."""

    n_components: int

    def from_clusters(self, weights: np.ndarray, means: np.ndarray, variances: np.ndarray) -> Params:
        """Parameters of clusters with weights (k,), means (k, d) and variances (k, d)."""
        raise NotImplementedError("abstract")

    def start(self, mean: np.ndarray, scale: np.ndarray, rng: np.random.Generator) -> Params:
        """Random means, with the variances of all rows."""
        k = self.n_components
        means = mean + scale * rng.normal(size=(k, len(mean)))
        return self.from_clusters(np.full(k, 1 / k), means, np.tile(scale**2, (k, 1)))


def _relative(old: np.ndarray, new: np.ndarray) -> float:
    """Root mean square of the change over that of the old values."""
    size = np.sqrt(np.mean(np.square(old)))
    return float(np.sqrt(np.mean(np.square(new - old))) / max(size, 1e-3))


# ---- mixtures ----


def responsibilities(log_joint: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, float]:  # (n, k), (n,)
    """(w times the probability of each component, sum of w log p(x))."""
    top = log_joint.max(axis=1, keepdims=True)
    r = np.exp(log_joint - top)
    total = r.sum(axis=1, keepdims=True)
    r *= w[:, None] / total
    return r, float(w @ (np.log(total) + top)[:, 0])


def weights(n: np.ndarray, floor: float) -> np.ndarray:
    """Mixing weights of mean counts, none below the floor."""
    n = np.maximum(n, floor * max(n.sum(), 1.0))
    return n / n.sum()


def labels(weights: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Draw the component of each of `n` rows."""
    return rng.choice(len(weights), size=n, p=weights / weights.sum())


def whole(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """(n,) where all values of a row are whole numbers in [low, high], or missing."""
    seen = ~np.isnan(x)
    values = np.where(seen, x, low)
    return ((values >= low) & (values <= high) & (values == np.floor(values))).all(axis=1)
