"""Sums over rows for linear classifiers: log-likelihoods, gradients and second derivatives. Nothing is sent.

Rows come in blocks (b, d) of columns about a centre that stay in the processor's cache. Coefficients (m, d + 1) have the intercept last; it
has no column of ones, since a block without one is filled and multiplied in half the time. Two classes have one score, that of the second;
more classes have one each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

CELLS, FEWEST = 40_000, 128  # numbers in a block, and its rows at least
MOST_BEHIND = 700.0  # score of a label minus that of the other class, from which on exp would overflow
# share of the last Newton step that the next one repeats: from where on it is made longer, and for what at most
REPEATED = (0.1, 0.6)


def blocks(x: np.ndarray, centre: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """(place, columns about a centre (b, d)) of each block of rows (n, d); a block is overwritten by the next one."""
    n, d = x.shape
    most = max(FEWEST, CELLS // max(d, 1))
    z = np.empty((min(n, most), d))
    centres = np.tile(centre, len(z))  # one subtraction of long vectors is faster than one of each row
    for start in range(0, max(n, 1), most):
        place = slice(start, start + most)
        rows = x[place]
        np.subtract(rows.reshape(-1), centres[: rows.size], out=z[: len(rows)].reshape(-1))
        yield place, z[: len(rows)]


class Evaluated(NamedTuple):
    """What scores say of rows."""

    p: np.ndarray  # (m, b) probabilities of the classes; of two, that of the class that is not the label
    error: np.ndarray  # (m, b) 1 for the label and 0 for others, minus the probability of the class
    log_label: np.ndarray  # (b,) log P(label)


def evaluate(z: np.ndarray, y: np.ndarray, coef: np.ndarray) -> Evaluated:
    """Rows z (b, d) with codes y (b,) under coefficients (m, d + 1) of the scores."""
    if len(coef) == 1:
        return _evaluate_two(z @ coef[0, :-1] + coef[0, -1], y)
    scores = coef[:, :-1] @ z.T
    scores += coef[:, -1:]
    scores -= scores.max(0)
    label = y, np.arange(len(y))
    log_label = scores[label]
    p = np.exp(scores, out=scores)
    total = p.sum(0)
    p /= total
    error = -p
    error[label] += 1.0
    return Evaluated(p, error, log_label - np.log(total))


def _evaluate_two(score: np.ndarray, y: np.ndarray) -> Evaluated:
    """The same for two classes, from the score (b,) of the second."""
    sign = 2.0 * y - 1.0
    behind = -sign * score
    bounded = np.minimum(behind, MOST_BEHIND)
    odds = np.exp(bounded)
    other = odds / (1 + odds)
    return Evaluated(other[None], (sign * other)[None], bounded - behind - np.log1p(odds))


Second = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]  # of weights, probabilities and rows


def sums(
    x: np.ndarray, y: np.ndarray, w: np.ndarray, coef: np.ndarray, centre: np.ndarray, second: Second | None = None
) -> list[np.ndarray]:
    """[sum of w, log-likelihood, its gradient (m, d + 1)] over rows x (n, d), codes y (n,), weights w (n,), and what `second` finds."""
    parts = []
    for place, z in blocks(x, centre):
        own = w[place]
        p, error, log_label = evaluate(z, y[place], coef)
        found = [own.sum(), own @ log_label, gradient_of(error * own, z)]
        parts.append(found if second is None else [*found, second(own, p, z)])
    return [np.asarray(sum(part[1:], start=part[0])) for part in zip(*parts)]


def gradient_of(error: np.ndarray, z: np.ndarray) -> np.ndarray:  # (m, d + 1)
    """The gradient of the log-likelihood of rows z (b, d) from their weighted errors (m, b)."""
    return np.column_stack([error @ z, error.sum(1)])


def second_of(w: np.ndarray, p: np.ndarray, z: np.ndarray) -> np.ndarray:  # (m (d + 1), m (d + 1))
    """Minus the second derivatives: block (a, b) is the sum of w p_a ([a = b] - p_b) (z, 1)(z, 1)', most of it one product."""
    m = len(p)
    q = z.shape[1] + 1
    if m == 1:
        return gram(w * p[0] * (1 - p[0]), z)
    all_classes = np.empty((m, q, len(z)))
    by_class = np.sqrt(w) * p
    np.multiply(by_class[:, None, :], z.T, out=all_classes[:, :-1])
    all_classes[:, -1] = by_class
    flat = all_classes.reshape(m * q, -1)
    second = -(flat @ flat.T)
    for a in range(m):
        own = slice(a * q, (a + 1) * q)
        second[own, own] += gram(w * p[a], z)
    return second


def second_free(w: np.ndarray, p: np.ndarray, z: np.ndarray) -> np.ndarray:
    """The same in the coefficients of the classes that are free while those of the first are held."""
    return second_of(w, free(p), z)


def free(a: np.ndarray) -> np.ndarray:
    """What belongs to classes with free coefficients: of two classes there is but one, of more all but the first."""
    return a if len(a) == 1 else a[1:]


def second_within(w: np.ndarray, p: np.ndarray, z: np.ndarray) -> np.ndarray:  # (m, d + 1, d + 1)
    """Minus the second derivatives in the coefficients of each class, in 32 bits: they precondition steps and tell a row's share in
    its own scores.
    """
    rows = z.astype(np.float32)
    return np.stack([gram(own, rows) for own in (w * p * (1 - p)).astype(np.float32)]).astype(np.float64)


def gram(weight: np.ndarray, z: np.ndarray) -> np.ndarray:  # (d + 1, d + 1)
    """The sum of weight (z, 1)(z, 1)'; BLAS computes half of a product of an array with itself."""
    root = np.sqrt(weight)
    scaled = z * root[:, None]
    total = np.empty((z.shape[1] + 1,) * 2, scaled.dtype)
    total[:-1, :-1] = scaled.T @ scaled
    total[-1, :-1] = total[:-1, -1] = root @ scaled
    total[-1, -1] = weight.sum()
    return total


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
