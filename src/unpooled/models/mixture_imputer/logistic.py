"""Logistic regressions of columns of levels on all other columns, gaps filled in by one Gaussian. Nothing is sent.

A mixture of Gaussians says little of levels that hang together in a linear way; a regression of each such column on the others says more.
Its predictors are the embedded columns, standardised, and in a second variant the squares of numbers. A gap among them is filled by its
mean under a single Gaussian that does not look at the column itself. Coefficients are those of orthonormal contrasts between levels, so
that no level is special to the penalty. Penalties are those of largest evidence: one for all predictors, and in the second variant one for
each column and each square, so that those without a signal do not blur the others. Newton's method needs sums over rows alone: `sums` is
what a client adds up, `moved` the next step at the server.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float
from unpooled.maths import missing
from unpooled.maths.gaussian import pack_triangle, unpack_triangle
from unpooled.maths.mixture import Params
from unpooled.models.mixture_imputer.embedding import LEAST, Embedding
from unpooled.tree import message


class Variant(NamedTuple):
    """One way to regress a column of levels on the others."""

    curved: bool  # whether squares of numbers are predictors too
    by_column: bool  # whether each column has a penalty of its own


VARIANTS = (Variant(False, False), Variant(True, True))
FIRST = 3.0  # the penalty to begin with
PENALTIES = (0.1, 1e6)  # the least and the largest
FASTER = 10.0  # a penalty grows or shrinks by at most this factor in a round
STILL = 0.1  # a penalty that changes by less, as a logarithm, stands still
FAR = 8.0  # a square less one is at most this, so that an outlier does not decide
OF_INTERCEPT = 0.01  # the penalty of intercepts, so that a level without rows has a finite one
MOST = 600  # coefficients of one regression: with more, a column has none, since curvature is the square of it
FLAT = 1e-6  # gain per row that is still expected: less stops Newton's method


@message("mixture_imputer.Logistic")
class Logistic(NamedTuple):
    """Regressions of columns of levels, and what their predictors are made with."""

    filler: Params  # one Gaussian
    mean: Float[Array, "e"]
    scale: Float[Array, "e"]
    coefs: tuple[Float[Array, "m p"], ...]  # by column, then by variant


@message("mixture_imputer.LogisticSums")
class Sums(NamedTuple):
    """Sums over the rows that have a level, at given coefficients."""

    n: Float[Array, "", ">=0 rows"]
    loglik: Float[Array, ""]
    score: Float[Array, "m p"]
    curvature: Float[Array, "t"]  # the lower triangle of the (m p, m p) matrix, by rows


@message("mixture_imputer.Regression")
class Regression(NamedTuple):
    """One regression on its way."""

    column: int
    groups: np.ndarray  # (predictors,) int, those of one group share a penalty; 0 is the intercept
    penalty: np.ndarray  # (groups,), half of it times the square of each coefficient is taken off the log-likelihood
    coef: np.ndarray  # (levels - 1, predictors), where sums are taken next
    best: np.ndarray  # the same, of the largest objective up to now
    step: np.ndarray  # from the best to where sums are taken
    loglik: float  # at the best
    settled: bool


def columns_of(embedding: Embedding) -> list[int]:
    """The columns of levels that have regressions."""
    of_levels = [j for j, kind in enumerate(embedding.kinds) if kind in ("binary", "category", "ordered")]
    return [j for j in of_levels if (embedding.levels[j] - 1) * n_predictors(embedding, j, True) <= MOST]


def n_predictors(embedding: Embedding, j: int, curved: bool) -> int:
    """How many predictors column j has, the intercept included."""
    others = embedding.column_of != j
    return 1 + int(others.sum()) + int(curved) * int(embedding.is_number[others].sum())


def begin(embedding: Embedding) -> tuple[Regression, ...]:
    """Regressions of every column of levels, by column and then by variant, with coefficients 0."""
    found = []
    for j in columns_of(embedding):
        for variant in VARIANTS:
            groups = groups_of(embedding, j, variant)
            penalty = np.append(OF_INTERCEPT, np.full(groups.max(), FIRST))
            zero = np.zeros((embedding.levels[j] - 1, len(groups)))
            found.append(Regression(j, groups, penalty, zero, zero, zero, -np.inf, False))
    return tuple(found)


def groups_of(embedding: Embedding, j: int, variant: Variant) -> np.ndarray:
    """Which penalty each predictor of column j has: 0 is the intercept's, 1 that of all others, or one per column and per square."""
    others = embedding.column_of != j
    columns = np.unique(embedding.column_of[others], return_inverse=True)[1]
    squares = np.arange(variant.curved * int(embedding.is_number[others].sum())) + columns.max(initial=-1) + 1
    groups = np.concatenate([[0], 1 + columns, 1 + squares]).astype(int)
    return groups if variant.by_column else np.minimum(groups, 1)


# ---- at a client ----


def predictors(filler: Params, x: np.ndarray, j: int, embedding: Embedding, mean: Array, scale: Array) -> np.ndarray:
    """A one, the standardised embedded columns other than column j, and squares of numbers, (n, p), of encoded rows (n, d)."""
    blank = np.array(x)
    blank[:, j] = np.nan
    others = embedding.column_of != j
    z = ((missing.impute(filler, embedding.embed(blank), "full") - mean) / scale)[:, others]
    squares = np.minimum(z[:, embedding.is_number[others]] ** 2 - 1, FAR) / np.sqrt(2)
    return np.column_stack([np.ones(len(x)), z, squares])


