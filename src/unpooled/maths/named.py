"""A small choice with its numbers, `Dither(levels=1)` or `PoissonMixture(3)`, as a dict that travels as JSON; and back.

Such a choice is a NamedTuple, so that it can be saved; its `check` method refuses numbers that cannot work.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

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
    return choice


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
