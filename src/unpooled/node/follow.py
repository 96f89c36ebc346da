"""A node follows a study along: the same model on a federation that asks nobody, which tells what the next question must be.

A model is a function of its parameters, its seed and the totals. So a node that knows these runs it beside the coordinator, in a thread
of its own, and compares: a request that is not the study's next question, with the study's own parameters, is refused.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from unpooled import config as configs
from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.client import GATHER, REGISTRY, TELL, VIEW, Ask, Client, Step
from unpooled.errors import UnpooledError
from unpooled.federation import Exchange, Journal, cohort
from unpooled.study import Study
from unpooled.tree import Tree

TOLERANCE = 1e-9  # relative: machines round differently
PATIENCE = 600.0  # seconds for the model's own work between two questions, at most


class Expected(NamedTuple):
    """The next question of a study."""

    round: int
    ask: Ask
    down: Tree
    names: list[str]  # who is asked


class NotFollowed(UnpooledError):
    """The request is not the study's next question, or the study cannot be followed."""


class Stopped(Exception):
    """The node has no more use for this thread."""


class Replay:
    """A Federation that asks nobody: it says what would be asked, and waits for the total."""

    def __init__(self, follower: Follower, names: Sequence[str], columns: Sequence[str]):
        """A federation of `names` that passes each question to `follower` and waits for its total."""
        self.names, self.columns = list(names), list(columns)
        self.min_clients, self.journal, self._follower = 1, Journal(), follower
        self.study, self.schema = follower.study, follower.study.schema

    def sum(self, ask: Ask, down: Tree) -> Tree:
        """The total of this question, once the node has it."""
        return self._exchange(ask, down)

    def gather(self, ask: Ask, down: Tree) -> dict[str, Tree]:
        """The answers to this question, once the node has them."""
        return self._exchange(ask, down)

    def tell(self, ask: Ask, down: Tree) -> None:
        """Wait until this message is the one that the coordinator sends."""
        self._exchange(ask, down)

    def _exchange(self, ask: Ask, down: Tree) -> Tree:
        """Offer the question as the next one expected, wait for its total, and note the exchange."""
        self.journal.round += 1
        total = self._follower._await_total(Expected(self.journal.round, ask, down, self.names))
        row = Exchange(self.journal.round, ask.name, ask.kind, len(self.names), len(self.names), 0, 0, 0.0, "")
        self.journal.exchanges.append(row)
        return total

    def here(self) -> list[Client]:
        """No clients: a replay never touches rows."""
        return []

    def only(self, names: Sequence[str]) -> Replay:
        """The same replay with some of the participants; refused under masks, where two such totals show a single site."""
        wanted = set(names)
        if self.study.secure and wanted != set(self.names):
            raise NotFollowed("a masked study asks all of its sites in every sum, and this one asks some of them")
        part = Replay(self._follower, [n for n in self.names if n in wanted], self.columns)
        part.journal = self.journal
        return part

    def sample(self, share: float, rng: np.random.Generator) -> Replay:
        """The cohort that the coordinator must have drawn: the same generator gives the same names."""
        return self.only(cohort(self.names, share, rng))

    def snapshot(self) -> Tree:
        """Nothing: a replay has no client state."""
        return {}

    def restore(self, saved: Tree) -> None: ...


