"""Cells to numbers by a schema: levels to codes, dates to days, units converted, missing codes to NaN; and back.

Nothing is sent. A site's own names, units, levels and codes are applied here, once, when its table is read.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from unpooled.data.schema.column import NUMBERS, Column, Own, level_text
from unpooled.data.schema.dates import days, is_date, to_dates
from unpooled.data.schema.infer import is_number, is_truth, object_numbers, refuse_durations
from unpooled.data.schema.schema import Schema
from unpooled.data.schema.texts import Texts, as_texts
from unpooled.data.schema.units import Conversion, conversion
from unpooled.errors import BadData, DataWarning, suggest

AS_IT_IS = Own()
REFUSE, MISSING, FIRST = "refuse", "missing", "first"  # what becomes of a level that the schema does not list
ONE_OR_ZERO = {"0": "false", "1": "true"}  # how truth values are written as numbers


def encode(
    schema: Schema,
    columns: Mapping[str, Any],
    where: str,
    own: Mapping[str, Own] | None = None,
    *,
    lacking: bool = False,
    unlisted: str = REFUSE,
    rows: int | None = None,
) -> np.ndarray:
    """(n, d) float64: the columns of `schema` in order.

    `columns` are the site's, by its own names. With `lacking`, a column that is not there is missing in every row. A
    level that the schema does not list is refused, or `unlisted` makes it missing or the first level, with a warning.
    """
    own = own or {}
    n = len(next(iter(columns.values()))) if rows is None else rows
    x = np.empty((n, len(schema)))
    for j, column in enumerate(schema):
        mine = own.get(column.name, AS_IT_IS)
        held = mine.name or column.name
        if mine.lacks or (lacking and held not in columns):
            x[:, j] = np.nan
            continue
        if held not in columns:
            raise BadData(
                f"{where} has no column {held!r}: {suggest(held, columns)}, or say that it lacks it ({column.name} = false "
                "in its columns)"
            )
        x[:, j] = encode_column(column, columns[held], where, mine, unlisted=unlisted)
    return x


def encode_column(
    column: Column, values: Any, where: str, own: Own = AS_IT_IS, *, unlisted: str = REFUSE
) -> np.ndarray:
    """(n,) float64: one column's cells as numbers, NaN where missing."""
    codes = (*column.missing, *own.missing)
    if column.kind in NUMBERS or (column.kind == "binary" and not column.levels):
        numbers = _numbers(column, values, where, codes, own.levels if column.kind == "binary" else {})
        change = conversion(own.unit, column.unit, own.factor, column.name, where)
        return _checked(column, _converted(numbers, change), where, unlisted)
    if column.kind == "date":
        return days(without_codes(values, codes), column.name, where)
    return _levels(column, without_codes(values, codes), where, own, unlisted)


# ---- numbers ----


def _numbers(column: Column, values: Any, where: str, codes: tuple, meant: Mapping[str, str]) -> np.ndarray:
    """The cells of a numeric column as floats, NaN for gaps and for the codes that mean missing.

    `meant` says what a site writes for 0 and 1, such as {"no": "0", "yes": "1"}.
    """
    if not isinstance(values, Texts) and not meant:
        values = np.asarray(values)
        if values.dtype == object:
            found = object_numbers(values)
            values = values if found is None else found
        if values.dtype.kind in "fiub":
            return _without_numbers(values, codes)
        if values.dtype.kind == "m":
            refuse_durations(column.name, where)
        if values.dtype.kind == "M":
            raise BadData(f"column {column.name!r} of {where} holds dates: declare its kind as 'date' in [columns]")
    texts = without_codes(as_texts(values), codes)
    texts = Texts(texts.codes, [meant.get(t.strip(), t) for t in texts.levels])
    return np.append(_parsed(column, texts, where), np.nan)[texts.codes]


def _without_numbers(values: np.ndarray, codes: tuple) -> np.ndarray:
    """The values as float64, with NaN for the codes that mean missing."""
    out = values.astype(np.float64)
    for code in codes:
        if not isinstance(code, str) or is_number(code):
            out[out == float(code)] = np.nan
    return out


def _parsed(column: Column, texts: Texts, where: str) -> np.ndarray:
    """(levels,) the numbers that texts stand for; texts that do not occur may be anything."""
    counts = texts.counts
    wrong = [t for t, n in zip(texts.levels, counts) if n and not is_number(t)]
    if wrong:
        comma = is_number(wrong[0].replace(",", ".", 1))
        remedy = "write numbers with a point for decimals and without commas"
        code = f"if it means missing, add missing = [{wrong[0]!r}], else declare another kind"
        raise BadData(
            f"column {column.name!r} of {where} is of kind {column.kind!r} and holds {wrong[0]!r}: "
            f"{remedy if comma else code}"
        )
    return np.array([float(t) if n else np.nan for t, n in zip(texts.levels, counts)])


def _converted(numbers: np.ndarray, change: Conversion) -> np.ndarray:
    """The numbers in the federation's unit."""
    return numbers if change == Conversion() else numbers * change.factor + change.shift


def _checked(column: Column, numbers: np.ndarray, where: str, unlisted: str) -> np.ndarray:
    """Refuse numbers that contradict the kind; in new rows, `unlisted` says what becomes of numbers that were 0 and 1 in the fit."""
    wrong = contradicting(column.kind, numbers)
    if wrong is None or not wrong.any():
        return numbers
    value = float(numbers[int(wrong.argmax())])
    if column.kind == "binary" and unlisted != REFUSE:
        return _beyond_binary(column, numbers, wrong, where, unlisted)
    raise BadData(
        f"column {column.name!r} of {where} is declared {column.kind!r} and holds {value:g}: if that is a code for missing, "
        f"add missing = [{value:g}], else declare another kind"
    )


