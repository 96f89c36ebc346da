"""What clients are asked for a description: counts and moments of the rows in each slot, and of pairs of columns.

A slot is a group of rows: slot 0 holds all of them, one slot those of each value of the grouping column, and, where the study says so and
the nodes allow these questions, one slot those of each site.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, Int, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.maths.searching import rows_below
from unpooled.tree import message

KEPT = 2**24  # numbers of a client up to which ordered copies of its columns are kept from round to round


@message("describe.Overview")
class Overview(NamedTuple):
    """Rows, and values that are not missing."""

    rows: Float[Array, "", ">=0 rows"]
    seen: Float[Array, "d", ">=0 rows"]  # values that are not missing


@message("describe.Prefixes")
class Prefixes(NamedTuple):
    """Patterns of missing values, as far as they are known."""

    columns: Int[Array, "c"]  # the columns that patterns are of
    gone: Int[Array, "m a"]  # 1: missing, in the first a of them


@message("describe.Cuts")
class Cuts(NamedTuple):
    """Thresholds of each list, and the patterns that are counted along."""

    levels: Float[Array, "k"]  # values of the grouping column
    list: Int[Array, "q"]  # slot times d plus column
    at: Float[Array, "q"]
    prefixes: Prefixes


@message("describe.Below")
class Below(NamedTuple):
    """Rows at or below each threshold, and rows of each pattern."""

    rows: Float[Array, "q", ">=0 rows"]  # at or below each threshold
    patterns: Float[Array, "m b", ">=0 rows"]  # rows of each pattern, by how it goes on


@message("describe.Slots")
class Slots(NamedTuple):
    """The groups that sums are asked for."""

    levels: Float[Array, "k"]


@message("describe.Sums")
class Sums(NamedTuple):
    """Rows, values and sums of columns in each slot."""

    rows: Float[Array, "s", ">=0 rows"]
    seen: Float[Array, "s d", ">=0 rows"]
    x: Float[Array, "s d"]


@message("describe.Centres")
class Centres(NamedTuple):
    """Means about which second moments are taken, and levels to count."""

    levels: Float[Array, "k"]
    mean: Float[Array, "s d"]  # of each slot; the first is that of all rows
    column: Int[Array, "l"]  # the levels of all columns, one after the other: whose it is,
    value: Float[Array, "l"]  # and its value


@message("describe.Moments")
class Moments(NamedTuple):
    """Second moments in each slot, and rows of each level."""

    x: Float[Array, "s d"]  # sums about the mean: what rounding left of it
    xx: Float[Array, "s d", ">=0"]
    level: Float[Array, "s l", ">=0 rows"]  # rows of each level


@message("describe.PairMoments")
class PairMoments(NamedTuple):
    """Sums over the rows in which both columns of a pair are there, about the means of all rows."""

    n: Float[Array, "d d", ">=0 rows"]
    x: Float[Array, "d d"]  # of the first
    xx: Float[Array, "d d", ">=0"]  # of its square
    xy: Float[Array, "d d"]  # of the product


@client("describe.overview", SUM, adds=True)
def overview(nothing: None, client: Client) -> Overview:
    """Rows, and values of every column that are not missing."""
    x, w = _rows(client)
    return Overview(w.sum(-1), (w[..., None] * ~np.isnan(x)).sum(-2))


@client("describe.below", SUM, adds=True, batched=False)
def below(cuts: Cuts, client: Client, *, by: int | None, digits: int) -> Below:
    """How many rows lie at or below thresholds, by group and column; how many have each pattern of missing values."""
    return _below(cuts, client, by, digits, None)


@client("describe.below_by_site", SUM, batched=False)
def below_by_site(cuts: Cuts, client: Client, *, by: int | None, digits: int, sites: list) -> Below:
    """How many rows lie at or below thresholds, also site by site; how many have each pattern of missing values."""
    return _below(cuts, client, by, digits, sites)


@client("describe.sums", SUM, adds=True, batched=False)
def sums(slots: Slots, client: Client, *, by: int | None) -> Sums:
    """Rows, values and sums of every column, by group."""
    return _sums(slots, client, by, None)


@client("describe.sums_by_site", SUM, batched=False)
def sums_by_site(slots: Slots, client: Client, *, by: int | None, sites: list) -> Sums:
    """Rows, values and sums of every column, also site by site."""
    return _sums(slots, client, by, sites)


@client("describe.moments", SUM, adds=True, batched=False)
def moments(centres: Centres, client: Client, *, by: int | None) -> Moments:
    """Squares of every column about its mean, and rows of each level, by group."""
    return _moments(centres, client, by, None)


@client("describe.moments_by_site", SUM, batched=False)
def moments_by_site(centres: Centres, client: Client, *, by: int | None, sites: list) -> Moments:
    """Squares of every column about its mean, and rows of each level, also site by site."""
    return _moments(centres, client, by, sites)


@client("describe.pair_moments", SUM, adds=True, batched=False)
def pair_moments(centres: Centres, client: Client) -> PairMoments:
    """Second moments of all pairs of columns, over the rows in which both are there."""
    x, w = _rows(client)
    there = ~np.isnan(x)
    centred = np.where(there, x - centres.mean[0], 0.0)
    weighted = w[:, None] * there
    return PairMoments(
        weighted.T @ there, centred.T @ weighted, (centred**2).T @ weighted, (centred * w[:, None]).T @ centred
    )


# ---- how it is done ----


def _below(cuts: Cuts, client: Client, by: int | None, digits: int, sites: Sequence[str] | None) -> Below:
    """The counts of one client, from its sorted columns where they are small enough to keep."""
    counts = np.zeros(len(cuts.at))
    d = client.x.shape[-1]
    order = np.argsort(cuts.list, kind="stable")
    lists, first = np.unique(cuts.list[order], return_index=True)
    member = None
    for which, some in zip(lists, np.split(order, first[1:])):
        slot, column = divmod(int(which), d)
        member = _membership(cuts.levels, client, by, sites) if member is None and slot else member
        if client.x.size > KEPT:
            counts[some] = _counted(client, column, slot, member, cuts.at[some])
            continue
        values, cumulated = _ordered(client, column, slot, member, cuts.levels)
        counts[some] = rows_below(values, cumulated, cuts.at[some])
    return Below(counts, _pattern_counts(cuts.prefixes, client, digits))


def _counted(client: Client, column: int, slot: int, member: np.ndarray | None, at: np.ndarray) -> np.ndarray:
    """Rows of a column at or below thresholds, found without an ordered copy of it."""
    values, w = _slot_values(client, column, slot, member)
    order = np.argsort(at, kind="stable")
    above = np.searchsorted(at[order], values)  # thresholds below each value
    out = np.zeros(len(at))
    out[order] = np.cumsum(np.bincount(above, w, len(at) + 1)[:-1])
    return out


def _slot_values(client: Client, column: int, slot: int, member: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Values of a column in one slot that are not missing, and their weights."""
    x, w = _rows(client)
    kept = (w > 0) & ~np.isnan(x[:, column])
    kept = kept if slot == 0 or member is None else kept & member[:, slot]
    return x[kept, column], w[kept]


