"""A request as it came: what is wrong with it, and which function its question's name stands for. Nothing is sent.

Only registered questions are answered, from this package or from modules that the node's owner listed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from inspect import signature
from typing import Any, get_args, get_origin, get_type_hints

from unpooled import wire
from unpooled.client import REGISTRY, STEP, VIEW, Ask, Step
from unpooled.errors import UnpooledError, suggest
from unpooled.names import import_home

FIELDS = {"run": str, "round": int, "seed": int, "base": int, "floor": int, "ask": str, "schema": str, "options": dict}


class Refused(UnpooledError):
    """A request that a node does not answer; the sentence is sent to the coordinator."""


class OverCharged(Refused):
    """The answers of the last 24 hours are spent; such a refusal is not written to the ledger either."""


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
def _needed(answer: Callable) -> list[str]:
    """Names of the options that a question has no default for."""
    return [
        name for name, p in signature(answer).parameters.items() if p.kind is p.KEYWORD_ONLY and p.default is p.empty
    ]


@cache
def schema(ask_name: str) -> str:
    """A hash of a question's message types, down and up, and of its options: equal at two sides that have the same source."""
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


# ---- requests ----


def request_key(parcel: wire.Parcel, request: dict[str, Any]) -> str:
    """A hash of a request: the same request has the same key."""
    return hashlib.sha256(b"".join([parcel.structure.encode(), repr(request).encode(), parcel.body])).hexdigest()


def check_fields(request: dict[str, Any]) -> None:
    """Refuse a request that lacks a field, or has one of another type or out of range."""
    for field, kind in FIELDS.items():
        if type(request.get(field)) is not kind:
            raise Refused(f"the request has no {field!r} of type {kind.__name__}")
    numbers = [request[f] for f in ("round", "seed", "base", "floor")]
    columns = request.get("columns")
    wrong = {
        "steps are not pairs of a name and options": not _is_list_of(_is_step, request.get("steps")),
        "round, seed or base is out of range": min(numbers) < 0 or request["base"] > request["round"],
        "columns are not a list of names": columns is not None and not _is_list_of(_is_string, columns),
        "kinds of columns are not a table": not isinstance(request.get("table"), dict | None),
        "run is not a word of letters and digits": not (request["run"].isalnum() and len(request["run"]) <= 64),
    }
    for reason, is_wrong in wrong.items():
        if is_wrong:
            raise Refused(f"the request's {reason}")


def _is_list_of(fits: Callable[[Any], bool], value: Any) -> bool:
    """Whether this is a list all of whose entries fit."""
    return isinstance(value, list) and all(map(fits, value))


def _is_string(value: Any) -> bool:
    """Whether this is a string."""
    return isinstance(value, str)


def _is_step(step: Any) -> bool:
    """Whether this is a step as the wire has it: a name and its options."""
    return isinstance(step, list) and len(step) == 2 and isinstance(step[0], str) and isinstance(step[1], dict)


def question_of(request: dict[str, Any], also: Sequence[str]) -> Ask:
    """The registered question that a request names, with its options and steps."""
    ask = find(request["ask"], also)
    if ask.kind in (STEP, VIEW):
        raise Refused(f"{ask.name} is a step of a layer, not a question: the coordinator mixed up two names")
    if request["schema"] != schema(ask.name):
        raise Refused(
            f"{ask.name} has other messages here than at the coordinator: install the same source of unpooled at both"
        )
    _check_options(ask, request["options"])
    steps = tuple(_step(name, options, also) for name, options in request["steps"])
    return replace(ask.using(**request["options"]), steps=steps)


def _check_options(ask: Ask, given: dict[str, Any]) -> None:
    """Refuse options that a question or step does not have, or the lack of one that it needs."""
    unknown = sorted(set(given) - set(options(ask)))
    if unknown:
        raise Refused(f"{ask.name} has no option {unknown[0][:40]!r}: {suggest(unknown[0], options(ask))}")
    missing = [name for name in _needed(ask.answer) if name not in given]
    if missing:
        raise Refused(f"{ask.name} was asked without its option {missing[0]!r}: the coordinator must give it")


def _step(name: str, options: dict[str, Any], also: Sequence[str]) -> Step:
    """The step of a layer with this name; a question is refused here."""
    step = find(name, also)
    if step.kind not in (STEP, VIEW):
        raise Refused(f"{step.name} is a question, not a step of a layer: the coordinator mixed up two names")
    _check_options(step, options)
    return Step(step.name, options)
