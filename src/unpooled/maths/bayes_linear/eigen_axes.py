"""The regression along the eigenvectors of the Gram matrix, group offsets integrated out. Sends nothing.

Integrating out an offset b ~ N(0, ratio * noise) of a group of n rows subtracts `shrink` times the product of its sums from
every second moment, with shrink = ratio / (1 + ratio n): from the Gram matrix, for instance, shrink (sum z)(sum z)'.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.maths.bayes_linear.sums import Stats, unpack

TINY = 1e-13  # relative size of rounding errors


class Moments(NamedTuple):
    """Second moments of rows with group offsets integrated out: about the means with an intercept, else about 0."""

    n: np.ndarray  # () rows, less what the offsets of groups take up
    gram: np.ndarray  # (k, k) features with features
    cross: np.ndarray  # (k, o) features with targets
    yy: np.ndarray  # (o,) sums of squares of the targets
    feature_mean: np.ndarray  # (k,) 0 without intercept
    target_mean: np.ndarray  # (o,) 0 without intercept


class Axes(NamedTuple):
    """The regression along the eigenvectors of the Gram matrix, where weights are independent of each other."""

    eigenvalues: np.ndarray  # (k,) 0 where rounding is all there is
    basis: np.ndarray  # (k, k) from features to the eigenvectors
    cross: np.ndarray  # (k, o) products of features and targets along the eigenvectors
    yy: np.ndarray  # (o,) sums of squares of the targets
    feature_mean: np.ndarray  # (k,) 0 without intercept
    target_mean: np.ndarray  # (o,) 0 without intercept
    n: np.ndarray  # () rows, less what the offsets of groups take up
    dof: float  # rows less the intercept


def axes(stats: Stats, ratio: float = 0.0, *, intercept: bool = False, standardize: bool = False) -> Axes:
    """The regression along the eigenvectors of the Gram matrix, where groups have offsets of variance ratio * noise."""
    moments = moments_without_offsets(stats, ratio, intercept)
    scale = _scale(stats, intercept) if standardize else np.ones(len(moments.gram))
    eigenvalues, vectors = np.linalg.eigh(moments.gram / np.outer(scale, scale))
    informed = eigenvalues > TINY * eigenvalues.max(initial=0.0)  # the others are rounding error
    cross = informed[:, None] * (vectors.T @ (moments.cross / scale[:, None]))
    return Axes(
        eigenvalues=np.where(informed, eigenvalues, 0.0),
        basis=vectors / scale[:, None],
        cross=cross,
        yy=moments.yy,
        feature_mean=moments.feature_mean,
        target_mean=moments.target_mean,
        n=moments.n,
        dof=float(stats.n) - intercept,
    )


def moments_without_offsets(stats: Stats, ratio: float, intercept: bool) -> Moments:
    """Second moments with group offsets of variance ratio * noise integrated out."""
    k, o = stats.zy.shape
    shrink = ratio / (1 + ratio * stats.group_n)  # (g,)
    shared = stats.group_z * shrink  # (k, g)
    n = stats.n - (shrink * stats.group_n**2).sum()
    gram = unpack(stats.zz, k) - shared @ stats.group_z.T
    cross = stats.zy - shared @ stats.group_y
    yy = stats.yy - (shrink[:, None] * stats.group_y * stats.group_y).sum(0)
    if not intercept:
        return Moments(n, gram, cross, np.maximum(yy, 0.0), np.zeros(k), np.zeros(o))
    feature_mean = (stats.z - shared @ stats.group_n) / n
    target_mean = (stats.y - (shrink * stats.group_n) @ stats.group_y) / n
    gram = gram - n * np.outer(feature_mean, feature_mean)
    cross = cross - n * np.outer(feature_mean, target_mean)
    yy = yy - n * target_mean**2
    return Moments(n, gram, cross, np.maximum(yy, 0.0), feature_mean, target_mean)


def centred_group_sums(
    stats: Stats, feature_mean: np.ndarray, target_mean: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Sums per group of centred features and targets, (k, g) and (o, g)."""
    group_z = stats.group_z - np.outer(feature_mean, stats.group_n)
    group_y = stats.group_y.T - np.outer(target_mean, stats.group_n)
    return group_z, group_y


def _scale(stats: Stats, intercept: bool) -> np.ndarray:
    """The standard deviation of each feature; 1 for a constant one."""
    mean = stats.z / stats.n if intercept else np.zeros_like(stats.z)
    squares = np.diag(unpack(stats.zz, len(mean)))
    variance = (squares - stats.n * mean**2) / stats.n
    constant = variance <= TINY * mean**2  # rounding error of a constant column
    return np.sqrt(np.where(constant | (variance <= 0), 1.0, variance))
