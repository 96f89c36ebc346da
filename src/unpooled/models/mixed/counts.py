"""Counts in a mixed mixture: negative binomials whose dispersion is one of a grid, so that an M-step is exact.

A negative binomial of known dispersion has its mean as sufficient statistic. The dispersion has none of fixed size, but for every value of
a grid the expected log-likelihood is a sum over rows: a client sends one number for each, the server takes the best. The grid ends in 0,
which is Poisson's distribution; real counts are seldom that regular, and a Poisson mixture then splits one group into many.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

GRID = 2.0 ** np.arange(4, -8, -1)  # dispersions that are tried besides 0: (e,)
TINY = 1e-300


def gamma_terms(values: np.ndarray) -> np.ndarray:
    """lgamma(x + 1/a) - lgamma(1/a) + x log a for counts x (u,) and every dispersion a of the grid: (u, e)."""
    shape = 1 / GRID
    return gammaln(values[:, None] + shape) - gammaln(shape) + values[:, None] * np.log(GRID)


class Values(NamedTuple):
    """The distinct values of several columns of counts, one column after the other."""

    x: np.ndarray  # (u,)
    column: np.ndarray  # (u,)
    parts: list[slice]  # of each column
    gammas: np.ndarray  # (u, e): `gamma_terms`
    log_factorials: np.ndarray  # (u,)


def values(by_column: list[np.ndarray]) -> Values:
    """The distinct values of each column, with what rounds have in common."""
    sizes = [len(x) for x in by_column]
    ends = np.cumsum(sizes, dtype=int).tolist()
    x = np.concatenate([np.zeros(0), *by_column])
    parts = [slice(end - size, end) for end, size in zip(ends, sizes)]
    return Values(x, np.repeat(np.arange(len(sizes)), sizes), parts, gamma_terms(x), gammaln(x + 1))


def log_pmf(values: Values, mean: np.ndarray, dispersion: np.ndarray) -> np.ndarray:
    """log probabilities of counts (u,) for components with means and dispersions (k, m): (u, k)."""
    mean = np.maximum(mean.T, TINY)  # (m, k)
    spread = dispersion.T > 0
    a = np.where(spread, dispersion.T, 1.0)
    over = np.where(spread, np.log1p(a * mean), 0.0)
    total = np.where(spread, over / a + gammaln(1 / a), mean)
    slope = np.log(mean) - over + np.where(spread, np.log(a), 0.0)
    x = values.x[:, None]
    which = values.column
    gammas = np.where(spread[which], gammaln(x + 1 / a[which]), 0.0)
    return gammas + x * slope[which] - total[which] - values.log_factorials[:, None]


def stats(values: Values, held: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sums of r, of r times the count, and of r times the gamma terms, from sums of r by value (u, k): (k, m), (k, m), (k, m, e)."""
    k = held.shape[1]
    m = len(values.parts)
    seen = np.zeros((k, m))
    sums = np.zeros((k, m))
    gammas = np.zeros((k, m, len(GRID)))
    for j, part in enumerate(values.parts):
        r = held[part].T
        seen[:, j] = r.sum(1)
        sums[:, j] = r @ values.x[part]
        gammas[:, j] = r @ values.gammas[part]
    return seen, sums, gammas


def m_step(
    seen: np.ndarray, counts: np.ndarray, gammas: np.ndarray, overall: np.ndarray, smoothing: float
) -> tuple[np.ndarray, np.ndarray]:
    """Means and dispersions (k, m) that maximise the expected log-likelihood and the log prior."""
    n = seen + smoothing
    x = counts + smoothing * overall
    mean = np.where(n > 0, x / np.maximum(n, TINY), overall)
    scores = np.concatenate([gammas + _linear(n, x, mean, GRID), _linear(n, x, mean, np.zeros(1))], -1)
    best = scores.argmax(-1)
    return mean, np.append(GRID, 0.0)[best]


def log_prior(mean: np.ndarray, dispersion: np.ndarray, overall: np.ndarray, smoothing: float) -> float:
    """`smoothing` rows per component whose count is the overall mean; up to what no parameter changes."""
    terms = _linear(np.asarray(1.0), overall, mean, dispersion[..., None])[..., 0]
    return float(smoothing * terms.sum()) if smoothing else 0.0


def _linear(n: np.ndarray, x: np.ndarray, mean: np.ndarray, dispersion: np.ndarray) -> np.ndarray:
    """The part of the log-likelihood that n rows with total x give besides `gamma_terms`, by dispersion: (..., e)."""
    n = np.asarray(n)[..., None]
    x = np.asarray(x)[..., None]
    mean = np.maximum(mean, TINY)[..., None]
    spread = dispersion > 0
    a = np.where(spread, dispersion, 1.0)
    over = np.where(spread, np.log1p(a * mean), 0.0)
    return x * (np.log(mean) - over) - n * np.where(spread, over / a, mean)


def variance(mean: np.ndarray, dispersion: np.ndarray) -> np.ndarray:
    """The variance of a negative binomial."""
    return mean + dispersion * mean**2


def draw(mean: np.ndarray, dispersion: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Counts drawn from negative binomials, in the shape of `mean`."""
    a = np.where(dispersion > 0, dispersion, 1.0)
    rates = np.where(dispersion > 0, rng.gamma(1 / a, np.maximum(a * mean, TINY)), mean)
    return rng.poisson(rates).astype(np.float64)
