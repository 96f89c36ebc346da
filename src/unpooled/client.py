"""What one participant holds, and the questions a server may ask it.

A question is a function `(down, client) -> up` marked `@client`. Its annotations are the wire schema, its name is all that travels:
only registered questions can be asked over a network.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from inspect import signature
from typing import Any, get_type_hints

import numpy as np

from unpooled import tree
from unpooled.arrays import Array, is_torch, namespace
from unpooled.tree import Tree


@dataclass
class Client:
    """One participant's rows, row weights, private state and randomness; many may be stacked on leading `...` axes."""

    name: str
    x: Array  # (..., n, d), NaN is a missing value
    y: Array | None = None  # (..., n)
    w: Array = None  # type: ignore[assignment]  # (..., n), 0 is padding; ones unless given
    state: dict[str, Tree] = field(default_factory=dict)  # stays at the client for the whole run
    moment: tuple[int, int] = (0, 0)  # (seed, round): what its draws are made from
    stacked: bool = False
    members: tuple[str, ...] = ()  # the names of stacked clients, along the leading axis
    memo: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)  # what follows from the rows alone

    def __post_init__(self):
        if self.w is None:
            xp = namespace(self.x)
            same_place = {"device": self.x.device} if is_torch(self.x) else {}
            self.w = xp.ones(self.x.shape[:-1], dtype=self.x.dtype, **same_place)

    def at(self, seed: int, round: int) -> Client:
        """The same client at another moment, with fresh draws; rows and state are shared, not copied."""
        return replace(self, moment=(seed, round))

    @cached_property
    def rng(self) -> np.random.Generator:
        """Draws that depend on (seed, round, client name) alone: the same on any engine."""
        if self.stacked:
            raise RuntimeError("a stacked client has one generator each: draw from client.rngs, or say batched=False")
        return generator(*self.moment, self.name)

    @cached_property
    def rngs(self) -> list[np.random.Generator]:
        """One generator for each stacked client, the same that it has as `rng` when asked alone."""
        return [generator(*self.moment, name) for name in self.members] if self.stacked else [self.rng]


def generator(seed: int, round: int, name: str = "") -> np.random.Generator:
    """The random generator of one client, or of the server (name ""), in one round."""
    word = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    return np.random.default_rng([seed, round, word])


@dataclass(frozen=True)
class Step:
    """What happens to an answer before it leaves the client, by name; and how the server undoes it, if it does."""

    name: str
    options: Mapping[str, Any]
    undo: Callable[[Tree, str], Tree] | None = None  # (what arrived, client name) -> what was meant; never sent


@dataclass(frozen=True)
class Ask:
    """A registered question with its options, and the steps its answer passes through on the way out."""

    name: str
    answer: Callable[..., Tree]
    batched: bool = True  # works on stacked clients, padding has weight 0
    adds: bool = False  # needs no state and adds over rows: clients may be merged, rows may be read in chunks
    view: bool = False  # a step that chooses rows before the question is put, instead of changing its answer
    options: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()

    def __call__(self, down: Tree, client: Client) -> Tree:
        """What leaves the client: the answer after all steps."""
        up = self.answer(down, self.seen(client), **self.options)
        for step in self.steps:
            if not REGISTRY[step.name].view:
                up = REGISTRY[step.name].answer(up, client, **step.options)
        return up

    def seen(self, client: Client) -> Client:
        """The client as the question sees it, with the rows that its views choose; its state is shared."""
        for step in self.steps:
            if REGISTRY[step.name].view:
                client = REGISTRY[step.name].answer(client, **step.options)
        return client

    def receive(self, sent: Tree, name: str, bound: dict[str, Any] | None = None) -> Tree:
        """What the server makes of it: steps undone, then checked against the annotations; SchemaError if it does not fit."""
        for step in reversed(self.steps):
            sent = step.undo(sent, name) if step.undo else sent
        tree.check(sent, self.types[1], bound)
        return sent

    def using(self, **options: Any) -> Ask:
        """The same question with options, which travel with it; each must be a keyword of the function."""
        unknown = set(options) - _parameters(self.answer)
        if unknown:
            raise TypeError(f"{self.name} has no option {sorted(unknown)[0]!r}")
        return replace(self, options={**self.options, **options})

    def then(self, step: Ask, /, *, undo: Callable[[Tree, str], Tree] | None = None, **options: Any) -> Ask:
        """The same question whose answer passes through one more step before it leaves."""
        return replace(self, steps=(*self.steps, Step(step.name, options, undo)))

    @property
    def types(self) -> tuple[Any, Any]:
        """(down, up) as annotated."""
        return _types(self.answer)


@cache
def _types(answer: Callable) -> tuple[Any, Any]:
    hints = get_type_hints(answer, include_extras=True)
    return next(iter(hints.values())), hints["return"]


@cache
def _parameters(answer: Callable) -> frozenset[str]:
    return frozenset(signature(answer).parameters)


REGISTRY: dict[str, Ask] = {}


def client(fn: Callable | None = None, *, batched: bool = True, adds: bool = False) -> Any:
    """Register a question; `batched=False` for one that loops, branches or draws, `adds=True` for one that is a plain sum over rows."""
    if fn is None:
        return lambda f: client(f, batched=batched, adds=adds)
    name = f"{fn.__module__}.{fn.__qualname__}"
    REGISTRY[name] = Ask(name, fn, batched, adds)
    return REGISTRY[name]


def view(fn: Callable[..., Client]) -> Ask:
    """Register a step `(client) -> client` that chooses rows before a question is put."""
    name = f"{fn.__module__}.{fn.__qualname__}"
    REGISTRY[name] = Ask(name, fn, batched=False, view=True)
    return REGISTRY[name]
