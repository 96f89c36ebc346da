"""A filled table in the form it was given: an array, or a frame with the same columns, order and types. Nothing is sent."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from unpooled.arrays import is_frame
from unpooled.data.schema import Schema
from unpooled.data.schema.encode import decode_column


def like_given(
    given: Any, before: np.ndarray, filled: np.ndarray, schema: Schema | None, columns: list[str] | None
) -> Any:
    """The filled encoded table as `given` was; columns of a frame that the model does not know stay as they are."""
    if not is_frame(given):
        return filled
    names = [str(name) for name in getattr(given, "column_names", given.columns)]
    new = {}
    for j, name in enumerate(columns or names):
        gaps = np.isnan(before[:, j])
        if name in names and gaps.any():
            values = filled[:, j] if schema is None else decode_column(schema[name], filled[:, j])
            new[name] = gaps, values[gaps]
    return _replaced(given, new)


def _replaced(frame: Any, new: dict[str, tuple[np.ndarray, np.ndarray]]) -> Any:
    """The frame with some cells replaced, by whichever library made it."""
    library = type(frame).__module__.partition(".")[0]
    if library == "polars":
        return frame.with_columns([_polars_column(frame, name, *cells) for name, cells in new.items()])
    if library == "pyarrow":
        for name, cells in new.items():
            place = frame.column_names.index(name)
            frame = frame.set_column(place, name, _arrow_column(frame, name, *cells))
        return frame
    out = frame.copy()
    for name, (gaps, values) in new.items():
        key = next(c for c in frame.columns if str(c) == name)
        out[key] = _pandas_column(frame[key], gaps, values)
    return out


def _pandas_column(column: Any, gaps: np.ndarray, values: np.ndarray) -> Any:
    """A pandas column with its gaps filled, in its own type."""
    out = column.copy()
    kind = str(column.dtype)
    whole = kind.startswith(("Int", "UInt"))
    out[gaps] = np.round(values.astype(np.float64)).astype(np.int64) if whole else _truth(values, column)
    return out


def _truth(values: np.ndarray, column: Any) -> np.ndarray:
    """Texts "true" and "false" as truth values, where the column holds these; anything else as it is."""
    present = column.dropna()
    if len(present) and all(isinstance(v, bool | np.bool_) for v in present.iloc[:20]):
        return np.array([v in ("true", True, 1.0) for v in values], dtype=object)
    if len(present) and not isinstance(present.iloc[0], str) and values.dtype == object:
        return np.array([_number(v) for v in values], dtype=object)
    return values


def _number(value: Any) -> Any:
    """The value as a number where it is one."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return value


def _polars_column(frame: Any, name: str, gaps: np.ndarray, values: np.ndarray) -> Any:
    """A polars column with its gaps filled, in its own type."""
    polars: Any = import_module("polars")
    column = frame[name]
    cells = column.to_list()
    whole = column.dtype.is_integer()
    for i, value in zip(np.flatnonzero(gaps), values):
        cells[i] = round(float(value)) if whole else _plain(value, column.dtype == polars.Boolean)
    return polars.Series(name, cells, dtype=column.dtype)


def _arrow_column(table: Any, name: str, gaps: np.ndarray, values: np.ndarray) -> Any:
    """An Arrow column with its gaps filled, in its own type."""
    arrow: Any = import_module("pyarrow")
    column = table.column(name)
    cells = column.to_pylist()
    whole = arrow.types.is_integer(column.type)
    for i, value in zip(np.flatnonzero(gaps), values):
        cells[i] = round(float(value)) if whole else _plain(value, arrow.types.is_boolean(column.type))
    return arrow.array(cells, type=column.type)


def _plain(value: Any, truth: bool) -> Any:
    """A Python value of a NumPy one."""
    if truth:
        return value in ("true", True, 1.0)
    return value.item() if isinstance(value, np.generic) else value
