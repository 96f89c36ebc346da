"""The columns of predictors: a category becomes one indicator per level but the first. Nothing is sent.

Ordered categories are their places 0, 1, ..., binary columns 0 and 1, dates days. A missing category is missing in all its
indicators.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unpooled.arrays import Array, namespace
from unpooled.data.schema.schema import Schema


def design_names(schema: Schema) -> list[str]:
    """The names of the columns that predictors see: "age", "sex=male", "cp=2", ...

    >>> design_names(Schema.from_toml({"age": "real", "cp": {"levels": ["none", "mild", "strong"]}}))
    ['age', 'cp=mild', 'cp=strong']
    """
    names: list[str] = []
    for c in schema:
        if c.kind in ("category", "binary") and c.levels:
            names += [f"{c.name}={level}" for level in c.levels[1:]]
        else:
            names.append(c.name)
    return names


def level_counts(schema: Schema) -> list[int]:
    """For each column the number of levels that become indicators; 0 for a column that stays as it is."""
    return [len(c.levels) if c.kind == "category" else 0 for c in schema]


def widened(x: Array, levels: Sequence[int]) -> Array:
    """(..., n, p) rows (..., n, d) with an indicator per level but the first in place of each column of codes.

    >>> widened(np.array([[7.0, 2.0], [8.0, 0.0], [9.0, np.nan]]), [0, 3]).tolist()
    [[7.0, 0.0, 1.0], [8.0, 0.0, 0.0], [9.0, nan, nan]]
    """
    if not any(levels):
        return x
    xp: Any = namespace(x)
    parts = []
    for j, count in enumerate(levels):
        codes = x[..., j]
        if not count:
            parts.append(codes)
            continue
        for code in range(1, count):
            indicator = (codes == code) * xp.ones_like(codes)
            parts.append(xp.where(xp.isnan(codes), codes, indicator))
    return xp.stack(parts, -1)


def to_design(schema: Schema, x: Array) -> Array:
    """(..., n, p) the encoded table (..., n, d) with indicators in place of the codes of categories."""
    return widened(x, level_counts(schema))


def scaled_places(schema: Schema) -> np.ndarray:
    """The places, among the columns of the design, of numbers, ordered categories and dates: those that are scaled."""
    flags: list[bool] = []
    for c in schema:
        if c.kind == "category":
            flags += [False] * max(len(c.levels) - 1, 0)
        else:
            flags.append(c.kind != "binary")
    return np.flatnonzero(flags)
