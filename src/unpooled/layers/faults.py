"""The layer `Faults`: drops clients, delays them or corrupts their answers in given rounds, on any engine, to test a run.

Adds one step, `faults.misbehave`, to the questions of the rounds that have a fault.
"""

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
    """A client that a test drops."""


@client("faults.misbehave", STEP, batched=False, in_process=True)
def misbehave(up: Tree, client: Client, *, drop: dict, delay: dict, corrupt: dict) -> Tree:
    """The faults of this client in this round; plans are {round: [names]} and {round: {name: seconds or kind}}."""
    now = str(client.moment[1])
    if client.name in drop.get(now, ()):
        raise Dropped(f"dropped in round {now}, as rehearsed")
    time.sleep(delay.get(now, {}).get(client.name, 0.0))
    kind = corrupt.get(now, {}).get(client.name)
    return _corrupt(up, kind) if kind else up


def _corrupt(up: Tree, kind: str) -> Tree:
    """The answer with numbers, shape, type or structure made wrong."""
    if kind == "nan":
        return tree.map(lambda a: np.full(np.shape(a), np.nan), up)
    if kind == "shape":
        return tree.map(lambda a: np.zeros((*np.shape(a), 2)), up)
    if kind == "dtype":
        return tree.map(lambda a: to_numpy(a).astype(complex), up)
    return (*tree.leaves(up), np.zeros(1))


class Faults(Layer):
    """Make clients fail in given rounds, to test how a fit handles it.

    Parameters
    ----------
    inner : Federation
        Whose clients fail.
    drop : dict of int to list of str, default=None
        Clients that do not answer, by round: ``{3: ["zurich"]}``. Rounds count exchanges from 1.
    delay : dict of int to dict, default=None
        Seconds that clients wait before they answer: ``{4: {"basel": 0.5}}``.
    corrupt : dict of int to dict, default=None
        How answers are corrupted: ``{5: {"bern": "nan"}}``; "nan", "shape", "dtype" or "parts".

    Examples
    --------
    >>> import numpy as np
    >>> import unpooled as up
    >>> sites = {name: np.random.default_rng(i).normal(size=(50, 2)) for i, name in enumerate("abc")}
    >>> fed = up.Faults(up.federate(sites), drop={4: ["b"]})
    >>> model = up.GaussianMixture(2, random_state=0, max_iter=5, tol=0).fit(fed)
    >>> [(refusal.round, refusal.client) for refusal in fed.journal.refusals]
    [(4, 'b')]
    """

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
        # round numbers as strings, since the plan travels as JSON
        self.plan = {
            what: {str(int(r)): _as_json(who) for r, who in (plan or {}).items()} for what, plan in given.items()
        }

    def wrap(self, ask: Ask) -> Ask:
        """The question with what its clients are to do wrong in this round, if anything."""
        now = str(self.journal.round + 1)
        due = {what: {now: rounds[now]} if now in rounds else {} for what, rounds in self.plan.items()}
        return ask.then(misbehave, undo=None, undo_total=None, **due) if any(due.values()) else ask


def _as_json(who: Any) -> Any:
    """The clients of a round as a list of names, or as a dict."""
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