class Follower:
    """The study's model in a thread of its own, one question at a time.

    Parameters
    ----------
    study : Study
        What was approved.
    """

    def __init__(self, study: Study):
        """Start the study's model in a thread of its own, up to its first question."""
        self.study = study
        self._questions: queue.Queue[Expected | BaseException | None] = queue.Queue(1)
        self._totals: queue.Queue[Any] = queue.Queue(1)
        self._current: Expected | BaseException | None = None
        self.model = study.estimator()  # fitted once the study has ended
        self._thread = threading.Thread(target=self._run, name=f"follow {study.digest[:8]}", daemon=True)
        self._thread.start()

    def expected(self) -> Expected | None:
        """The question that comes next, None once the study has ended; the model's own error if it stopped with one."""
        if self._current is None and (self._thread.is_alive() or not self._questions.empty()):
            try:
                self._current = self._questions.get(timeout=PATIENCE)
            except queue.Empty:
                raise NotFollowed(
                    f"the study's model takes more than {PATIENCE:.0f} s here: it cannot be followed"
                ) from None
        if isinstance(self._current, BaseException):
            raise NotFollowed(f"the study ends here with an error: {self._current}")
        return self._current

    def give(self, total: Tree) -> None:
        """The total of the expected question: the model goes on to the next."""
        self._current = None
        self._totals.put((total,))

    def stop(self) -> None:
        """End the thread."""
        self._totals.put(Stopped())

    def _await_total(self, expected: Expected) -> Tree:
        """Called by the model's thread."""
        self._questions.put(expected)
        found = self._totals.get()
        if isinstance(found, Stopped):
            raise found
        return found[0]

    def _run(self) -> None:
        """Fit the model on a replay; put None, or the error that ended it, behind the last question."""
        end: BaseException | None = None
        try:
            replay = Replay(self, self.study.names, self.study.columns)
            for _ in self.model.rounds(configs.with_privacy(replay, self.study.config)):
                pass
        except Stopped:
            return
        except Exception as error:
            end = error
        self._questions.put(end)


def compare(expected: Expected, ask: Ask, down: Tree, name: str) -> None:
    """Refuse a request that is not the expected one; `name` is the node that was asked."""
    wanted = expected.ask
    if ask.name != wanted.name:
        raise NotFollowed(
            f"the coordinator asked {ask.name} in round {expected.round}, where the study asks {wanted.name}"
        )
    if _plain(ask.options) != _plain(wanted.options):
        raise NotFollowed(
            f"the coordinator asked {ask.name} with other options than the study's in round {expected.round}"
        )
    if not _same_views(views(wanted), views(ask)):
        raise NotFollowed(f"{ask.name} would see the rows otherwise than the study does in round {expected.round}")
    if name not in expected.names:
        raise NotFollowed(f"the study does not ask {name!r} in round {expected.round}")
    path = difference(expected.down, down)
    if path is not None:
        raise NotFollowed(f"{path or 'the value'} that came down in round {expected.round} is not what the study sends")
    if wanted.kind == GATHER:
        raise NotFollowed(f"{ask.name} is a GATHER: no node can follow a study beyond it")


def views(ask: Ask) -> list[Step]:
    """The steps that say how a question sees the rows."""
    return [step for step in ask.steps if REGISTRY[step.name].kind == VIEW]


def _same_views(a: list[Step], b: list[Step]) -> bool:
    """Whether two questions see the rows in the same way, up to rounding."""
    if [step.name for step in a] != [step.name for step in b]:
        return False
    pairs = [(_arrays(x.options), _arrays(y.options)) for x, y in zip(a, b)]
    return all(x.keys() == y.keys() and difference(x, y) is None for x, y in pairs)


def _arrays(options: Any) -> dict[str, np.ndarray]:
    """Options as float arrays, for a comparison that does not depend on the type of numbers."""
    return {name: np.asarray(value, np.float64) for name, value in options.items()}


def difference(a: Tree, b: Tree) -> str | None:
    """The first place where two values differ by more than rounding; None if they are the same."""
    if tree.structure(a) != tree.structure(b):
        return "the structure"
    for (path, x), (_, y) in zip(tree.iter_paths(a), tree.iter_paths(b), strict=True):
        x, y = to_numpy(x), to_numpy(y)
        if x.shape != y.shape or x.dtype.kind != y.dtype.kind:
            return path
        if x.dtype.kind != "f":
            if not np.array_equal(x, y):
                return path
            continue
        scale = np.maximum(np.abs(x), np.abs(x).max(initial=0.0) * 1e-3)
        if not (np.abs(x - y) <= TOLERANCE * scale + 1e-300).all():
            return path
    return None


def _plain(options: Any) -> Any:
    """Options as they look after they have travelled."""
    return json.loads(json.dumps(dict(options), default=_number))


def _number(value: Any) -> Any:
    """A NumPy number as JSON writes it."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} cannot travel")


def passes_without_total(expected: Expected) -> bool:
    """Whether the model goes on by itself after this question."""
    return expected.ask.kind == TELL
