"""Sums over rows for linear classifiers: log-likelihoods, gradients and second derivatives. Nothing is sent.

Rows come in blocks (b, q) that stay in the processor's cache: columns about a centre and, for the intercept, a column of ones. Two
classes have one score, that of the second; more classes have one each.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

CELLS, FEWEST = 20_000, 128  # numbers in a block, and its rows at least
REPEATED = (
    0.1,
    0.6,
)  # share of the last Newton step that the next one repeats: from where on it is made longer, and for what at most


def blocks(x: np.ndarray, centre: np.ndarray, ones: str = "last") -> Iterator[tuple[slice, np.ndarray]]:
    """(place, columns about a centre (b, q)) of each block of rows (n, d); a block is overwritten by the next one.

    The column of ones is the "first" one or the "last" one; "none": there is none.
    """
    n, d = x.shape
    most = max(FEWEST, CELLS // (d + 1))
    z = np.ones((min(n, most), d + (ones != "none")))
    columns = z[:, int(ones == "first") :][:, :d]
    for start in range(0, max(n, 1), most):
        place = slice(start, start + most)
        rows = x[place]
        np.subtract(rows, centre, out=columns[: len(rows)])
        yield place, z[: len(rows)]


def probabilities(z: np.ndarray, y: np.ndarray, coef: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(probabilities (m, b), log P(label) (b,)) of rows z (b, q) with codes y (b,) under coefficients (m, q) of the scores."""
    if len(coef) == 1:
        score = z @ coef[0]
        small = np.exp(-np.abs(score))
        p = np.where(score > 0, 1.0, small) / (1 + small)
        return p[None], y * score - np.maximum(score, 0) - np.log1p(small)
    scores = coef @ z.T
    scores -= scores.max(0)
    p = np.exp(scores)
    total = p.sum(0)
    p /= total
    return p, scores[y, np.arange(len(y))] - np.log(total)


def gradient_of(y: np.ndarray, w: np.ndarray, p: np.ndarray, z: np.ndarray, first: int = 1) -> np.ndarray:  # (m q,)
    """The gradient of the log-likelihood of rows z (b, q): codes y (b,), weights w (b,), probabilities p (m, b) of the classes from
    `first` on.
    """
    if len(p) == 1:
        return np.asarray(((y == first) - p[0]) * w @ z)
    hit = y == np.arange(first, first + len(p))[:, None]
    return np.asarray(((hit - p) * w) @ z).ravel()


def second_of(w: np.ndarray, p: np.ndarray, z: np.ndarray) -> np.ndarray:  # (m q, m q)
    """Minus the second derivatives: block (a, b) is the sum of w p_a ([a = b] - p_b) z z', most of it one product."""
    m, q = len(p), z.shape[1]
    if m == 1:
        return gram(w * p[0] * (1 - p[0]), z)
    by_class = (np.sqrt(w) * p).T
    all_classes = (by_class[:, :, None] * z[:, None, :]).reshape(len(z), m * q)
    second = -(all_classes.T @ all_classes)
    for a in range(m):
        own = slice(a * q, (a + 1) * q)
        second[own, own] += gram(w * p[a], z)
    return second


def second_within(w: np.ndarray, p: np.ndarray, z: np.ndarray) -> np.ndarray:  # (m, q, q)
    """Minus the second derivatives in the coefficients of each class, in 32 bits: they precondition steps and tell a row's share in
    its own scores.
    """
    rows = z.astype(np.float32)
    return np.stack([gram(own, rows) for own in (w * p * (1 - p)).astype(np.float32)]).astype(np.float64)


def gram(weight: np.ndarray, z: np.ndarray) -> np.ndarray:  # (q, q)
    """The sum of weight z z'; BLAS computes half of a product of an array with itself."""
    scaled = z * np.sqrt(weight)[:, None]
    return np.asarray(scaled.T @ scaled)


# ---- steps ----


def lengthened(step: np.ndarray, before: np.ndarray, second: np.ndarray) -> np.ndarray:  # (q,)
    """A Newton step, longer where it repeats a part of the step `before`, given second derivatives (q, q).

    Far from the optimum of a logistic regression Newton's steps are too short: each repeats a part of the last one, and so would all
    that follow. Their sum is taken at once (Aitken). Near the optimum nothing is repeated.
    """
    along = second @ before
    repeated = float(step @ along / max(before @ along, 1e-300))
    least, most = REPEATED
    return step / (1 - min(repeated, most)) if repeated > least else step
