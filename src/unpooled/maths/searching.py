"""Distinct values, and values of given rank, found from counts of rows at or below thresholds. Sends nothing.

A search keeps ranges of numbers (`Ranges`). `thresholds` cuts each range into 16 parts and also asks for the shortest
decimal number inside it, since data are often rounded; the counts say which parts to keep. A range that holds one
number is finished. A float64 has 64 bits, so a search takes 16 rounds at most, and about 5 for integers or numbers with
a few decimals.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, Int
from unpooled.maths.ordered import HIGHEST, LOWEST, to_keys, to_values
from unpooled.tree import message

PARTS = 16  # parts into which a range is cut
DECIMALS = range(-15, 18)  # powers of ten tried for a number with few decimals
NOTHING = 1e-9  # a smaller weight of rows counts as rounding error


@message("maths.searching.Ranges")
class Ranges(NamedTuple):
    """The ranges of numbers that are still searched, by the keys of their ends; m ranges."""

    list: Int[Array, "m"]  # whose range it is: a column, or a group and a column
    low: Int[Array, "m"]
    high: Int[Array, "m"]
    below: Float[Array, "m"]  # rows below the range
    rows: Float[Array, "m"]  # rows in it
    rank: Float[Array, "m"]  # rank, from 0, of the row looked for; NaN to look for all distinct values


def everything(lists: np.ndarray, rows: np.ndarray, lowest: np.uint64 = LOWEST) -> Ranges:
    """One range of all numbers per list, to find the distinct values of each list."""
    m = len(lists)
    low = np.full(m, lowest)
    high = np.full(m, HIGHEST)
    return Ranges(np.asarray(lists, np.int64), low, high, np.zeros(m), np.asarray(rows, float), np.full(m, np.nan))


def ranked(lists: np.ndarray, rows: np.ndarray, ranks: np.ndarray) -> Ranges:
    """One range of all numbers per rank that is looked for."""
    return everything(lists, rows)._replace(rank=np.asarray(ranks, dtype=np.float64))


def is_open(ranges: Ranges) -> np.ndarray:
    """Which ranges hold more than one number; (m,) bool."""
    return ranges.low < ranges.high


def thresholds(ranges: Ranges) -> np.ndarray:
    """Keys (m, t), in order, whose counts cut each range into parts."""
    low = ranges.low[:, None]
    high = ranges.high[:, None]
    width = high - low + np.uint64(1)
    step = np.arange(1, PARTS, dtype=np.uint64)
    parts = np.uint64(PARTS)
    ends = low + (width // parts) * step + (width % parts) * step // parts - np.uint64(1)
    short = to_keys(shortest(to_values(ranges.low), to_values(ranges.high)))[:, None]
    cuts = np.concatenate([ends, short - np.uint64(1), short], 1)
    return np.sort(np.clip(cuts, low, high), 1)


def shortest(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The number with the fewest decimals near the middle of each range low to high, (m,).

    Where there is none, the middle.
    """
    middle = low / 2 + high / 2
    found = np.clip(middle, low, high)
    missing = np.ones(len(middle), bool)
    with np.errstate(over="ignore", invalid="ignore"):
        for power in DECIMALS:
            scale = 10.0 ** abs(power)
            number = np.round(middle * scale) / scale if power >= 0 else np.round(middle / scale) * scale
            fits = missing & (number >= low) & (number <= high)
            found[fits] = number[fits]
            missing &= ~fits
    return found


def narrowed(ranges: Ranges, cuts: np.ndarray, counts: np.ndarray, least: float = 0.0) -> Ranges:
    """The parts to search further, given the number of rows at or below each of `cuts` (m, t).

    For distinct values these are all parts with rows, and with at least `least` of them; for a rank, the part that
    holds it.
    """
    one = np.uint64(1)
    top = (ranges.below + ranges.rows)[:, None]
    ends = np.concatenate([cuts, ranges.high[:, None]], 1)
    starts = np.concatenate([ranges.low[:, None], cuts + one], 1)
    upto = np.concatenate([np.clip(counts, ranges.below[:, None], top), top], 1)
    before = np.concatenate([ranges.below[:, None], upto[:, :-1]], 1)
    rows = upto - before
    rank = ranges.rank[:, None]
    inside = (rows > NOTHING) & np.where(np.isnan(rank), rows >= least, (before <= rank) & (rank < upto))
    parts = np.nonzero(inside)  # (range, part of it)
    which = parts[0]
    return Ranges(ranges.list[which], starts[parts], ends[parts], before[parts], rows[parts], ranges.rank[which])


def joined(*several: Ranges) -> Ranges:
    """All ranges together, ordered by list, value and rank."""
    whole = Ranges(*(np.concatenate(parts) for parts in zip(*several)))
    order = np.lexsort((whole.rank, whole.low, whole.list))
    return Ranges(*(part[order] for part in whole))


def chosen(ranges: Ranges, which: np.ndarray) -> Ranges:
    """Some of the ranges, by index or mask."""
    return Ranges(*(part[which] for part in ranges))


def one_round(ranges: Ranges, ask, least: float = 0.0) -> Ranges:
    """The ranges after one more round.

    `ask(lists, values)`, (q,) each, gives the number of rows of each list at or below each value.
    """
    still = is_open(ranges)
    wide = chosen(ranges, still)
    cuts = thresholds(wide)
    lists = np.repeat(wide.list, cuts.shape[1])
    asked, back = np.unique(np.stack([lists.astype(np.uint64), cuts.ravel()]), axis=1, return_inverse=True)
    counts = ask(asked[0].astype(np.int64), to_values(asked[1]))[back.ravel()].reshape(cuts.shape)
    return joined(chosen(ranges, ~still), narrowed(wide, cuts, counts, least))


def values(ranges: Ranges) -> np.ndarray:
    """The number (m,) that each finished range holds."""
    return to_values(ranges.low)


def rows_below(sorted_values: np.ndarray, cumulated: np.ndarray | None, at: np.ndarray) -> np.ndarray:
    """The number of rows, or their weight, at or below each threshold in `at`.

    `sorted_values` has no NaN; `cumulated` are the cumulated weights, or None for weights of 1.
    """
    count = np.searchsorted(sorted_values, at, side="right")
    return count.astype(np.float64) if cumulated is None else np.concatenate([[0.0], cumulated])[count]
