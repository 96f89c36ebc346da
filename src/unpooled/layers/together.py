"""Several fits at the same time over one federation: questions that they ask in the same round travel as one.

What is sent is what the combined questions send. Each fit runs in a thread of its own with a federation that waits; the caller's thread
alone asks the clients, once all fits have handed over their next question.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from unpooled.client import Ask, Client
from unpooled.errors import BadParameter
from unpooled.federation import Federation, Journal
from unpooled.tree import Tree

VIEW = "folds.training_rows"  # the step of a fit without a fold
MOST = 16  # questions in one


class Stopped(Exception):
    """Another fit has failed."""


class Event(NamedTuple):
    """What comes from the thread of a fit: its next question, its result or its error."""

    fit: int  # the number of the fit
    ask: Ask | None = None
    down: Tree = None
    result: Any = None
    error: BaseException | None = None


class FitFederation:
    """The federation that one of the fits sees."""

    def __init__(self, index: int, fed: Federation, send: Callable[[Event], None]):
        """The federation that fit number `index` sees: its questions go to `send`, its totals come by a queue."""
        self.index = index
        self._fed = fed
        self._send = send
        self.journal = Journal()
        self.min_clients = fed.min_clients
        self.names = fed.names
        self.columns = fed.columns
        self.schema = getattr(fed, "schema", None)
        self.totals: queue.Queue[Any] = queue.Queue(1)

    def sum(self, ask: Ask, down: Tree) -> Tree:
        """Hand over a question and wait for its total of the shared round."""
        self._send(Event(self.index, ask, down))
        found = self.totals.get()
        if isinstance(found, Stopped):
            raise found
        total, exchange = found
        self.journal.exchanges.append(exchange)
        self.journal.round = exchange.round
        return total

    def gather(self, ask: Ask, down: Tree) -> dict[str, Tree]:
        """Refused: fits that share rounds ask for sums alone."""
        raise BadParameter(f"{ask.name} asks for single answers: fits that share rounds ask for sums alone")

    def tell(self, ask: Ask, down: Tree) -> None:
        """Refused: fits that share rounds must not change clients."""
        raise BadParameter(f"{ask.name} changes clients: fits that share rounds must not")

    def only(self, names: Sequence[str]) -> Federation:
        """Refused: fits that share rounds ask all clients."""
        raise BadParameter("fits that share rounds ask all clients")

    def sample(self, share: float, rng: np.random.Generator) -> Federation:
        """Refused: fits that share rounds ask all clients."""
        raise BadParameter("fits that share rounds ask all clients")

    def here(self) -> list[Client]:
        """Clients in this process."""
        return self._fed.here()

    def snapshot(self) -> Tree:
        """Nothing: shared fits are not resumed."""
        return {}

    def restore(self, saved: Tree) -> None: ...


def together(fed: Federation, fits: Sequence[Callable[[Federation], Any]], grids: Mapping[str, Ask]) -> list:
    """The results of some fits, in shared rounds.

    Parameters
    ----------
    fed : Federation
        Who is asked.
    fits : sequence of callables
        Each takes a federation and returns its result. It may ask for sums only.
    grids : dict of str to Ask
        By name of a question, the question that asks many of it at once, each without a fold.
    """
    fed.journal.begin(0)
    fed.restore({})
    events: queue.Queue[Event] = queue.Queue()
    feds = [FitFederation(i, fed, events.put) for i in range(len(fits))]
    for own, fit in zip(feds, fits):
        threading.Thread(target=_run, args=(own, fit, events), daemon=True).start()
    results: dict[int, Any] = {}
    waiting = len(feds)
    while waiting:
        heard = sorted((events.get() for _ in range(waiting)), key=lambda event: event.fit)
        asked = [event for event in heard if event.ask is not None]
        results |= {event.fit: event.result for event in heard if event.ask is None}
        failed = next((event.error for event in heard if event.error is not None), None)
        try:
            if failed is not None:
                raise failed
            _answer(fed, asked, feds, grids)
        except BaseException:
            for event in asked:
                if feds[event.fit].totals.empty():
                    feds[event.fit].totals.put(Stopped())
            raise
        waiting = len(asked)
    return [results[i] for i in range(len(feds))]


def _run(own: FitFederation, fit: Callable[[Federation], Any], events: queue.Queue) -> None:
    """Fit, in its own thread, and report the result or the error."""
    try:
        events.put(Event(own.index, result=fit(own)))
    except Stopped:
        return
    except BaseException as error:
        events.put(Event(own.index, error=error))


def _answer(fed: Federation, asked: Sequence[Event], feds: Sequence[FitFederation], grids: Mapping[str, Ask]) -> None:
    """Put the questions of one round, those of a kind together."""
    kinds: dict[str, list[Event]] = {}
    for event in asked:
        assert event.ask is not None
        shared = event.ask.name in grids and [step.name for step in event.ask.steps] == [VIEW]
        kinds.setdefault(event.ask.name if shared else f"{event.ask.name} {event.fit}", []).append(event)
    for group in kinds.values():
        for i in range(0, len(group), MOST):
            _ask_together(fed, group[i : i + MOST], feds, grids)


def _ask_together(
    fed: Federation, group: Sequence[Event], feds: Sequence[FitFederation], grids: Mapping[str, Ask]
) -> None:
    """Ask what several fits wait for in one exchange, and hand each its part of the total."""
    first = group[0].ask
    assert first is not None
    if len(group) == 1:
        total = fed.sum(first, group[0].down)
        feds[group[0].fit].totals.put((total, fed.journal.exchanges[-1]))
        return
    asks = [_options(event) for event in group]
    total = fed.sum(grids[first.name].using(asks=asks), tuple(event.down for event in group))
    for event, part in zip(group, total.parts):
        feds[event.fit].totals.put((part, fed.journal.exchanges[-1]))


def _options(event: Event) -> dict[str, Any]:
    """Options of one fit's question and the fold it leaves out."""
    assert event.ask is not None
    view = event.ask.steps[0].options
    return {"options": dict(event.ask.options), "folds": view["folds"], "fold": view["fold"]}
