"""Linear corrections of given class scores along paths of decreasing penalties, many at once by products of matrices. Nothing is sent.

A fit has scores = offset + (z, 1) D and minimises its log-loss + sum of penalties * D^2 / 2. With offsets of a shared model and a
strong penalty it stays that model, with a weak one it becomes a model of its own; with offsets of 0 it is ridge-penalised logistic
regression. Every penalty of a path begins with the corrections of the one before. Steps follow the bound of Boehning (1992) on the second
derivatives, lengthened as Barzilai and Borwein (1988) do.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

STEPS = 12  # per penalty, at most
TOLERANCE = 1e-3  # largest change of a coefficient by a step, below which no more are taken
LONGEST = 100.0  # times the step of the bound


class Paths(NamedTuple):
    """Rows to be fitted, and how: each path is fitted to each set of row weights."""

    z: np.ndarray  # (n, r + 1) features, the last one is 1
    y: np.ndarray  # (n,) codes
    w: np.ndarray  # (sets, n) row weights
    offsets: np.ndarray  # (offsets, n, c)
    which: np.ndarray  # (paths,) the offset of each path
    ridge: np.ndarray  # (stages, paths, r + 1) penalties in the order in which they are fitted


def fit(problem: Paths, dtype: type = np.float32, steps: int = STEPS) -> np.ndarray:  # (stages, paths, sets, r + 1, c)
    """The corrections D of every path, penalty and set of row weights."""
    z, y, w, offsets, which, ridge = problem
    two = offsets.shape[-1] == 2  # then the difference of the two scores is all there is to fit
    offset = offsets[..., 1:] - offsets[..., :1] if two else offsets
    paths, sets = len(which), len(w)
    offset = np.repeat(np.swapaxes(offset, 1, 2)[which], sets, 0).astype(dtype)  # (fits, c, n)
    hit = (y == np.arange(int(two), offsets.shape[-1])[:, None]).astype(dtype)  # (c, n)
    second = (0.25 if two else 0.5) * np.stack([(z * own[:, None]).T @ z for own in w])  # (sets, r + 1, r + 1)
    rows = Rows(z.astype(dtype), np.tile(w, (paths, 1)).astype(dtype), offset, hit, two)
    at: np.ndarray = np.zeros((paths * sets, len(hit), z.shape[1]), dtype)
    found = []
    for penalties in 0.5 * ridge if two else ridge:
        inverse: np.ndarray = _inverse_bound(second, penalties).reshape(paths * sets, *second.shape[1:]).astype(dtype)
        at = _descend(rows, np.repeat(penalties, sets, 0)[:, None].astype(dtype), inverse, at, steps)
        found.append(at)
    maps = np.stack(found)  # (stages, fits, c, r + 1)
    maps = np.concatenate([-0.5 * maps, 0.5 * maps], 2) if two else maps
    return np.swapaxes(maps, 2, 3).reshape(len(ridge), paths, sets, z.shape[1], -1).astype(np.float64)


class Rows(NamedTuple):
    """The rows of all fits, as the steps take them."""

    z: np.ndarray  # (n, r + 1)
    w: np.ndarray  # (fits, n)
    offset: np.ndarray  # (fits, c, n)
    hit: np.ndarray  # (c, n) 1 where a row has the class
    two: bool  # whether scores are differences of two classes

    def gradient(self, at: np.ndarray) -> np.ndarray:  # (fits, c, r + 1)
        """The gradient of the log-likelihood at corrections (fits, c, r + 1)."""
        fits, c, wide = at.shape
        scores = self.offset + (at.reshape(-1, wide) @ self.z.T).reshape(fits, c, -1)
        p = 0.5 + 0.5 * np.tanh(0.5 * scores) if self.two else softmax(scores)
        error = (self.hit - p) * self.w[:, None, :]
        return (error.reshape(fits * c, -1) @ self.z).reshape(fits, c, wide)


def _descend(rows: Rows, ridge: np.ndarray, inverse: np.ndarray, at: np.ndarray, steps: int) -> np.ndarray:
    """Corrections (fits, c, r + 1) after steps from `at`, until none changes a coefficient by TOLERANCE."""
    length = np.ones((len(at), 1, 1), at.dtype)
    before = last = moved = np.zeros_like(at)
    for step in range(steps):
        gradient = rows.gradient(at) - ridge * at
        direction = gradient @ inverse
        if step:
            bend = before - gradient  # second derivatives times the last move
            along = (moved * bend).sum((1, 2), keepdims=True)
            across = (bend * (last - direction)).sum((1, 2), keepdims=True)
            length = np.clip(along / np.maximum(across, 1e-30), 1.0, LONGEST).astype(at.dtype)
        before, last, moved = gradient, direction, length * direction
        at = at + moved
        if np.abs(moved).max() < TOLERANCE:
            break
    return at


def _inverse_bound(second: np.ndarray, ridge: np.ndarray) -> np.ndarray:  # (paths, sets, r + 1, r + 1)
    """The inverse of `second` (sets, r + 1, r + 1) + ridge (paths, r + 1)."""
    total = np.repeat(second[None], len(ridge), 0)
    diagonal = np.arange(second.shape[-1])
    total[..., diagonal, diagonal] += ridge[:, None] + 1e-9
    return np.linalg.inv(total)


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
