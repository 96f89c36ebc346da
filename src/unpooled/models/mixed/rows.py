"""Rows of an encoded table by block: Gaussian columns as they are, levels and counts as one sparse matrix of ones. Nothing is sent.

A count is treated as a level of its own within the rows at hand, so that densities and sums cost one sparse product each for all
discrete columns and counts. Columns of few levels are taken together: a row has one entry for the combination of its levels in a group of
columns, and tables of single levels are spread over combinations, or added up from them, outside of the sparse product.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from unpooled.models.mixed.columns import Columns
from unpooled.models.mixed.counts import gamma_terms

BLOCK = 16384  # rows at a time
DENSE = 4096  # counts below this are looked up by their value; larger ones are sorted first
LOWEST = -1e300  # of a logarithm of a probability
TOGETHER = 1500  # combinations of levels, gaps included, of the columns of a group


class Values(NamedTuple):
    """The distinct values of a column of counts, and where they lie among all entries."""

    part: slice
    values: np.ndarray  # (u,)
    gammas: np.ndarray  # (u, a)


class Group(NamedTuple):
    """Columns whose combination of levels is one entry."""

    entries: np.ndarray  # (s,): which of all single entries are those of its columns
    has: (
        np.ndarray | None
    )  # (s, combinations): 1 where a combination has the entry, 0 elsewhere; None for a single column


class Rows(NamedTuple):
    """Rows by block."""

    gaussian: np.ndarray  # (n, g), logarithms taken
    ones: (
        Any  # csr_matrix (n, combinations of all groups): a 1 for each group; None without discrete columns and counts
    )
    groups: list[Group]
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
        return Rows(gaussian, None, [], [], log_jacobian)
    codes = list(_level_codes(x[:, columns.discrete], columns).T)
    parts, counts, start = list(columns.parts), [], columns.t
    for j in columns.counts:
        values, place = _distinct(x[:, j])
        parts.append(slice(start, start + len(values)))
        codes.append(place)
        counts.append(Values(parts[-1], values, gamma_terms(values)))
        start += len(values)
    ones, groups = _grouped(codes, parts)
    return Rows(gaussian, ones, groups, counts, log_jacobian)


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


def _level_codes(codes: np.ndarray, columns: Columns) -> np.ndarray:
    """The codes of levels; -1 where a level is missing, or where the code is that of no level."""
    known = (codes >= 0) & (codes < columns.sizes)
    return np.where(known, np.where(known, codes, 0.0), -1).astype(np.int64)


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


def _grouped(codes: list[np.ndarray], parts: list[slice]) -> tuple[csr_matrix, list[Group]]:
    """The matrix of ones, and the groups of columns; a code of -1 is a gap."""
    groups, places, width = [], [], 0
    for members in _packed([part.stop - part.start + 1 for part in parts]):
        sizes = tuple(parts[j].stop - parts[j].start + 1 for j in members)
        each = [np.where(codes[j] >= 0, codes[j], size - 1) for j, size in zip(members, sizes)]
        places.append(width + np.ravel_multi_index(each, sizes))
        entries = np.concatenate([np.arange(parts[j].start, parts[j].stop) for j in members])
        groups.append(Group(entries, _members(sizes) if len(sizes) > 1 else None))
        width += int(np.prod(sizes))
    return _ones(np.stack(places, axis=1).astype(np.int32), width), groups


@lru_cache(maxsize=64)
def _members(sizes: tuple[int, ...]) -> np.ndarray:
    """Which combination of levels has which level of which column, the gap of each column left out: (levels, combinations)."""
    held = np.unravel_index(np.arange(int(np.prod(sizes))), sizes)
    return np.concatenate([np.arange(size - 1)[:, None] == place for size, place in zip(sizes, held)]).astype(
        np.float64
    )


def _packed(sizes: list[int]) -> list[list[int]]:
    """Columns by group, so that no group has more than TOGETHER combinations unless it is a single column."""
    groups: list[list[int]] = []
    products: list[int] = []
    for j in np.argsort(sizes, kind="stable")[::-1].tolist():
        room = [g for g, product in enumerate(products) if product * sizes[j] <= TOGETHER]
        if room:
            groups[room[0]].append(j)
            products[room[0]] *= sizes[j]
        else:
            groups.append([j])
            products.append(sizes[j])
    return groups


def _ones(places: np.ndarray, size: int) -> csr_matrix:
    """A sparse matrix with a 1 in each of the given places of every row."""
    n, c = places.shape
    ends = np.arange(0, n * c + 1, c, dtype=np.int32)
    return csr_matrix((_ones_of(n * c), places.ravel(), ends), shape=(n, size))


@lru_cache(maxsize=8)
def _ones_of(size: int) -> np.ndarray:
    """So many ones, made once."""
    return np.ones(size)


def looked_up(rows: Rows, table: np.ndarray) -> np.ndarray:
    """The sum over each row's levels and counts of the table's rows: table (entries, k) to (n, k)."""
    finite = np.maximum(table, LOWEST)  # minus infinity times 0 would be NaN
    return rows.ones @ np.concatenate([_spread(group, finite[group.entries]) for group in rows.groups])


def _spread(group: Group, own: np.ndarray) -> np.ndarray:
    """What single entries (s, k) say of each combination, (combinations, k); a gap adds nothing."""
    if group.has is None:
        return np.concatenate([own, np.zeros((1, own.shape[1]))])
    return group.has.T @ own


def summed(rows: Rows, r: np.ndarray, size: int) -> np.ndarray:
    """The sum of r over the rows that have each of so many single entries: r (n, k) to (size, k)."""
    found, start = rows.ones.T @ r, 0
    out = np.empty((size, r.shape[1]))
    for group in rows.groups:
        stop = start + (len(group.entries) + 1 if group.has is None else group.has.shape[1])
        own = found[start:stop]
        out[group.entries] = own[:-1] if group.has is None else group.has @ own
        start = stop
    return out
