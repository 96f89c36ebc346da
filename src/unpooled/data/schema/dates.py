"""Dates as days since 1970-01-01: from datetimes of a frame, or from texts such as 2024-05-31. Nothing is sent."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from unpooled.data.schema.texts import Texts, as_texts
from unpooled.errors import BadData

ISO = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?)?(Z|[+-]\d{2}:?\d{2})?$")
OTHER_DATE = re.compile(r"(\d{1,4}[./-]\d{1,2}[./-]\d{1,4}|\d{1,2}[ -][A-Za-z]{3,9}[ -]\d{2,4})([T ].*)?$")
DAY = np.timedelta64(1, "D")


def is_date(text: str) -> bool:
    """Whether a text is a date of the form 2024-05-31, with or without a time."""
    return ISO.match(text) is not None


def looks_like_date(text: str) -> bool:
    """Whether a text is a date in any common form: 31.05.2024, 5/31/24, 31 May 2024."""
    return is_date(text) or OTHER_DATE.match(text) is not None


def days(values: Any, name: str, where: str) -> np.ndarray:
    """(n,) days since 1970-01-01, NaN where missing; a text that is not a date is refused.

    >>> days(np.array(["1970-01-03", None], dtype=object), "visit", "the data").tolist()
    [2.0, nan]
    """
    if not isinstance(values, Texts) and np.asarray(values).dtype.kind == "M":
        return _days_of(np.asarray(values))
    texts = as_texts(values)
    wrong = next((t for t in texts.present if not is_date(t)), None)
    if wrong is not None:
        raise BadData(f"column {name!r} of {where} holds {wrong!r}, which is not a date: write dates as 2024-05-31")
    try:
        found = np.array([t[:10] + t[10:19].replace(" ", "T") for t in texts.levels], dtype="datetime64[s]")
    except ValueError as error:
        raise BadData(f"column {name!r} of {where} holds a date that does not exist: {error}") from error
    return np.append(_days_of(found), np.nan)[texts.codes]


def _days_of(values: np.ndarray) -> np.ndarray:
    """Days since 1970-01-01 of an array of datetimes, NaN where there is none."""
    gaps = np.isnat(values)
    since = (values - np.datetime64("1970-01-01")) / DAY
    return np.where(gaps, np.nan, since)


def to_dates(days: np.ndarray) -> np.ndarray:
    """(n,) datetime64 in days from days since 1970-01-01; NaT where missing."""
    gaps = np.isnan(days)
    whole = np.where(gaps, 0, np.round(days)).astype("timedelta64[D]")
    return np.where(gaps, np.datetime64("NaT"), np.datetime64("1970-01-01") + whole)
