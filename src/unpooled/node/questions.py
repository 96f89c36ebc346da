"""Which function a question's name stands for: only registered ones, from this package or from modules that the node's owner listed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from inspect import signature
from typing import Any, get_args, get_origin, get_type_hints

from unpooled.client import REGISTRY, Ask
from unpooled.errors import UnpooledError
from unpooled.names import import_home


class Refused(UnpooledError):
    """What a node will not do; the sentence goes to the coordinator."""


class OverCharged(Refused):
    """The day's answers are spent: nothing more is written either."""


class Unbegun(Refused):
    """The node does not know the run: the coordinator sends its beginning again."""


def find(name: str, also: Sequence[str] = ()) -> Ask:
    """The registered question of that name; its home is imported if it is ours, as are the modules in `also`, and no other."""
    try:
        import_home(str(name))
        for module in also if name not in REGISTRY else ():
            import_module(module)
    except ImportError as error:
        raise Refused(
            f"{str(name)[:80]} cannot be answered here, {error.name or 'a module'} is missing: install what it needs"
        ) from error
    if name not in REGISTRY:
        raise Refused(f"{str(name)[:80]!r} is not a question known here: only registered questions are answered")
    return REGISTRY[name]


def options(ask: Ask) -> list[str]:
    """The keywords that may travel with a question."""
    return _keywords(ask.answer)


@cache
def _keywords(answer: Callable) -> list[str]:
    """Names of the options that a question takes."""
    return [name for name, p in signature(answer).parameters.items() if p.kind is p.KEYWORD_ONLY]


@cache
def schema(ask_name: str) -> str:
    """A word that two sides share if a question's messages have the same types, down and up, and the same options at both."""
    ask = REGISTRY[ask_name]
    text = repr([*(_layout(kind) for kind in ask.types), options(ask)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _layout(kind: Any) -> Any:
    """A type as nested lists of names: fields of a NamedTuple, parts of a generic, a leaf's own text."""
    if hasattr(kind, "_fields"):
        hints = get_type_hints(kind, include_extras=True)
        return [kind.__name__, *((name, _layout(hints.get(name))) for name in kind._fields)]
    if get_origin(kind) is not None and not hasattr(kind, "__metadata__"):
        return [str(get_origin(kind)), *map(_layout, get_args(kind))]
    return repr(kind)
