"""Pooled Newton steps for linear learners: one SUM of gradients and second derivatives, about the cost of a covariance.

Scores of the first class are held at 0, so k learners of c classes over d columns have q = (c - 1)(d + 1) free
parameters each; up go q of the gradient and the packed triangle of a (q, q) matrix. Both are about a centre of the
columns, so that neither the digits nor the prior depend on where the rows lie.
"""

from __future__ import annotations

import numpy as np

from unpooled.arrays import Array, is_torch, like, namespace, to_numpy
from unpooled.maths import gaussian
from unpooled.maths.kernel import chunks

LARGEST = 800  # free parameters of a learner for which a (q, q) matrix is still a good bargain
LONGEST = 4.0  # a step changes scores by no more than this, root mean square over the rows


def fits(inputs: int, classes: int) -> bool:
    """Whether Newton's matrix is small enough to be sent."""
    return (classes - 1) * (inputs + 1) <= LARGEST


def curvature(log_p: Array, x: Array, y: Array, s: Array, centre: Array = 0.0) -> tuple[Array, Array]:
    """Gradient (..., k, q) and packed negative second derivative (..., k, t) of sum_i s_ik log P_k(y_i | x_i) about a
    centre (d,), in float64.

    log_p (..., k, c, n), x (..., n, d), y codes (..., n), s (..., n, k).
    """
    xp = namespace(x)
    one = xp.concatenate([x, xp.ones_like(x[..., :1])], axis=-1)  # (..., n, d + 1)
    one[..., :-1] -= like(centre, x)
    p = xp.exp(log_p[..., 1:, :])  # (..., k, c - 1, n)
    s = xp.swapaxes(s, -1, -2)  # (..., k, n)
    free = p.shape[-2]
    hit = xp.stack([y == a + 1 for a in range(free)], axis=-2)[..., None, :, :]
    error = (xp.asarray(hit, dtype=p.dtype) - p) * s[..., None, :]
    gradient = error @ one[..., None, :, :]
    blocks = [[_block(one, s * p[..., a, :] * (int(a == b) - p[..., b, :])) for b in range(a + 1)] for a in range(free)]
    return _double(gradient.reshape(*gradient.shape[:-2], -1)), _double(_packed(blocks))


def _block(one: Array, weight: Array) -> Array:
    """sum_i weight_ki (x_i, 1)(x_i, 1)': (..., k, d + 1, d + 1) of weights (..., k, n); in pieces that stay in the
    cache on a CPU.
    """
    if is_torch(one):
        rows = one[..., None, :, :]
        return namespace(one).swapaxes(rows * weight[..., None], -1, -2) @ rows
    (k, n), wide = weight.shape[-2:], one.shape[-1]
    rows, weights = one.reshape(-1, n, wide), weight.reshape(-1, k, n)
    total = np.zeros((len(rows), k, wide, wide))
    for own, pieces in chunks(len(rows), n, (2 * k + 1) * wide, one):
        for part in pieces:
            x = rows[own, part]  # (b, n, d + 1)
            turned = np.ascontiguousarray(x.swapaxes(1, 2))
            total[own] += (turned[:, None] * weights[own, :, None, part]) @ x[:, None]
    return total.reshape(*weight.shape[:-1], wide, wide)


def _packed(blocks: list[list[Array]]) -> Array:
    """The triangle, by rows, of the symmetric matrix whose lower blocks these are."""
    xp = namespace(blocks[0][0])
    full = [
        xp.concatenate([blocks[max(a, b)][min(a, b)] for b in range(len(blocks))], axis=-1) for a in range(len(blocks))
    ]
    return gaussian.pack_triangle(xp.concatenate(full, axis=-2))


def _double(a: Array) -> Array:
    return a.double() if is_torch(a) else a.astype(np.float64)


def step(
    theta: Array, gradient: Array, curved: Array, prior: np.ndarray, second: np.ndarray, centre: np.ndarray
) -> np.ndarray:
    """The learners (k, p) after a Newton step under a Gaussian prior of precision (d + 1,) on their parameters about
    the centre (d,).

    `second` (k, d + 1, d + 1) is the mean of (x, 1)(x, 1)' about it that each learner sees: it measures, and limits,
    the step.
    """
    k, wide = len(theta), len(prior)
    scores = to_numpy(theta).astype(np.float64).reshape(k, -1, wide)
    free = _seen_from(centre, scores[:, 1:] - scores[:, :1]).reshape(k, -1)
    every = np.tile(prior, free.shape[1] // wide)
    matrix = gaussian.unpack_triangle(to_numpy(curved)) + np.diag(every)
    move = np.linalg.solve(matrix, (to_numpy(gradient) - every * free)[..., None]).reshape(k, -1, wide)
    length = np.sqrt(np.einsum("kai,kij,kaj->ka", move, second, move).max(-1))
    move *= np.minimum(1.0, LONGEST / np.maximum(length, 1e-12))[:, None, None]
    new = _seen_from(-centre, free.reshape(k, -1, wide) + move)
    return np.concatenate([np.zeros((k, 1, wide)), new], axis=1).reshape(k, -1)


def _seen_from(centre: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """The same scores (..., d + 1) as functions of rows about this centre."""
    return np.concatenate([scores[..., :-1], scores[..., -1:] + scores[..., :-1] @ centre[:, None]], axis=-1)
