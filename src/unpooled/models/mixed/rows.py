"""Rows of an encoded table by block: Gaussian columns as they are, levels and counts as one sparse matrix of ones. Nothing is sent.

A count is treated as a level of its own within the rows at hand, so that densities and sums cost one sparse product each for all
discrete columns and counts. Columns of few levels are taken together: a row has one entry for the combination of its levels in a group of
columns, and tables of single levels are spread over combinations, or added up from them, outside of the sparse product.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from unpooled.models.mixed.columns import Columns
from unpooled.models.mixed.counts import Values, values

PIECE = 16384  # rows at a time
DENSE = 4096  # counts below this are looked up by their value; larger ones are sorted first
LOWEST = -1e300  # of a logarithm of a probability
TOGETHER = 1500  # combinations of levels, gaps included, of the columns of a group


class Group(NamedTuple):
    """Columns whose combination of levels is one entry of the sparse matrix."""

    entries: np.ndarray  # (s,): which of all single entries are those of its columns
    combinations: int
    has: np.ndarray | None  # (s, combinations): 1 where a combination has the entry; None for a single column


class Entries(NamedTuple):
    """What rows may have: the levels of all discrete columns, then the distinct values of all columns of counts."""

    size: int
    groups: list[Group]
    counts: Values


class Rows(NamedTuple):
    """Some rows by block."""

    gaussian: np.ndarray  # (n, g), logarithms taken
    # csr_matrix (n, combinations of all groups), a 1 for each group; None without discrete columns and counts
    ones: Any
    log_jacobian: np.ndarray  # (n,): the log density of positive columns minus that of their logarithms
    w: np.ndarray  # (n,)


class Table(NamedTuple):
    """Rows of an encoded table, in pieces, and the entries that they share."""

    entries: Entries
    pieces: list[Rows]


def split(x: np.ndarray, w: np.ndarray, columns: Columns) -> Table:
    """Rows (n, d) of an encoded table with weights (n,) by block."""
    entries, places = _entries(x, columns)
    pieces = [_rows(x[some], w[some], columns, entries, places[some]) for some in _slices(len(x))]
    return Table(entries, pieces)


def _slices(n: int) -> list[slice]:
    """The pieces of n rows, one at least."""
    return [slice(start, min(start + PIECE, n)) for start in range(0, max(n, 1), PIECE)]


def _rows(x: np.ndarray, w: np.ndarray, columns: Columns, entries: Entries, places: np.ndarray) -> Rows:
    """One piece of the rows; `places` are the entries of their combinations, (n, groups)."""
    gaussian, log_jacobian = gaussian_block(x, columns)
    ones = _ones(places, sum(group.combinations for group in entries.groups)) if entries.groups else None
    return Rows(gaussian, ones, log_jacobian, np.ascontiguousarray(w, dtype=np.float64))


def _entries(x: np.ndarray, columns: Columns) -> tuple[Entries, np.ndarray]:
    """(the entries, the place of each row's combination in each group (n, groups))."""
    codes = list(_level_codes(x[:, columns.discrete], columns).T)
    found = [_distinct(x[:, j]) for j in columns.counts]
    codes += [place for _, place in found]
    sizes = [*columns.sizes.tolist(), *(len(distinct) for distinct, _ in found)]
    groups, places = _grouped(codes, sizes)
    return Entries(sum(sizes), groups, values([distinct for distinct, _ in found])), places


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
        distinct = np.arange(present.max(initial=0.0) + 1)
        place[there] = present
    else:
        distinct, place[there] = np.unique(present, return_inverse=True)
    return distinct, place


def _grouped(codes: list[np.ndarray], sizes: list[int]) -> tuple[list[Group], np.ndarray]:
    """(groups of columns, the place of each row's combination in each (n, groups)); a code of -1 is a gap."""
    starts = np.cumsum([0, *sizes])
    groups: list[Group] = []
    places = []
    width = 0  # combinations of the groups so far
    for members in _packed([size + 1 for size in sizes]):
        with_gap = tuple(sizes[j] + 1 for j in members)
        each = [np.where(codes[j] >= 0, codes[j], sizes[j]) for j in members]
        places.append((width + np.ravel_multi_index(each, with_gap)).astype(np.int32))
        entries = np.concatenate([np.arange(starts[j], starts[j + 1]) for j in members])
        combinations = math.prod(with_gap)
        groups.append(Group(entries, combinations, _members(with_gap) if len(members) > 1 else None))
        width += combinations
    if not groups:
        return [], np.zeros((0, 0), np.int32)
    return groups, np.stack(places, axis=1)


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


def by_combination(entries: Entries, table: np.ndarray) -> np.ndarray:
    """The sum of a table's rows (entries, k) over the entries of each combination, (combinations of all groups, k)."""
    finite = np.maximum(table, LOWEST)  # minus infinity times 0 would be NaN
    return np.concatenate([_spread(group, finite[group.entries]) for group in entries.groups])


def _spread(group: Group, own: np.ndarray) -> np.ndarray:
    """What single entries (s, k) say of each combination, (combinations, k); a gap adds nothing."""
    if group.has is None:
        return np.concatenate([own, np.zeros((1, own.shape[1]))])
    return group.has.T @ own


def by_entry(entries: Entries, sums: np.ndarray) -> np.ndarray:
    """Sums by combination (combinations of all groups, k) as sums by single entry, (entries, k)."""
    out = np.zeros((entries.size, sums.shape[1]))
    start = 0
    for group in entries.groups:
        own = sums[start : start + group.combinations]
        out[group.entries] = own[:-1] if group.has is None else group.has @ own
        start += group.combinations
    return out
