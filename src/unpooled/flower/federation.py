"""A Federation whose clients sit behind a Flower grid: one message down and one up for each client and question.

A client is known by its name, not by Flower's node id, which changes when a node comes back. A question that stays without
answer is asked again: nodes give the same answer to the same question. Answers are added in the order of names, so the same
answers give the same bits.
"""

from __future__ import annotations

import copy
import json
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from flwr.app import Message
from flwr.serverapp import Grid

from unpooled import tree, wire
from unpooled.client import Ask, Client
from unpooled.errors import BadParameter, TooFewClients
from unpooled.federation import LATE, Journal, Tally, cohort
from unpooled.flower import objects  # noqa: F401  # grids look for late objects as it says
from unpooled.flower.records import from_records, to_records
from unpooled.flower.roster import Roster, lost
from unpooled.node.questions import schema
from unpooled.tree import SchemaError, Tree

POLL = 0.01  # seconds between looks at first; grows with the time already waited
SLOWEST_POLL = 0.5
MANY = 10  # clients with whom one does not look after every answer
ASK_AGAIN = 2.0  # seconds without any answer until those that are missing are asked for again; doubles
ASK_AGAIN_AT_MOST = 5.0  # a node that comes back knows of no question: it must not wait long for the next
PACES = 3.0  # but where the first answer takes long, silence is no sign: so many times that long
LOST = 0.2  # seconds until a question whose message got lost is asked again
SAY = 10.0  # seconds between words about whom a run waits for
SNAPSHOTS = 3  # nodes keep the state that the last snapshots may come back to


class Flower:
    """`GaussianMixture(3).fit(Flower(grid))`. Names are those of the nodes found at first use, or `names`, for whom it then waits.

    `timeout`: seconds after which a straggler is left out of a round, if `min_clients` have answered. `wait`: seconds to wait for
    `min_clients` before giving up. `columns`: the features wanted, in order; by default those of the first node.
    """

    def __init__(
        self,
        grid: Grid,
        *,
        min_clients: int = 1,
        names: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        timeout: float = 600.0,
        wait: float = 600.0,
        max_bytes: int = 2**31,
        say: Callable[[str], None] = lambda text: None,
    ):
        if names is not None and len(set(names)) < max(1, min_clients):
            raise BadParameter(f"min_clients={min_clients} is more than the {len(set(names))} names: lower it")
        self.min_clients, self.timeout, self.wait, self.max_bytes, self.say = min_clients, timeout, wait, max_bytes, say
        self.journal = Journal()
        self._roster = Roster(grid, columns)
        self._names = None if names is None else sorted(names)
        self._part: list[str] | None = None
        self._run = Run()
        self._paces: deque[float] = deque(maxlen=5)  # seconds to the first answer of the last exchanges

    # ---- who there is ----

    @property
    def names(self) -> list[str]:
        if self._part is not None:
            return self._part
        if self._names is None:
            self._names = self._find()
        return self._names

    @property
    def columns(self) -> list[str] | None:
        return self._roster.columns

    def here(self) -> list[Client]:
        """No client's rows are in this process."""
        return []

    def _find(self) -> list[str]:
        """The nodes there are, once `min_clients` have said who they are and no other has yet to."""
        end, told = time.monotonic() + self.wait, -1
        while True:
            self._roster.look()
            if len(self._roster.nodes) >= max(1, self.min_clients) and not self._roster.unknown:
                self._roster.settle()
            found = sorted(self._roster.nodes)
            if self._roster.settled and len(found) >= max(1, self.min_clients):
                return found
            if time.monotonic() > end:
                raise TooFewClients(self._nobody(found))
            if told != len(found):
                told = len(found)
                self.say(f"waiting for nodes: {told} of {max(1, self.min_clients)} are there")
            time.sleep(0.05)

    def _meet(self) -> None:
        """Where the names were given (or come from a checkpoint), the columns are fixed once enough of them are there."""
        end = time.monotonic() + self.wait
        while not self._roster.settled:
            self._roster.look()
            there = [n for n in self.names if self._roster.online(n)]
            if len(there) >= max(1, self.min_clients):
                self._roster.settle()
            elif time.monotonic() > end:
                raise TooFewClients(self._nobody(there))
            else:
                time.sleep(0.05)

    def _nobody(self, found: list[str]) -> str:
        refused = next(iter(self._roster.refused.values()), "")
        why = f" (refused: {refused})" if refused else ""
        need = max(1, self.min_clients)
        return (
            f"{len(found)} of the {need} nodes needed came within wait={self.wait:g} s: start them or raise wait={why}"
        )

    def only(self, names: Sequence[str]) -> Flower:
        part = copy.copy(self)
        wanted = set(names)
        part._part = [n for n in self.names if n in wanted]
        return part

    def sample(self, share: float, rng: np.random.Generator) -> Flower:
        return self.only(cohort(self.names, share, rng))

    # ---- what a checkpoint needs: which round's state each node goes on from; the state itself stays there ----

    def snapshot(self) -> Tree:
        return self._run.snapshot(self.names) | {"columns": self.columns}

    def restore(self, saved: Tree) -> None:
        self._run.restore(saved)
        if saved:
            self._names = sorted(saved["names"])
            self._roster.columns = saved.get("columns", self.columns)  # in this order, whoever is there first

    # ---- the three ways to ask ----

    def sum(self, ask: Ask, down: Tree) -> Tree:
        total, names = None, []
        for name, up in self._exchange(ask, down, "sum"):
            total = up if total is None else tree.add(total, up)
            names.append(name)
        return ask.complete(total, names, tree.dims(down, ask.types[0]))

    def gather(self, ask: Ask, down: Tree) -> dict[str, Tree]:
        return dict(self._exchange(ask, down, "gather"))

    def tell(self, ask: Ask, down: Tree) -> None:
        for _ in self._exchange(ask, down, "tell"):
            pass

    def _exchange(self, ask: Ask, down: Tree, kind: str) -> Iterator[tuple[str, Tree]]:
        """(name, checked answer) pairs in the order of names, each as soon as all before it are settled."""
        names = self.names
        self._meet()
        with self.journal.exchange(ask, down, kind, names, self.min_clients) as tally:
            exchange = Exchange(self, ask, down, tally)
            for name in names:
                while name not in exchange.settled and exchange.going():
                    exchange.move()
                up = exchange.settled.pop(name, None)
                if up is not None:
                    yield name, up[0]
            exchange.end()


