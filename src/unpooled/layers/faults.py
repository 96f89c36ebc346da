"""Rehearse what a network does: drop a client, delay it, corrupt its answer, at given rounds. Acts at the client, on any engine."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.client import STEP, Ask, Client, client
from unpooled.errors import BadParameter
from unpooled.federation import Federation, Layer
from unpooled.parameters import at_least, not_below_zero, one_of
from unpooled.tree import Tree

CORRUPTIONS = ("nan", "shape", "dtype", "parts")
PLANS = {"drop": "lists of names", "delay": "dicts {name: seconds}", "corrupt": "dicts {name: kind}"}


class Dropped(ConnectionError):
    """The rehearsed loss of a client."""


@client("faults.misbehave", STEP, batched=False)
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
        given = {"drop": drop, "delay": delay, "corrupt": corrupt}
        for what, plan in given.items():
            _check(what, plan or {}, inner.names)
        # round numbers as text, since the plan travels as JSON
        self.plan = {what: {str(int(r)): _told(who) for r, who in (plan or {}).items()} for what, plan in given.items()}

    def wrap(self, ask: Ask) -> Ask:
        now = str(self.journal.round + 1)
        due = {what: {now: rounds[now]} if now in rounds else {} for what, rounds in self.plan.items()}
        return ask.then(misbehave, undo=None, undo_total=None, **due) if any(due.values()) else ask


def _told(who: Any) -> Any:
    """The clients of a round as JSON has them: a list of names, or a dict."""
    return dict(who) if isinstance(who, Mapping) else list(who)


def _check(what: str, plan: Any, names: list[str]) -> None:
    """Refuse a plan that no round could follow."""
    kind = list | tuple | set if what == "drop" else Mapping
    if not (isinstance(plan, Mapping) and all(isinstance(who, kind) for who in plan.values())):
        raise BadParameter(f"{what}={plan!r} must be a dict of {PLANS[what]} by round")
    for round, who in plan.items():
        at_least(f"a round of {what}", round, 0)
        for name in who:
            if name not in names:
                raise BadParameter(
                    f"there is no client {name!r} to rehearse a fault with: the clients are {', '.join(names[:8])}"
                )
            if what == "delay":
                not_below_zero("delay", who[name])
            elif what == "corrupt":
                one_of("corrupt", who[name], CORRUPTIONS)
