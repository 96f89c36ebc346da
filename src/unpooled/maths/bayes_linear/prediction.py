"""Predictions of a Bayesian linear model: at new rows, as if rows had been left out, and as joint draws. Sends nothing.

Axes: n rows, k features, o outputs, r axes of the posterior.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array
from unpooled.maths.bayes_linear.weight_posterior import Posterior


class GroupOffsets(NamedTuple):
    """What a prediction needs of each row's group; see `Posterior` for the names. Scalars without groups."""

    pull: Any  # (..., n, k)
    push: Any  # (..., n, o); the mean offset is push - pull'weights
    shrink: Any  # (..., n, 1) variance of the offset given the weights, over the noise
    kept: Any  # (..., n, 1) factor of the intercept's error: smaller where the group's offset is well known


def shared_offsets(post: Posterior, group: Array | None) -> GroupOffsets:
    """The offsets of each row's group (..., n); -1 is a group without rows."""
    if group is None or len(post.shrink) == 1:
        return GroupOffsets(0.0, 0.0, post.ratio, 1.0)
    shrink = post.shrink[group][..., None]
    kept = shrink / post.ratio if post.ratio > 0 else 1.0
    return GroupOffsets(post.pull.T[group], post.push[group], shrink, kept)


def apart(post: Posterior, z: Array, y: Array, group: Array | None) -> tuple[Array, Array]:
    """Features (..., n, k) and targets (..., n, o) minus their groups' offsets, for a posterior without intercept."""
    pull, push, _, _ = shared_offsets(post, group)
    return z - pull, y - push


def predict(post: Posterior, z: Array, group: Array | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(mean, variance) of y at features z (n, k), (n, o) each; the variance includes the noise."""
    pull, push, shrink, kept = shared_offsets(post, group)
    z = z - post.centre - pull
    variance = post.noise * (1 + shrink) + kept**2 * post.unsure + (z @ post.basis) ** 2 @ post.spread
    return z @ post.weights + post.offset + push, variance


def left_out(post: Posterior, z: Array, y: Array, group: Array | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(mean, variance), (n, o) each, of every y as if its row had been left out of the fit.

    Exact for weights of 1, given noise, prior and ratio.
    """
    mean, variance = predict(post, z, group)
    alone = _alone(post, group)
    free = np.maximum(1 - (variance - alone - post.noise) / post.noise, 1e-9)  # 1 - leverage
    return y - (y - mean) / free, post.noise / free + alone


def _alone(post: Posterior, group: Array | None) -> Any:
    """The offset variance of rows without a group (..., n, o): they were fitted without an offset."""
    return 0.0 if group is None else (group < 0)[..., None] * post.noise * post.ratio


def left_out_together(post: Posterior, z: Array, y: Array, group: Array | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(mean, variance), (n, o) each, of every y as if all of these rows had been left out of the fit.

    Exact for weights of 1, given noise, prior and ratio.
    """
    mean, _ = predict(post, z, group)
    shared = np.zeros((len(z), 0))
    if group is not None:
        member = group[:, None] == np.unique(group[group >= 0])  # (n, groups here)
        shared = member * np.sqrt(post.shrink[group])[:, None]
    pull, _, _, kept = shared_offsets(post, group)
    z = z - post.centre - pull
    left, variance = np.empty_like(mean), np.empty_like(mean)
    for j, noise in enumerate(post.noise):
        u = z @ post.basis * np.sqrt(post.spread[:, j] / noise)  # (n, r): leverages are u u'
        u = np.column_stack([u, kept * np.full((len(u), 1), np.sqrt(post.unsure[j] / noise)), shared])
        solved = np.linalg.solve(np.eye(u.shape[1]) - u.T @ u, u.T)  # (I - u u')^-1 = I + u (I - u'u)^-1 u'
        residual = y[:, j] - mean[:, j]
        left[:, j] = y[:, j] - residual - u @ (solved @ residual)
        variance[:, j] = noise * (1 + (u * solved.T).sum(1))
    return left, variance + _alone(post, group)


def draw(post: Posterior, z: Array, n: int, rng: np.random.Generator, group: Array | None = None) -> np.ndarray:
    """n joint draws of y at features z (m, k), with noise: (m, o, n).

    Each row without a group has an offset of its own.
    """
    pull, push, shrink, kept = shared_offsets(post, group)
    z = z - post.centre - pull
    axes, o = post.basis.shape[1], len(post.noise)
    weights = np.sqrt(post.spread)[:, :, None] * rng.standard_normal((axes, o, n))
    unsure = np.sqrt(post.unsure)[:, None] * rng.standard_normal((o, n))
    noise = np.sqrt(post.noise)[:, None] * rng.standard_normal((len(z), o, n))
    own = np.arange(len(z))  # rows without a group are groups of one
    group_id = own if group is None else np.where(group < 0, own, len(z) + group)
    member = np.unique(group_id, return_inverse=True)[1]
    offsets = np.sqrt(shrink * post.noise)[..., None] * rng.standard_normal((member.max() + 1, o, n))[member]
    mean = z @ post.weights + post.offset + push
    drawn = np.einsum("mr,ron->mon", z @ post.basis, weights) + np.reshape(kept, (-1, 1, 1)) * unsure
    return mean[:, :, None] + drawn + noise + offsets
