"""The client: its rows and state, and the registry of questions that a server may ask it.

A question is a function `(down, client) -> up` registered by `@client("room.name", SUM)`: under a lasting name, the
only part of it that is sent, and with the way it is asked. Its annotations are the wire schema. Only registered
questions can be asked over a network.
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
VIEW = "view"  # not asked by itself: chooses the rows that a question is applied to
KEYS = "keys"  # asked by layers: keys and shares of secrets, never anything about rows; it is not a round
SMALL = "small"  # of `batched`: only small clients are stacked
KINDS = (SUM, GATHER, TELL, STEP, VIEW, KEYS)


@dataclass
class Client:
    """One participant's rows, row weights, private state and randomness; many may be stacked on leading `...` axes."""

    name: str
    x: Array  # (..., n, d), NaN is a missing value
    y: Array | None = None  # (..., n)
    w: Array = None  # type: ignore[assignment]  # (..., n), 0 is padding; ones unless given
    state: dict[str, Tree] = field(default_factory=dict)  # stays at the client for the whole run
    moment: tuple[int, int] = (0, 0)  # (seed, round): the seed of its random generator
    stacked: bool = False
    members: tuple[str, ...] = ()  # the names of stacked clients, along the leading axis
    letters: Mapping[str, bytes] = field(default_factory=dict)  # messages for this client only, by layer
    asked: Callable[[], bytes] = bytes  # a digest of the question, its options and its parameters, for layers
    draws: bytes = field(default=b"", repr=False)  # a node's own secret for `secret_rngs`; none in a simulation
    # keys of layers; never sent, and not rolled back when an answer is rejected
    secrets: MutableMapping[str, bytes] = field(default_factory=dict, repr=False)
    # cached results that depend on the rows only
    memo: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self):
        """Give every row the weight 1 where no weights are given."""
        if self.w is None:
            xp = namespace(self.x)
            same_place = {"device": self.x.device} if is_torch(self.x) else {}
            self.w = xp.ones(self.x.shape[:-1], dtype=self.x.dtype, **same_place)

    def at(self, seed: int, round: int) -> Client:
        """The same client in another round, with a new random generator; rows and state are shared, not copied."""
        return replace(self, moment=(seed, round))

    @cached_property
    def rng(self) -> np.random.Generator:
        """The random generator of this client and round; it depends on (seed, round, client name) only, so it is the
        same on any engine.
        """
        if self.stacked:
            raise RuntimeError(
                "stacked clients have one generator each: use client.rngs, or register the question with batched=False"
            )
        return generator(*self.moment, self.name)

    @cached_property
    def rngs(self) -> list[np.random.Generator]:
        """One generator per stacked client, equal to its `rng` when it is asked alone."""
        return [generator(*self.moment, name) for name in self.members] if self.stacked else [self.rng]

    @cached_property
    def secret_rngs(self) -> list[np.random.Generator]:
        """As `rngs`, for draws that hide something: a node on a network makes them from a secret that nobody else knows.

        In a simulation there is no secret, and they are drawn from the seed.
        """
        names = self.members if self.stacked else (self.name,)
        return [generator(*self.moment, f"{name}, hidden", self.draws) for name in names] if self.draws else self.rngs


def generator(seed: int, round: int, name: str = "", secret: bytes = b"") -> np.random.Generator:
    """The random generator of one client, or of the server (name ""), in one round."""
    digest = hashlib.sha256(secret + name.encode()).digest()
    word = int.from_bytes(digest if secret else digest[:8], "big")
    return np.random.default_rng([seed, round, word])


@dataclass(frozen=True)
class Step:
    """An operation on an answer before it leaves the client, and its inverse at the server.

    `undo` is applied to single answers, `undo_total` to their total and the names of the clients in it. A step with
    `undo_total` may have `undo` as well, which is applied before answers are added. A step with neither needs no
    inverse. Neither function is ever sent.
    """

    name: str
    options: Mapping[str, Any]
    undo: Callable[[Tree, str], Tree] | None = None  # (received answer, client name) -> answer
    undo_total: Callable[[Tree, Sequence[str]], Tree] | None = None  # (received total, clients that answered) -> total


