"""Whether gaps depend on what the other columns of their row foretell: the sums that tell. Nothing is sent but these sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.maths import gaussian, missing
from unpooled.maths.mixture import Params
from unpooled.maths.patterns import patterns
from unpooled.tree import message

ROUNDING = 1e-9  # added to variances of 1, against rounding where columns determine each other


@message("mixture_imputer.GapSums")
class GapSums(NamedTuple):
    """For each of some embedded columns, sums over the rows that have its value (0) and those that have a gap there (1).

    Columns are in standard deviations from the mean of one Gaussian.
    """

    rows: Float[Array, "2 j", ">=0 rows"]
    foretold: Float[
        Array, "2 j e"
    ]  # all columns, as the other columns than j foretell them where they have gaps; j always so
    squares: Float[Array, "2 j", ">=0"]  # squares of what is foretold of column j
    spread: Float[Array, "2 j", ">=0"]  # of the column's own values: sums of absolute values, and of squares
    filled: Float[Array, "e"]  # sum of all rows, gaps filled
    moments: Float[Array, "t"]  # sums of products of two columns of them, the lower triangle


class _Pattern(NamedTuple):
    """Rows with the same gaps."""

    rows: np.ndarray
    gaps: np.ndarray  # (u,) columns
    slopes: np.ndarray  # (u, e) how much each column moves what is foretold of the gaps
    precision: np.ndarray  # (e,) of each column given the other columns that are there


def gap_sums(single: Params, x: np.ndarray, w: np.ndarray, columns: Sequence[int]) -> GapSums:
    """The sums of embedded rows (n, e) with weights (n,), for the columns given by their places.

    Parameters
    ----------
    single : Params
        One Gaussian of all rows.
    x : ndarray of shape (n, e)
        Rows with gaps; those without any value do not count.
    w : ndarray of shape (n,)
        Their weights.
    columns : sequence of int
        The columns whose gaps are asked about.
    """
    w = w * ~np.isnan(x).all(axis=1)
    mean = to_numpy(single.means)[0]
    cov = gaussian.unpack_triangle(to_numpy(single.covs))[0]
    scale = np.sqrt(np.diag(cov))
    filled = (missing.impute(single, x, "full") - mean) / scale
    precision = np.linalg.inv(cov / np.outer(scale, scale) + ROUNDING * np.eye(len(scale)))
    gaps = np.isnan(x)
    residuals = np.zeros_like(filled)  # of each value, from what the others of its row foretell
    found = list(_patterns(gaps, precision))
    weighted = filled @ precision
    for p in found:
        residuals[p.rows] = weighted[p.rows] / p.precision
    residuals[gaps] = 0.0
    own = filled - residuals
    either = np.stack([w[:, None] * ~gaps, w[:, None] * gaps])  # (2, n, e)
    foretold = np.swapaxes(either, 1, 2) @ filled
    for p in found:  # where the row has other gaps, what was foretold of them is without the column's value
        moved = w[p.rows] @ residuals[p.rows]
        foretold[0][:, p.gaps] -= (p.slopes * moved).T
    diagonal = np.arange(x.shape[1])
    foretold[:, diagonal, diagonal] = np.einsum("hnj,nj->hj", either, own)
    squares = np.einsum("hnj,nj->hj", either, own**2)
    some = list(columns)
    values = np.where(gaps, 0.0, filled)[:, some]
    spread = np.stack([w @ np.abs(values), w @ values**2])
    moments = gaussian.pack_triangle((filled * w[:, None]).T @ filled)
    return GapSums(either.sum(1)[:, some], foretold[:, some], squares[:, some], spread, w @ filled, moments)


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
