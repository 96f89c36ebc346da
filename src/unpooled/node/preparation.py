"""What a node does to its rows before any question sees them: few rows of one person, values inside public bounds. Nothing is sent.

Both come from `[privacy]` in policy.toml. A person (`unit`, a patient's number for instance) with more than `max_rows_per_unit` rows keeps
the first of them, so that adding or removing a whole person changes so many rows at most.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from unpooled.data.files import Columns
from unpooled.errors import BadData

log = logging.getLogger("unpooled.node")


class Preparation(NamedTuple):
    """What is done to a table; nothing by default."""

    unit: str | None = None  # the column, under the table's own name, that tells whose row it is
    max_rows_per_unit: int = 1
    bounds: Mapping[str, tuple[float, float]] = {}  # column, under the federation's name -> (low, high)


NOTHING = Preparation()


def limit_units(chunks: Iterable[Columns], preparation: Preparation, where: str) -> Iterator[Columns]:
    """The chunks of a table without the rows of a unit that come after its first `max_rows_per_unit`."""
    if preparation.unit is None:
        yield from chunks
        return
    seen = np.array([], dtype=str)
    counts = np.array([], dtype=np.int64)
    dropped = 0
    for chunk in chunks:
        units = _units(chunk[preparation.unit], preparation.unit, where)
        known, index = np.unique(np.concatenate([seen, units]), return_inverse=True)
        before = np.zeros(len(known), dtype=np.int64)
        before[index[: len(seen)]] = counts
        unit_of_row = index[len(seen) :]
        kept = before[unit_of_row] + _rank(unit_of_row) < preparation.max_rows_per_unit
        seen = known
        counts = before + np.bincount(unit_of_row, minlength=len(known))
        dropped += int((~kept).sum())
        yield {name: values[kept] for name, values in chunk.items()}
    if dropped:
        log.info("%d rows beyond %d of one unit are not used", dropped, preparation.max_rows_per_unit)


def _units(values: np.ndarray, column: str, where: str) -> np.ndarray:
    """Units as strings; a row without one would belong to nobody, or to everybody."""
    values = np.asarray(values)
    missing = values != values
    if values.dtype.kind == "O":
        missing |= np.equal(values, np.full(1, None)).astype(bool) | (values == "")
    if missing.any():
        raise BadData(
            f"{where} has {int(missing.sum())} rows without {column!r}, the unit of [privacy]: fill it or leave them out"
        )
    return values.astype(str)


def _rank(index: np.ndarray) -> np.ndarray:
    """For each element, how many equal ones stand before it."""
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(ordered) else np.array([], dtype=np.int64)
    lengths = np.diff(np.r_[starts, len(ordered)])
    rank = np.empty(len(index), dtype=np.int64)
    rank[order] = np.arange(len(index)) - np.repeat(starts, lengths)
    return rank


def clip(x: np.ndarray, columns: Sequence[str], preparation: Preparation) -> np.ndarray:
    """Rows with every bounded column moved into its bounds; a missing value stays missing."""
    named = [(j, preparation.bounds[c]) for j, c in enumerate(columns) if c in preparation.bounds]
    if not named:
        return x
    clipped = np.array(x)
    for j, (low, high) in named:
        clipped[:, j] = np.clip(clipped[:, j], low, high)
    moved = int((clipped != x)[~np.isnan(x)].sum()) if np.isnan(x).any() else int((clipped != x).sum())
    if moved:
        log.info("%d values lie outside the bounds of [privacy] and are moved to the nearest", moved)
    return clipped
