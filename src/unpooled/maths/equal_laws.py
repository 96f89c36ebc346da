"""Tests that groups of rows have one law, from sums over groups: analysis of variance of several features at once. Nothing is sent.

Of features phi (f,) of the rows of each group, only three sums over groups are needed: of n, of n m and n m m' (m is the mean of a group),
and of phi phi' over all rows. Wilks' criterion is the likelihood-ratio test of equal means (of normal features), Pillai's the score test.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import chi2
from scipy.stats import f as f_law

SAME = 1e-8  # share of a feature's variation beyond that of the features before it, below which it is left out


class Result(NamedTuple):
    """One test."""

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
    """Wilks' and Pillai's tests that all groups have the same mean, by Rao's and Pillai's F approximations."""
    total = sums.xx - np.outer(sums.x, sums.x) / sums.n
    between = sums.between - np.outer(sums.x, sums.x) / sums.n
    kept = independent(total)
    total, between = total[np.ix_(kept, kept)], between[np.ix_(kept, kept)]
    f, h = len(kept), round(float(sums.groups)) - 1
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
    """Indices of features none of which is a combination of those before it."""
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
    log_ratio = float(np.log1p(-shares).sum())
    below = f**2 + h**2 - 5
    power = np.sqrt((f**2 * h**2 - 4) / below) if below > 0 else 1.0
    df = float(f * h)
    rest = (e + h - (f + h + 1) / 2) * power - (df - 2) / 2
    root = np.exp(log_ratio / power)
    ratio = (1 - root) / root * rest / df
    return Result(-(e + h - (f + h + 1) / 2) * log_ratio, df, float(f_law.sf(ratio, df, rest)))


def _pillai(trace: float, f: int, h: int, e: float) -> Result:
    s = min(f, h)
    over, under = abs(f - h) + s, e - f + s
    ratio = under / over * trace / max(s - trace, 1e-300)
    return Result((e + h) * trace, float(f * h), float(f_law.sf(ratio, s * over, s * under)))


def likelihood_ratio(statistic: float, df: float, factor: float = 1.0) -> Result:
    """Twice a gain of log-likelihood against chi-squared; `factor` is its mean over its degrees of freedom (Bartlett)."""
    corrected = max(statistic, 0.0) / max(factor, 1e-300)
    p = float(chi2.sf(corrected, df)) if df > 0 else float("nan")
    return Result(corrected, float(df), p)


def f_test(gain: float, df: float, rest: float, rest_df: float) -> Result:
    """A gain in squares over what is left, both over their degrees of freedom: exact for normal errors."""
    if df <= 0 or rest_df <= 0 or rest <= 0:
        return Result(float("nan"), float(df), float("nan"))
    ratio = max(gain, 0.0) / df / (rest / rest_df)
    return Result(ratio * df, float(df), float(f_law.sf(ratio, df, rest_df)))
