"""Rehearse what a network does: drop a client, delay it, corrupt its answer, at given rounds. Acts at the client, on any engine."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.client import Ask, Client, client
from unpooled.errors import BadParameter
from unpooled.federation import Federation, Layer
from unpooled.tree import Tree

CORRUPTIONS = ("nan", "shape", "dtype", "parts")


class Dropped(ConnectionError):
    """The rehearsed loss of a client."""


@client(batched=False)
def misbehave(up: Tree, client: Client, *, drop: dict, delay: dict, corrupt: dict) -> Tree:
    """What the plan says for this client in this round; plans are {round: [names]} and {round: {name: seconds or kind}}."""
    now = str(client.moment[1])
    if client.name in drop.get(now, ()):
        raise Dropped(f"dropped in round {now}, as rehearsed")
    time.sleep(delay.get(now, {}).get(client.name, 0.0))
    kind = corrupt.get(now, {}).get(client.name)
    return _corrupt(up, kind) if kind else up


def _corrupt(up: Tree, kind: str) -> Tree:
    if kind == "nan":
        return tree.map(lambda a: np.full(np.shape(a), np.nan), up)
    if kind == "shape":
        return tree.map(lambda a: np.zeros((*np.shape(a), 2)), up)
    if kind == "dtype":
        return tree.map(lambda a: to_numpy(a).astype(complex), up)
    return (*tree.leaves(up), np.zeros(1))


class Faults(Layer):
    """`Faults(fed, drop={3: ["zurich"]}, delay={4: {"basel": 0.5}}, corrupt={5: {"bern": "nan"}})`: rounds count exchanges from 1."""

    def __init__(
        self,
        inner: Federation,
        *,
        drop: Mapping[int, Sequence[str]] | None = None,
        delay: Mapping[int, Mapping[str, float]] | None = None,
        corrupt: Mapping[int, Mapping[str, str]] | None = None,
    ):
        super().__init__(inner)
        self.plan: dict[str, Any] = {"drop": _by_round(drop), "delay": _by_round(delay), "corrupt": _by_round(corrupt)}
        self._check(inner.names)

    def wrap(self, ask: Ask) -> Ask:
        now = str(self.journal.round + 1)
        due = {what: {now: rounds[now]} if now in rounds else {} for what, rounds in self.plan.items()}
        return ask.then(misbehave, undo=None, **due) if any(due.values()) else ask

    def _check(self, names: list[str]) -> None:
        for rounds in self.plan.values():
            for name in (name for who in rounds.values() for name in who):
                if name not in names:
                    raise BadParameter(
                        f"there is no client {name!r} to rehearse a fault with: the clients are {', '.join(names[:8])}"
                    )
        for kind in (k for who in self.plan["corrupt"].values() for k in who.values()):
            if kind not in CORRUPTIONS:
                raise BadParameter(f"corrupt={kind!r} is not known: use one of {', '.join(CORRUPTIONS)}")


def _by_round(plan: Mapping[int, Any] | None) -> dict[str, Any]:
    """Round numbers as text, since the plan travels as JSON."""
    return {str(round): who for round, who in (plan or {}).items()}
