"""What every family offers, and the few lines that mixtures share.

A model of the exponential family is two functions: `statistics`, the sum over rows of E[s(x, z) | x; params], and `maximize`, the params
that a mean statistic stands for. Everything else (who sends what, how it is compressed, how the server steps) is generic in them.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from unpooled import tree
from unpooled.tree import message

Params = Any  # a NamedTuple of arrays, one kind a family
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
        """Refuse numbers that cannot work."""

    def bad_rows(self, x: np.ndarray) -> np.ndarray:
        """(n,) where a row is not what the family wants."""

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
        """How far a step goes, in units in which 1 is large."""


# ---- what families share ----


class Plain:
    """A family whose values have a meaning of their own (counts, categories) and whose statistics have like sizes."""

    supervised = False

    def moments(self, params: Params) -> Stats:
        raise NotImplementedError("abstract")

    def frame(self, mean: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros_like(mean), np.ones_like(scale)

    def unscale(self, params: Params, shift: np.ndarray, unit: np.ndarray) -> Params:
        return params

    def whiten(self, params: Params, stats: Stats) -> list[np.ndarray]:
        """The statistics themselves, as one row."""
        return [tree.flatten(stats)[None]]

    def unwhiten(self, params: Params, blocks: list[np.ndarray]) -> Stats:
        return tree.unflatten(blocks[0][0], self.moments(params))

    def change(self, old: Params, new: Params) -> float:
        """The largest relative change of an array, by its root mean square; weights by the logarithm of their ratio."""
        moves = [_relative(a, b) for a, b in zip(tree.leaves(old), tree.leaves(new))]
        if hasattr(old, "weights"):
            moves.append(float(np.abs(np.log(new.weights / old.weights)).max()))
        return max(moves)


class Standardised(Plain):
    """A family that any shift and scaling of a column leaves what it is."""

    def frame(self, mean: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return mean, scale


def _relative(old: np.ndarray, new: np.ndarray) -> float:
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
    return rng.choice(len(weights), size=n, p=weights / weights.sum())


def whole(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """(n,) where all values of a row are whole numbers in [low, high], or missing."""
    seen = ~np.isnan(x)
    values = np.where(seen, x, low)
    return ((values >= low) & (values <= high) & (values == np.floor(values))).all(axis=1)