def sums(coef: np.ndarray, z: np.ndarray, level: np.ndarray, w: np.ndarray) -> Sums:
    """Log-likelihood, score and curvature of predictors z (n, p) with levels (n,) and weights w (n,)."""
    contrast = contrasts(len(coef) + 1)
    log_p = log_probabilities(coef, z)
    p = np.exp(log_p)
    off = (np.arange(p.shape[1]) == level[:, None]) - p
    loglik = w @ log_p[np.arange(len(level)), level]
    score = (off @ contrast * w[:, None]).T @ z
    return Sums(w.sum(), np.asarray(loglik), score, pack_triangle(_curvature(p @ contrast, p, contrast, z, w)))


def _curvature(mean: np.ndarray, p: np.ndarray, contrast: np.ndarray, z: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Minus the second derivative, (m p, m p), from probabilities p (n, l) and their contrasts `mean` (n, m)."""
    m, q = mean.shape[1], z.shape[1]
    whole = np.empty((m, q, m, q))
    for a in range(m):
        for b in range(a + 1):
            spread = p @ (contrast[:, a] * contrast[:, b]) - mean[:, a] * mean[:, b]
            block = z.T @ (z * (w * spread)[:, None])
            whole[a, :, b, :] = block
            whole[b, :, a, :] = block
    return whole.reshape(m * q, m * q)


def log_probabilities(coef: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Logarithms (n, levels) of the probabilities of levels for predictors (n, p)."""
    eta = z @ coef.T @ contrasts(len(coef) + 1).T
    eta -= eta.max(1, keepdims=True)
    return eta - np.log(np.exp(eta).sum(1, keepdims=True))


@lru_cache(maxsize=64)
def contrasts(n: int) -> np.ndarray:
    """Orthonormal contrasts (n, n - 1) of n levels: columns that add up to 0."""
    rows = np.tril(np.ones((n - 1, n)), 0)
    rows[np.arange(n - 1), np.arange(1, n)] = -np.arange(1, n)
    return (rows / np.sqrt((rows**2).sum(1, keepdims=True))).T


# ---- at the server ----


def moved(now: Regression, found: Sums) -> Regression:
    """The regression after a round: a step of Newton's, or half of the last one where the objective fell.

    Penalties are those of the largest evidence, by MacKay's rule, which needs no sum of its own.
    """
    loglik = float(found.loglik)
    each = now.penalty[now.groups]
    if loglik - _penalised(now.coef, each) < now.loglik - _penalised(now.best, each):
        step = now.step / 2
        return now._replace(coef=now.best + step, step=step)
    curvature = unpack_triangle(np.asarray(found.curvature))
    score = np.asarray(found.score)
    step, _ = _newton(now.coef, score, curvature, now.penalty[now.groups])
    penalty = _evident(now.coef + step, curvature, now.penalty, now.groups)
    step, gain = _newton(now.coef, score, curvature, penalty[now.groups])
    still = (np.abs(np.log(penalty / now.penalty)) < STILL) | (penalty >= PENALTIES[1])
    flat = gain <= FLAT * max(float(found.n), 1.0)
    settled = bool(still.all() and flat)
    return now._replace(penalty=penalty, coef=now.coef + step, best=now.coef, step=step, loglik=loglik, settled=settled)


def _penalised(coef: np.ndarray, each: np.ndarray) -> float:
    """What is taken off the log-likelihood at these coefficients (m, p); `each` (p,) are the predictors' penalties."""
    return 0.5 * float((each * coef**2).sum())


def _newton(coef: np.ndarray, score: np.ndarray, curvature: np.ndarray, each: np.ndarray) -> tuple[np.ndarray, float]:
    """Newton's step, and the gain that it promises."""
    gradient = score - each * coef
    step = np.linalg.solve(_penalised_curvature(curvature, each), gradient.ravel()).reshape(coef.shape)
    return step, 0.5 * float((gradient * step).sum())


def _penalised_curvature(curvature: np.ndarray, each: np.ndarray) -> np.ndarray:
    """Minus the second derivative with the predictors' penalties, (m p, m p)."""
    return curvature + np.diag(np.tile(each, len(curvature) // len(each)))


def _evident(coef: np.ndarray, curvature: np.ndarray, penalty: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """The next penalties: how many coefficients of a group the rows determine, over the sum of their squares."""
    spread = np.diag(np.linalg.inv(_penalised_curvature(curvature, penalty[groups]))).reshape(coef.shape)
    undetermined = penalty * np.bincount(groups, weights=spread.sum(0))
    determined = np.maximum(len(coef) * np.bincount(groups) - undetermined, 1e-12)
    squares = np.bincount(groups, weights=(coef**2).sum(0))
    wanted = determined / np.maximum(squares, determined / PENALTIES[1])
    slowly = np.clip(wanted, penalty / FASTER, penalty * FASTER)
    return np.append(OF_INTERCEPT, np.clip(slowly, *PENALTIES)[1:])


# ---- what they say ----


def probabilities(models: Logistic, x: np.ndarray, j: int, embedding: Embedding) -> np.ndarray:
    """Probabilities (n, variants, levels) of column j by each regression; (n, 0, levels) without any."""
    having = columns_of(embedding)
    if not models.coefs or j not in having:
        return np.zeros((len(x), 0, embedding.levels[j]))
    i = having.index(j)
    z = predictors(models.filler, x, j, embedding, models.mean, models.scale)
    each = [np.exp(log_probabilities(np.asarray(coef), z[:, : coef.shape[1]])) for coef in _of_column(models, i)]
    return np.maximum(np.stack(each, axis=1), LEAST)


def _of_column(models: Logistic, i: int) -> tuple[Array, ...]:
    """The coefficients of one column, of all variants."""
    return models.coefs[i * len(VARIANTS) : (i + 1) * len(VARIANTS)]
