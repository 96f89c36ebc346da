"""One question and its answers: sent to every client, sent again where no answer comes.

In the end each client has answered, has refused or is left out.

Sends one message down per client, and again after some silence; one reply per client comes up.
"""

from __future__ import annotations

import copy
import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from unpooled import tree, wire
from unpooled.client import KEYS, Ask
from unpooled.errors import BadParameter, printable
from unpooled.federation import LATE, Tally
from unpooled.node.questions import schema
from unpooled.remote.transport import Reply, Request
from unpooled.tree import SchemaError, Tree

if TYPE_CHECKING:
    from unpooled.remote.federation import Remote

RECEIVE_WAIT = 0.5  # seconds that one call may wait for replies; in between, the run sees which nodes come and go
MAX_RETRY = 2.5  # times `retry`, the longest wait: a restarted node has lost the question and needs it again soon
SLOW_FACTOR = 3.0  # silence is normal for this many times the usual time to the first answer
RETRY_LOST = 0.1  # times `retry`, the wait before a message that is known to be lost is sent again
SAY_EVERY = 10.0  # seconds between two notes about the clients that a run waits for


class Sent(NamedTuple):
    """When a client was last sent the question, and when it is due again."""

    node: int | None  # None after its message was lost
    retry_at: float
    patience: float  # seconds


