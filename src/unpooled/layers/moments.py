"""Sums that no rows can have: what `Plausible` finds wrong with a client's count, sum and second moments. Sends nothing.

Whatever the rows are, a sum of squares about the mean is not negative (Cauchy and Schwarz), in any direction. Where ranges of the columns
are declared, means must lie in them, and values cannot be farther from a point than the ends of the range are.
A room declares a check for its own message type by `declare(Type, check)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.maths import bayes_linear, gaussian
from unpooled.maths.bayes_linear import Stats as RegressionStats
from unpooled.maths.mixture import Params
from unpooled.maths.mixture import Stats as MixtureStats
from unpooled.tree import Tree

Ranges = np.ndarray | None  # (d, 2)
Check = Callable[[Any, Any, Ranges], str]  # (answer, what it was computed at or None, ranges) -> what is wrong, or ""

ROUNDING = 1e-4  # relative to the second moments themselves: rows may be float32
CHECKS: dict[type, Check] = {}


def declare(kind: type, check: Check) -> None:
    """Check every answer of this type with `check`."""
    CHECKS[kind] = check


def impossible(up: Tree, down: Tree, ranges: Ranges) -> str:
    """What is wrong with an answer, or nothing."""
    answers = list(_parts(up, tuple(CHECKS)))
    points = list(_parts(down, (Params,)))
    if len(points) != len(answers):
        points = [None] * len(answers)
    for answer, point in zip(answers, points):
        wrong = CHECKS[type(answer)](answer, point, ranges)
        if wrong:
            return wrong
    return ""


def _parts(value: Tree, kinds: tuple[type, ...]) -> Iterator[Any]:
    """The parts of a tree that are of these types."""
    if isinstance(value, kinds):
        yield value
    elif isinstance(value, tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _parts(part, kinds)


def negative_spread(n: np.ndarray, x: np.ndarray, xx: np.ndarray) -> bool:
    """Whether no rows of total weight n (...,) have sums x (..., d) and second moments xx (..., d, d)."""
    if not xx.size:
        return False
    n = np.maximum(n, np.finfo(float).tiny)[..., None, None]
    spread = xx - x[..., :, None] * x[..., None, :] / n  # (..., d, d) about the rows' own mean
    least = np.linalg.eigvalsh(spread)[..., 0]
    scale = np.abs(np.diagonal(xx, axis1=-2, axis2=-1)).max(-1, initial=0.0)
    return bool((least < -ROUNDING * scale).any())


def _mixture(stats: MixtureStats, at: Params | None, ranges: Ranges) -> str:
    """What is wrong with the sums of a mixture's components; "" when rows could have them."""
    n, x, xx = (to_numpy(part).astype(np.float64) for part in stats[:3])
    if np.abs(x[n == 0]).any():
        return "sums of a component without rows"
    if _mixture_spread(n, x, xx):
        return "second moments below what its sums allow"
    if ranges is None or at is None:
        return ""
    seen = n > 0
    means = to_numpy(at.means).astype(np.float64)[seen] + x[seen] / n[seen, None]
    slack = ROUNDING * (ranges[:, 1] - ranges[:, 0])
    outside = (means < ranges[:, 0] - slack) | (means > ranges[:, 1] + slack)
    return "means outside the declared ranges" if outside.any() else ""


def _mixture_spread(n: np.ndarray, x: np.ndarray, xx: np.ndarray) -> bool:
    """The same for packed second moments of the four shapes, told apart by their dimensions."""
    d = x.shape[1]
    if xx.ndim == 1 and len(xx) == d * (d + 1) // 2 and len(xx) != len(n):  # tied
        between = np.einsum("ki,kj->ij", x / np.maximum(n, np.finfo(float).tiny)[:, None], x)
        total = gaussian.unpack_triangle(xx)
        return negative_spread(np.ones(1), np.zeros((1, d)), (total - between)[None])
    if xx.ndim == 1:  # spherical, or tied with as many numbers as components: the weaker of the two
        return bool((xx < -ROUNDING * np.abs(xx).max(initial=0.0)).any())
    if xx.shape[1] == d:  # diagonal
        spread = xx - x**2 / np.maximum(n, np.finfo(float).tiny)[:, None]
        return bool((spread < -ROUNDING * np.abs(xx).max(initial=0.0)).any())
    return negative_spread(n, x, gaussian.unpack_triangle(xx))


def _regression(stats: RegressionStats, at: Any, ranges: Ranges) -> str:
    """What is wrong with the second moments of features and targets; "" when rows could have them."""
    n, z, y, zz, zy, yy = (to_numpy(part).astype(np.float64) for part in stats[:6])
    moments = bayes_linear.unpack(zz, len(z))
    for j in range(len(y)):  # features together with one target
        joint = np.block([[moments, zy[:, j, None]], [zy[None, :, j], yy[j, None, None]]])
        if negative_spread(n[None], np.r_[z, y[j]][None], joint[None]):
            return "second moments below what its sums allow"
    return ""


declare(MixtureStats, _mixture)
declare(RegressionStats, _regression)
