"""A small choice with its numbers, `Dither(levels=1)` or `PoissonMixture(3)`, as a dict that travels as JSON; and back.

Such a choice is a NamedTuple, so that it can be saved; its `check` method refuses numbers that cannot work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from numbers import Real
from typing import Any, get_type_hints

import numpy as np

from unpooled.errors import BadParameter, suggest


def describe(choice: Any, kinds: Mapping[str, type]) -> dict[str, Any]:
    """{"name": "dither", "levels": 1, ...}."""
    name = next(name for name, kind in kinds.items() if type(choice) is kind)
    return {"name": name, **choice._asdict()}


def resolve(given: Any, kinds: Mapping[str, type], what: str) -> Any:
    """The choice that `given` names: itself, a name, or a dict with a name and its numbers."""
    if isinstance(given, tuple(kinds.values())):
        choice: Any = given
    else:
        fields = dict(given) if isinstance(given, Mapping) else {"name": given}
        choice = _make(fields.pop("name", None), fields, kinds, what)
    choice.check()
    return _plain(choice)


def _plain(choice: Any) -> Any:
    """The same with Python's own whole numbers, which travel as JSON: 3 where 3.0 or NumPy's 3 was given."""
    return choice._replace(**{field: int(getattr(choice, field)) for field in _whole(choice.__class__)})


@cache
def _whole(kind: type) -> list[str]:
    """The fields that are whole numbers."""
    return [field for field, hint in get_type_hints(kind).items() if hint is int]


def _make(name: Any, fields: dict[str, Any], kinds: Mapping[str, type], what: str) -> Any:
    if name not in kinds:
        raise BadParameter(f"{what}={name!r} is not known: {suggest(name, kinds)}")
    known = kinds[name]._fields  # type: ignore[attr-defined]
    for field in fields:
        if field not in known:
            raise BadParameter(f"{what} {name!r} has no number {field!r}: {suggest(field, known)}")
    return kinds[name](**fields)


def is_number(value: Any) -> bool:
    """Whether `value` is one real number, and not a truth value."""
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
