"""Columns whose values are missing by their own size, and what that says of gaps. Nothing is sent.

A gap is filled by what rows alike in all else have. That is too low where large values are missing more often. The values themselves
cannot tell, but what the other columns foretell of them can: it is larger, in the mean, in rows with a gap. The same is seen where
gaps depend on the other columns alone, and then filling needs no correction. The two differ in direction: if a column's own values
decide, all other columns differ between rows with and without a gap as far as they foretell the column, and no further; one number
explains it. If other columns decide, one of them, or any combination, explains it better. Three explanations are weighed for each
column: gaps by chance, by its own values, and by other columns (one of them, or all). How common each is in the table is part of
what is estimated: columns whose gaps are clearly explained by another column speak against own values for all.

If the log-odds of a gap rise by b per unit of the value, the missing values have the density of those that are there times exp(b value),
up to a constant (exponential tilting): a normal distribution is moved by b times its variance, and any other one to first order. Where
own values are less probable than the other explanations together, nothing is moved; and less is where a column has tails or few distinct
values, since its distributions are not normal.

References
----------
Kim and Yu, A semiparametric estimation of mean functionals with nonignorable missing data, JASA 2011.
Scharfstein, Rotnitzky and Robins, Adjusting for nonignorable drop-out using semiparametric nonresponse models, JASA 1999.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from unpooled.errors import DataWarning
from unpooled.maths import gaussian, imputation
from unpooled.maths.imputation import Laws
from unpooled.models.mixture_imputer.evidence import informative
from unpooled.models.mixture_imputer.gap_sums import GapSums

LEAST_GAPS = 30  # a column with fewer gaps, or fewer values, among the rows that are looked at is left out
MOST_COLUMNS = 150  # embedded ones; in wider tables nothing is looked for
SIZES = np.array([0.25, 0.5, 1.0])  # standard deviations of the prior of an effect per standard deviation of a column
# how common each explanation is taken to be, in columns that are known beforehand: chance, own values, all others together, one other
COMMON = (4.0, 0.25, 1.0, 2.0)
STEPS = 100  # of EM, for how common explanations are
SAID = 0.3  # an effect per standard deviation that is worth a warning
LEAST_VARIANCE = 1e-6  # of what is foretold, in standard deviations; columns that nothing foretells say nothing


class Differences(NamedTuple):
    """How rows with a gap in each of j columns differ from those without, and by how much they may by chance."""

    by: np.ndarray  # (j, e) difference of the means of what is foretold, see `GapSums`
    own_variance: np.ndarray  # (j,) within the two kinds of rows, of what is foretold of column j
    within: np.ndarray  # (j, e, e) covariance of all columns within the two kinds of rows
    noise: np.ndarray  # (j,) variance of a difference of two means, in that of single rows


def effects(sums: GapSums, columns: np.ndarray) -> np.ndarray:
    """By how much the log-odds of a gap rise per standard deviation of each column's own value, (j,).

    It is 0 unless own values are more probable than all other explanations together, and then the mean over all explanations.

    Parameters
    ----------
    sums : GapSums
        Totals over all clients.
    columns : ndarray of shape (j,)
        The places of the columns in the embedding.
    """
    seen = _differences(sums, columns)
    own, effect = _own_values(seen, columns)
    single = _single_columns(seen, columns)
    dense = np.array([_all_columns(seen, i, j) for i, j in enumerate(columns)])
    log_evidence = np.column_stack([np.zeros(len(columns)), own, dense, single])  # (j, 3 + e)
    chance, by_value, by_all, by_one = COMMON
    prior = np.array([chance, by_value, by_all, *np.full(single.shape[1], by_one / single.shape[1])])
    probable = _weights(log_evidence, prior)[:, 1]
    absolute, squares = sums.spread / np.maximum(sums.rows[0], 1e-9)
    like_normal = informative(absolute / np.sqrt(np.maximum(squares, 1e-300)), np.ones(len(columns)))
    return np.where(probable > 0.5, probable * effect, 0.0) * like_normal


def _differences(sums: GapSums, columns: np.ndarray) -> Differences:
    """Differences of means, and covariances, from the sums."""
    n = np.maximum(sums.rows, 1e-9)
    total = sums.rows.sum(0)
    means = sums.foretold / n[..., None]
    by = means[1] - means[0]
    own = np.arange(len(columns)), columns
    between = n[0] * means[0][own] ** 2 + n[1] * means[1][own] ** 2
    own_variance = (sums.squares.sum(0) - between) / total
    middle = sums.filled / sums.all
    covariance = gaussian.unpack_triangle(sums.moments) / sums.all - np.outer(middle, middle)
    apart = (n[0] * n[1] / total**2)[:, None, None] * by[:, :, None] * by[:, None, :]
    return Differences(by, np.maximum(own_variance, LEAST_VARIANCE), covariance - apart, 1 / n[0] + 1 / n[1])


def _own_values(seen: Differences, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(log evidence (j,) that own values explain the gaps, expected effect if they do)."""
    difference = seen.by[np.arange(len(columns)), columns]
    by_size = np.stack([_log_ratio(difference, seen.own_variance, seen.noise, size) for size in SIZES])
    expected = SIZES[:, None] ** 2 / (seen.noise + SIZES[:, None] ** 2 * seen.own_variance) * difference
    return _mean_of(by_size), (_normalised(by_size.T) * expected.T).sum(1)


