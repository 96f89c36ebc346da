"""What single columns tell about y, and how columns go together: one SUM of second moments of columns and of targets by bin."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float
from unpooled.client import SUM, Client, client
from unpooled.maths.bayes_linear import pack
from unpooled.models.regression import Scaling, standard_rows
from unpooled.tree import message


@message("fedbnr.Bins")
class Bins(NamedTuple):
    """Down: the bins of every column, in standardised units."""

    scaling: Scaling
    edges: Float[Array, "d e"]


@message("fedbnr.Effects")
class Effects(NamedTuple):
    """Up: sums over rows."""

    moments: Float[Array, "t"]  # the upper triangle of sum w x x', of standardised columns
    rows: Float[Array, "d b", ">=0 rows"]  # rows per bin
    targets: Float[Array, "d b o"]  # standardised targets per bin, summed


@client("fedbnr.effects", SUM, adds=True, batched=False)
def effects(bins: Bins, client: Client) -> Effects:
    """Second moments of the columns, and rows and targets by bin of each column."""
    x, y, w, _ = standard_rows(bins.scaling, client, 0.0, 0)
    moments = pack(x.T @ (w[:, None] * x))
    d = len(bins.edges)
    n_bins = bins.edges.shape[1] + 1
    rows = np.zeros((d, n_bins))
    targets = np.zeros((d, n_bins, y.shape[1]))
    for j, edges in enumerate(bins.edges):
        place = np.searchsorted(edges, x[:, j])
        rows[j] = np.bincount(place, w, n_bins)
        targets[j] = np.column_stack([np.bincount(place, w * column, n_bins) for column in y.T])
    return Effects(moments, rows.astype(np.float32), targets)


def curvature(seen: Effects) -> np.ndarray:  # (d,)
    """How much of y's sum of squares a column's bins explain beyond a straight line, less what noise would explain."""
    return np.array([_curvature(rows, targets) for rows, targets in zip(seen.rows, seen.targets)])


def _curvature(rows: np.ndarray, targets: np.ndarray) -> float:
    """The same for one column."""
    rows, targets = rows[rows > 0], targets[rows > 0]
    if len(rows) < 3:
        return 0.0
    root = np.sqrt(rows)[:, None]
    line = np.column_stack([np.ones(len(rows)), np.arange(len(rows))])
    means = targets / rows[:, None]
    coef = np.linalg.lstsq(root * line, root * means, rcond=None)[0]
    explained = (rows[:, None] * (means - line @ coef) ** 2).sum(0)
    return float(np.maximum(explained - (len(rows) - 2), 0.0).sum())


def shared_out(curvatures: np.ndarray, most: np.ndarray, n_knots: int) -> np.ndarray:  # (d,)
    """Knots per column: in proportion to the root of its curvature, at most `most` (d,), of so many in all."""
    weight = np.sqrt(curvatures) + 1e-9
    wanted = np.zeros(len(most), dtype=int)
    for _ in range(min(n_knots, int(most.sum()))):
        gain = np.where(wanted < most, weight / (wanted + 1), -1.0)
        wanted[int(np.argmax(gain))] += 1
    return wanted
