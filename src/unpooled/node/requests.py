"""A request as it came, and what is wrong with it: the checks before anything is looked at. Nothing is sent."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from unpooled import wire
from unpooled.client import STEP, VIEW, Ask, Step
from unpooled.errors import suggest
from unpooled.node import questions
from unpooled.node.questions import Refused

FIELDS = {"run": str, "round": int, "seed": int, "base": int, "floor": int}
FIELDS |= {"ask": str, "schema": str, "options": dict}


def request_key(parcel: wire.Parcel, request: dict[str, Any]) -> str:
    """The same for the same request."""
    return hashlib.sha256(b"".join([parcel.structure.encode(), repr(request).encode(), parcel.body])).hexdigest()


def check_fields(request: dict[str, Any]) -> None:
    """Refuse a request that lacks a field, or has one of another type."""
    for field, kind in FIELDS.items():
        if type(request.get(field)) is not kind:
            raise Refused(f"the request has no {field!r} of type {kind.__name__}")
    steps = request.get("steps")
    if not (isinstance(steps, list) and all(_is_step(s) for s in steps)):
        raise Refused("the request's steps are not pairs of a name and options")
    numbers = [request[f] for f in ("round", "seed", "base", "floor")]
    if min(numbers) < 0 or request["base"] > request["round"]:
        raise Refused("the request's round, seed or base is out of range")
    columns = request.get("columns")
    if columns is not None and not (isinstance(columns, list) and all(isinstance(c, str) for c in columns)):
        raise Refused("the request's columns are not a list of names")
    if not isinstance(request.get("table"), dict | None):
        raise Refused("the request's kinds of columns are not a table")
    if not (request["run"].isalnum() and len(request["run"]) <= 64):
        raise Refused("the request's run is not a word of letters and digits")


def _is_step(step: Any) -> bool:
    """Whether this is a step as the wire has it: a name and its options."""
    return isinstance(step, list) and len(step) == 2 and isinstance(step[0], str) and isinstance(step[1], dict)


def question_of(request: dict[str, Any], also: Sequence[str]) -> Ask:
    """The registered question that a request names, with its options and steps."""
    ask = questions.find(request["ask"], also)
    if ask.kind in (STEP, VIEW):
        raise Refused(f"{ask.name} is a step of a layer, not a question: the coordinator mixed up two names")
    if request["schema"] != questions.schema(ask.name):
        raise Refused(
            f"{ask.name} has other messages here than at the coordinator: install the same source of unpooled at both"
        )
    unknown = sorted(set(request["options"]) - set(questions.options(ask)))
    if unknown:
        raise Refused(f"{ask.name} has no option {unknown[0][:40]!r}: {suggest(unknown[0], questions.options(ask))}")
    steps = tuple(_step(name, options, also) for name, options in request["steps"])
    return replace(ask.using(**request["options"]), steps=steps)


def _step(name: str, options: dict[str, Any], also: Sequence[str]) -> Step:
    """The step of a layer with this name; a question is refused here."""
    step = questions.find(name, also)
    if step.kind not in (STEP, VIEW):
        raise Refused(f"{step.name} is a question, not a step of a layer: the coordinator mixed up two names")
    return Step(step.name, options)
