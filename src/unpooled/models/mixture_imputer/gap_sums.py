"""Whether gaps depend on what the other columns of their row foretell: the sums that tell. Nothing is sent but these sums.

Columns often have gaps in the same rows, but for a few: sums over the rows with a gap in the one and in the other would differ by those
few. So each column is asked about in a part of the rows of its own, which the bits of the rows pick: sums of two columns then differ
by many rows. Rows are counted first; columns for which these are too few are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.maths import gaussian, imputation, missing
from unpooled.maths.mixture import Params
from unpooled.maths.patterns import patterns
from unpooled.tree import message

PART = 0.75  # of the rows, for each column: two columns with 30 gaps in the same rows differ by one row or none in 1 of 70,000 cases
ROUNDING = 1e-9  # added to variances of 1, against rounding where columns determine each other


@message("mixture_imputer.GapCounts")
class GapCounts(NamedTuple):
    """For some columns, of the part of the rows that is looked at for each."""

    values: Float[Array, "j", ">=0 rows"]
    gaps: Float[Array, "j", ">=0 rows"]


@message("mixture_imputer.GapSums")
class GapSums(NamedTuple):
    """For some embedded columns, sums over rows of the column's part that have its value (0), and that have a gap there (1).

    Columns are in standard deviations from the mean of one Gaussian.
    """

    rows: Float[Array, "2 j", ">=0 rows"]
    foretold: Float[
        Array, "2 j e"
    ]  # all columns, as the other columns than j foretell them where they have gaps; j always so
    squares: Float[Array, "2 j", ">=0"]  # squares of what is foretold of column j
    spread: Float[Array, "2 j", ">=0"]  # of the column's own values: sums of absolute values, and of squares
    all: Float[Array, "", ">=0 rows"]
    filled: Float[Array, "e"]  # sum of all rows, gaps filled
    moments: Float[Array, "t"]  # sums of products of two columns of them, the lower triangle


class Looked(NamedTuple):
    """Encoded rows, and those that are looked at for each of some columns."""

    w: np.ndarray  # (n,) weights; 0 for rows without any value
    values: np.ndarray  # (n, j) weights of the rows of the column's part that have its value
    gaps: np.ndarray  # (n, j) of those that have a gap there


def looked_at(x: np.ndarray, w: np.ndarray, columns: Sequence[int]) -> Looked:
    """What of encoded rows (n, d) with weights (n,) is looked at for columns given by their places."""
    some = list(columns)
    w = w * ~np.isnan(x).all(axis=1)
    part = w[:, None] * imputation.part(x, PART)[:, some]
    gaps = np.isnan(x[:, some])
    return Looked(w, part * ~gaps, part * gaps)


def gap_counts(rows: Looked) -> GapCounts:
    """How many rows there are of each kind."""
    return GapCounts(rows.values.sum(axis=0), rows.gaps.sum(axis=0))


class _Pattern(NamedTuple):
    """Rows with the same gaps."""

    rows: np.ndarray
    gaps: np.ndarray  # (u,) columns
    slopes: np.ndarray  # (u, e) how much each column moves what is foretold of the gaps
    precision: np.ndarray  # (e,) of each column given the other columns that are there


def gap_sums(single: Params, x: np.ndarray, rows: Looked, columns: Sequence[int]) -> GapSums:
    """The sums of embedded rows (n, e).

    Parameters
    ----------
    single : Params
        One Gaussian of all rows.
    x : ndarray of shape (n, e)
        Rows with gaps.
    rows : Looked
        What is looked at for each of the j columns.
    columns : sequence of int
        Their places among the embedded columns.
    """
    some = np.array(columns, dtype=int)
    filled, precision = _standardised(single, x)
    found = _patterns(np.isnan(x), precision)
    residuals = np.zeros_like(filled)  # of each value, from what the others of its row foretell
    for p in found:
        residuals[p.rows] = (filled[p.rows] @ precision) / p.precision
    residuals = residuals[:, some] * (rows.values > 0)
    own = filled[:, some] - residuals
    either = np.stack([rows.values, rows.gaps])  # (2, n, j)
    foretold = np.swapaxes(either, 1, 2) @ filled
    for p in found:  # where the row has other gaps, what was foretold of them is without the column's value
        by = (rows.values[p.rows] * residuals[p.rows]).sum(axis=0)
        foretold[0][:, p.gaps] -= (p.slopes[:, some] * by).T
    foretold[:, np.arange(len(some)), some] = np.einsum("hnj,nj->hj", either, own)
    return GapSums(
        rows=either.sum(axis=1),
        foretold=foretold,
        squares=np.einsum("hnj,nj->hj", either, own**2),
        spread=_spread(filled[:, some], rows.values),
        all=np.asarray(rows.w.sum()),
        filled=rows.w @ filled,
        moments=gaussian.pack_triangle((filled * rows.w[:, None]).T @ filled),
    )


def _standardised(single: Params, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(rows (n, e) with gaps filled, inverse covariance) in standard deviations from the mean of one Gaussian."""
    mean = to_numpy(single.means)[0]
    cov = gaussian.unpack_triangle(to_numpy(single.covs))[0]
    scale = np.sqrt(np.diag(cov))
    filled = (missing.impute(single, x, "full") - mean) / scale
    return filled, np.linalg.inv(cov / np.outer(scale, scale) + ROUNDING * np.eye(len(scale)))


def _spread(values: np.ndarray, weights: np.ndarray) -> np.ndarray:  # (2, j)
    """Weighted sums of absolute values (n, j), and of squares."""
    return np.stack([(weights * np.abs(values)).sum(axis=0), (weights * values**2).sum(axis=0)])


def _patterns(gaps: np.ndarray, precision: np.ndarray) -> list[_Pattern]:
    """The rows of each pattern of gaps (n, e), and what the inverse covariance of all columns says of them."""
    if not len(gaps):
        return []
    found, ids = patterns(np.where(gaps, np.nan, 0.0), np.arange(len(gaps)))
    order = np.argsort(ids, kind="stable")
    ends = np.cumsum(np.bincount(ids, minlength=len(found)))
    made = []
    for rows, holes in zip(np.split(order, ends[:-1]), found):
        u = np.flatnonzero(holes)
        slopes = -np.linalg.solve(precision[np.ix_(u, u)], precision[u])
        slopes[:, u] = 0.0
        given = np.diag(precision) + np.einsum("ue,ue->e", precision[u], slopes)
        made.append(_Pattern(rows, u, slopes, np.where(holes, 1.0, given)))
    return made
