"""Options with parameters of their own, such as `Dither(levels=1)` or `PoissonMixture(3)`, to and from JSON dicts.

Such an option is a NamedTuple, so that it can be saved; its `check` method refuses invalid parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, get_type_hints

from unpooled.errors import BadParameter, suggest


def describe(choice: Any, kinds: Mapping[str, type]) -> dict[str, Any]:
    """{"name": "dither", "levels": 1, ...}."""
    name = next(name for name, kind in kinds.items() if type(choice) is kind)
    return {"name": name, **choice._asdict()}


def resolve(given: Any, kinds: Mapping[str, type], what: str) -> Any:
    """The option that `given` describes: an option itself, a name, or a dict with a name and parameters."""
    if isinstance(given, tuple(kinds.values())):
        choice: Any = given
    else:
        fields = dict(given) if isinstance(given, Mapping) else {"name": given}
        choice = _make(fields.pop("name", None), fields, kinds, what)
    choice.check()
    return _plain(choice)


def _plain(choice: Any) -> Any:
    """The same option with Python ints, which JSON can hold: 3 for 3.0 or NumPy's 3."""
    return choice._replace(**{field: int(getattr(choice, field)) for field in _whole(choice.__class__)})


@cache
def _whole(kind: type) -> list[str]:
    """The fields of type int."""
    return [field for field, hint in get_type_hints(kind).items() if hint is int]


def _make(name: Any, fields: dict[str, Any], kinds: Mapping[str, type], what: str) -> Any:
    """The choice called `name` with these parameters; unknown names and parameters are refused."""
    if name not in kinds:
        raise BadParameter(f"{what}={name!r} is not known: {suggest(name, kinds)}")
    known = kinds[name]._fields  # type: ignore[attr-defined]
    for field in fields:
        if field not in known:
            raise BadParameter(f"{what} {name!r} has no parameter {field!r}: {suggest(field, known)}")
    return kinds[name](**fields)
