"""The sums over rows that a Bayesian linear regression follows from: `Stats`, which add and subtract. Sends nothing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from unpooled.arrays import Array, Float, Number, namespace
from unpooled.tree import message


@message("maths.bayes_linear.Stats")
class Stats(NamedTuple):
    """Sums over rows with weights w, of features z (k,) and targets y (o,)."""

    n: Float[Array, "", ">=0 rows"]
    z: Float[Array, "k"]
    y: Float[Array, "o"]
    zz: Number[Array, "t"]  # the upper triangle of sum w z z', row by row; integers where features are whole numbers
    zy: Float[Array, "k o"]
    yy: Float[Array, "o", ">=0"]
    group_n: Float[Array, "g", ">=0 rows"]  # the same over the rows of each group; g is 0 without groups
    group_z: Float[Array, "k g"]
    group_y: Float[Array, "g o"]


def statistics(
    z: Array, y: Array, w: Array, group: Array | None = None, groups: int = 0, *, whole: bool = False
) -> Stats:
    """`Stats` of rows z (..., n, k) and y (..., n, o) with weights w (..., n).

    `group` (..., n) holds the group of each row, -1 for none; `groups` is their number. With `whole`, features times the root of
    their row's weight are rounded to whole numbers first: sums of their products are then exact, in any order.
    """
    xp = namespace(z)
    root = xp.sqrt(w)[..., None]
    rz, ry = z * root, y * root
    if whole:
        rz = xp.rint(rz)
    rows, columns = _triangle(z.shape[-1])
    zz = (rz.swapaxes(-1, -2) @ rz)[..., rows, columns]
    zy = rz.swapaxes(-1, -2) @ ry
    plain = w.sum(-1), (rz * root).sum(-2), (ry * root).sum(-2), zz, zy, (ry * ry).sum(-2)
    return Stats(*plain, *_group_sums(z, y, w, group, groups))


def _group_sums(z: Array, y: Array, w: Array, group: Array | None, groups: int) -> tuple[Array, Array, Array]:
    """Sums by group: (..., g), (..., k, g), (..., g, o)."""
    *lead, n, k = z.shape
    o = y.shape[-1]
    if group is None or groups == 0:
        return np.zeros((*lead, 0)), np.zeros((*lead, k, 0)), np.zeros((*lead, 0, o))
    stacks = int(np.prod(lead))
    where = (group.reshape(stacks, n) + groups * np.arange(stacks)[:, None]).ravel()
    rows = np.flatnonzero((group.ravel() >= 0) & (w.ravel() > 0))
    member = csr_array((w.ravel()[rows], (where[rows], rows)), shape=(stacks * groups, stacks * n))
    count = member.sum(1)
    by_z = member @ z.reshape(-1, k)
    by_y = member @ y.reshape(-1, o)
    by_z = by_z.reshape(*lead, groups, k).swapaxes(-1, -2)
    return count.reshape(*lead, groups), by_z, by_y.reshape(*lead, groups, o)


def _triangle(k: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column indices of the upper triangle of a (k, k) matrix."""
    return np.triu_indices(k)


def pack(square: np.ndarray) -> np.ndarray:
    """The upper triangle of a symmetric (k, k) matrix, row by row: (t,)."""
    return square[_triangle(square.shape[0])]


def unpack(triangle: np.ndarray, k: int) -> np.ndarray:
    """The symmetric (k, k) matrix of an upper triangle (t,)."""
    square = np.zeros((k, k))
    square[_triangle(k)] = triangle
    return square + np.triu(square, 1).T


def scaled(stats: Stats, scale: np.ndarray) -> Stats:
    """The sums of features that are multiplied by `scale` (k,)."""
    rows, columns = _triangle(len(scale))
    return stats._replace(
        z=stats.z * scale,
        zz=stats.zz * scale[rows] * scale[columns],
        zy=stats.zy * scale[:, None],
        group_z=stats.group_z * scale[:, None],
    )
