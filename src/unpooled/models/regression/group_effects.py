"""A random effect for each value of one column: rows with equal values (a day, a visit, a machine) share an offset.

Sends one SUM of row counts per value of the chosen column. Values are identified by a hash, so that counts add over clients. A hash does
not hide a value from a server that can list the possible values: the server learns which of them occur in this column, and how often.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.errors import BadParameter, suggest
from unpooled.federation import Federation, least_rows
from unpooled.maths.hashing import mix
from unpooled.parameters import at_least
from unpooled.tree import message

N_HASHES = 2**18  # so many that two values of a column rarely share a hash
MIN_ROWS = 3  # a value with fewer rows gets no offset: its sums would nearly be rows
MAX_GROUPS = 4096  # values with an offset; the message grows with their number


@message("regression.Groups")
class Groups(NamedTuple):
    """The values of a column that have an offset."""

    column: Float[Array, "", ">=0"]
    keys: Float[Array, "g", ">=0"]  # hashes of the values, in ascending order


@message("regression.Count")
class Count(NamedTuple):
    """Rows per hash."""

    rows: Float[Array, "h", ">=0 rows"]


@client("regression.count", SUM, adds=True, batched=False)
def count(column: Groups, client: Client) -> Count:
    """How many rows have each value of a column."""
    values = to_numpy(client.x).astype(np.float64, copy=False)[:, int(column.column)]
    present = (to_numpy(client.w) > 0) & ~np.isnan(values)
    rows = np.bincount(hashed(values[present], N_HASHES), minlength=N_HASHES)
    return Count(rows.astype(np.float64))


def check_group_by(group_by: Any) -> None:
    """Refuse a `group_by` that is neither None nor the name or the index of a column."""
    if group_by is not None and not isinstance(group_by, str):
        at_least("group_by", group_by, 0)


def check_group_name(fed: Federation, group_by: Any) -> None:
    """Refuse the name of no column before any round, where clients are in this process."""
    if isinstance(group_by, str) and fed.here():
        _index_of(fed, group_by)


def find_groups(fed: Federation, group_by: str | int | None, n_features: int) -> Groups | None:
    """The values of column `group_by` that are frequent enough to have an offset; None if there are none. One SUM."""
    if group_by is None:
        return None
    if isinstance(group_by, str):
        group_by = _index_of(fed, group_by)
    if group_by >= n_features:
        raise BadParameter(f"group_by={group_by} is not a column: rows have {n_features}, the first is 0")
    asked = Groups(np.asarray(float(group_by)), np.zeros(0))
    rows = to_numpy(fed.sum(count, asked).rows)
    frequent = np.flatnonzero(rows >= max(MIN_ROWS, least_rows(fed)))
    most_frequent = frequent[np.argsort(-rows[frequent], kind="stable")[:MAX_GROUPS]]
    if len(most_frequent) == 0:
        return None
    return asked._replace(keys=np.sort(most_frequent).astype(np.float64))


def _index_of(fed: Federation, name: str) -> int:
    """The column of that name, which holds a number for each group."""
    names = list(fed.columns or ())
    if not names:
        raise BadParameter(f"group_by={name!r} must be the index of a column, from 0, since the columns have no names")
    if name in names:
        return names.index(name)
    if any(other.startswith(f"{name}=") for other in names):
        raise BadParameter(f"group_by={name!r} is a column of texts: write it as numbers, one for each group")
    raise BadParameter(f"group_by={name!r} is not a column of the data: {suggest(name, names)}")


def members(groups: Groups | None, x: np.ndarray) -> np.ndarray | None:  # (..., n)
    """The group of each row of x (..., n, d): -1 where its value has no group or is missing; None without groups."""
    if groups is None or len(groups.keys) == 0:
        return None
    values = x[..., int(groups.column)]
    key = hashed(values, N_HASHES)
    at = np.minimum(np.searchsorted(groups.keys, key), len(groups.keys) - 1)
    return np.where((groups.keys[at] == key) & ~np.isnan(values), at, -1)


def hashed(values: np.ndarray, size: int) -> np.ndarray:
    """A hash from 0 to size - 1 of each value; a value has the same hash in single and in double precision."""
    bits = (np.asarray(values, dtype=np.float32) + np.float32(0.0)).view(np.uint32)  # + 0.0 turns -0.0 into 0.0
    return (mix(bits.astype(np.uint64)) % np.uint64(size)).astype(np.int64)
