"""Learners by name: `linear`, `mlp`, the networks of `nets`, and those that a user registers. Nothing is sent.

A question carries the name alone, so over a network both sides must have registered the same learner.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from unpooled.errors import BadParameter, suggest

NETS = ("cnn", "resnet18", "resnet18_narrow", "mobilenet_v2")
_FACTORIES: dict[str, Callable[[int, int], Any]] = {}


def register(factory: Callable[[int, int], Any], name: str | None = None) -> str:
    """Register a torch module as a learner, and return its name.

    Parameters
    ----------
    factory : callable
        `factory(inputs, classes)` returns a new torch module that maps rows (n, inputs) to class scores (n, classes).
    name : str or None, default=None
        The name; None takes the factory's module and name.
    """
    made = factory if hasattr(factory, "__qualname__") else type(factory)  # a partial has no name of its own
    name = name or f"{made.__module__}.{made.__qualname__}"
    while _FACTORIES.setdefault(name, factory) is not factory:  # two lambdas of one module have the same name
        name += "'"
    return name


def name_of(learner: Any) -> str:
    """The name of a learner given by a user: a registered name, or a factory, which is registered."""
    if isinstance(learner, str):
        known = ["linear", "mlp", *NETS, *_FACTORIES]
        if learner not in known:
            raise BadParameter(f"learner={learner!r} is not known: {suggest(learner, known)}")
        return learner
    if not callable(learner) or hasattr(learner, "state_dict"):  # a module is a single learner, not a factory
        raise BadParameter(f"learner={learner!r} should be a name or a function (inputs, classes) -> torch module")
    return register(learner)


@cache
def learner(name: str, inputs: int, classes: int, hidden: tuple[int, ...] = (64,), norm: str = "group") -> Any:
    """The learner of that name: `Dense` for linear and mlp (no torch needed), `Modules` for the rest."""
    if name in ("linear", "mlp"):
        from unpooled.learners.dense import Dense, Logistic

        if name == "linear" and classes == 2:
            return Logistic(inputs)
        return Dense(inputs, classes, hidden if name == "mlp" else ())
    from unpooled.learners import nets
    from unpooled.learners.modules import NORMS, Modules

    if norm not in NORMS:
        raise BadParameter(f"norm={norm!r} is not known: use one of {', '.join(NORMS)}")
    return Modules(getattr(nets, name) if name in NETS else _FACTORIES[name_of(name)], inputs, classes, norm)
