"""Predictions of a Bayesian linear model: at new rows, as if rows had been left out, and as joint draws. Sends nothing.

Axes: n rows, k features, o outputs, r axes of the posterior.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array
from unpooled.maths.bayes_linear.weight_posterior import Posterior


class GroupOffsets(NamedTuple):
    """The offset of each row's group given the weights; scalars without groups. See `Posterior`."""

    features: Any  # (..., n, k)
    targets: Any  # (..., n, o); the mean offset is targets - features'weights
    variance: Any  # (..., n, 1) over the noise
    intercept_factor: Any  # (..., n, 1) of the intercept's error: smaller where the group's offset is well known


def shared_offsets(post: Posterior, group: Array | None) -> GroupOffsets:
    """The offsets of each row's group (..., n); -1 is a group without rows."""
    if group is None or len(post.group_variance) == 1:
        return GroupOffsets(0.0, 0.0, post.group_ratio, 1.0)
    variance = post.group_variance[group][..., None]
    intercept_factor = variance / post.group_ratio if post.group_ratio > 0 else 1.0
    return GroupOffsets(post.group_features.T[group], post.group_targets[group], variance, intercept_factor)


def apart(post: Posterior, z: Array, y: Array, group: Array | None) -> tuple[Array, Array]:
    """Features (..., n, k) and targets (..., n, o) minus their groups' offsets, for a posterior without intercept."""
    offsets = shared_offsets(post, group)
    return z - offsets.features, y - offsets.targets


def predict(post: Posterior, z: Array, group: Array | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(mean, variance) of y at features z (n, k), (n, o) each; the variance includes the noise."""
    offsets = shared_offsets(post, group)
    z = z - post.feature_mean - offsets.features
    of_intercept = offsets.intercept_factor**2 * post.intercept_variance
    of_weights = (z @ post.basis) ** 2 @ post.axis_variance
    variance = post.noise_variance * (1 + offsets.variance) + of_intercept + of_weights
    return z @ post.weights + post.intercept + offsets.targets, variance


def left_out(post: Posterior, z: Array, y: Array, group: Array | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(mean, variance), (n, o) each, of every y as if its row had been left out of the fit.

    Exact for weights of 1, given noise, prior and ratio.
    """
    mean, variance = predict(post, z, group)
    ungrouped = _ungrouped_variance(post, group)
    leverage = (variance - ungrouped - post.noise_variance) / post.noise_variance
    free = np.maximum(1 - leverage, 1e-9)
    return y - (y - mean) / free, post.noise_variance / free + ungrouped


def _ungrouped_variance(post: Posterior, group: Array | None) -> Any:
    """The offset variance of rows without a group (..., n, o): they were fitted without an offset."""
    return 0.0 if group is None else (group < 0)[..., None] * post.noise_variance * post.group_ratio


def left_out_together(post: Posterior, z: Array, y: Array, group: Array | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(mean, variance), (n, o) each, of every y as if all of these rows had been left out of the fit.

    With leverages u u', a residual e becomes (I - u u')^-1 e = e + u (I - u'u)^-1 u'e. Exact for weights of 1, given noise, prior and
    ratio.
    """
    mean, _ = predict(post, z, group)
    left = np.empty_like(mean)
    variance = np.empty_like(mean)
    for j, noise in enumerate(post.noise_variance):
        u = _leverage_factor(post, z, group, j)
        solved = np.linalg.solve(np.eye(u.shape[1]) - u.T @ u, u.T)
        residual = y[:, j] - mean[:, j]
        left[:, j] = y[:, j] - residual - u @ (solved @ residual)
        variance[:, j] = noise * (1 + (u * solved.T).sum(1))
    return left, variance + _ungrouped_variance(post, group)


def _leverage_factor(post: Posterior, z: Array, group: Array | None, output: int) -> np.ndarray:
    """A factor u (n, columns) of the rows' leverages u u', which come from weights, intercept and group offsets."""
    offsets = shared_offsets(post, group)
    noise = post.noise_variance[output]
    z = z - post.feature_mean - offsets.features
    weights = z @ post.basis * np.sqrt(post.axis_variance[:, output] / noise)
    intercept = np.full((len(z), 1), np.sqrt(post.intercept_variance[output] / noise))
    return np.column_stack([weights, offsets.intercept_factor * intercept, _group_columns(post, group, len(z))])


def _group_columns(post: Posterior, group: Array | None, n: int) -> np.ndarray:
    """A column per group of these rows (n, groups): the standard deviation of its offset in its rows, 0 in the others."""
    if group is None:
        return np.zeros((n, 0))
    member = group[:, None] == np.unique(group[group >= 0])
    return member * np.sqrt(post.group_variance[group])[:, None]


def draw(post: Posterior, z: Array, n: int, rng: np.random.Generator, group: Array | None = None) -> np.ndarray:
    """n joint draws of y at features z (m, k), with noise: (m, o, n).

    Each row without a group has an offset of its own.
    """
    offsets = shared_offsets(post, group)
    z = z - post.feature_mean - offsets.features
    n_axes, o = post.axis_variance.shape
    weights = np.sqrt(post.axis_variance)[:, :, None] * rng.standard_normal((n_axes, o, n))
    intercept = np.sqrt(post.intercept_variance)[:, None] * rng.standard_normal((o, n))
    noise = np.sqrt(post.noise_variance)[:, None] * rng.standard_normal((len(z), o, n))
    member = _group_numbers(group, len(z))
    offset = rng.standard_normal((member.max() + 1, o, n))[member]
    offset = np.sqrt(offsets.variance * post.noise_variance)[..., None] * offset
    mean = z @ post.weights + post.intercept + offsets.targets
    intercept = np.reshape(offsets.intercept_factor, (-1, 1, 1)) * intercept
    drawn = np.einsum("mr,ron->mon", z @ post.basis, weights) + intercept
    return mean[:, :, None] + drawn + noise + offset


def _group_numbers(group: Array | None, n: int) -> np.ndarray:
    """A number from 0 for the group of each row; rows without a group are groups of one."""
    rows = np.arange(n)
    group_id = rows if group is None else np.where(group < 0, rows, n + group)
    return np.unique(group_id, return_inverse=True)[1]