@dataclass(frozen=True)
class Ask:
    """A registered question with its options, and the steps its answer passes through on the way out."""

    name: str
    kind: str  # SUM, GATHER, TELL; STEP or VIEW for what a layer does
    answer: Callable[..., Tree]
    batched: bool | str = True  # works on stacked clients, padding has weight 0; SMALL: only small clients are stacked
    adds: bool = False  # needs no state and adds over rows: clients may be merged, rows may be read in chunks
    exact: bool = False  # its answers are never rounded on their way: no later round would correct the error
    in_process: bool = False  # gives rows away or misbehaves by design: never answered over a network
    brief: bool = False  # a chain of short array operations, for which threads of one process wait for each other
    options: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    # not part of the question itself:
    inspect: Callable[[Tree, str], None] | None = None  # called at the server with each answer; never sent
    letters: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)  # layer -> client -> message for it only

    @property
    def by_site(self) -> bool:
        """Whether the total shows each site's own numbers: with the option `sites` every site writes into a place of its own."""
        return bool(self.options.get("sites"))

    def __call__(self, down: Tree, client: Client) -> Tree:
        """The answer after all steps, as it leaves the client."""
        return self.through_steps(self.answer(down, self.seen(client), **self.options), client)

    def through_steps(self, up: Tree, client: Client) -> Tree:
        """An answer after the steps of all layers: masked, compressed, with noise."""
        for step in self.steps:
            if REGISTRY[step.name].kind == STEP:
                up = REGISTRY[step.name].answer(up, client, **step.options)
        return up

    def seen(self, client: Client) -> Client:
        """The client as the question sees it: with the rows that its views choose, and its own state."""
        for step in self.steps:
            if REGISTRY[step.name].kind == VIEW:
                client = REGISTRY[step.name].answer(client, **step.options)
        return client

    def receive(self, sent: Tree, name: str, bound: dict[str, Any] | None = None) -> Tree:
        """One client's answer as the server adds it: with the steps undone that act on single answers, and checked.

        An answer that can be read in the total only is checked against the annotations of the step that hides it.
        SchemaError if anything does not fit.
        """
        for step in reversed(self.steps):
            if step.undo_total is not None:
                tree.check(sent, REGISTRY[step.name].types[1])
                return step.undo(sent, name) if step.undo else sent
            sent = step.undo(sent, name) if step.undo else sent
        tree.check(sent, self.types[1], bound)
        if self.inspect is not None:
            self.inspect(sent, name)
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
        """Whether single answers cannot be read, because a step is undone on the total only."""
        return any(step.undo_total is not None for step in self.steps)

    def using(self, **options: Any) -> Ask:
        """The same question with options, which are sent with it; each must be a keyword of the function."""
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
        if step.kind not in (STEP, VIEW):
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
        """The same question with a message for each client, by name."""
        return replace(self, letters={**self.letters, layer: letters})

    def letters_to(self, name: str) -> dict[str, bytes]:
        """The messages for one client, by layer."""
        return {layer: letters[name] for layer, letters in self.letters.items() if name in letters}

    @property
    def types(self) -> tuple[Any, Any]:
        """(down, up) as annotated."""
        return _types(self.answer)


def digest(ask: Ask, down: Tree) -> bytes:
    """SHA-256 of a question, its options and its parameters."""
    structure, arrays = tree.pack(down)
    words = json.dumps([ask.name, dict(ask.options), structure], sort_keys=True)
    sha = hashlib.sha256(words.encode())
    for a in arrays:
        sha.update(f"{a.dtype.str}{a.shape}".encode())
        sha.update(a.tobytes())
    return sha.digest()


@cache
def _types(answer: Callable) -> tuple[Any, Any]:
    """Types of what goes down and of what comes up, from the function's annotations."""
    hints = get_type_hints(answer, include_extras=True)
    down = next(iter(signature(answer).parameters))
    if down not in hints or "return" not in hints:
        raise TypeError(
            f"the question {answer.__qualname__} does not say what it sends and gets: annotate it as "
            f"def {answer.__name__}({down}: Down, client: Client) -> Up, or None for nothing"
        )
    return hints[down], hints["return"]


@cache
def _parameters(answer: Callable) -> frozenset[str]:
    """Names of the function's parameters."""
    return frozenset(signature(answer).parameters)


REGISTRY: dict[str, Ask] = {}


def client(
    name: str,
    kind: str,
    *,
    batched: bool | str = True,
    adds: bool = False,
    exact: bool = False,
    in_process: bool = False,
    brief: bool = False,
) -> Callable[[Callable[..., Tree]], Ask]:
    """Register a question under a lasting name.

    Parameters
    ----------
    name : str
        "room.question". It is sent, appears in policies and ledgers, and stays the same when files move.
    kind : {SUM, GATHER, TELL, STEP, VIEW, KEYS}
        How it is asked. A federation asks it in no other way, and a node answers in no other.
    batched : bool or SMALL, default=True
        Whether it works on clients stacked on a leading axis; False for one that loops, branches or draws. SMALL stacks small
        clients, of whatever sizes; larger ones are asked alone. It may leave a list of states, one per client, in `client.state`.
    adds : bool, default=False
        Whether it is a plain sum over rows that needs no state: clients may be merged, and rows read in chunks.
    exact : bool, default=False
        Whether its answers must not be rounded on their way, because nothing later would mend it.
    in_process : bool, default=False
        Whether it gives rows away, or misbehaves, by design: a node never answers it.
    brief : bool, default=False
        Whether it is a chain of short array operations, as sums for linear models are. Several threads then mostly wait for the
        interpreter's lock, so that in one process clients are asked one after the other.
    """
    if kind not in KINDS:
        raise TypeError(f"{name} is registered as {kind!r}: use one of SUM, GATHER, TELL, STEP, VIEW, KEYS")

    def register(fn: Callable[..., Tree]) -> Ask:
        """Enter the function under the chosen name; a second module must not take the name."""
        known = REGISTRY.get(name)
        if known is not None and known.answer.__module__ != fn.__module__:
            raise TypeError(f"{name} is registered by {known.answer.__module__} already: choose another name")
        REGISTRY[name] = Ask(name, kind, fn, batched, adds, exact, in_process, brief)
        return REGISTRY[name]

    return register
