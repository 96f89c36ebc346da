"""One schema from the columns inferred at each site: kinds must agree, levels are the union over sites. Nothing is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from unpooled.data.schema.column import AUTO, WITH_LEVELS, Column
from unpooled.data.schema.infer import is_number
from unpooled.errors import BadData

CHECK = "run `unpooled check` to see all differences"


def agree(name: str, found: Mapping[str, Column | None]) -> Column:
    """The column over all sites; `found` has the column inferred at each site, None where all values are missing.

    >>> agree("sex", {"a": Column("sex", "category", levels=("f",)), "b": Column("sex", "category", levels=("m",))}).kind
    'binary'
    """
    shown = {site: c for site, c in found.items() if c is not None}
    if not shown:
        return Column(name, "real")
    kinds = {c.kind for c in shown.values()}
    if kinds == {"real", "binary"} and not any(c.levels for c in shown.values()):
        return Column(name, "real")
    if kinds == {"category", "binary"} and all(c.levels for c in shown.values()):
        kinds = {"category"}
    if kinds == {"category", "id"}:  # a small site whose texts all differ
        kinds = {"id"}
    if len(kinds) > 1:
        raise BadData(_contradiction(name, shown))
    kind = kinds.pop()
    if kind not in WITH_LEVELS:
        return Column(name, kind)
    levels = _ordered_union(name, shown) if kind == "ordered" else _union(shown)
    if kind == "category" and len(levels) == 2:
        kind = "binary"
    return Column(name, kind, levels=levels)


def _contradiction(name: str, shown: Mapping[str, Column]) -> str:
    """The sentence that refuses a column with two kinds, naming a site of each."""
    (a, first), (b, other) = _first_two_kinds(shown)
    return f"column {name!r} is {_called(first)} at {a} and {_called(other)} at {b}: give it one kind; {CHECK}"


def _first_two_kinds(shown: Mapping[str, Column]) -> list[tuple[str, Column]]:
    """A site and its column for each of the first two kinds that occur."""
    by_kind: dict[str, tuple[str, Column]] = {}
    for site, column in shown.items():
        by_kind.setdefault(column.kind, (site, column))
    return list(by_kind.values())[:2]


def _called(column: Column) -> str:
    """A column's kind in the words of an error message."""
    some = f" such as {column.levels[0]!r}" if column.levels else ""
    words = {"real": "a number", "binary": "binary", "category": "text", "ordered": "ordered", "date": "a date"}
    return words.get(column.kind, f"of kind {column.kind!r}") + some


def _union(shown: Mapping[str, Column]) -> tuple[str, ...]:
    """Levels of all sites: in their common order, or sorted where the sites differ."""
    declared = {c.levels for c in shown.values()}
    if len(declared) == 1:
        return declared.pop()
    return sorted_levels({t for c in shown.values() for t in c.levels})


def sorted_levels(levels: set[str]) -> tuple[str, ...]:
    """Levels in order: by value if all are numbers, else by text."""
    return tuple(sorted(levels, key=float) if all(map(is_number, levels)) else sorted(levels))


def _ordered_union(name: str, shown: Mapping[str, Column]) -> tuple[str, ...]:
    """The longest order, if every other is a part of it."""
    longest = max((c.levels for c in shown.values()), key=len)
    for site, column in shown.items():
        if not _is_part(column.levels, longest):
            raise BadData(
                f"the levels of {name!r} at {site} have another order than elsewhere: give levels in [columns]"
            )
    return longest


def _is_part(some: Sequence[str], whole: Sequence[str]) -> bool:
    """Whether `some` are levels of `whole`, in the same order."""
    places = [whole.index(t) if t in whole else -1 for t in some]
    return -1 not in places and places == sorted(places)


def completed(column: Column, found: Mapping[str, Column | None]) -> Column:
    """A declared column with its missing kind or levels filled in from the columns inferred at the sites."""
    if column.kind == AUTO:
        shown = agree(column.name, found)
        return replace(column, kind=shown.kind, levels=shown.levels)
    if column.levels or column.kind not in ("category", "ordered"):
        return column
    return replace(column, levels=_union({site: c for site, c in found.items() if c is not None}))
