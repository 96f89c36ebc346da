"""A Federation over a transport: one message down and one reply up per client and question.

A client is known by its name, not by the transport's node id, which changes when a node reconnects. A question without
an answer is asked again, since nodes give the same answer to the same question. Answers are added in the order of
names, so the same answers give the same bits.
"""

from __future__ import annotations

import copy
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from unpooled import tree, wire
from unpooled.client import Ask, Client
from unpooled.data.check import Profile, unreadable
from unpooled.data.schema import Schema, Wanted
from unpooled.errors import BadParameter, TooFewClients, printable
from unpooled.federation import Journal, cohort
from unpooled.remote.exchange import Exchange
from unpooled.remote.roster import Roster
from unpooled.remote.run import Run
from unpooled.remote.transport import Reply, Request, Transport
from unpooled.study import Study
from unpooled.tree import Tree

FIND_WAIT = 0.2  # seconds to wait for replies to hello before checking again who is connected


class Remote:
    """A federation of nodes behind a transport.

    Parameters
    ----------
    transport : Transport
        Carries the messages; an engine supplies it.
    min_clients : int, default=1
        A round with fewer answers is an error.
    names : sequence of str or None, default=None
        The clients to ask; None for the nodes found at first use.
    columns : sequence of str or None, default=None
        The features wanted, in order; None for those of the first node by name.
    timeout : float, default=600.0
        Seconds after which a slow client is left out of a round, if `min_clients` have answered.
    wait : float, default=600.0
        Seconds to wait for `min_clients` before giving up.
    retry : float, default=2.0
        Seconds without any answer after which the missing clients are sent the question again; longer where answers
        have taken longer. Asking again is harmless: nodes give the same answer to the same question.
    max_bytes : int, default=2**31
        Largest size of a reply; a larger one is refused.
    study : Study or None, default=None
        The study that the run belongs to; nodes answer only studies that their owners approved.
    wanted : Wanted or None, default=None
        Kinds of the columns, and which hold labels and weights; None for those of the study, or for numeric columns.
    say : callable, default=no output
        Receives a sentence when the run waits or a node is rejected.

    Attributes
    ----------
    journal : Journal
        Every exchange and every refusal.
    names : list of str
        The clients' names; the first use waits until `min_clients` nodes are connected.
    columns : list of str or None
        The columns' names.

    Examples
    --------
    An engine makes one, see `unpooled.remote.engines.connect`::

        with connect(Path("~/.unpooled/link").expanduser(), min_clients=3) as fed:
            GaussianMixture(3).fit(fed)
    """

    def __init__(
        self,
        transport: Transport,
        *,
        min_clients: int = 1,
        names: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        timeout: float = 600.0,
        wait: float = 600.0,
        retry: float = 2.0,
        max_bytes: int = 2**31,
        study: Study | None = None,
        wanted: Wanted | None = None,
        say: Callable[[str], None] = lambda text: None,
    ):
        if names is not None and len(set(names)) < max(1, min_clients):
            raise BadParameter(f"min_clients={min_clients} is more than the {len(set(names))} names: lower it")
        self.transport, self.study = transport, study
        self.wanted = wanted or (Wanted() if study is None else study.wanted)
        features = self.wanted.features
        columns = features.names if columns is None and features is not None else columns
        self.min_clients = min_clients
        self.max_bytes = max_bytes
        self.say = say
        self.timeout = timeout
        self.wait = wait
        self.retry = retry
        self.journal = Journal()
        self.roster = Roster(transport, columns, 2.5 * retry, apart=(self.wanted.label, self.wanted.weight))
        self.run = Run()
        self.durations: deque[float] = deque(maxlen=5)  # seconds to the first answer of the last exchanges
        self._names = None if names is None else sorted(names)
        self._part: list[str] | None = None

    # ---- who there is ----

    @property
    def names(self) -> list[str]:
        """The clients' names; the first use waits until `min_clients` nodes are connected."""
        if self._part is not None:
            return self._part
        if self._names is None:
            self._names = self._find_names()
        return self._names

    @property
    def columns(self) -> list[str] | None:
        """The columns' names, where the nodes' data have names."""
        return self.roster.columns

    @property
    def schema(self) -> Schema | None:
        """Kinds and levels of the columns, in their order; None if all are numeric."""
        features = self.wanted.features
        return features if features is None or self.columns is None else features.only(self.columns)

    @property
    def needed(self) -> int:
        """The number of clients that must answer."""
        return max(1, self.min_clients)

    def here(self) -> list[Client]:
        """An empty list: no client's rows are in this process."""
        return []

    def only(self, names: Sequence[str]) -> Remote:
        """The federation of these clients alone; it shares the journal and the run."""
        part = copy.copy(self)
        wanted = set(names)
        part._part = [n for n in self.names if n in wanted]
        return part

    def sample(self, share: float, rng: np.random.Generator) -> Remote:
        """The federation of a random share of the clients."""
        return self.only(cohort(self.names, share, rng))

    def _find_names(self) -> list[str]:
        """The names of the connected nodes, once `min_clients` have replied to hello and no reply is outstanding."""
        roster = self.roster

        def complete() -> bool:
            """Whether enough nodes are known and the columns are fixed."""
            if len(roster.nodes) >= self.needed and not roster.unknown:
                roster.settle()
            return roster.settled and len(roster.nodes) >= self.needed

        self._wait_for(complete, lambda: sorted(roster.nodes))
        return sorted(roster.nodes)

    def _fix_columns(self) -> None:
        """Where names are given (or come from a checkpoint), fix the columns once enough of them are connected."""
        roster, names = self.roster, self.names

        def complete() -> bool:
            """Whether the columns are fixed."""
            if not roster.settled and len(connected()) >= self.needed:
                roster.settle()
            return roster.settled

        def connected() -> list[str]:
            """The clients asked for that are connected."""
            return [n for n in names if roster.online(n)]

        self._wait_for(complete, connected)

    def _wait_for(self, complete: Callable[[], bool], connected: Callable[[], list[str]]) -> None:
        """Poll the roster until `complete`; say who is missing and why; TooFewClients after `wait` seconds."""
        end = time.monotonic() + self.wait
        shown = ""
        while not complete():
            self.roster.poll(FIND_WAIT)
            if complete():
                return
            status = self._status(connected())
            if time.monotonic() > end:
                raise TooFewClients(f"{status} after wait={self.wait:g} s: start the missing nodes or raise wait=")
            if status != shown:
                self.say(f"waiting for nodes: {status}")
                shown = status
            time.sleep(0.05)

    def _status(self, connected: list[str]) -> str:
        """'2 of 3 nodes are ready (basel, geneva); zurich is admitted but not connected'."""
        who = f" ({', '.join(connected)})" if connected else ""
        problem = self.transport.problem()
        causes = [*self.roster.missing(), *([problem] if problem else [])]
        return "; ".join([f"{len(connected)} of {self.needed} nodes are ready{who}", *causes])

    # ---- a check of the nodes' tables ----

    def profiles(self, wanted: Wanted) -> list[Profile]:
        """What each connected node reports about its table, or why it does not."""
        self.roster.collect(self.wait, self.needed)
        message = wire.pack({"kind": "profile", "table": wanted.pack()})
        nodes = dict(sorted(self.roster.nodes.items()))
        ids = dict(zip(self.transport.send([Request(n, message) for n in nodes.values()]), nodes))
        found: dict[str, Profile] = {}
        end = time.monotonic() + self.timeout
        while len(found) < len(nodes) and time.monotonic() < end:
            for reply in self.transport.receive([i for i, name in ids.items() if name not in found], FIND_WAIT):
                found[ids[reply.request]] = _profile_of(ids[reply.request], reply, self.max_bytes)
        return [found.get(name, unreadable(name, f"no answer within {self.timeout:g} s")) for name in nodes]

    # ---- checkpoints: which round's state each node continues from; the state itself stays at the node ----

    def snapshot(self) -> Tree:
        """What a checkpoint needs to continue with the same nodes, columns and states."""
        return self.run.snapshot(self.names) | {"columns": self.columns}

    def restore(self, saved: Tree) -> None:
        """Continue from a snapshot; an empty one starts a new run."""
        self.run.restore(saved)
        if saved:
            self._names = sorted(saved["names"])
            self.roster.columns = saved.get("columns", self.columns)  # in this order, whoever connects first

    # ---- the three ways to ask ----

    def sum(self, ask: Ask, down: Tree) -> Tree:
        """The total over the clients that answered."""
        total = None
        names = []
        for name, up in self._exchange(ask, down, "sum"):
            total = up if total is None else tree.add(total, up)
            names.append(name)
        return ask.complete(total, names, tree.dims(down, ask.types[0]))

    def gather(self, ask: Ask, down: Tree) -> dict[str, Tree]:
        """Every single answer, by client name."""
        return dict(self._exchange(ask, down, "gather"))

    def tell(self, ask: Ask, down: Tree) -> None:
        """Ask clients to act and keep the result in their state; nothing comes back."""
        for _ in self._exchange(ask, down, "tell"):
            pass

    def _exchange(self, ask: Ask, down: Tree, kind: str) -> Iterator[tuple[str, Tree]]:
        """Yield (name, checked answer) in the order of names, each as soon as all before it are settled."""
        names = self.names
        self._fix_columns()
        with self.journal.exchange(ask, down, kind, names, self.min_clients) as tally:
            exchange = Exchange(self, ask, down, tally)
            for name in names:
                while name not in exchange.settled and exchange.going():
                    exchange.advance()
                up = exchange.settled.pop(name, None)
                if up is not None:
                    yield name, up[0]
            exchange.end()


def _profile_of(name: str, reply: Reply, max_bytes: int) -> Profile:
    """The profile in a node's reply, or one that says why it cannot be read."""
    if reply.error or reply.lost:
        return unreadable(name, f"no profile: {reply.error or 'the message was lost'}")
    try:
        head = wire.unpack(reply.content, max_bytes).head
        return (
            unreadable(name, printable(str(head["refused"])[:300]))
            if "refused" in head
            else Profile.unpack(head["profile"])
        )
    except Exception as error:  # whatever a node sends, it costs that node only
        return unreadable(name, f"its profile cannot be read ({type(error).__name__})")
