"""A part of the rows of large tables, which is enough to find where a mixture starts: one SUM, of counts and sums of the part.

Rows are taken by a hash of their values, so that the part is the same however rows are split into clients. Rows with the same values
are taken together: where there are so many of them that the part is not like the whole, all rows are taken.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, is_torch, namespace, to_numpy
from unpooled.client import SUM, Ask, Client, client
from unpooled.federation import Federation
from unpooled.models.initialization.column_frame import ColumnSums, Frame, double, sums_of

ENOUGH_ROWS = 20_000  # of the part, at least
ROWS_PER_PARAMETER = 20  # of the largest mixture, likewise
UNLIKE = 5.0  # standard errors from which on the part is not like the whole
SALT = np.uint64(2)  # of the hash


class Part(NamedTuple):
    """Which rows are taken."""

    every: int  # about one row of so many
    rows: float  # how many these are


def part_of(fed: Federation, frame: Frame, parameters: int, question: Ask | None = None) -> Part:
    """The part of the rows that is enough for a mixture of so many parameters; a SUM, unless that is all rows.

    `question` asks for the rows, values and sums of the part in the columns of the frame; `part_sums` unless given.
    """
    rows = float(frame.rows)
    every = int(rows / max(ENOUGH_ROWS, ROWS_PER_PARAMETER * parameters))
    if every < 2:
        return Part(1, rows)
    found = fed.sum((question or part_sums).using(every=every), None)
    if not _is_alike(found, frame, every):
        return Part(1, rows)
    return Part(every, float(found.rows))


def _is_alike(found: Any, frame: Frame, every: int) -> bool:
    """Whether the part has as many rows, and the same means, as one drawn by chance may have."""
    expected = float(frame.rows) / every
    error = np.sqrt(1 - 1 / every)
    seen = to_numpy(found.seen)
    if abs(float(found.rows) - expected) > UNLIKE * error * np.sqrt(expected) or (seen < 1).any():
        return False
    away = (to_numpy(found.x) / seen - to_numpy(frame.mean)) / to_numpy(frame.scale)
    return bool((np.abs(away) <= UNLIKE * error / np.sqrt(seen)).all())


@client("initialization.part", SUM, adds=True, exact=True)
def part_sums(nothing: None, client: Client, *, every: int) -> ColumnSums:
    """Rows, values and sums of the part."""
    return sums_of(*taken(client, every))


def taken(client: Client, every: int) -> tuple[Array, Array]:
    """(rows in 64 bits, their weights): all of them, or about one of `every`."""
    if every == 1:
        return double(client.x), client.w
    key = f"taken-{every}"
    if key not in client.memo:
        client.memo[key] = is_taken(to_numpy(client.x), every)
    chosen = client.memo[key]
    if client.x.ndim == 2 and not is_torch(client.x):
        return double(client.x[chosen]), client.w[chosen]
    place = {"device": client.x.device} if is_torch(client.x) else {}
    return double(client.x), client.w * namespace(client.x).asarray(chosen, **place)


def is_taken(x: np.ndarray, every: int) -> np.ndarray:
    """Which rows of x (..., n, d) are taken, (..., n) bool."""
    from unpooled.maths.hashing import absorb, mix  # loaded where tables are large

    hashes = absorb(np.full(x.shape[:-1], mix(SALT)), x)
    return mix(hashes) % np.uint64(every) == 0
