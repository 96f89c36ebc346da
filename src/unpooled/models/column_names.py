"""Columns that a parameter names, as indices; the names of columns by index, and how many there are."""

from __future__ import annotations

from typing import Any

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.errors import BadParameter, suggest
from unpooled.federation import Federation
from unpooled.models.initialization import column_sums
from unpooled.parameters import at_least


def column_index(fed: Federation, what: str, wanted: Any) -> int | None:
    """The index of the column that the parameter `what` names, by name or index; None stays None."""
    columns = fed.columns
    if wanted is None:
        return None
    if not isinstance(wanted, str):
        at_least(what, wanted, 0)
        _check_range(fed, what, int(wanted))
        return int(wanted)
    if columns is None:
        raise BadParameter(f"{what}={wanted!r} names a column but the columns have no names: give its index, from 0")
    names = [str(c) for c in columns]
    if f"{wanted}=true" in names:  # a column of true and false
        return names.index(f"{wanted}=true")
    if texts := [name for name in names if name.startswith(f"{wanted}=")]:
        raise BadParameter(f"{what}={wanted!r} is a column of texts ({', '.join(texts[:3])}): write it as 0 and 1")
    if wanted not in names:
        raise BadParameter(f"{what}={wanted!r} is not a column of the data: {suggest(wanted, names)}")
    return names.index(wanted)


def _check_range(fed: Federation, what: str, index: int) -> None:
    for c in fed.here()[:1]:
        if index >= c.x.shape[-1]:
            raise BadParameter(f"{what}={index} is not a column: rows have {c.x.shape[-1]}, the first is 0")


def n_columns(fed: Federation) -> int:
    """The number of columns; one SUM where neither rows nor names are in this process."""
    for c in fed.here()[:1]:
        return int(c.x.shape[-1])
    return len(fed.columns) if fed.columns is not None else len(fed.sum(column_sums, None).seen)


def names_of(fed: Federation, d: int) -> list[str]:
    """The names of d columns; their numbers where they have none."""
    columns = fed.columns
    return [str(c) for c in columns] if columns is not None else [str(j) for j in range(d)]


def called(names: list[str], which: Any) -> str:
    """How a sentence calls some columns: "column 'age'", "columns '0', '3' and 2 more"."""
    some = [repr(names[j]) for j in which]
    more = f" and {len(some) - 5} more" if len(some) > 5 else ""
    return f"column{'s' if len(some) > 1 else ''} {', '.join(some[:5])}{more}"


def dates(fed: Any) -> list[str]:
    """The names of columns of dates, also where a layer has made numbers of all columns."""
    while fed is not None and getattr(fed, "schema", None) is None:
        fed = getattr(fed, "inner", None)
    return [] if fed is None else [c.name for c in fed.schema if c.kind == "date"]


def with_levels(fed: Federation, *kinds: str) -> list[int]:
    """The indices of columns whose numbers are codes of levels: of these kinds, or all whose levels are texts."""
    schema = getattr(fed, "schema", None)
    return [j for j, c in enumerate(schema or ()) if c.levels and (not kinds or c.kind in kinds)]


def as_written(fed: Federation, index: int | None, values: np.ndarray) -> np.ndarray:
    """Values of a column as its cells are written: texts of levels as an array of strings, numbers as they are."""
    if index is None or index not in with_levels(fed):
        return values
    levels = list(fed.schema)[index].levels
    return np.array([levels[int(v)] for v in values], dtype=np.str_)


def where_missing(fed: Federation) -> str:
    """The column and the client with most missing values, for clients in this process; over a network nothing is told."""
    gaps = {c.name: np.isnan(to_numpy(c.x)) for c in fed.here()}
    if not gaps or not any(own.any() for own in gaps.values()):
        return ""
    columns = np.sum([own.sum(0) for own in gaps.values()], axis=0)
    client = max(gaps, key=lambda name: gaps[name].any(1).sum())
    column = names_of(fed, len(columns))[int(columns.argmax())]
    return f" (most in column {column!r}, and at client {client!r})"
