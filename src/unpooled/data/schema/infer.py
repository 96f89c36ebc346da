"""The kind of a column from its values at one site. Nothing is sent.

Numbers stay numbers: only 0 and 1 make a column binary. What a number means (a count, a code) is for `[columns]` to say.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, NoReturn

import numpy as np

from unpooled.data.schema.column import MAX_LEVELS, Column
from unpooled.data.schema.dates import is_date, looks_like_date
from unpooled.data.schema.texts import Texts, as_texts
from unpooled.errors import BadData

TRUTH = ("false", "true")
ID_ROWS = 50  # texts that all differ are ids if there are more of them than this
MOST_PERCENTAGES = 10  # that may be levels, as of a discount; more of them are measured
GLANCE = 1000  # rows that are looked at before all of them are


def infer(name: str, values: Any, where: str) -> Column | None:
    """The column as its values show it at one site; None if all of them are missing.

    >>> infer("sex", np.array(["m", "f", None], dtype=object), "the data").levels
    ('f', 'm')
    """
    if isinstance(values, Texts):
        return _of_texts(name, values, where)
    values = np.asarray(values)
    if values.dtype.kind == "M":
        return None if np.isnat(values).all() else Column(name, "date")
    if values.dtype.kind == "m":
        refuse_durations(name, where)
    if values.dtype.kind == "b":
        return Column(name, "binary", levels=TRUTH)
    if values.dtype.kind in "fiu":
        return _of_numbers(name, values)
    if values.dtype == object and (numbers := object_numbers(values)) is not None:
        return infer(name, numbers, where)
    return _of_texts(name, _as_texts(name, values, where), where)


def _as_texts(name: str, values: np.ndarray, where: str) -> Texts:
    """A column of objects as texts; lists and other objects that are no single value are refused."""
    try:
        return as_texts(values)
    except TypeError as error:
        example = next(v for v in values if not _gap(v) and not isinstance(v, Hashable))
        raise BadData(
            f"column {name!r} of {where} holds values such as {str(example)[:40]} ({type(example).__name__}): "
            "give one number, text or date in each cell, or leave the column out"
        ) from error


def refuse_durations(name: str, where: str) -> NoReturn:
    """Refuse a column of durations: in which unit they should count is not said."""
    raise BadData(
        f"column {name!r} of {where} holds durations (timedelta): give numbers in a unit of your choice, such as days "
        f"(frame[{name!r}].dt.total_seconds() / 86400)"
    )


def _of_numbers(name: str, values: np.ndarray) -> Column | None:
    """Binary when every number is 0 or 1, else real; None when all cells are missing."""
    if _zero_one(values[:GLANCE]) and _zero_one(values):
        empty = values.dtype.kind == "f" and bool(np.isnan(values).all())
        return None if empty else Column(name, "binary")
    return Column(name, "real")


def _zero_one(values: np.ndarray) -> bool:
    """Whether every number is 0, 1 or missing."""
    gaps = np.isnan(values) if values.dtype.kind == "f" else np.zeros(1, bool)
    return bool(((values == 0) | (values == 1) | gaps).all())


def object_numbers(values: np.ndarray) -> np.ndarray | None:
    """Numbers, truth values or dates that stand in an object array, as an array of their own; None if there are texts."""
    present = [v for v in values if not _gap(v)]
    kinds = {type(v) for v in present}
    if not present or any(issubclass(k, str | bytes) for k in kinds):
        return np.full(len(values), np.nan) if not present else None
    if all(issubclass(k, bool | np.bool_) for k in kinds):
        if len(present) == len(values):
            return values.astype(bool)
        return None
    if all(hasattr(k, "isoformat") for k in kinds):
        return np.array([None if _gap(v) else v.isoformat()[:19] for v in values], dtype="datetime64[s]")
    try:
        return np.array([np.nan if _gap(v) else float(v) for v in values])
    except (TypeError, ValueError):
        return None


def _gap(value: Any) -> bool:
    """Whether a cell of an object column is missing: None, NaN, NA or NaT."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, Hashable) and bool(value != value)


# ---- texts ----


