"""Steps of linear learners too wide for their second derivatives to be sent: a bound of these takes their place.

The second derivatives of a learner of c classes have (c - 1)(d + 1) rows and columns; Boehning's bound of them, half of the second
moments of the learner's rows (a quarter for two classes), has d + 1, and follows from the Gaussians. A client sends the gradient alone.

References
----------
Boehning (1992), Multinomial logistic regression algorithm, Annals of the Institute of Statistical Mathematics.
"""

from __future__ import annotations

import numpy as np

from unpooled.arrays import Array, is_torch, like, namespace, to_numpy
from unpooled.learners import newton
from unpooled.maths import gaussian


def gradient(log_p: Array, x: Array, y: Array, s: Array, centre: Array) -> Array:
    """(..., m, q) derivatives of sum_i s_ij log P_j(y_i | x_i) by the coefficients of columns about a centre (d,), in float64.

    log_p (..., m, c, n), x (..., n, d), y codes (..., n), s (..., n, m); scores of the first class are held at 0.
    """
    xp = namespace(x)
    one = xp.concatenate([x - like(centre, x), xp.ones_like(x[..., :1])], axis=-1)  # (..., n, d + 1)
    classes = range(1, log_p.shape[-2])
    is_class = xp.stack([y == a for a in classes], axis=-2)[..., None, :, :]  # (..., 1, c - 1, n)
    p = xp.exp(log_p[..., 1:, :])
    error = (xp.asarray(is_class, dtype=p.dtype) - p) * xp.swapaxes(s, -1, -2)[..., None, :]
    found = error @ one[..., None, :, :]
    found = found.reshape(*found.shape[:-2], -1)
    return found.double() if is_torch(found) else found.astype(np.float64)


def step(
    theta: Array, gradient: Array, rows: np.ndarray, prior: np.ndarray, second: np.ndarray, centre: np.ndarray
) -> np.ndarray:
    """The learners (m, p) after a step that never lowers the penalised likelihood, if `second` are the moments of their rows (m,).

    `prior` (d + 1,) is the precision of coefficients about their mean over classes; of two classes, of their difference.
    """
    m = len(theta)
    wide = len(prior)
    scores = to_numpy(theta).astype(np.float64).reshape(m, -1, wide)
    free = _moved(centre, scores[:, 1:] - scores[:, :1])  # (m, c - 1, d + 1)
    several = free.shape[1] > 1
    about_mean = free - several * free.sum(1, keepdims=True) / (free.shape[1] + 1)
    uphill = to_numpy(gradient).reshape(free.shape) - prior * about_mean
    bound = (0.5 if several else 0.25) * rows[:, None, None] * second + np.diag(prior)
    change = np.linalg.solve(bound, uphill.swapaxes(1, 2)).swapaxes(1, 2)
    change += several * change.sum(1, keepdims=True)
    size = np.sqrt(np.einsum("mai,mij,maj->ma", change, second, change).max(-1))
    change *= np.minimum(1.0, newton.MAX_STEP / np.maximum(size, 1e-12))[:, None, None]
    new = _moved(-centre, free + change)
    return np.concatenate([np.zeros((m, 1, wide)), new], axis=1).reshape(m, -1)


def effective_parameters(rows: np.ndarray, prior: np.ndarray, second: np.ndarray, classes: int) -> float:
    """How many parameters of the learners the rows determine rather than the prior (d + 1,).

    Second derivatives are those of a learner that says all classes are equally likely, the largest on average over classes.
    """
    likely = (1 / classes if classes > 2 else 0.25) * rows[:, None, None] * second
    found = np.trace(np.linalg.solve(likely + np.diag(prior), likely), axis1=-2, axis2=-1)
    return float((classes - 1) * found.sum())


def all_classes(rows: np.ndarray, second: np.ndarray, classes: int) -> np.ndarray:
    """(m, t) the bound of a learner's second derivatives of all classes, packed as `newton.curvature` has them."""
    across = 0.5 * (np.eye(classes - 1) - 1 / classes)
    return np.stack([gaussian.pack_triangle(np.kron(across, n * moments)) for n, moments in zip(rows, second)])


def _moved(centre: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Coefficients and intercepts (..., d + 1) of the same scores as functions of x - centre."""
    return np.concatenate([scores[..., :-1], scores[..., -1:] + scores[..., :-1] @ centre[:, None]], axis=-1)
