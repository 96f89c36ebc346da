"""A part of the rows of large tables, which is enough to find where a mixture starts: one SUM, of counts.

Rows are taken by a hash of their values, so that the part is the same however rows are split into clients. Rows with the same values
are taken together: where there are many of them the part may not be like the whole, and all rows are taken. So they are where a column has
few values in the part, so that no sum over the part is one of few values.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, is_torch, namespace, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.federation import Federation
from unpooled.models.initialization.column_frame import Frame, double
from unpooled.tree import message

ENOUGH_ROWS = 20_000  # of the part, at least
ROWS_PER_PARAMETER = 20  # of the largest mixture, likewise
ENOUGH_VALUES = 100  # of each column, in the part
GROUPS = 64  # into which rows are divided by their hash: more uneven ones than by chance hold many equal rows
UNEVEN = 5.0  # standard deviations of the chi-square statistic of their sizes from which on they are
SALT = np.uint64(2)  # of the hash


@message("initialization.PartCounts")
class PartCounts(NamedTuple):
    """How many rows the part has, values of each column in it, and rows of the whole table in each group of hashes."""

    rows: Float[Array, "", ">=0 rows"]
    seen: Float[Array, "d", ">=0 rows"]
    groups: Float[Array, "groups", ">=0"]


class Part(NamedTuple):
    """Which rows are taken."""

    every: int  # about one row of so many
    rows: float  # how many these are


def part_of(fed: Federation, frame: Frame, parameters: int) -> Part:
    """The part of the rows that is enough for a mixture of so many parameters; a SUM, unless that is all rows."""
    rows = float(frame.rows)
    every = int(rows / max(ENOUGH_ROWS, ROWS_PER_PARAMETER * parameters))
    if every < 2:
        return Part(1, rows)
    found = fed.sum(part_counts.using(every=every), None)
    if to_numpy(found.seen).min() < ENOUGH_VALUES or _many_are_equal(to_numpy(found.groups)):
        return Part(1, rows)
    return Part(every, float(found.rows))


def _many_are_equal(groups: np.ndarray) -> bool:
    """Whether groups of rows by their hash differ in size by more than chance explains."""
    expected = groups.mean()
    statistic = ((groups - expected) ** 2).sum() / max(expected, 1e-300)
    free = len(groups) - 1
    return bool(statistic > free + UNEVEN * np.sqrt(2 * free))


@client("initialization.part", SUM, adds=True, batched=False, exact=True)
def part_counts(nothing: None, client: Client, *, every: int) -> PartCounts:
    """Rows and values of the part, and the sizes of groups of rows."""
    x = to_numpy(client.x)
    w = to_numpy(client.w).astype(np.float64)
    hashes = hashes_of(x)
    weight = np.where(hashes % np.uint64(every) == 0, w, 0.0)
    groups = np.bincount((hashes[w > 0] % np.uint64(GROUPS)).astype(np.int64), minlength=GROUPS)
    seen = (weight > 0).astype(np.float64) @ ~np.isnan(x)
    return PartCounts(np.asarray(weight.sum()), seen, groups.astype(np.float64))


def taken(client: Client, every: int) -> tuple[Array, Array]:
    """(rows in 64 bits, their weights): all of them, or about one of `every`."""
    if every == 1:
        return double(client.x), client.w
    known, chosen = client.memo.get("taken", (0, None))
    if known != every:
        chosen = hashes_of(to_numpy(client.x)) % np.uint64(every) == 0
        client.memo["taken"] = every, chosen  # of one part only: whoever asks about many parts fills no memory
    if client.x.ndim == 2 and not is_torch(client.x):
        return double(client.x[chosen]), client.w[chosen]
    place = {"device": client.x.device} if is_torch(client.x) else {}
    return double(client.x), client.w * namespace(client.x).asarray(chosen, **place)


def hashes_of(x: np.ndarray) -> np.ndarray:
    """A hash of each row of x (..., n, d), (..., n)."""
    from unpooled.maths.hashing import absorb, mix  # loaded where tables are large

    return np.asarray(mix(absorb(np.full(x.shape[:-1], mix(SALT)), x)))
