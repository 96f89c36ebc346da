"""Pooled Newton steps for linear learners, from one SUM of gradients and second derivatives.

Scores of the first class are held at 0, so k learners of c classes over d columns have q = (c - 1)(d + 1) free
parameters each. A client sends q gradient entries and the packed triangle of a (q, q) matrix per learner, which is about
the size of a covariance. Columns are centred first, so that neither rounding nor the prior depends on their origin.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from unpooled.arrays import Array, is_torch, like, namespace, to_numpy
from unpooled.maths import gaussian
from unpooled.maths.kernel import chunks

MAX_PARAMETERS = 800  # free parameters of a learner above which the (q, q) matrix is too large to send
MAX_STEP = 4.0  # the largest change of the scores in a step, root mean square over the rows


def fits(inputs: int, classes: int) -> bool:
    """Whether the matrix of second derivatives is small enough to be sent."""
    return (classes - 1) * (inputs + 1) <= MAX_PARAMETERS


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
    is_class = xp.stack([y == a + 1 for a in range(free)], axis=-2)[..., None, :, :]
    error = (xp.asarray(is_class, dtype=p.dtype) - p) * s[..., None, :]
    gradient = error @ one[..., None, :, :]
    blocks = [[_block(one, s * p[..., a, :] * (int(a == b) - p[..., b, :])) for b in range(a + 1)] for a in range(free)]
    return _float64(gradient.reshape(*gradient.shape[:-2], -1)), _float64(_packed(blocks))


def _block(one: Array, weight: Array) -> Array:
    """sum_i weight_ki (x_i, 1)(x_i, 1)': (..., k, d + 1, d + 1) of weights (..., k, n); on a CPU in
    pieces that fit the cache.
    """
    if is_torch(one):
        rows = one[..., None, :, :]
        return namespace(one).swapaxes(rows * weight[..., None], -1, -2) @ rows
    (k, n), wide = weight.shape[-2:], one.shape[-1]
    rows = one.reshape(-1, n, wide)
    weights = weight.reshape(-1, k, n)
    total = np.zeros((len(rows), k, wide, wide))
    for own, pieces in chunks(len(rows), n, (2 * k + 1) * wide, one):
        for part in pieces:
            x = rows[own, part]  # (b, n, d + 1)
            transposed = np.ascontiguousarray(x.swapaxes(1, 2))
            total[own] += (transposed[:, None] * weights[own, :, None, part]) @ x[:, None]
    return total.reshape(*weight.shape[:-1], wide, wide)


def _packed(blocks: list[list[Array]]) -> Array:
    """The packed triangle of a symmetric matrix, given its lower blocks."""
    xp = namespace(blocks[0][0])
    full = [
        xp.concatenate([blocks[max(a, b)][min(a, b)] for b in range(len(blocks))], axis=-1) for a in range(len(blocks))
    ]
    return gaussian.pack_triangle(xp.concatenate(full, axis=-2))


def _float64(a: Array) -> Array:
    """The array in 64 bit floats."""
    return a.double() if is_torch(a) else a.astype(np.float64)


def solve(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """matrix^-1 right for a symmetric matrix; directions without curvature are left where they are."""
    scale = np.sqrt(np.maximum(np.diag(matrix), np.finfo(float).tiny))
    unit = matrix / np.outer(scale, scale)
    scaled = (right.T / scale).T
    _, found, failed = lapack.dposv(unit, scaled, lower=1)
    if failed:
        found = np.linalg.lstsq(unit, scaled, rcond=1e-10)[0]
    return np.asarray((found.reshape(right.shape).T / scale).T)


def step(
    theta: Array,
    gradient: Array,
    curved: Array,
    prior: np.ndarray,
    second: np.ndarray,
    centre: np.ndarray,
    alike: bool = False,
) -> np.ndarray:
    """The learners (k, p) after a Newton step under a Gaussian prior of precision `prior` (d + 1,) on the parameters of
    centred columns.

    `second` (k, d + 1, d + 1) is the mean of (x, 1)(x, 1)' about `centre` (d,) over the rows of each learner: it gives the
    change of the scores, which is limited to MAX_STEP. The prior is on differences from the first class or, if classes are
    `alike`, on those from their mean.
    """
    k, wide = len(theta), len(prior)
    scores = to_numpy(theta).astype(np.float64).reshape(k, -1, wide)
    free = _recentred(centre, scores[:, 1:] - scores[:, :1]).reshape(k, -1)
    precision = precision_matrix(prior, free.shape[1] // wide, alike)
    matrix = gaussian.unpack_triangle(to_numpy(curved)) + precision
    step = np.linalg.solve(matrix, (to_numpy(gradient) - free @ precision)[..., None]).reshape(k, -1, wide)
    change = np.sqrt(np.einsum("kai,kij,kaj->ka", step, second, step).max(-1))
    step *= np.minimum(1.0, MAX_STEP / np.maximum(change, 1e-12))[:, None, None]
    new = _recentred(-centre, free.reshape(k, -1, wide) + step)
    return np.concatenate([np.zeros((k, 1, wide)), new], axis=1).reshape(k, -1)


def precision_matrix(prior: np.ndarray, free: int, alike: bool) -> np.ndarray:
    """The precision (q, q) of a prior (d + 1,) on the parameters of `free` classes, those but the first."""
    across = np.eye(free) - (1 / (free + 1) if alike and free > 1 else 0.0)
    return np.kron(across, np.diag(prior))


def penalised(curved: Array, prior: np.ndarray, alike: bool = False) -> np.ndarray:  # (t,)
    """The packed second derivatives of a single learner (1, t), with those of its prior."""
    second = gaussian.unpack_triangle(to_numpy(curved))[0]
    return gaussian.pack_triangle(second + precision_matrix(prior, second.shape[-1] // len(prior), alike))


def effective_parameters(curved: Array, prior: np.ndarray, alike: bool = False) -> float:
    """How many parameters of the learners (k, t) the rows determine rather than the prior (d + 1,)."""
    second = gaussian.unpack_triangle(to_numpy(curved))
    precision = precision_matrix(prior, second.shape[-1] // len(prior), alike)
    return float(np.trace(np.linalg.solve(second + precision, second), axis1=-2, axis2=-1).sum())


def _recentred(centre: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Coefficients and intercepts (..., d + 1) of the same scores as functions of x - centre."""
    return np.concatenate([scores[..., :-1], scores[..., -1:] + scores[..., :-1] @ centre[:, None]], axis=-1)
