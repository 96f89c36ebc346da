"""Roughly where rows lie: one look at counts, means and variances of cells about given centres; M (d + 2) numbers.

Every row belongs to its nearest centre (by the values that it has), so one row is in one cell and the sensitivity does not grow with the
number of cells. A missing value counts as if it were the centre's value.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float
from unpooled.client import SUM, Client, client
from unpooled.federation import Federation
from unpooled.layers.private import look
from unpooled.models.private.frame import Frame, standard_rows
from unpooled.privacy.clipping import in_ball
from unpooled.privacy.exact import terms
from unpooled.privacy.sensitivity import declare
from unpooled.tree import message

COUNT, FIRST, SECOND = np.sqrt([0.35, 0.5, 0.15])  # weights of the blocks
LEAST = 4.0  # a cell of fewer rows than this many standard deviations of the noise is dropped
NARROW = 1e-3  # the least variance of a cell, as a share of the radius squared
CHUNK = 1 << 22  # distances computed at a time


@message("private.Centres")
class Centres(NamedTuple):
    """Where cells lie, for the look at their counts and means."""

    frame: Frame
    centres: Float[Array, "m d"]  # in the units of the frame
    radius: Float[Array, ""]  # beyond it a row counts as lying on the sphere


@message("private.CellSums")
class CellSums(NamedTuple):
    """Sums by cell over rows y = (z - centre) / radius, at most 1 long."""

    n: Float[Array, "m"]
    first: Float[Array, "m d"]  # sum of y
    second: Float[Array, "m"]  # sum of |y|^2


class Cells(NamedTuple):
    """Cells that hold enough rows to be told from noise."""

    n: np.ndarray  # (m,)
    mean: np.ndarray  # (m, d)
    variance: np.ndarray  # (m,) within the cell, per column


@client("private.cell_sums", SUM, batched=False, adds=True)
def cell_sums(down: Centres, client: Client) -> CellSums:
    """Count, sum and sum of squares of the rows nearest to each centre, about it."""
    z, w = standard_rows(down.frame, client)
    m = len(down.centres)
    label = nearest_seen(z, down.centres)
    with np.errstate(all="ignore"):
        deviations = (z - down.centres[label]) / down.radius
    y = in_ball(np.where(np.isnan(z), 0.0, deviations))
    count = np.bincount(label, terms(w), m)
    first = np.stack([np.bincount(label, column, m) for column in terms(w[:, None] * y).T], 1)
    second = np.bincount(label, terms(w * (y * y).sum(-1)), m)
    return CellSums(COUNT * count, FIRST * first, SECOND * second)


declare(cell_sums)


def nearest_seen(z: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """The centre nearest to each row by the values that are there."""
    rows = max(1, CHUNK // len(centres))
    parts = [_nearest(z[start : start + rows], centres) for start in range(0, len(z), rows)]
    return np.concatenate(parts) if parts else np.zeros(0, int)


def _nearest(z: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """The nearest centre of each row, by the columns that the row has."""
    seen = ~np.isnan(z)
    with np.errstate(all="ignore"):
        # less |z|^2, the same for all centres
        distance = seen @ (centres**2).T - 2 * np.where(seen, z, 0.0) @ centres.T
    return distance.argmin(-1)


def look_at_cells(fed: Federation, frame: Frame, centres: np.ndarray, radius: float, mu2: float) -> Cells:
    """One look; the cells whose counts stand out from the noise."""
    sums, sigma = look(fed, cell_sums, Centres(frame, centres, np.asarray(radius)), mu2)
    return read_cells(sums, sigma, centres, radius)


def read_cells(sums: CellSums, sigma: float, centres: np.ndarray, radius: float) -> Cells:
    """Counts, means and variances from noisy sums."""
    count = sums.n / COUNT
    keep = count > LEAST * sigma / COUNT
    count = count[keep]
    shift = in_ball(sums.first[keep] / FIRST / count[:, None])  # of the mean from the centre, in radii
    square = sums.second[keep] / SECOND / count - (shift**2).sum(1)
    means = centres[keep] + radius * shift
    variances = np.clip(square, NARROW, 1.0) * radius**2 / centres.shape[1]
    return Cells(count, means, variances)
