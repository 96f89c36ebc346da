"""The Federation protocol: one value goes down to all; a SUM, a GATHER or nothing comes up.

Engines (`Local`, `Flower`) say where clients are. Layers wrap a federation in a federation and say what happens to a
message on its way.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np

from unpooled import tree
from unpooled.client import GATHER, KEYS, Ask, Client, generator
from unpooled.errors import BadData, BadParameter, TooFewClients, UnpooledError
from unpooled.tree import Tree

LATE = "no answer within"  # first words of the refusal of a client that did not answer in time


class Refusal(NamedTuple):
    """An answer that was rejected, and why."""

    round: int
    client: str
    question: str
    reason: str


class Exchange(NamedTuple):
    """One question put to a federation: how many clients were asked and answered, and how many bytes were sent."""

    round: int
    question: str
    kind: str  # sum, gather, tell, keys
    asked: int
    answered: int
    bytes_down: int
    bytes_up: int
    seconds: float
    contents: str  # the leaves of one answer and their shapes
    steps: str = ""  # what layers did to the answers before they were sent


class Tally:
    """Counts the answers of one exchange while it runs."""

    def __init__(self, journal: Journal, ask: Ask):
        """Count the answers of one exchange."""
        self.journal = journal
        self.ask = ask
        self.answered = 0
        self.bytes_up = 0
        self.contents = ""
        self.names: list[str] = []  # who answered, in the order of answers
        self.waiting: dict[str, str] = {}  # for whom the exchange waits, and why
        self.asked = 0

    def count(self, sent: Tree, names: Sequence[str]) -> None:
        """Note that each of these clients sent an answer of this size."""
        self.contents = self.contents or tree.describe(sent)
        self.names.extend(names)
        if self.journal.keep_answers:
            self.journal.answers.update(dict.fromkeys(names, sent))
        self.answered += len(names)
        self.bytes_up += len(names) * tree.size(sent)
        if self.waiting:
            self.waiting = {name: why for name, why in self.waiting.items() if name not in names}
        self.tell()

    def tell(self) -> None:
        """Let whoever watches the run see how far the exchange is."""
        if self.journal.watch is not None:
            self.journal.watch(self)

    def refuse(self, client: str, reason: object) -> None:
        """Note that a client's answer was refused, and why."""
        self.waiting.pop(client, None)
        self.journal.refusals.append(Refusal(self.journal.round, client, self.ask.name, _told(reason)))


def _told(reason: object) -> str:
    """A refusal in words; a mistake in a question's own code with the kind of the error, since its text may be a key alone."""
    mistake = isinstance(reason, Exception) and not isinstance(reason, UnpooledError | ValueError | ConnectionError)
    return f"{type(reason).__name__}: {reason}" if mistake else str(reason)


