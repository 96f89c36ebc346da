"""A linear learner as it would be without each of a client's rows, by one Newton step. Nothing is sent."""

from __future__ import annotations

import numpy as np

from unpooled.learners.penalties import with_one


def without_each(
    x: np.ndarray, y: np.ndarray, w: np.ndarray, log_p: np.ndarray, inverse: np.ndarray, centre: np.ndarray
) -> np.ndarray:  # (n, c)
    """Log-probabilities of each row under the optimum of all other rows: one Newton step from that of all.

    x (n, d), y codes (n,), w (n,), log_p (n, c) at the optimum, inverse (q, q) of the second derivatives there.
    """
    one, c = with_one(x.astype(np.float64) - centre), log_p.shape[1]
    wide, free = one.shape[1], c - 1
    blocks = inverse.reshape(free, wide, free, wide).transpose(1, 0, 2, 3).reshape(wide, -1)
    half = (one @ blocks).reshape(len(one), free * free, wide)
    leverage = (half @ one[..., None]).reshape(len(one), free, free) * w[:, None, None]
    p = np.exp(log_p[:, 1:])
    second = p[:, :, None] * (np.eye(free) - p[:, None, :])
    error = (y[:, None] == np.arange(1, c)) - p
    solved = np.linalg.solve(np.eye(free) - second @ leverage + 1e-9 * np.eye(free), error[..., None])
    step = (leverage @ solved)[..., 0]
    scores = log_p - log_p[:, :1]
    scores[:, 1:] -= step
    scores -= scores.max(1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(1, keepdims=True))
