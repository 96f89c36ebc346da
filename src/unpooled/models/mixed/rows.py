"""Rows of an encoded table by block: Gaussian columns, levels as a sparse matrix of ones, counts as a sparse matrix of values.

A count is treated as a level of its own within the rows at hand, so that densities and sums cost two sparse products for
all discrete columns and counts. Nothing is sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from unpooled.models.mixed.columns import Columns

BLOCK = 8192  # rows at a time
DENSE = 4096  # counts below this are looked up by their value; larger ones are sorted first


class Ones(NamedTuple):
    """Which entries of a list each row has; those of no row point past the end."""

    matrix: csr_matrix  # (n, size + 1)
    size: int


class Counts(NamedTuple):
    """The distinct values of every column of counts, one list after the other."""

    ones: Ones
    values: np.ndarray  # (u,)
    parts: list[slice]  # of each column in `values`


class Rows(NamedTuple):
    gaussian: np.ndarray  # (n, g), logarithms taken
    levels: Ones | None
    counts: Counts | None
    log_jacobian: np.ndarray  # (n,): the log density of positive columns minus that of their logarithms


def blocks(x: np.ndarray, w: np.ndarray, columns: Columns) -> Iterator[tuple[Rows, np.ndarray]]:
    """(rows, their weights), a block at a time."""
    for start in range(0, max(len(x), 1), BLOCK):
        some = slice(start, start + BLOCK)
        yield split(x[some], columns), np.ascontiguousarray(w[some], dtype=np.float64)


def split(x: np.ndarray, columns: Columns) -> Rows:
    """Rows (n, d) of an encoded table by block."""
    gaussian, log_jacobian = gaussian_block(x, columns)
    levels = _levels(x[:, columns.discrete], columns) if len(columns.discrete) else None
    counts = _counts(x[:, columns.counts]) if len(columns.counts) else None
    return Rows(gaussian, levels, counts, log_jacobian)


def gaussian_block(x: np.ndarray, columns: Columns) -> tuple[np.ndarray, np.ndarray]:
    """The Gaussian block (n, g), and minus the sum of the logarithms that were taken, (n,)."""
    block = np.array(x[:, columns.gaussian], dtype=np.float64)
    if not columns.is_log.any():
        return block, np.zeros(len(x))
    positive = block[:, columns.is_log]
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.where(positive > 0, np.log(positive), np.nan)
    block[:, columns.is_log] = logs
    return block, -np.nansum(logs, axis=1)


def _levels(codes: np.ndarray, columns: Columns) -> Ones:
    known = (codes >= 0) & (codes < columns.sizes)  # NaN is neither; a level nobody knew counts as missing
    place = np.where(known, codes, 0.0).astype(np.int32) + columns.starts.astype(np.int32)
    return _ones(np.where(known, place, columns.t), columns.t)


def _counts(x: np.ndarray) -> Counts:
    lists, places, start = [], np.empty(x.shape, np.int64), 0
    for j, column in enumerate(x.T):
        values, place = _distinct(column)
        places[:, j] = np.where(place >= 0, place + start, -1)
        lists.append(values)
        start += len(values)
    places[places < 0] = start
    ends = np.cumsum([len(values) for values in lists]).tolist()
    parts = [slice(a, b) for a, b in zip([0, *ends[:-1]], ends)]
    return Counts(_ones(places, start), np.concatenate(lists), parts)


def _distinct(column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(distinct values or all up to the largest, the place of each row's; -1 where it is missing)."""
    there = column >= 0
    present = column[there]
    place = np.full(len(column), -1)
    if present.max(initial=0.0) < DENSE:
        values = np.arange(present.max(initial=0.0) + 1)
        place[there] = present
    else:
        values, place[there] = np.unique(present, return_inverse=True)
    return values, place


def _ones(places: np.ndarray, size: int) -> Ones:
    n, c = places.shape
    ends = np.arange(0, n * c + 1, c, dtype=np.int32)
    return Ones(csr_matrix((np.ones(n * c), places.ravel().astype(np.int32), ends), shape=(n, size + 1)), size)


def looked_up(ones: Ones, table: np.ndarray) -> np.ndarray:
    """The sum over each row's entries of the table's rows: table (size, k) to (n, k)."""
    padded = np.concatenate([table, np.zeros((1, table.shape[1]))])
    return ones.matrix @ padded


def summed(ones: Ones, r: np.ndarray) -> np.ndarray:
    """The sum of r over the rows that have each entry: r (n, k) to (size, k)."""
    return (ones.matrix.T @ r)[: ones.size]