class Journal:
    """The record of a run: its seed, its round, every exchange and every refusal. Cohorts and layers share it."""

    def __init__(self) -> None:
        """A journal without exchanges."""
        self.watch: Callable[[Tally], None] | None = None  # told how far an exchange is, while it runs
        self.record: Callable[[Exchange], None] | None = None  # told of every exchange when it has ended
        self.keep_answers = False  # whether the single answers of the last exchange are kept, as evidence of a total
        self.begin(0)

    def begin(self, seed: int, round: int = 0) -> None:
        """Forget everything and start at `round` with `seed`."""
        self.seed, self.round = seed, round
        self.exchanges: list[Exchange] = []
        self.answered: list[str] = []  # who answered the last exchange
        self.answers: dict[str, Tree] = {}  # their answers, if they are kept
        self.refusals: list[Refusal] = []

    @contextmanager
    def exchange(self, ask: Ask, down: Tree, kind: str, names: Sequence[str], min_clients: int) -> Iterator[Tally]:
        """One round trip: counts the round and its answers, and raises TooFewClients with the remedy."""
        if ask.kind != kind and (kind, ask.kind) != (GATHER, KEYS):
            raise TypeError(f"{ask.name} is registered as a {ask.kind.upper()} and was asked as a {kind.upper()}")
        if kind == GATHER and ask.on_totals:
            raise BadParameter(f"{ask.name} is a GATHER, and a layer hides single answers: leave the layer out")
        self.round += ask.kind != KEYS
        start = time.perf_counter()
        tally = Tally(self, ask)
        self.answers = {}
        tally.asked = len(names)
        tally.tell()
        yield tally
        seconds = time.perf_counter() - start
        sent_down = tree.size(down) * len(names)
        row = Exchange(
            self.round,
            ask.name,
            ask.kind,
            len(names),
            tally.answered,
            sent_down,
            tally.bytes_up,
            seconds,
            tally.contents,
            ", ".join(step.name for step in ask.steps),
        )
        self.exchanges.append(row)
        if self.record is not None:
            self.record(row)
        self.answered = tally.names
        counts = ask.kind != KEYS  # layers that ask for keys count the answers themselves
        if counts and tally.answered < max(1, min_clients):
            raise TooFewClients(self._too_few(row, min_clients))

    def _too_few(self, row: Exchange, min_clients: int) -> str:
        """The sentence that ends an exchange with too few answers, with the likely remedy."""
        last = next((r for r in reversed(self.refusals) if r.round == row.round), None)
        late = last is not None and last.reason.startswith(LATE)
        remedy = "raise timeout=" if late else "check the clients' data"
        remedy += " or lower min_clients=" if min_clients > 1 else ""
        why = self.last_refusal()
        return f"{row.answered} of {row.asked} clients answered, min_clients={max(1, min_clients)}: {remedy}{why}"

    def last_refusal(self) -> str:
        """The latest refusal of this round, in brackets for the end of a sentence; nothing if there is none."""
        last = next((r for r in reversed(self.refusals) if r.round == self.round), None)
        return f" (last refusal: {last.client}, {last.reason})" if last else ""

    @property
    def rng(self) -> np.random.Generator:
        """The server's random generator in this round."""
        return generator(self.seed, self.round)


class Federation(Protocol):
    """The ways to reach clients, wherever an engine has them."""

    @property
    def journal(self) -> Journal: ...

    @property
    def min_clients(self) -> int: ...

    @property
    def names(self) -> list[str]: ...

    @property
    def columns(self) -> list[str] | None:
        """The names of the columns, if they have names."""

    @property
    def schema(self) -> Any:
        """The kinds and levels of the columns (`data.schema.Schema`), if the data has a schema; None is numbers alone."""

    def here(self) -> list[Client]:
        """The clients whose rows and state are in this process; none of them over a network.

        The only way for a model to look at clients directly: to refuse bad data before a round is spent, and to keep
        personal results for the caller who holds the data. What is fitted must not depend on it.
        """

    def sum(self, ask: Ask, down: Tree) -> Tree:
        """The total over the clients that answered."""

    def gather(self, ask: Ask, down: Tree) -> dict[str, Tree]:
        """Every client's answer, by name: the server sees each of them."""

    def tell(self, ask: Ask, down: Tree) -> None:
        """Have clients act and keep the result in their state; nothing is returned."""

    def only(self, names: Sequence[str]) -> Federation:
        """The federation of these clients only; journal and state are shared."""

    def sample(self, share: float, rng: np.random.Generator) -> Federation:
        """A federation of a random cohort of the clients."""

    def snapshot(self) -> Tree:
        """The state of clients and layers in this process, for a checkpoint."""

    def restore(self, saved: Tree) -> None: ...


def cohort(names: Sequence[str], share: float, rng: np.random.Generator) -> list[str]:
    """A random choice of round(share * clients) names, at least one, in their old order."""
    if not 0 < share <= 1:
        raise BadParameter(
            f"fraction={share!r} must be above 0 and at most 1: it is the share of clients asked in a round"
        )
    size = max(1, round(share * len(names)))
    chosen = rng.choice(len(names), size=size, replace=False)
    return [names[i] for i in np.sort(chosen)]


