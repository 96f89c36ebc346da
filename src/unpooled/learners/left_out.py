"""A linear learner as it would be without each of a client's rows, by one Newton step. Nothing is sent.

Up to MAX_EXACT free parameters the step uses all second derivatives, beyond it those within each class: c matrices of (d + 1, d + 1)
instead of one of (c - 1)(d + 1) rows.
"""

from __future__ import annotations

import numpy as np

from unpooled.learners.penalties import with_one
from unpooled.maths import logistic

MAX_EXACT = 64  # free parameters up to which the inverse is that of all second derivatives
MOST = 0.99  # of a row's own share in its score


def inverses_of(second: np.ndarray, classes: int) -> np.ndarray:  # (k, blocks, r, r)
    """Inverses of penalised second derivatives (k, q, q) of learners: whole, or of the block of each class."""
    k, q = second.shape[:2]
    if classes == 2 or q <= MAX_EXACT:
        return np.linalg.inv(second)[:, None]
    free = classes - 1
    wide = q // (classes - 1)
    parts = second.reshape(k, free, wide, free, wide)
    first = parts.sum((1, 3))  # scores of the first class are 0: a common change of all others is one of it
    return np.linalg.inv(np.stack([first, *(parts[:, a, :, a] for a in range(free))], 1))


def without_each(
    x: np.ndarray,
    y: np.ndarray,
    w: np.ndarray,
    log_p: np.ndarray,
    inverse: np.ndarray,
    centre: np.ndarray,
    part: int = 1,
) -> np.ndarray:  # (n, c)
    """Log-probabilities of every `part`-th row under the optimum of all other rows: one Newton step from that of all. Those of the other
    rows stay as they are.

    x (n, d), y codes (n,), w (n,), log_p (n, c) at the optimum, inverse (blocks, r, r) as in `inverses_of`.
    """
    if part > 1:
        found = log_p.copy()
        some = slice(None, None, part)
        found[some] = without_each(x[some], y[some], w[some], log_p[some], inverse, centre)
        return found
    if log_p.shape[1] == 2:
        return _of_two_classes(x, y, w, log_p, inverse, centre)
    step = _step if len(inverse) == 1 else _step_by_class
    scores = np.empty_like(log_p)
    for place, z in logistic.blocks(x, centre):
        own = log_p[place]
        scores[place] = own - step(z, y[place], w[place], np.exp(own), inverse)
    scores -= scores.max(1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(1, keepdims=True))


def _of_two_classes(
    x: np.ndarray, y: np.ndarray, w: np.ndarray, log_p: np.ndarray, inverse: np.ndarray, centre: np.ndarray
) -> np.ndarray:  # (n, 2)
    """The same for two classes, of which only the difference of the scores matters."""
    p = np.exp(log_p[:, 1])
    leverage = np.empty(len(x))
    for place, z in logistic.blocks(x, centre):
        leverage[place] = _forms(z, inverse)[0]
    leverage *= w
    score = log_p[:, 1] - log_p[:, 0] - leverage * (y - p) / (1 + 1e-9 - p * (1 - p) * leverage)
    first = -np.maximum(score, 0) - np.log1p(np.exp(-np.abs(score)))
    return np.column_stack([first, first + score])


def _step(z: np.ndarray, y: np.ndarray, w: np.ndarray, p: np.ndarray, inverse: np.ndarray) -> np.ndarray:  # (n, c)
    """What a row adds to its own scores; those of the first class are fixed."""
    one, free = with_one(z), p.shape[1] - 1
    wide = one.shape[1]
    blocks = inverse[0].reshape(free, wide, free, wide).transpose(1, 0, 2, 3).reshape(wide, -1)
    half = (one @ blocks).reshape(len(one), free * free, wide)
    leverage = (half @ one[..., None]).reshape(len(one), free, free) * w[:, None, None]
    own = p[:, 1:]
    second = own[:, :, None] * (np.eye(free) - own[:, None, :])
    error = (y[:, None] == np.arange(1, free + 1)) - own
    solved = np.linalg.solve(np.eye(free) - second @ leverage + 1e-9 * np.eye(free), error[..., None])
    return np.concatenate([np.zeros((len(one), 1)), (leverage @ solved)[..., 0]], 1)


def _step_by_class(
    z: np.ndarray, y: np.ndarray, w: np.ndarray, p: np.ndarray, inverse: np.ndarray
) -> np.ndarray:  # (n, c)
    """The same as if classes did not depend on each other: (c - 1) / c makes up for the scores' common part."""
    classes = p.shape[1]
    leverage = _forms(z, inverse).T * w[:, None] * (1 - 1 / classes)
    error = (y[:, None] == np.arange(classes)) - p
    return leverage * error / (1 - np.minimum(p * (1 - p) * leverage, MOST))


def _forms(z: np.ndarray, matrices: np.ndarray) -> np.ndarray:  # (blocks, n)
    """(z, 1)' M (z, 1) of rows z (n, d) and matrices (blocks, d + 1, d + 1)."""
    found = np.empty((len(matrices), len(z)))
    for form, matrix in zip(found, matrices):
        form[:] = np.einsum("nr,nr->n", z @ matrix[:-1, :-1] + 2 * matrix[-1, :-1], z) + matrix[-1, -1]
    return found
