"""Public bounds by column, and vectors shortened to a ball: what keeps one row's part of a sum small. Sends nothing.

Bounds must come from knowledge (an age lies between 0 and 110), not from the data: the smallest and largest value are rows' own values.
Values outside are moved to the nearest bound; a missing value stays missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unpooled.errors import BadParameter, suggest

REMEDY = "give each column's (low, high) from knowledge, not from the data"


def parse_bounds(bounds: Any, columns: Sequence[str] | None, width: int) -> np.ndarray:
    """Bounds as an array (d, 2), or the sentence that says what is wrong with them.

    Parameters
    ----------
    bounds : dict of column to (low, high), or array (d, 2)
        A column is its name, or its index where columns have no names.
    columns : sequence of str or None
        The names of the columns.
    width : int
        The number of columns.

    Returns
    -------
    bounds : array (d, 2)

    Examples
    --------
    >>> from unpooled.privacy.clipping import parse_bounds
    >>> parse_bounds({"age": (0, 110), "chol": (50, 700)}, ["age", "chol"], 2)
    array([[  0., 110.],
           [ 50., 700.]])
    """
    if bounds is None:
        raise BadParameter(f"bounds= is missing: {REMEDY}")
    names = [str(c) for c in columns] if columns is not None else [str(i) for i in range(width)]
    found = _from_dict(bounds, names) if isinstance(bounds, Mapping) else _from_array(bounds, width)
    for name, (low, high) in zip(names, found):
        if not np.isfinite([low, high]).all():
            raise BadParameter(f"bounds of column {name!r} are ({low:g}, {high:g}), which are not finite: {REMEDY}")
        if low >= high:
            what = "equal" if low == high else "reversed"
            raise BadParameter(
                f"bounds of column {name!r} are {what} ({low:g}, {high:g}): the first must be the smaller"
            )
    return found


def _from_dict(bounds: Mapping, names: Sequence[str]) -> np.ndarray:
    """Bounds by column name, in the order of the columns; every column needs one."""
    given = {str(k): v for k, v in bounds.items()}
    unknown = [k for k in given if k not in names]
    if unknown:
        raise BadParameter(f"bounds= names column {unknown[0]!r}, which is not there: {suggest(unknown[0], names)}")
    missing = [n for n in names if n not in given]
    if missing:
        raise BadParameter(f"bounds= has no entry for column {missing[0]!r}: {REMEDY}")
    for name, pair in given.items():
        _pair(pair, name)
    return np.array([_pair(given[n], n) for n in names], dtype=np.float64)


def _pair(pair: Any, name: str) -> tuple[float, float]:
    """One column's low and high as numbers."""
    try:
        low, high = pair
        return float(low), float(high)
    except (TypeError, ValueError) as error:
        raise BadParameter(f"bounds of column {name!r} are {pair!r}: give two numbers (low, high)") from error


def _from_array(bounds: Any, width: int) -> np.ndarray:
    """Bounds as an array of shape (columns, 2)."""
    try:
        found = np.asarray(bounds, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise BadParameter(f"bounds={bounds!r} cannot be read: {REMEDY}") from error
    if found.shape != (width, 2):
        raise BadParameter(f"bounds= has shape {found.shape}, but {width} columns need ({width}, 2): {REMEDY}")
    return found


def to_unit(x: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Rows (..., d) moved within their bounds and scaled to [-1, 1]; missing stays missing, whatever the bounds are."""
    with np.errstate(all="ignore"):
        middle = bounds.mean(-1)
        half = (bounds[..., 1] - bounds[..., 0]) / 2
        u = np.clip((x - middle) / half, -1.0, 1.0)
    return np.where(np.isnan(x) | np.isfinite(u), u, 0.0)


def from_unit(u: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """The inverse of `to_unit` for values within [-1, 1]."""
    return bounds.mean(-1) + (bounds[..., 1] - bounds[..., 0]) / 2 * u


def in_ball(v: np.ndarray, radius: float | np.ndarray = 1.0) -> np.ndarray:
    """Vectors (..., d) shortened to at most `radius` long; one that is not finite becomes 0."""
    with np.errstate(all="ignore"):
        largest = np.abs(v).max(-1, keepdims=True)
        scaled = v / np.where(largest > 0, largest, 1.0)  # so that squares neither overflow nor vanish
        length = largest * np.sqrt((scaled * scaled).sum(-1, keepdims=True))
        shortened = v * np.minimum(1.0, radius / np.where(length > 0, length, 1.0))
    good = np.isfinite(shortened).all(-1, keepdims=True)
    return np.where(good, shortened, 0.0)


def row_weights(w: np.ndarray) -> np.ndarray:
    """Weights of rows within [0, 1]; one that is not a number counts as 0."""
    return np.clip(np.nan_to_num(w, nan=0.0, posinf=1.0, neginf=0.0), 0.0, 1.0)


def unit_weights(units: np.ndarray, most: int) -> np.ndarray:
    """Weights of rows under which a whole unit, a patient say, counts no more than one row does.

    Parameters
    ----------
    units : array (n,)
        The unit of each row, of any type.
    most : int
        Rows of one unit that count; further ones, in the order of the table, have weight 0.

    Returns
    -------
    weights : array (n,)
        1 / most or 0.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled.privacy.clipping import unit_weights
    >>> unit_weights(np.array(["ann", "bob", "ann", "ann"]), most=2)
    array([0.5, 0.5, 0.5, 0. ])
    """
    if most < 1:
        raise BadParameter(f"most={most!r} must be at least 1: it is how many rows of a unit count")
    units = np.asarray(units)
    order = np.argsort(units, kind="stable")
    starts = np.r_[True, units[order][1:] != units[order][:-1]]
    position = np.arange(len(units)) - np.maximum.accumulate(np.where(starts, np.arange(len(units)), 0))
    rank = np.empty(len(units), int)
    rank[order] = position
    return np.where(rank < most, 1 / most, 0.0)


def unit_blocks(blocks: np.ndarray) -> np.ndarray:
    """Weights of the blocks of an answer, of total square at most 1 whatever came down."""
    blocks = np.nan_to_num(np.abs(blocks), nan=0.0, posinf=0.0)
    largest = max(float(blocks.max(initial=0.0)), 1.0)
    blocks = blocks / largest
    return blocks / max(1.0, float(np.sqrt((blocks**2).sum())))
