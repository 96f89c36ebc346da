"""Which function a question's name stands for: only registered ones, from this package or from modules that the node's owner listed."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from inspect import signature

from unpooled.client import REGISTRY, Ask
from unpooled.errors import UnpooledError

PACKAGES = ("unpooled.models", "unpooled.learners", "unpooled.baselines", "unpooled.layers")


class Refused(UnpooledError):
    """What a node will not do; the sentence goes to the coordinator."""


@cache
def _modules(package: str) -> frozenset[str]:
    found = import_module(package)
    return frozenset(f"{package}.{m.name}" for m in pkgutil.iter_modules(found.__path__))


def find(name: str, also: Sequence[str] = ()) -> Ask:
    """The registered question of that name; its module is imported if it is one of ours or in `also`, and no other ever is."""
    module = name.rpartition(".")[0] if isinstance(name, str) else ""
    if module in also or any(module in _modules(p) for p in PACKAGES):
        try:
            import_module(module)
        except ImportError as error:
            raise Refused(
                f"{module} cannot be imported here ({error.name or 'missing'}): install what it needs"
            ) from error
    if name not in REGISTRY:
        raise Refused(f"{str(name)[:80]!r} is not a question known here: only registered questions are answered")
    return REGISTRY[name]


def options(ask: Ask) -> list[str]:
    """The keywords that may travel with a question."""
    return _keywords(ask.answer)


@cache
def _keywords(answer: Callable) -> list[str]:
    return [name for name, p in signature(answer).parameters.items() if p.kind is p.KEYWORD_ONLY]