def _single_columns(seen: Differences, columns: np.ndarray) -> np.ndarray:
    """Log evidence (j, e) that one other column explains the gaps; minus infinity for the column itself."""
    variance = np.maximum(np.einsum("jee->je", seen.within), LEAST_VARIANCE)
    by_size = np.stack([_log_ratio(seen.by, variance, seen.noise[:, None], size) for size in SIZES])
    found = _mean_of(by_size)
    found[np.arange(len(columns)), columns] = -np.inf
    return found


def _all_columns(seen: Differences, i: int, column: int) -> float:
    """Log evidence that a combination of all other columns explains the gaps of the i-th column, which stands at `column`."""
    others = np.delete(np.arange(seen.by.shape[1]), column)
    if not len(others):
        return -np.inf
    values, vectors = np.linalg.eigh(seen.within[i][np.ix_(others, others)])
    vary = values > LEAST_VARIANCE
    along = (seen.by[i, others] @ vectors)[vary]
    size = SIZES / np.sqrt(len(others))
    return float(_mean_of(np.array([_log_ratio(along, values[vary], seen.noise[i], s).sum() for s in size])))


def _log_ratio(difference: np.ndarray, variance: np.ndarray, noise: np.ndarray, size: float) -> np.ndarray:
    """Log density of differences of means whose effect has a normal prior, less that of differences by chance.

    An effect b on the log-odds moves the means by b times the variance within either kind of rows.
    """
    chance = noise * variance
    both = chance + (size * variance) ** 2
    return np.asarray(0.5 * difference**2 * (1 / chance - 1 / both) - 0.5 * np.log(both / chance))


def _mean_of(log_values: np.ndarray) -> np.ndarray:
    """The logarithm of the mean over the first axis."""
    return np.asarray(np.logaddexp.reduce(log_values, axis=0) - np.log(len(log_values)))


def _normalised(log_weights: np.ndarray) -> np.ndarray:  # (..., m)
    """Weights of sum 1 from their logarithms."""
    weights = np.exp(log_weights - log_weights.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def _weights(log_evidence: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """How probable each explanation is for each column (j, m): EM for how common they are in the table."""
    share = prior / prior.sum()
    for _ in range(STEPS):
        weights = _normalised(log_evidence + np.log(share))
        share = (weights.sum(0) + prior) / (len(weights) + prior.sum())
    return weights


def moved(law: Laws, effect: np.ndarray, scale: np.ndarray) -> Laws:
    """Distributions of gaps whose log-odds rise by `effect` (e,) per standard deviation `scale` (e,) of the embedded column.

    They move by their variance times the effect. A variance counts as that of the column at most: what is foretold of a cell by a wide
    component of few rows may be far off.
    """
    by = effect[law.columns]
    if not by.any():
        return law
    unit = np.where(scale > 0, scale, 1.0)[law.columns]
    variance = np.minimum((imputation.deviation(law) / unit) ** 2, 1.0)
    return law._replace(means=law.means + (by * variance * unit)[:, None])


def say_effects(effect: np.ndarray, names: Sequence[str]) -> None:
    """Warn of columns whose gaps are filled as values that are missing by their own size."""
    for size, filled, sign in (("large", "larger", 1), ("small", "smaller", -1)):
        found = [name for name, b in zip(names, sign * effect) if b > SAID]
        if found:
            more = f" and {len(found) - 5} more" if len(found) > 5 else ""
            warnings.warn(
                f"{size} values seem to be missing more often in columns {', '.join(found[:5])}{more}: their gaps are filled with {filled} "
                "values; use not_at_random=False to take values to be missing at random",
                DataWarning,
                stacklevel=2,
            )
