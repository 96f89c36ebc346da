"""Rows of an encoded table by block: Gaussian columns as they are, levels and counts as one sparse matrix of ones. Nothing is sent.

A count is treated as a level of its own within the rows at hand, so that densities and sums cost one sparse product each for all
discrete columns and counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from unpooled.models.mixed.columns import Columns
from unpooled.models.mixed.counts import gamma_terms

BLOCK = 8192  # rows at a time
DENSE = 4096  # counts below this are looked up by their value; larger ones are sorted first


class Values(NamedTuple):
    """The distinct values of a column of counts, and where they lie among all entries."""

    part: slice
    values: np.ndarray  # (u,)
    gammas: np.ndarray  # (u, a)


class Rows(NamedTuple):
    """Rows by block."""

    gaussian: np.ndarray  # (n, g), logarithms taken
    ones: (
        csr_matrix | None
    )  # (n, entries + 1): a 1 for each level and count that a row has; in the last column, for gaps
    counts: list[Values]
    log_jacobian: np.ndarray  # (n,): the log density of positive columns minus that of their logarithms


def blocks(x: np.ndarray, w: np.ndarray, columns: Columns) -> Iterator[tuple[Rows, np.ndarray]]:
    """(rows, their weights), a block at a time."""
    for start in range(0, max(len(x), 1), BLOCK):
        some = slice(start, start + BLOCK)
        yield split(x[some], columns), np.ascontiguousarray(w[some], dtype=np.float64)


def split(x: np.ndarray, columns: Columns) -> Rows:
    """Rows (n, d) of an encoded table by block."""
    gaussian, log_jacobian = gaussian_block(x, columns)
    if not len(columns.discrete) + len(columns.counts):
        return Rows(gaussian, None, [], log_jacobian)
    places = np.empty((len(x), len(columns.discrete) + len(columns.counts)), np.int32)
    places[:, : len(columns.discrete)] = _level_places(x[:, columns.discrete], columns)
    counts, start = [], columns.t
    for i, j in enumerate(columns.counts, start=len(columns.discrete)):
        values, place = _distinct(x[:, j])
        places[:, i] = np.where(place >= 0, place + start, -1)
        counts.append(Values(slice(start, start + len(values)), values, gamma_terms(values)))
        start += len(values)
    places[places < 0] = start
    return Rows(gaussian, _ones(places, start + 1), counts, log_jacobian)


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


def _level_places(codes: np.ndarray, columns: Columns) -> np.ndarray:
    """Where each level lies among all levels; -1 where it is missing, or a code that no level has."""
    known = (codes >= 0) & (codes < columns.sizes)
    return np.where(known, np.where(known, codes, 0.0) + columns.starts, -1)


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


def _ones(places: np.ndarray, size: int) -> csr_matrix:
    """A sparse matrix with a 1 in each of the given places of every row."""
    n, c = places.shape
    ends = np.arange(0, n * c + 1, c, dtype=np.int32)
    return csr_matrix((_ones_of(n * c), places.ravel(), ends), shape=(n, size))


@lru_cache(maxsize=8)
def _ones_of(size: int) -> np.ndarray:
    """So many ones, made once."""
    return np.ones(size)


def looked_up(ones: csr_matrix, table: np.ndarray) -> np.ndarray:
    """The sum over each row's entries of the table's rows: table (entries, k) to (n, k)."""
    return ones @ np.concatenate([table, np.zeros((1, table.shape[1]))])


def summed(ones: csr_matrix, r: np.ndarray) -> np.ndarray:
    """The sum of r over the rows that have each entry: r (n, k) to (entries, k)."""
    return (ones.T @ r)[:-1]