class Exchange:
    """Carries one question to all clients of a federation and collects the answers.

    Parameters
    ----------
    fed : Remote
        The federation that asks.
    ask : Ask
        The question with its options, steps and letters.
    down : Tree
        The value that is sent to all.
    tally : Tally
        Counts answers and refusals.

    Attributes
    ----------
    settled : dict
        client name -> (answer,), or None if it refused.
    open : set of str
        The clients that have neither answered nor refused.
    """

    def __init__(self, fed: Remote, ask: Ask, down: Tree, tally: Tally):
        """Pack the message once; nothing is sent yet."""
        self.fed = fed
        self.ask = ask
        self.tally = tally
        self.bound = tree.dims(down, ask.types[0])
        self.settled: dict[str, tuple[Tree] | None] = {}
        self.open = set(fed.names)
        self.needed = min(fed.needed, len(self.open)) if ask.kind == KEYS else fed.needed
        self.start = self.last_report = self.last_answer = time.monotonic()
        self.silence = max(fed.retry, SLOW_FACTOR * min(fed.durations, default=0.0))
        self._requests: dict[str, str] = {}  # request id -> client name
        self._sent: dict[str, Sent] = {}
        self._message = wire.pack(self._head(), down)

    def going(self) -> bool:
        """Whether to wait on: for all clients until `timeout`, for `min_clients` of them until `wait` is over too."""
        waited = time.monotonic() - self.start
        answered = self.tally.answered
        needed = self.needed
        reachable = any(self.fed.roster.online(n) for n in self.open)
        if not self.open or self._hopeless():
            return False
        if answered >= needed and (waited > self.fed.timeout or not reachable):
            return False
        return waited <= self.fed.timeout + self.fed.wait

    def _hopeless(self) -> bool:
        """Whether refusals have left too few clients, so that waiting cannot help."""
        return self.tally.answered + len(self.open) < self.needed

    def advance(self) -> None:
        """Send what is due, then wait a moment for replies."""
        self.fed.roster.poll()
        self._send()
        if self._requests:
            replies = self.fed.transport.receive(list(self._requests), min(RECEIVE_WAIT, self.fed.retry))
            for reply in replies:
                name = self._requests.pop(reply.request, "")
                if name in self.open:
                    self._take(name, reply)
        else:
            time.sleep(0.05)
        self._tell()
        self._report()

    def _tell(self) -> None:
        """Report for whom the run waits, and why, to whoever watches it."""
        why = {True: "it is connected and has not answered yet", False: "it is not connected"}
        self.tally.waiting = {name: why[self.fed.roster.online(name) is not None] for name in sorted(self.open)}
        self.tally.tell()

    def end(self) -> None:
        """Count clients without an answer as refusals, unless refusals of others ended the round early."""
        if self._hopeless():
            return
        waited = time.monotonic() - self.start
        problem = self.fed.transport.problem() if self.open else ""
        for name in sorted(self.open):
            offline = "" if self.fed.roster.online(name) else "; it is not connected"
            self.tally.refuse(name, f"{LATE} {waited:.0f} s{offline}{'; ' if problem else ''}{problem}")

    # ---- down ----

    def _send(self) -> None:
        """Send the question to connected clients that are due."""
        now = time.monotonic()
        due = []
        for name in sorted(self.open):
            node = self.fed.roster.online(name)
            if node is not None and self._is_due(name, node, now):
                self._sent[name] = self._schedule(name, node, now)
                due.append((name, Request(node, self._message, self._private(name), self._letter(name))))
        if due:
            ids = self.fed.transport.send([request for _, request in due])
            self._requests.update({i: name for i, (name, _) in zip(ids, due) if i})

    def _is_due(self, name: str, node: int, now: float) -> bool:
        """Whether a client is to be sent the question now.

        It is if it was not asked yet, if its message was lost, or if it reconnected as another node; otherwise once no
        answers have come for a while.
        """
        last = self._sent.get(name)
        if last is None:
            return True
        if last.node is None:
            return now >= last.retry_at
        return node != last.node or (now >= last.retry_at and now - self.last_answer >= self.silence)

    def _schedule(self, name: str, node: int, now: float) -> Sent:
        """When to send the question again: the patience doubles up to a limit."""
        previous = self._sent[name].patience if name in self._sent else self.fed.retry / 2
        patience = max(min(2 * previous, MAX_RETRY * self.fed.retry), self.silence)
        return Sent(node, now + patience, patience)

    def _head(self) -> dict[str, Any]:
        """The header that all nodes get with the question."""
        journal = self.fed.journal
        head = {"kind": "ask", "run": self.fed.run.name, "round": journal.round, "seed": journal.seed}
        study = {} if self.fed.study is None else {"study": self.fed.study.digest}
        return head | study | _question(self.ask)

    def _letter(self, name: str) -> bytes:
        """What layers send to one node alone."""
        letters = self.ask.letters_to(name)
        if self.fed.study is not None and name not in self.fed.run.begun:
            letters["study file"] = self.fed.study.content
        return wire.pack_letters(letters)

    def _private(self, name: str) -> str:
        """The header for one node alone, as JSON."""
        run = self.fed.run
        own: dict[str, Any] = {"to": name, "base": run.base.get(name, 0), "floor": run.oldest_round(name)}
        if name not in run.begun:
            own["columns"] = self.fed.columns
            table = self.fed.wanted.pack()
            own |= {} if table is None else {"table": table}
        return json.dumps(own)

    # ---- up ----

    def _take(self, name: str, reply: Reply) -> None:
        """Handle one client's reply: a lost message is sent again, anything invalid counts as a refusal."""
        if reply.lost:
            self._sent[name] = Sent(None, time.monotonic() + RETRY_LOST * self.fed.retry, self._sent[name].patience)
            return
        try:
            parcel = self._open(name, reply)
            if parcel.head.get("refused") == "begin":  # the node has forgotten the run: tell it the columns again
                self.fed.run.begun.discard(name)
                self._sent.pop(name)
                return
            if "refused" in parcel.head:
                raise SchemaError(str(parcel.head["refused"])[:500])
            sent = parcel.value()
            up = self.ask.receive(sent, name, copy.deepcopy(self.bound))
        except Exception as error:  # whatever a node sends, the round goes on without it
            self._refuse(name, error)
            return
        self._accept(name, parcel, sent, up)

    def _accept(self, name: str, parcel: wire.Parcel, sent: Tree, up: Tree) -> None:
        """Count a valid answer and note what it says of the client's state."""
        run = self.fed.run
        run.begun.add(name)
        if parcel.head.get("kept") is True:
            run.base[name] = self.fed.journal.round
        self.last_answer = time.monotonic()
        if not self.tally.answered:
            self.fed.durations.append(self.last_answer - self.start)
        self.tally.count(sent, [name])
        self.settled[name] = (up,)
        self.open.discard(name)

    def _open(self, name: str, reply: Reply) -> wire.Parcel:
        """The reply's parcel; SchemaError if it is not this node's reply to this question."""
        if reply.error:
            raise SchemaError(f"the transport reports: {reply.error}"[:500])
        parcel = wire.unpack(reply.content, self.fed.max_bytes)
        self.fed.roster.check(name, reply.node, parcel.head)
        if "refused" not in parcel.head:
            wanted = {"run": self.fed.run.name, "round": self.fed.journal.round, "ask": self.ask.name}
            for key, value in wanted.items():
                if parcel.head.get(key) != value:
                    raise SchemaError(f"the answer is to another {key}: it was replayed or mixed up")
        return parcel

    def _refuse(self, name: str, reason: object) -> None:
        """Count a client as refused, with the reason, which may be the client's own words."""
        reason = printable(str(reason)).replace("\n", " ")
        self.tally.refuse(name, reason)
        self.settled[name] = None
        self.open.discard(name)
        self.fed.say(f"round {self.fed.journal.round}: {name} refused: {reason}")

    def _report(self) -> None:
        """While fewer than `min_clients` have answered, say now and then for whom the run waits."""
        now = time.monotonic()
        if now - self.last_report <= SAY_EVERY or not self.open or self.tally.answered >= self.needed:
            return
        self.last_report = now
        who = [n if self.fed.roster.online(n) else f"{n} (not connected)" for n in sorted(self.open)[:5]]
        more = ", ..." if len(self.open) > 5 else ""
        answered = self.tally.answered
        asked = self.tally.answered + len(self.open)
        problem = self.fed.transport.problem()
        text = f"round {self.fed.journal.round}: {answered} of {asked} answered, waiting for {', '.join(who)}{more}"
        self.fed.say(f"{text}; {problem}" if problem else text)


def _question(ask: Ask) -> dict[str, Any]:
    """The question's name, schema, options and steps as JSON."""
    steps = [[s.name, dict(s.options)] for s in ask.steps]
    options = {"ask": ask.name, "schema": schema(ask.name), "options": dict(ask.options), "steps": steps}
    try:
        return json.loads(json.dumps(options))
    except TypeError as error:
        raise BadParameter(
            f"an option of {ask.name} cannot be sent: {error}; give it as numbers and strings"
        ) from error