class Run:
    """What the coordinator knows of a run at the nodes: its name, whom it has told of it, whose state is of which round."""

    def __init__(self) -> None:
        self.restore({})

    def restore(self, saved: Tree) -> None:
        self.name = saved["run"] if saved else secrets.token_hex(16)
        self.base: dict[str, int] = {n: int(r) for n, r in saved["base"].items()} if saved else {}
        self.begun: set[str] = set()
        self._snapshots: list[dict[str, int]] = [dict(self.base)]

    def snapshot(self, names: list[str]) -> Tree:
        self._snapshots = [*self._snapshots, dict(self.base)][-SNAPSHOTS:]
        return {"run": self.name, "base": dict(self.base), "names": list(names)}

    def floor(self, name: str) -> int:
        """The oldest round whose state a checkpoint may come back to."""
        return min(s.get(name, 0) for s in self._snapshots)


class Exchange:
    """One question on its way: sent, asked again, answered, refused or left out."""

    def __init__(self, fed: Flower, ask: Ask, down: Tree, tally: Tally):
        self.fed, self.ask, self.down, self.tally = fed, ask, down, tally
        self.bound = tree.dims(down, ask.types[0])
        self.settled: dict[str, tuple[Tree] | None] = {}  # (answer,), or None if it was refused
        self.open = set(fed.names)
        self.sent: dict[str, str] = {}  # message id -> name
        self.again: dict[str, tuple[int | None, float, float]] = {}  # name -> (node, when to ask again, patience)
        self.start = self.said = self.heard = time.monotonic()
        self.silence = max(ASK_AGAIN, PACES * min(fed._paces, default=0.0))
        self.content = to_records(wire.pack(self._head(), down))

    def going(self) -> bool:
        """Whether to wait on: for all until the timeout, for enough of them until the end of the wait."""
        waited = time.monotonic() - self.start
        enough = self.tally.answered >= max(1, self.fed.min_clients)
        reachable = any(self.fed._roster.online(n) for n in self.open)
        if not self.open or (enough and (waited > self.fed.timeout or not reachable)):
            return False
        return waited <= self.fed.timeout + self.fed.wait

    def move(self) -> None:
        """Send what is due, take what has come, sleep a moment."""
        now = time.monotonic()
        self.fed._roster.look()
        self._send(now)
        replies = self.fed._roster.grid.pull_messages(list(self.sent)) if self.sent else []
        for reply in replies:
            name = self.sent.pop(reply.metadata.reply_to_message_id, "")
            if name in self.open:
                self._take(name, reply)
        self._report(now)
        if len(self.open) > MANY:  # a look costs something for each: let some answers gather
            time.sleep(min(SLOWEST_POLL, POLL * len(self.open) / MANY))
        elif self.open and not replies:
            time.sleep(min(SLOWEST_POLL, POLL + (now - self.start) / 20))

    def end(self) -> None:
        for name in sorted(self.open):
            self.tally.refuse(name, f"{LATE} {time.monotonic() - self.start:.0f} s")

    # ---- down ----

    def _send(self, now: float) -> None:
        due = []
        for name in sorted(self.open):
            node = self.fed._roster.online(name)
            if node is not None and self._is_due(name, node, now):
                waited = self.again.get(name, (None, 0.0, ASK_AGAIN / 2))[2]
                patience = max(min(2 * waited, ASK_AGAIN_AT_MOST), self.silence)
                self.again[name] = (node, now + patience, patience)
                due.append((name, Message(self.content, node, "query", group_id=self._private(name))))
        if due:
            ids = self.fed._roster.grid.push_messages([m for _, m in due])
            self.sent.update({i: name for i, (name, _) in zip(ids, due) if i})

    def _is_due(self, name: str, node: int, now: float) -> bool:
        """Who was not asked yet, whose message got lost or who came back as another node; the others once no answer comes any more."""
        last, when, _ = self.again.get(name, (None, 0.0, 0.0))
        if last is None:
            return now >= when
        return node != last or (now >= when and now - self.heard >= self.silence)

    def _head(self) -> dict[str, Any]:
        """What all nodes are told: sent to the SuperLink once, however many nodes fetch it there."""
        journal = self.fed.journal
        head = {"kind": "ask", "run": self.fed._run.name, "round": journal.round, "seed": journal.seed}
        return head | _json(self.ask)

    def _private(self, name: str) -> str:
        """What one node is told; it rides in the message's group id."""
        run = self.fed._run
        own = {"to": name, "base": run.base.get(name, 0), "floor": run.floor(name)}
        if name not in run.begun:
            own["columns"] = self.fed._roster.columns
        return json.dumps(own)

    # ---- up ----

    def _take(self, name: str, reply: Message) -> None:
        run = self.fed._run
        if lost(reply):
            self.again[name] = (None, time.monotonic() + LOST, self.again[name][2])
            return
        try:
            parcel = self._open(name, reply)
            if parcel.head.get("refused") == "begin":
                run.begun.discard(name)
                self.again.pop(name)
                return
            if "refused" in parcel.head:
                raise SchemaError(str(parcel.head["refused"])[:500])
            sent = parcel.value()
            up = self.ask.receive(sent, name, copy.deepcopy(self.bound))
        except Exception as error:  # whatever a node sends, the round goes on without it
            self._refuse(name, error)
            return
        run.begun.add(name)
        if parcel.head.get("kept") is True:
            run.base[name] = self.fed.journal.round
        self.heard = time.monotonic()
        if not self.tally.answered:
            self.fed._paces.append(self.heard - self.start)
        self.tally.count(sent, [name])
        self.settled[name] = (up,)
        self.open.discard(name)

    def _open(self, name: str, reply: Message) -> wire.Parcel:
        if reply.has_error():
            raise SchemaError(f"Flower reports: {reply.error.reason}"[:500])
        parcel = wire.unpack(from_records(reply.content), self.fed.max_bytes)
        self.fed._roster.check(name, reply.metadata.src_node_id, parcel.head)
        if "refused" not in parcel.head:
            wanted = {"run": self.fed._run.name, "round": self.fed.journal.round, "ask": self.ask.name}
            for key, value in wanted.items():
                if parcel.head.get(key) != value:
                    raise SchemaError(f"the answer is to another {key}: replayed, or the node mixed up two messages")
        return parcel

    def _refuse(self, name: str, reason: object) -> None:
        self.tally.refuse(name, reason)
        self.settled[name] = None
        self.open.discard(name)

    def _report(self, now: float) -> None:
        """Below min_clients, say for whom the run waits."""
        if now - self.said > SAY and self.open and self.tally.answered < max(1, self.fed.min_clients):
            self.said = now
            who = ", ".join(sorted(self.open)[:5]) + (", ..." if len(self.open) > 5 else "")
            answered, asked = self.tally.answered, self.tally.answered + len(self.open)
            self.fed.say(f"round {self.fed.journal.round}: {answered} of {asked} answered, waiting for {who}")


def _json(ask: Ask) -> dict[str, Any]:
    """The question's name, options and steps as they travel."""
    steps = [[s.name, dict(s.options)] for s in ask.steps]
    options = {"ask": ask.name, "schema": schema(ask.name), "options": dict(ask.options), "steps": steps}
    try:
        return json.loads(json.dumps(options))
    except TypeError as error:
        raise BadParameter(f"an option of {ask.name} cannot travel: {error}; give it as numbers and strings") from error
