"""What a model sees of mixed columns: codes of levels, the columns of a design, or numbers alone. Nothing is sent here.

A model says by its attribute `encoding` which it takes: "codes" (levels as 0, 1, ..., with `fed.schema` to tell them from
numbers), "design" (one indicator per level but the first) or "numbers" (categories are refused).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from unpooled.arrays import is_frame
from unpooled.data.designed import designed, scaled
from unpooled.data.frames import columns_of, fitted_with
from unpooled.data.schema import Schema, design_names, encode, to_design
from unpooled.data.schema.encode import FIRST, MISSING
from unpooled.errors import BadParameter
from unpooled.federation import find_layer, find_private

CODES, DESIGN = "codes", "design"  # any other encoding is of numbers alone


def tabled(model: Any, fed: Any) -> AbstractContextManager[Any]:
    """The federation as the model takes it, for a while; refused if it takes numbers alone and a column is a category."""
    schema = getattr(fed, "schema", None)
    if schema is None or schema.plain or model.encoding == CODES:
        return nullcontext(fed)
    private = find_private(fed) is not None  # its bounds are of the columns as they are
    if model.encoding == DESIGN and not private:
        return designed(fed, schema, model.scales_columns)
    category = next((c.name for c in schema if c.kind == "category"), None)
    if category is not None and private:
        raise BadParameter(
            f"column {category!r} is a category, which fits with differential privacy do not take yet: leave it out "
            "(kind = 'ignored'), or give indicators as numbers with bounds"
        )
    if category is not None:
        raise BadParameter(
            f"{type(model).__name__} takes numbers and column {category!r} is a category: use a model of mixed columns, or "
            "leave it out (kind = 'ignored')"
        )
    return nullcontext(fed)


def describe_table(model: Any, schema: Schema | None, fed: Any) -> None:
    """Set what a fitted model needs to encode new rows: `schema_`, and `design_columns_` if its columns are those of a design."""
    if schema is None or schema.plain:
        return
    design = find_layer(fed, "find_moments")
    used = getattr(model, "columns_", None) or (design.columns if design is not None else schema.names)
    if design is not None:
        model.design_columns_ = {"mean": _of(used, design, design.mean), "scale": _of(used, design, design.scale)}
    model.schema_ = _kept(schema, used).to_list()


def _of(used: list[str], design: Any, values: list[float]) -> list[float]:
    """The values of the columns that the model kept."""
    return [v for name, v in zip(design.columns, values) if name in set(used)]


def _kept(schema: Schema, used: list[str]) -> Schema:
    """The columns that the model kept: some models take a column out, as one of times."""
    kept = set(used)
    return Schema(tuple(c for c in schema if c.name in kept or kept & set(design_names(Schema((c,))))))


def encoded_columns(
    model: Any,
    columns: Mapping[str, Any],
    where: str,
    own: Mapping[str, Any] | None = None,
    schema: Schema | None = None,
) -> np.ndarray:
    """(n, d) the columns of new rows as those of the fit were encoded: codes of levels, days of dates.

    `own` says how the site of these rows writes them; `schema` takes the place of the model's where it has none.
    """
    unlisted = FIRST if hasattr(model, "design_columns_") else MISSING
    wanted = Schema.from_list(model.schema_) if schema is None else schema
    mine = None if own is None else {name: entry for name, entry in own.items() if name in wanted.names}
    return encode(wanted, columns, where, mine, unlisted=unlisted)


def encoded_rows(model: Any, X: Any) -> np.ndarray:
    """New rows as the fitted model takes them: a frame by the names of its columns, an array as it was encoded."""
    schema = Schema.from_list(model.schema_)
    if is_frame(X):
        columns, _ = columns_of(X, "the data")
        x = encoded_columns(model, fitted_with(schema.names, columns, "the data"), "the data")
    else:
        x = np.asarray(X, np.float64) if not hasattr(X, "detach") else X.detach().cpu().numpy()
    if not hasattr(model, "design_columns_"):
        return x
    if x.ndim != 2 or x.shape[1] != len(schema):
        names = ", ".join(schema.names[:5]) + (", ..." if len(schema) > 5 else "")
        raise BadParameter(
            f"the model was fitted to {len(schema)} columns ({names}), got shape {x.shape}: give a frame"
        )
    return scaled(to_design(schema, x), model.design_columns_["mean"], model.design_columns_["scale"])
