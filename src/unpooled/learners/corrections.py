"""Linear corrections of given class scores: many penalties and folds are fitted at once, by products of matrices. Nothing is sent.

A fit has scores = offset + (z, 1) D and minimises its log-loss + sum of penalties * D^2 / 2. With offsets of a shared model and a
strong penalty it stays that model, with a weak one it becomes a model of its own; with offsets of 0 it is ridge-penalised logistic
regression. Steps are those of the bound of Boehning (1992), accelerated as Nesterov does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

STEPS = 100  # at most
TOLERANCE = 1e-3  # largest change of a coefficient by a step, below which no more are taken


class Problem(NamedTuple):
    """Rows to be fitted, and how: `fits` fits, each with its own row weights, offset and penalties."""

    z: np.ndarray  # (n, r + 1) features, the last one is 1
    y: np.ndarray  # (n,) codes
    w: np.ndarray  # (fits, n) row weights
    offsets: np.ndarray  # (offsets, n, c)
    which: np.ndarray  # (fits,) the offset of each fit
    ridge: np.ndarray  # (fits, r + 1)


def fit(problem: Problem, dtype: type = np.float64) -> np.ndarray:  # (fits, r + 1, c)
    """The corrections D of every fit."""
    z, y, w, offsets, which, ridge = problem
    two = offsets.shape[-1] == 2  # then the difference of the two scores is all there is to fit
    offset = offsets[..., 1:] - offsets[..., :1] if two else offsets
    offset = np.ascontiguousarray(np.moveaxis(offset, 1, -1)).astype(dtype)[which]  # (fits, c, n)
    hit = (y == np.arange(int(two), offsets.shape[-1])[:, None]).astype(dtype)  # (c, n)
    ridge = 0.5 * ridge if two else ridge
    inverse: np.ndarray = _inverse_bound(z, w, ridge, 0.25 if two else 0.5).astype(dtype)
    found = _descend(z.astype(dtype), w.astype(dtype), offset, hit, ridge.astype(dtype), inverse, two)
    found = np.concatenate([-0.5 * found, 0.5 * found], 1) if two else found
    return np.swapaxes(found, 1, 2).astype(np.float64)


def _descend(
    z: np.ndarray, w: np.ndarray, offset: np.ndarray, hit: np.ndarray, ridge: np.ndarray, inverse: np.ndarray, two: bool
) -> np.ndarray:  # (fits, c, r + 1)
    """Accelerated steps down the bound, until none changes a coefficient by TOLERANCE."""
    (fits, c, _), wide = offset.shape, z.shape[1]
    d = ahead = np.zeros((fits, c, wide), z.dtype)
    momentum = np.ones((fits, 1, 1), z.dtype)
    for _ in range(STEPS):
        scores = offset + (ahead.reshape(-1, wide) @ z.T).reshape(fits, c, -1)
        p = 0.5 + 0.5 * np.tanh(0.5 * scores) if two else softmax(scores)
        error = (hit - p) * w[:, None, :]
        gradient = (error.reshape(fits * c, -1) @ z).reshape(fits, c, wide) - ridge[:, None, :] * ahead
        new = ahead + gradient @ inverse
        uphill = ((new - d) * gradient).sum((1, 2), keepdims=True) < 0  # then begin the acceleration anew
        momentum = np.where(uphill, 1.0, momentum).astype(z.dtype)
        following = (0.5 + 0.5 * np.sqrt(1 + 4 * momentum**2)).astype(z.dtype)
        ahead = new + (momentum - 1) / following * (new - d)
        change = np.abs(new - d).max()
        d, momentum = new, following
        if change < TOLERANCE:
            break
    return d


def _inverse_bound(z: np.ndarray, w: np.ndarray, ridge: np.ndarray, bound: float) -> np.ndarray:  # (fits, r + 1, r + 1)
    """The inverse of bound z' W z + ridge, which bounds the second derivatives; weights repeat among fits."""
    distinct, index = np.unique(w, axis=0, return_inverse=True)
    second = bound * np.stack([(z * weights[:, None]).T @ z for weights in distinct])[index.ravel()]
    diagonal = np.arange(z.shape[1])
    second[:, diagonal, diagonal] += ridge + 1e-9
    return np.linalg.inv(second)


def softmax(scores: np.ndarray) -> np.ndarray:
    """Probabilities along axis -2."""
    p = np.exp(scores - scores.max(-2, keepdims=True))
    return p / p.sum(-2, keepdims=True)


def log_softmax(scores: np.ndarray) -> np.ndarray:
    """Log-probabilities along axis -1."""
    scores = scores - scores.max(-1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(-1, keepdims=True))


def scores_of(z: np.ndarray, offsets: np.ndarray, which: np.ndarray, d: np.ndarray) -> np.ndarray:  # (fits, n, c)
    """Scores of rows with features z (n, r + 1) and offsets (offsets, n, c) under corrections d (fits, r + 1, c)."""
    return offsets[which] + z @ d