class Layer:
    """A federation around a federation: override `wrap` to add a step to every question, or `sum` to change the total."""

    def __init__(self, inner: Federation):
        """Wrap `inner`, which must be a federation."""
        if not is_federation(inner):
            name = type(self).__name__
            raise BadParameter(
                f"{name} goes around a federation, not around {type(inner).__name__}: {name}(federate(data))"
            )
        self.inner = inner

    def wrap(self, ask: Ask) -> Ask:
        """The question as it is passed on; layers that change it override this."""
        return ask

    def sum(self, ask: Ask, down: Tree) -> Tree:
        """Pass a SUM on."""
        return self.inner.sum(self.wrap(ask), down)

    def gather(self, ask: Ask, down: Tree) -> dict[str, Tree]:
        """Pass a GATHER on."""
        return self.inner.gather(self.wrap(ask), down)

    def tell(self, ask: Ask, down: Tree) -> None:
        """Pass a TELL on."""
        self.inner.tell(self.wrap(ask), down)

    def only(self, names: Sequence[str]) -> Federation:
        """The same layer around fewer clients; counters and state are shared."""
        view = copy.copy(self)
        view.inner = self.inner.only(names)
        return view

    def sample(self, share: float, rng: np.random.Generator) -> Federation:
        """The same layer around a random part of the clients."""
        return self.only(cohort(self.names, share, rng))

    def here(self) -> list[Client]:
        """Clients in this process."""
        return self.inner.here()

    def snapshot(self) -> Tree:
        """The state of what lies within, for a checkpoint."""
        return self.inner.snapshot()

    def restore(self, saved: Tree) -> None:
        """Go back to what `snapshot` gave."""
        self.inner.restore(saved)

    @property
    def names(self) -> list[str]:
        """Names of the clients."""
        return self.inner.names

    @property
    def columns(self) -> list[str] | None:
        """Names of the columns, None where they have none."""
        return self.inner.columns

    @property
    def schema(self) -> Any:
        """Kinds of the columns, None where none are declared."""
        return getattr(self.inner, "schema", None)

    @property
    def journal(self) -> Journal:
        """What was exchanged so far."""
        return self.inner.journal

    @property
    def min_clients(self) -> int:
        """How many clients must answer for a total to count."""
        return self.inner.min_clients


def is_federation(value: Any) -> bool:
    """Whether `value` can be asked questions; looks at its class only, so that no node is waited for."""
    return all(hasattr(type(value), method) for method in ("sum", "gather", "tell", "here"))


def find_layer(fed: Any, attribute: str) -> Any:
    """The outermost layer of a federation that has this attribute, or None."""
    while fed is not None and not hasattr(fed, attribute):
        fed = getattr(fed, "inner", None)
    return fed


def is_masked(fed: Any) -> bool:
    """Whether sums are masked: by a layer, or by the study that a node follows along."""
    study = getattr(find_layer(fed, "study"), "study", None)
    return find_layer(fed, "masks") is not None or bool(study is not None and study.secure)


def least_rows(fed: Any) -> int:
    """The fewest rows, at all clients together, that a study lets its numbers stand for; 0 outside of studies."""
    study = getattr(find_layer(fed, "study"), "study", None)
    return 0 if study is None else study.min_rows_per_component


def refuse_few(fed: Any, rows: Mapping[str, float]) -> None:
    """Refuse to go on with a study whose next sums would be over few rows: those of a rare level, class or outcome.

    `rows` holds, by what it is called in a sentence, how many rows there are of it at all clients together.
    """
    least = least_rows(fed)
    few = {what: n for what, n in rows.items() if 0 < n < least}
    rehearsal = find_layer(fed, "note_few")
    if rehearsal is not None:  # one site's table alone: the other sites may have more
        rehearsal.note_few(few)
        return
    for what, n in few.items():
        raise BadData(
            f"{what} is held by {n:g} at all sites together, and the study shows no sums over fewer than {least} rows: "
            "join it with another one, leave it out, or lower min_rows_per_component of the study"
        )


def find_private(fed: Any) -> Any:
    """The layer of a federation that keeps a privacy budget, or None."""
    return find_layer(fed, "accountant")
