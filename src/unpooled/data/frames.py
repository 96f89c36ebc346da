"""Frames of pandas, polars or pyarrow as columns, and columns as a matrix; none of these is imported. Nothing is sent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from unpooled.arrays import missing
from unpooled.data.files import Columns, from_arrow, is_number
from unpooled.data.schema import Texts, as_texts
from unpooled.data.schema.column import level_text
from unpooled.data.schema.texts import sorted_texts
from unpooled.errors import BadData, suggest


def columns_of(frame: Any, where: str) -> tuple[Columns, bool]:
    """(columns by name, whether all names were strings); other names, such as integers, become strings."""
    keys = list(getattr(frame, "column_names", frame.columns))
    names = [str(k) for k in keys]
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise BadData(f"{where} has two columns called {twice!r}: rename one")
    return {n: _values(frame[k]) for n, k in zip(names, keys)}, all(isinstance(k, str) for k in keys)


def _values(series: Any) -> Any:
    """The values of a frame's column: an array, or Texts for categories of pandas, polars or pyarrow."""
    kind = str(getattr(series, "dtype", getattr(series, "type", "")))
    if kind == "category":
        levels = [level_text(v) for v in series.cat.categories]
        return Texts(series.cat.codes.to_numpy(), levels, declared=True, ordered=bool(series.cat.ordered))
    if kind.startswith(("Enum", "Categorical")):  # polars
        order = series.dtype.categories if kind.startswith("Enum") else None
        return sorted_texts(as_texts(series.to_numpy()), order)
    return from_arrow(series) if hasattr(series, "num_chunks") else series.to_numpy()


def pick(columns: Columns, name: str, role: str, where: str) -> Any:
    """Take the column `name` out of `columns`; `role` is the parameter that named it, for the error message."""
    if name not in columns:
        raise BadData(f"{role}={name!r} is not a column of {where}: {suggest(name, columns)}")
    return columns.pop(name)


def fitted_with(names: Iterable[str], columns: Columns, where: str) -> Columns:
    """The columns that a model was fitted with, in its order; others are ignored."""
    for name in names:
        if name not in columns:
            raise BadData(f"{where} has no column {name!r}, which the model was fitted with: {suggest(name, columns)}")
    return {name: columns[name] for name in names}


def matrix(columns: Columns, where: str) -> np.ndarray:
    """The columns as a matrix (n, d): float32 if all are, else float64."""
    if not columns:
        raise BadData(f"{where} has no feature columns: at least one is needed besides label and weights")
    numbers = [_numbers(values, name, where) for name, values in columns.items()]
    dtype = np.float32 if all(c.dtype == np.float32 for c in numbers) else np.float64
    x = np.empty((len(numbers[0]), len(numbers)), dtype)
    for j, column in enumerate(numbers):
        x[:, j] = column
    return x


def _numbers(values: Any, name: str, where: str) -> np.ndarray:
    """A column of a frame as numbers, NaN for gaps; texts are refused, naming the column."""
    values = np.asarray(values)
    if values.dtype.kind in "fiub":
        return values
    if values.dtype == object:
        gaps = missing(values)
        present = values[~gaps]
        if not any(isinstance(v, str) for v in present):
            try:
                out = np.full(len(values), np.nan)
                out[~gaps] = present.astype(np.float64)
                return out
            except (TypeError, ValueError):
                pass
        values = present
    texts = [str(v) for v in values]
    example = next((t for t in texts if not is_number(t)), texts[0] if texts else "")
    such = f" such as {example!r}" if texts else ""
    if not is_number(example) and is_number(example.replace(",", ".")):
        raise BadData(
            f"column {name!r} of {where} holds values{such}: write numbers with a point for decimals and without commas"
        )
    raise BadData(
        f"column {name!r} of {where} holds values{such} that are not numbers: declare its kind in [columns], "
        "encode it as numbers or leave it out (columns= names those to use)"
    )
