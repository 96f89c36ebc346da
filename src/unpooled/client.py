"""What one participant holds, and the questions a server may ask it.

A question is a function `(down, client) -> up` registered by `@client("room.name", SUM)`: under a lasting name, which is all that travels,
and with the way it is asked. Its annotations are the wire schema. Only registered questions can be asked over a network.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from inspect import signature
from typing import Any, get_type_hints

import numpy as np

from unpooled import tree
from unpooled.arrays import Array, is_torch, namespace
from unpooled.errors import BadParameter
from unpooled.tree import Tree

SUM = "sum"  # answers are added over clients; nobody needs to see a single one
GATHER = "gather"  # the server sees every single answer
TELL = "tell"  # nothing comes back: clients act and keep the result
STEP = "step"  # not asked by itself: what a layer does to an answer before it leaves
KEYS = "keys"  # asked by layers: keys and shares of secrets, never anything about rows; it is not a round
KINDS = (SUM, GATHER, TELL, STEP, KEYS)


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
    letters: Mapping[str, bytes] = field(default_factory=dict)  # what this client alone is told, by layer
    asked: Callable[[], bytes] = bytes  # a digest of the question, its options and its parameters, for layers
    secrets: MutableMapping[str, bytes] = field(
        default_factory=dict, repr=False
    )  # keys of layers; never sent, never undone
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
    """What happens to an answer before it leaves the client, and how the server undoes it.

    `undo` works on single answers, `undo_total` on the total and the names of those who are in it. With `undo_total`, what `undo`
    gives is added up, not yet what was meant; with neither, what travels is what is meant. Neither is ever sent.
    """

    name: str
    options: Mapping[str, Any]
    undo: Callable[[Tree, str], Tree] | None = None  # (what arrived, client name) -> what was meant
    undo_total: Callable[[Tree, Sequence[str]], Tree] | None = None  # (the total, who answered) -> what was meant


@dataclass(frozen=True)
class Ask:
    """A registered question with its options, and the steps its answer passes through on the way out."""

    name: str
    kind: str  # SUM, GATHER, TELL; STEP for what a layer does
    answer: Callable[..., Tree]
    batched: bool = True  # works on stacked clients, padding has weight 0
    adds: bool = False  # needs no state and adds over rows: clients may be merged, rows may be read in chunks
    options: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    letters: Mapping[str, Mapping[str, bytes]] = field(
        default_factory=dict
    )  # layer -> client name -> what it alone is told

    def __call__(self, down: Tree, client: Client) -> Tree:
        """What leaves the client: the answer after all steps."""
        up = self.answer(down, client, **self.options)
        for step in self.steps:
            up = REGISTRY[step.name].answer(up, client, **step.options)
        return up

    def receive(self, sent: Tree, name: str, bound: dict[str, Any] | None = None) -> Tree:
        """One client's answer as the server adds it: steps undone as far as single answers go, then checked.

        What stays hidden until the total is checked against the annotations of its step: they say what travels in place of the
        answer. SchemaError if anything does not fit.
        """
        for step in reversed(self.steps):
            if step.undo_total is not None:
                tree.check(sent, REGISTRY[step.name].types[1])
                return step.undo(sent, name) if step.undo else sent
            sent = step.undo(sent, name) if step.undo else sent
        tree.check(sent, self.types[1], bound)
        return sent

    def complete(self, total: Tree, names: Sequence[str], bound: dict[str, Any] | None = None) -> Tree:
        """The total over `names` with the steps undone that act on totals, checked against the annotations."""
        if not self.on_totals:
            return total
        for step in reversed(self.steps):
            total = step.undo_total(total, names) if step.undo_total else total
        tree.check(total, self.types[1], bound)
        return total

    @property
    def on_totals(self) -> bool:
        """Whether single answers cannot be read: a step is undone on the total alone."""
        return any(step.undo_total is not None for step in self.steps)

    def using(self, **options: Any) -> Ask:
        """The same question with options, which travel with it; each must be a keyword of the function."""
        unknown = set(options) - _parameters(self.answer)
        if unknown:
            raise TypeError(f"{self.name} has no option {sorted(unknown)[0]!r}")
        return replace(self, options={**self.options, **options})

    def then(
        self,
        step: Ask,
        /,
        *,
        undo: Callable[[Tree, str], Tree] | None = None,
        undo_total: Callable[[Tree, Sequence[str]], Tree] | None = None,
        **options: Any,
    ) -> Ask:
        """The same question whose answer passes through one more step before it leaves."""
        if step.kind != STEP:
            raise TypeError(f"{step.name} is not a step: register it with @client({step.name!r}, STEP)")
        if undo_total is not None and any(s.undo is not None and s.undo_total is None for s in self.steps):
            inner = next(s.name for s in self.steps if s.undo is not None)
            raise BadParameter(
                f"{inner} is undone on single answers, which {step.name} hides: use one of the two layers"
            )
        if undo is not None and undo_total is None and self.on_totals:
            raise BadParameter(
                f"{step.name} reads single answers, which an inner layer hides: use one of the two layers"
            )
        return replace(self, steps=(*self.steps, Step(step.name, options, undo, undo_total)))

    def telling(self, layer: str, letters: Mapping[str, bytes]) -> Ask:
        """The same question with something that each client alone is told, by name."""
        return replace(self, letters={**self.letters, layer: letters})

    def letters_to(self, name: str) -> dict[str, bytes]:
        """What one client alone is told, by layer."""
        return {layer: letters[name] for layer, letters in self.letters.items() if name in letters}

    @property
    def types(self) -> tuple[Any, Any]:
        """(down, up) as annotated."""
        return _types(self.answer)


def digest(ask: Ask, down: Tree) -> bytes:
    """SHA-256 of a question, its options and its parameters: the same wherever the same is asked."""
    structure, arrays = tree.pack(down)
    words = json.dumps([ask.name, dict(ask.options), structure], sort_keys=True)
    sha = hashlib.sha256(words.encode())
    for a in arrays:
        sha.update(f"{a.dtype.str}{a.shape}".encode())
        sha.update(a.tobytes())
    return sha.digest()


@cache
def _types(answer: Callable) -> tuple[Any, Any]:
    hints = get_type_hints(answer, include_extras=True)
    return next(iter(hints.values())), hints["return"]


@cache
def _parameters(answer: Callable) -> frozenset[str]:
    return frozenset(signature(answer).parameters)


REGISTRY: dict[str, Ask] = {}


def client(name: str, kind: str, *, batched: bool = True, adds: bool = False) -> Callable[[Callable[..., Tree]], Ask]:
    """Register a question under a lasting name.

    Parameters
    ----------
    name : str
        "room.question". It travels, stands in policies and ledgers, and stays when files move.
    kind : {SUM, GATHER, TELL, STEP, KEYS}
        How it is asked. A federation asks it in no other way, and a node answers in no other.
    batched : bool, default=True
        Whether it works on clients stacked on a leading axis; False for one that loops, branches or draws.
    adds : bool, default=False
        Whether it is a plain sum over rows that needs no state: clients may be merged, and rows read in chunks.
    """
    if kind not in KINDS:
        raise TypeError(f"{name} is registered as {kind!r}: use one of SUM, GATHER, TELL, STEP, KEYS")

    def register(fn: Callable[..., Tree]) -> Ask:
        known = REGISTRY.get(name)
        if known is not None and known.answer.__module__ != fn.__module__:
            raise TypeError(f"{name} is registered by {known.answer.__module__} already: choose another name")
        REGISTRY[name] = Ask(name, kind, fn, batched, adds)
        return REGISTRY[name]

    return register
