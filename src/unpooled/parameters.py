"""Checks of parameters: their annotated types and their ranges. A bad value raises BadParameter before any work is
done.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any

import numpy as np

from unpooled.errors import BadParameter, suggest

# ---- types: `tol: float` given "abc" is refused ----

KINDS: dict[str, tuple[Any, str]] = {  # name in annotations -> (types, words for messages)
    "int": (Integral, "a whole number"),
    "float": (Real, "a number"),
    "bool": ((bool, np.bool_), "true or false"),
    "str": (str, "a string"),
    "None": (type(None), "None"),
    "Sequence": ((Sequence, np.ndarray), "a list"),
    "list": ((Sequence, np.ndarray), "a list"),
    "tuple": ((Sequence, np.ndarray), "a list"),
    "Mapping": (Mapping, "a table"),
}


def check_types(values: Mapping[str, Any], wanted: Mapping[str, str]) -> None:
    """Refuse the first value that is NaN or whose type does not match its annotation in `wanted`; unknown annotations accept any type."""
    for name, value in values.items():
        kinds = _kinds(wanted.get(name, "Any"))
        if kinds and not any(_is(value, types) for types, _ in kinds):
            raise BadParameter(f"{name}={value!r} should be {' or '.join(text for _, text in kinds)}")
        if is_number(value) and value != value:
            raise BadParameter(f"{name}={value!r} is not a number: give one")


@cache
def _kinds(annotation: str) -> list[tuple[Any, str]]:
    """The kinds that an annotation allows; none if it accepts anything."""
    names = re.sub(r"\[.*?\]", "", annotation).split(" | ")
    return [KINDS[name] for name in names] if all(name in KINDS for name in names) else []


def _is(value: Any, types: Any) -> bool:
    """isinstance, but bools are not numbers and strings are not sequences."""
    if isinstance(value, bool | np.bool_):
        return types is KINDS["bool"][0]
    if isinstance(value, str):
        return types is str
    return isinstance(value, types)


def annotations_of(cls: type) -> Mapping[str, str]:
    """name -> annotation of every parameter of a class, including those it passes on to its bases."""
    return _annotations(cls)


@cache
def _annotations(cls: type) -> Mapping[str, str]:
    """The same, looked up once for each class."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if "__init__" in vars(base) and base is not object:
            for p in inspect.signature(base.__init__).parameters.values():  # type: ignore[misc]
                if p.annotation is not p.empty:
                    found[p.name] = (
                        p.annotation if isinstance(p.annotation, str) else inspect.formatannotation(p.annotation)
                    )
    return MappingProxyType(found)


# ---- ranges ----

LEAST = {"max_iter": 0, "tol": 0, "reg_covar": 0, "min_count": 0}  # of parameters that mean the same in every estimator


def check_least(values: Mapping[str, Any], least: Mapping[str, float]) -> None:
    """Refuse the first number that is below the least one of its name."""
    for name, value in values.items():
        if name in least and is_number(value) and value < least[name]:
            raise BadParameter(f"{name}={value!r} must be at least {least[name]}")


def is_number(value: Any) -> bool:
    """Whether `value` is one real number; bools are not numbers."""
    return isinstance(value, Real) and not isinstance(value, bool)


def at_least(what: str, value: Any, least: int) -> None:
    """Refuse anything but a whole number of at least `least`."""
    if not (is_number(value) and float(value).is_integer() and value >= least):
        raise BadParameter(f"{what}={value!r} must be a whole number of at least {least}")


def within(what: str, value: Any, low: float, high: float, meaning: str) -> None:
    """Refuse anything but a number in (low, high]."""
    if not (is_number(value) and low < value <= high):
        raise BadParameter(f"{what}={value!r} must be above {low:g} and at most {high:g}: it is {meaning}")


def above(what: str, value: Any, low: float) -> None:
    """Refuse anything but a number above `low`."""
    if not (is_number(value) and value > low):
        raise BadParameter(f"{what}={value!r} must be a number above {low:g}")


def not_below_zero(what: str, value: Any) -> None:
    """Refuse anything but a number of 0 or more."""
    if not (is_number(value) and value >= 0):
        raise BadParameter(f"{what}={value!r} must be a number of 0 or more")


def one_of(what: str, value: Any, known: Iterable[Any]) -> None:
    """Refuse anything that is not among the known choices."""
    choices = tuple(known)
    if value not in choices:
        all_of_them = f"use one of {', '.join(map(repr, choices))}"
        hint = suggest(value, [c for c in choices if isinstance(c, str)])
        raise BadParameter(f"{what}={value!r} is not known: {hint if hint.startswith('did') else all_of_them}")


def share(what: str, value: Any) -> None:
    """Refuse anything but a number in [0, 1)."""
    if not (is_number(value) and 0 <= value < 1):
        raise BadParameter(f"{what}={value!r} must be 0 or more and below 1")


def widths(what: str, value: Any) -> None:
    """Refuse anything but whole numbers, the widths of a network's layers."""
    if not isinstance(value, tuple | list):
        raise BadParameter(f"{what}={value!r} must be the widths of the layers: (128, 128), say")
    for width in value:
        at_least(what, width, 1)


def flag(what: str, value: Any) -> None:
    """Refuse anything but True and False."""
    if not isinstance(value, bool | np.bool_):
        raise BadParameter(f"{what}={value!r} must be True or False")


def mapping(what: str, value: Any) -> None:
    """Refuse anything but None and a dict of parameters."""
    if not (value is None or isinstance(value, Mapping)):
        raise BadParameter(f"{what}={value!r} must be a dict of parameters")