def _beyond_binary(column: Column, numbers: np.ndarray, wrong: np.ndarray, where: str, unlisted: str) -> np.ndarray:
    """Numbers of new rows in a column that held 0 and 1 in the fit, which nobody may have declared: a rare 2 may be missing there.

    Models that make columns of predictors take them as they are, as where all columns are numbers; to others they are missing.
    """
    taken = "a number" if unlisted == FIRST else "missing"
    text = (
        f"{int(wrong.sum())} rows of {where} hold numbers such as {numbers[int(wrong.argmax())]:g} in column {column.name!r}, "
        f"which held only 0 and 1 in the fit: taken as {taken}"
    )
    warnings.warn(text, DataWarning, stacklevel=2)
    return numbers if unlisted == FIRST else np.where(wrong, np.nan, numbers)


def contradicting(kind: str, numbers: np.ndarray) -> np.ndarray | None:
    """Which cells contradict the declared kind; None for kinds that take every number."""
    if kind == "positive":
        return numbers <= 0
    if kind == "count":
        return (numbers < 0) | (numbers != np.floor(numbers)) & ~np.isnan(numbers)
    if kind == "binary":
        return (numbers != 0) & (numbers != 1) & ~np.isnan(numbers)
    return None


# ---- levels ----


def without_codes(values: Any, codes: tuple) -> Any:
    """The column with its codes for missing made missing: numbers stay numbers, dates dates, all else is texts."""
    if not isinstance(values, Texts) and not codes:
        return values
    if not isinstance(values, Texts) and np.asarray(values).dtype.kind == "M":
        gone = np.isin(values, [np.datetime64(c) for c in codes if is_date(str(c))])
        return np.where(gone, np.datetime64("NaT"), values)
    if not isinstance(values, Texts) and np.asarray(values).dtype.kind in "fiub":
        return _without_numbers(np.asarray(values), codes)
    texts = as_texts(values)
    codes_as_texts = {level_text(c) for c in codes}
    keep = np.array([i if t not in codes_as_texts else -1 for i, t in enumerate(texts.levels)] + [-1], np.int32)
    return Texts(keep[texts.codes], texts.levels, texts.declared, texts.ordered)


def _levels(column: Column, texts: Any, where: str, own: Own, unlisted: str) -> np.ndarray:
    """The place of each cell's level in the declared order, NaN where it is missing.

    Levels that are not declared are refused, taken as missing or as the first level, as `unlisted` says.
    """
    texts = as_texts(texts)
    places = {t: float(i) for i, t in enumerate(column.levels)}
    truth = {t.lower(): t for t in column.levels} if is_truth(column.levels) else {}
    to = np.array([*(_place(t, places, own, truth, column.other) for t in texts.levels), np.nan])
    unknown = [t for t, n, code in zip(texts.levels, texts.counts, to) if n and np.isnan(code)]
    if unknown:
        to[[texts.levels.index(t) for t in unknown]] = 0.0 if unlisted == FIRST else np.nan
        _report_unknown(
            column, unknown, int(texts.counts[[texts.levels.index(t) for t in unknown]].sum()), where, unlisted
        )
    return to[texts.codes]


def _place(text: str, places: Mapping[str, float], own: Own, truth: Mapping[str, str], other: str | None) -> float:
    """The place of one text among the levels, after the site's own names for them; NaN when it is none of them.

    `truth` are the levels of a column of truth values by their small letters, else nothing.
    """
    meant = own.levels.get(text.strip(), text.strip())
    if meant not in places and is_number(meant):
        meant = level_text(float(meant))
    if meant not in places and truth:
        meant = truth.get(ONE_OR_ZERO.get(meant, meant.lower()), meant)
    return places.get(meant, places[other] if other is not None else np.nan)


def _report_unknown(column: Column, unknown: list[str], rows: int, where: str, unlisted: str) -> None:
    """Refuse levels that are not declared, or warn how their rows are taken."""
    some = ", ".join(repr(t) for t in unknown[:3]) + (", ..." if len(unknown) > 3 else "")
    if unlisted != REFUSE:
        taken = "missing" if unlisted == MISSING else f"{column.levels[0]!r}, the first level"
        text = f"{rows} rows of {where} hold {some} in column {column.name!r}, which the fit did not have: taken as {taken}"
        warnings.warn(text, DataWarning, stacklevel=2)
        return
    raise BadData(
        f"column {column.name!r} of {where} holds {some}, which {'is' if len(unknown) == 1 else 'are'} none of its levels "
        f"({', '.join(map(repr, column.levels[:5]))}{', ...' if len(column.levels) > 5 else ''}): add it to levels, map it "
        "in the site's columns, or list it under missing"
    )


# ---- back ----


def decode(schema: Schema, x: np.ndarray) -> dict[str, np.ndarray]:
    """The cells of an encoded table (n, d) as a frame would hold them: texts, dates, numbers; None, NaT and NaN where missing.

    >>> decode(Schema.from_toml({"sex": {"levels": ["female", "male"]}}), np.array([[1.0], [np.nan]]))["sex"].tolist()
    ['male', None]
    """
    return {c.name: decode_column(c, x[:, j]) for j, c in enumerate(schema)}


def decode_column(column: Column, values: np.ndarray) -> np.ndarray:
    """(n,) one column's cells from their codes."""
    if column.kind == "date":
        return to_dates(values)
    if not column.levels:
        return values
    codes = np.where(np.isnan(values), -1, values).astype(np.int64)
    return np.array([*column.levels, None], dtype=object)[codes]