def _of_texts(name: str, texts: Texts, where: str) -> Column | None:
    """The kind of a column of texts: declared levels, truth values, dates or levels; None when all are missing."""
    present = texts.present
    if not present:
        return None
    if texts.declared:
        _check_number(name, len(texts.levels), where)
        return Column(name, "ordered" if texts.ordered else "category", levels=tuple(texts.levels))
    if is_truth(present):
        return Column(name, "binary", levels=TRUTH)
    dates = sum(map(is_date, present))
    if dates == len(present):
        return Column(name, "date")
    _check_dates(name, texts, where)
    rows = int(texts.counts.sum())
    if len(present) == rows and rows > ID_ROWS and sum(map(_is_measured, present)) < rows / 2:
        return Column(name, "id")
    _check_no_numbers(name, texts, where)
    _check_number(name, len(present), where)
    return Column(name, "category", levels=tuple(sorted(present)))


def is_truth(texts: Iterable[str]) -> bool:
    """Whether all texts are truth values, in small or capital letters: TRUE and false."""
    return {t.lower() for t in texts} <= set(TRUTH)


def _seen(text: str, texts: Texts) -> str:
    """A text and the first row that has it, counted from 1 below the column names."""
    row = int(np.argmax(texts.codes == texts.levels.index(text))) + 1
    return f"{text!r} (row {row:,})"


def _check_dates(name: str, texts: Texts, where: str) -> None:
    """Refuse a column where most texts look like dates that can be read in more than one way."""
    present = texts.present
    odd = [t for t in present if not is_date(t)]
    as_dates = [t for t in odd if looks_like_date(t)]
    if as_dates and len(as_dates) + (len(present) - len(odd)) > len(present) / 2:
        raise BadData(
            f"column {name!r} of {where} holds dates such as {_seen(as_dates[0], texts)}, which can be read in more than one way: "
            "write dates as 2024-05-31"
        )


def _check_no_numbers(name: str, texts: Texts, where: str) -> None:
    """Refuse a column that mixes numbers and texts, or writes numbers with a decimal comma or as percentages."""
    present = texts.present
    numbers = [t for t in present if is_number(t)]
    words = [t for t in present if not is_number(t)]
    commas = [t for t in words if _nearly_number(t)]
    if commas and len(commas) + len(numbers) == len(present):
        raise BadData(
            f"column {name!r} of {where} holds values such as {_seen(commas[0], texts)}: write numbers with a point for decimals "
            "and without commas"
        )
    if numbers and words:
        raise BadData(
            f"column {name!r} of {where} holds numbers such as {numbers[0]!r} beside texts such as {_seen(words[0], texts)}: "
            "if the text means missing, write missing = [...] for it in [columns], else kind = 'category'"
        )
    if all(_is_percentage(t) for t in words) and len(words) > MOST_PERCENTAGES:
        raise BadData(
            f"column {name!r} of {where} holds percentages such as {_seen(words[0], texts)}: write them as numbers, without the "
            "sign, or say in [columns] that it is a category"
        )
    if numbers:
        raise BadData(
            f"column {name!r} of {where} holds texts such as {_seen(numbers[0], texts)} that are numbers: give numbers, or say in "
            "[columns] that it is a category"
        )


def _check_number(name: str, count: int, where: str) -> None:
    """Refuse a column with more levels than MAX_LEVELS."""
    if count > MAX_LEVELS:
        raise BadData(
            f"column {name!r} of {where} holds {count:,} different texts, at most {MAX_LEVELS:,} levels are possible: "
            "group them, or say in [columns] that it is an id or ignored"
        )


def _nearly_number(text: str) -> bool:
    """Whether a text is a number, perhaps with a comma for decimals or thousands."""
    return is_number(text) or is_number(text.replace(",", ".", 1)) or is_number(text.replace(",", ""))


def _is_measured(text: str) -> bool:
    """Whether a text is a number or a percentage, and so no id."""
    return _nearly_number(text) or _is_percentage(text)


def _is_percentage(text: str) -> bool:
    """Whether a text is a number followed by a percent sign."""
    return text.endswith("%") and _nearly_number(text[:-1].rstrip())


def is_number(text: str) -> bool:
    """Whether a text is a number; 1_000 is not, although Python reads it."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text
