"""Tests that groups of rows have one distribution, from sums over groups: multivariate analysis of variance.

Sends nothing. For features phi (f,) of the rows, three sums are needed: of n over groups, of n m and n m m' over groups
(m is the mean of a group), and of phi phi' over all rows. Wilks' criterion is the likelihood-ratio test of equal means
of normal features, Pillai's is the score test.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import chi2
from scipy.stats import f as f_law

SAME = 1e-8  # a feature is left out if a smaller share of its variation is its own, beyond the features before it


class Result(NamedTuple):
    """The outcome of one test."""

    statistic: float
    df: float
    p_value: float


class Moments(NamedTuple):
    """Sums over all rows of all groups."""

    n: float
    groups: float
    x: np.ndarray  # (f,) sum of phi
    xx: np.ndarray  # (f, f) sum of phi phi'
    between: np.ndarray  # (f, f) sum over groups of n m m'


def equal_means(sums: Moments) -> dict[str, Result]:
    """Wilks' ("lr") and Pillai's ("score") tests that all groups have the same mean, by their F approximations."""
    total = sums.xx - np.outer(sums.x, sums.x) / sums.n
    between = sums.between - np.outer(sums.x, sums.x) / sums.n
    kept = independent(total)
    total = total[np.ix_(kept, kept)]
    between = between[np.ix_(kept, kept)]
    f = len(kept)
    h = round(float(sums.groups)) - 1
    e = sums.n - sums.groups
    if f == 0 or h < 1 or e <= f:
        nothing = Result(float("nan"), 0.0, float("nan"))
        return {"lr": nothing, "score": nothing}
    scale = np.sqrt(np.diag(total))
    lower = np.linalg.cholesky(total / np.outer(scale, scale))
    half = np.linalg.solve(lower, between / np.outer(scale, scale))
    shares = np.clip(np.linalg.eigvalsh(np.linalg.solve(lower, half.T)), 0.0, 1 - 1e-15)
    return {"lr": _wilks(shares, f, h, e), "score": _pillai(float(shares.sum()), f, h, e)}


def independent(matrix: np.ndarray) -> np.ndarray:
    """Indices of features, none of which is a linear combination of those before it.

    `matrix` (f, f) is their scatter.
    """
    kept: list[int] = []
    for j in range(len(matrix)):
        if matrix[j, j] <= 0:
            continue
        side = matrix[kept, j]
        explained = side @ np.linalg.solve(matrix[np.ix_(kept, kept)], side) if kept else 0.0
        if matrix[j, j] - explained > SAME * matrix[j, j]:
            kept.append(j)
    return np.array(kept, dtype=np.int64)


def _wilks(shares: np.ndarray, f: int, h: int, e: float) -> Result:
    """Wilks' test by Rao's F approximation.

    `shares` are the eigenvalues of total^-1 between, e the error degrees of freedom.
    """
    log_ratio = float(np.log1p(-shares).sum())
    below = f**2 + h**2 - 5
    power = np.sqrt((f**2 * h**2 - 4) / below) if below > 0 else 1.0
    df = float(f * h)
    factor = e + h - (f + h + 1) / 2  # Bartlett's
    rest = factor * power - (df - 2) / 2
    root = np.exp(log_ratio / power)
    ratio = (1 - root) / root * rest / df
    return Result(-factor * log_ratio, df, float(f_law.sf(ratio, df, rest)))


def _pillai(trace: float, f: int, h: int, e: float) -> Result:
    """Pillai's test by its F approximation; `trace` is the sum of the eigenvalues of total^-1 between."""
    s = min(f, h)
    over = abs(f - h) + s
    under = e - f + s
    ratio = under / over * trace / max(s - trace, 1e-300)
    p_value = f_law.sf(ratio, s * over, s * under)
    return Result((e + h) * trace, float(f * h), float(p_value))


def likelihood_ratio(statistic: float, df: float, factor: float = 1.0) -> Result:
    """A likelihood-ratio test against chi-squared.

    `factor` is Bartlett's correction, the mean of the statistic over df.
    """
    corrected = max(statistic, 0.0) / max(factor, 1e-300)
    p = float(chi2.sf(corrected, df)) if df > 0 else float("nan")
    return Result(corrected, float(df), p)


def f_test(gain: float, df: float, rest: float, rest_df: float) -> Result:
    """F test of a gain in squares against the rest, each over its degrees of freedom; exact for normal errors."""
    if df <= 0 or rest_df <= 0 or rest <= 0:
        return Result(float("nan"), float(df), float("nan"))
    ratio = max(gain, 0.0) / df / (rest / rest_df)
    return Result(ratio * df, float(df), float(f_law.sf(ratio, df, rest_df)))