def _ordered(client: Client, column: int, slot: int, member: np.ndarray | None, levels: np.ndarray) -> tuple:
    """Values of a column in one slot, in order, and their cumulated weights if rows do not count as one each."""
    key = f"describe {slot} {column} {levels.tobytes().hex() if slot else ''}"
    if key not in client.memo:
        values, w = _slot_values(client, column, slot, member)
        order = np.argsort(values, kind="stable")
        client.memo[key] = values[order], None if bool((w == 1).all()) else np.cumsum(w[order])
    return client.memo[key]


def _pattern_counts(prefixes: Prefixes, client: Client, digits: int) -> np.ndarray:
    """Rows of each pattern, by the missing values in the next `digits` columns read as a binary number; (m, 2^digits)."""
    m, known = prefixes.gone.shape
    patterns, rows = _patterns(client, prefixes.columns)
    parents = {bytes(p): i for i, p in enumerate(prefixes.gone.astype(np.uint8))}
    parent = np.array([parents.get(bytes(p), -1) for p in patterns[:, :known]], dtype=np.int64)
    following = patterns[:, known : known + digits]
    code = (
        following @ (1 << np.arange(following.shape[1]))[::-1] if following.shape[1] else np.zeros(len(patterns), int)
    )
    kept = parent >= 0
    place = parent[kept] * 2**digits + code[kept].astype(np.int64)
    return np.bincount(place, rows[kept], m * 2**digits).reshape(m, 2**digits).astype(np.float64)


def _patterns(client: Client, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The client's patterns of missing values (p, c), 1 is missing, and the rows of each."""
    key = f"patterns {columns.tobytes().hex()}"
    if key not in client.memo:
        x, w = _rows(client)
        gone = np.isnan(x[:, columns]).astype(np.uint8)
        found, which = np.unique(gone, axis=0, return_inverse=True)
        client.memo[key] = found, np.bincount(which.ravel(), w, len(found))
    return client.memo[key]


def _membership(levels: np.ndarray, client: Client, by: int | None, sites: Sequence[str] | None) -> np.ndarray:
    """Which rows are in which slot, (n, s) bool."""
    x, _ = _rows(client)
    everything = np.ones((len(x), 1), bool)
    groups = np.zeros((len(x), 0), bool) if by is None else x[:, [by]] == levels
    here = [np.full(len(x), name == client.name) for name in sites or ()]
    return np.column_stack([everything, groups, *here])


def _sums(slots: Slots, client: Client, by: int | None, sites: Sequence[str] | None) -> Sums:
    """The sums of one client."""
    x, w = _rows(client)
    share = _membership(slots.levels, client, by, sites).T * w  # (s, n)
    there = ~np.isnan(x)
    return Sums(share.sum(1), share @ there, share @ np.where(there, x, 0.0))


def _moments(centres: Centres, client: Client, by: int | None, sites: Sequence[str] | None) -> Moments:
    """The second moments and counts of levels of one client."""
    x, w = _rows(client)
    share = _membership(centres.levels, client, by, sites).T * w
    there = ~np.isnan(x)
    first = np.zeros(centres.mean.shape)
    second = np.zeros(centres.mean.shape)
    for slot, mean in enumerate(centres.mean):
        centred = np.where(there, x - mean, 0.0)
        first[slot] = share[slot] @ centred
        second[slot] = share[slot] @ centred**2
    equal = x[:, centres.column] == centres.value  # (n, l)
    return Moments(first, second, share @ equal)


def _rows(client: Client) -> tuple[np.ndarray, np.ndarray]:
    """The client's rows and weights as 64 bit floats."""
    return to_numpy(client.x).astype(np.float64, copy=False), to_numpy(client.w).astype(np.float64, copy=False)
