"""A column of texts as codes and the distinct texts, so that a table of millions of rows stays small. Nothing is sent."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from unpooled.data.schema.column import level_text


class Texts:
    """Texts by their place in a list of distinct ones.

    Parameters
    ----------
    codes : ndarray of int32, shape (n,)
        The place of each row's text; -1 is missing.
    levels : list of str
        The distinct texts.
    declared : bool, default=False
        Whether the levels were given with the data, as a categorical column of a frame gives them.
    ordered : bool, default=False
        Whether their order has a meaning.
    """

    dtype = np.dtype(object)  # what a frame would say of such a column

    def __init__(self, codes: np.ndarray, levels: Sequence[str], declared: bool = False, ordered: bool = False):
        """Hold `codes`, the place of each cell's text in `levels`, -1 where it is missing."""
        self.codes = np.asarray(codes, np.int32)
        self.levels = [str(v) for v in levels]
        self.declared, self.ordered = declared, ordered

    def __len__(self) -> int:
        """The number of cells."""
        return len(self.codes)

    def __getitem__(self, rows: Any) -> Texts:
        """The same column for some of the rows; levels stay as they are."""
        return Texts(self.codes[rows], self.levels, self.declared, self.ordered)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        """The texts themselves, None where missing; equal texts are one object."""
        return np.array([*self.levels, None], dtype=object)[self.codes]

    @property
    def counts(self) -> np.ndarray:
        """(levels,) rows of each text."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.levels))

    @property
    def present(self) -> list[str]:
        """The texts that occur, in the order of `levels`."""
        return [t for t, n in zip(self.levels, self.counts) if n]


def as_texts(values: Any) -> Texts:
    """Any column as texts; whole numbers are written without a decimal point.

    >>> as_texts(np.array(["b", None, "a"], dtype=object)).codes.tolist()
    [0, -1, 1]
    """
    if isinstance(values, Texts):
        return values
    values = np.asarray(values)
    if values.dtype.kind in "fiub":
        return _from_numbers(values)
    if values.dtype.kind in "US":
        found, codes = np.unique(values, return_inverse=True)
        return _merged(codes, [level_text(str(v)) for v in found])
    return _from_objects(values)


def _from_numbers(values: np.ndarray) -> Texts:
    """Numbers as texts: 1.0 becomes "1"."""
    gaps = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)
    found, inverse = np.unique(values[~gaps], return_inverse=True)
    codes = np.full(len(values), -1, np.int32)
    codes[~gaps] = inverse
    return Texts(codes, [level_text(v) for v in found.tolist()])


def _from_objects(values: np.ndarray) -> Texts:
    """A column of Python objects as texts; pandas factorizes it when it is loaded, else a dictionary does."""
    pandas = sys.modules.get("pandas")
    if pandas is not None:
        codes, found = pandas.factorize(values)
        return _merged(codes, [level_text(v) for v in found])
    places: dict[Any, int] = {}
    codes = np.fromiter((_place(places, v) for v in values), np.int32, len(values))
    return _merged(codes, [level_text(v) for v in places])


def _place(places: dict[Any, int], value: Any) -> int:
    """The code of one value, a new one when it was not seen; -1 when it is missing."""
    if value is None or value != value or type(value).__name__ == "NAType":
        return -1
    return places.setdefault(value, len(places))


def _merged(codes: np.ndarray, levels: list[str]) -> Texts:
    """Texts that became equal (2 and 2.0, "a" and " a") share a code; an empty text is missing."""
    places: dict[str, int] = {}
    to = np.array([places.setdefault(t, len(places)) if t else -1 for t in levels] + [-1], np.int32)
    return Texts(to[codes], list(places))


def sorted_texts(texts: Texts, levels: Any = None) -> Texts:
    """Declared levels: those given, or those that occur in order."""
    wanted = (
        sorted(texts.present) if levels is None or not hasattr(levels, "__iter__") else [level_text(v) for v in levels]
    )
    to = np.array([wanted.index(t) if t in wanted else -1 for t in texts.levels] + [-1], np.int32)
    return Texts(to[texts.codes], wanted, declared=True)
