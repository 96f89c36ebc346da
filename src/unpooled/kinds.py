"""Parameters of the kinds that their annotations say: `tol: float` given "abc" is refused in one sentence, before any work."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from unpooled.errors import BadParameter

KINDS: dict[str, tuple[Any, str]] = {  # a kind's name in annotations -> (types, how a sentence calls it)
    "int": (Integral, "a whole number"),
    "float": (Real, "a number"),
    "bool": ((bool, np.bool_), "true or false"),
    "str": (str, "a text"),
    "None": (type(None), "None"),
    "Sequence": ((Sequence, np.ndarray), "a list"),
    "list": ((Sequence, np.ndarray), "a list"),
    "tuple": ((Sequence, np.ndarray), "a list"),
    "Mapping": (Mapping, "a table"),
}


def check(values: Mapping[str, Any], wanted: Mapping[str, str]) -> None:
    """Refuse the first value that is of none of the kinds that `wanted` has for it; a kind not known here takes anything."""
    for name, value in values.items():
        names = re.sub(r"\[.*?\]", "", wanted.get(name, "Any")).split(" | ")
        kinds = [KINDS[n] for n in names if n in KINDS]
        if len(kinds) == len(names) and not any(_is(value, types) for types, _ in kinds):
            raise BadParameter(f"{name}={value!r} should be {' or '.join(text for _, text in kinds)}")


def _is(value: Any, types: Any) -> bool:
    """isinstance, but a truth value is no number and a text no list."""
    if isinstance(value, bool | np.bool_):
        return types is KINDS["bool"][0]
    if isinstance(value, str):
        return types is str
    return isinstance(value, types)


def of_parameters(cls: type) -> dict[str, str]:
    """name -> annotation of every parameter of a class, those included that it passes on to the classes it builds on."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if "__init__" in vars(base) and base is not object:
            for p in inspect.signature(base.__init__).parameters.values():  # type: ignore[misc]
                if p.annotation is not p.empty:
                    found[p.name] = (
                        p.annotation if isinstance(p.annotation, str) else inspect.formatannotation(p.annotation)
                    )
    return found
