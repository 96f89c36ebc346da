"""Columns that one site calls by another name: matched by spelling, kind and values. Pure functions, nothing is sent."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

from unpooled.data.check import scales
from unpooled.data.check.levels import plain
from unpooled.data.check.profile import ColumnProfile, Profile

LEAST = 0.45  # of likeness, in [0, 1]


def counterpart(name: str, site: Profile, extra: Sequence[str], others: Sequence[ColumnProfile]) -> str | None:
    """The column of a site that is probably the one others call `name`; None if none is alike."""
    best = max(extra, key=lambda c: likeness(name, site[c], others), default=None)
    return best if best is not None and likeness(name, site[best], others) >= LEAST else None


def likeness(name: str, column: ColumnProfile, others: Sequence[ColumnProfile]) -> float:
    """How alike a column is to those of other sites: half by its name, half by kind and values."""
    spelled = SequenceMatcher(None, plain(name), plain(column.name)).ratio()
    same = [_same_values(column, other) for other in others]
    return 0.5 * spelled + 0.5 * (sum(same) / len(same) if same else 0.0)


def _same_values(a: ColumnProfile, b: ColumnProfile) -> float:
    """How alike two columns' values are, from 0 to 1: shared levels, or overlapping quantiles in the same unit."""
    if a.kind != b.kind:
        return 0.0
    if a.levels and b.levels:
        shared = set(a.levels) & set(b.levels)
        return len(shared) / max(len(set(a.levels) | set(b.levels)), 1)
    if a.quantiles and b.quantiles:
        return 0.0 if scales.difference(a.quantiles, b.quantiles) else _overlap(a.quantiles, b.quantiles)
    return 0.5


def _overlap(a: Sequence[float], b: Sequence[float]) -> float:
    """The part that two ranges, from 5 to 95 %, have in common."""
    low = max(a[0], b[0])
    high = min(a[4], b[4])
    whole = max(a[4], b[4]) - min(a[0], b[0])
    if whole <= 0:
        return float(a[2] == b[2])
    return max(high - low, 0.0) / whole
