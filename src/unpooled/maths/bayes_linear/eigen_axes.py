"""The regression along the eigenvectors of the Gram matrix, group offsets integrated out. Sends nothing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.maths.bayes_linear.sums import Stats, unpack

TINY = 1e-13  # relative size of rounding errors


class Axes(NamedTuple):
    """The regression along the eigenvectors of the Gram matrix, where weights are independent of each other."""

    values: np.ndarray  # (k,) eigenvalues; 0 where rounding is all there is
    basis: np.ndarray  # (k, k) from features to the eigenvectors
    cross: np.ndarray  # (k, o) products of features and targets along the eigenvectors
    yy: np.ndarray  # (o,) sums of squares of the targets
    centre: np.ndarray  # (k,) mean of the features; 0 without intercept
    offset: np.ndarray  # (o,) mean of the targets; 0 without intercept
    n: np.ndarray  # () rows, less what the offsets of groups take up
    dof: float  # rows less the intercept


def axes(stats: Stats, ratio: float = 0.0, *, intercept: bool = False, standardize: bool = False) -> Axes:
    """The regression along the eigenvectors of the Gram matrix, where groups have offsets of variance ratio * noise."""
    shrink = ratio / (1 + ratio * stats.group_n)  # (g,)
    n, gram, cross, yy, centre, offset = without_group_offsets(stats, shrink, intercept)
    scale = _scale(stats, intercept) if standardize else np.ones(len(gram))
    values, vectors = np.linalg.eigh(gram / np.outer(scale, scale))
    informed = values > TINY * values.max(initial=0.0)  # along the other eigenvectors there is only rounding error
    values = np.where(informed, values, 0.0)
    cross = informed[:, None] * (vectors.T @ (cross / scale[:, None]))
    return Axes(values, vectors / scale[:, None], cross, yy, centre, offset, n, float(stats.n) - intercept)


def without_group_offsets(stats: Stats, shrink: np.ndarray, intercept: bool):
    """(n, gram (k, k), cross (k, o), yy (o,), centre (k,), offset (o,)) with group offsets integrated out.

    The sums are about the means with an intercept, about 0 without.
    """
    k, o = stats.zy.shape
    shared = stats.group_z * shrink  # (k, g)
    n = stats.n - (shrink * stats.group_n**2).sum()
    gram, cross = unpack(stats.zz, k) - shared @ stats.group_z.T, stats.zy - shared @ stats.group_y
    yy = stats.yy - (shrink[:, None] * stats.group_y * stats.group_y).sum(0)
    centre, offset = np.zeros(k), np.zeros(o)
    if intercept:
        centre = (stats.z - shared @ stats.group_n) / n
        offset = (stats.y - (shrink * stats.group_n) @ stats.group_y) / n
        gram, cross, yy = gram - n * np.outer(centre, centre), cross - n * np.outer(centre, offset), yy - n * offset**2
    return n, gram, cross, np.maximum(yy, 0.0), centre, offset


def centred_group_sums(stats: Stats, centre: np.ndarray, offset: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums per group of centred features and targets, (k, g) and (o, g)."""
    return stats.group_z - np.outer(centre, stats.group_n), stats.group_y.T - np.outer(offset, stats.group_n)


def _scale(stats: Stats, intercept: bool) -> np.ndarray:
    """The standard deviation of each feature; 1 for a constant one."""
    centre = stats.z / stats.n if intercept else np.zeros_like(stats.z)
    variance = (np.diag(unpack(stats.zz, len(centre))) - stats.n * centre**2) / stats.n
    constant = variance <= TINY * centre**2  # rounding error of a constant column
    return np.sqrt(np.where(constant | (variance <= 0), 1.0, variance))
