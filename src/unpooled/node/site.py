"""A node without its network: it gets the bytes of a request and returns an answer, or a refusal with its reason.

A request is "hello" (which columns are there), "profile" (what a check of the data may be told) or "ask" (a question). A question is
first admitted: by the ledger, the study that the run follows, the owner's policy and limits. It is then computed from the rows, gets its
noise and masks, and is written to the ledger before it leaves.

A request names the state it starts from (`base`, the last round whose answer the coordinator accepted), so the same request always gets
the same answer: after a crash on either side the coordinator asks again. State is kept by run and round; rounds before `floor` are deleted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from unpooled import tree, wire
from unpooled.client import KEYS, Ask, Client, digest
from unpooled.data.schema import Wanted
from unpooled.errors import UnpooledError, printable
from unpooled.node import limits
from unpooled.node.budget import LOOK, Charge, add_noise, preparation_of
from unpooled.node.computing import NOBODY, Answered, ask_rows, check_down
from unpooled.node.ledger import Ledger, answer_line, profile_line, refusal_line
from unpooled.node.opening import OpenTable
from unpooled.node.policy import MASK, Policy
from unpooled.node.questions import OverCharged, Refused, Unbegun, check_fields, question_of, request_key
from unpooled.node.rows import Rows
from unpooled.node.secrets import LayerContext, Secrets, draws_secret, node_secret, pins_of
from unpooled.node.session import Session
from unpooled.node.studies import Studies
from unpooled.node.vault import Vault, identity, keep_state, load_state
from unpooled.tree import SchemaError, Tree

log = logging.getLogger("unpooled.node")

# what a question does with options or parameters that do not fit; errors of linear algebra are ValueErrors
MISFITS = (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)
LEDGER_HEAD = "ledger-head"  # the hash of the last line that this node wrote


class Question(NamedTuple):
    """One question to this node that may be answered, with everything that answering it needs."""

    request: dict[str, Any]
    policy: Policy
    session: Session | None  # the study that the run follows; None where the owner trusts the coordinator
    rows: Rows
    ask: Ask
    down: Tree
    context: LayerContext

    @property
    def is_look(self) -> bool:
        """Whether the answer gets noise and is charged to the privacy budget."""
        return any(step.name == LOOK for step in self.ask.steps)

    @property
    def is_masked(self) -> bool:
        """Whether nobody but the nodes together can read the answer."""
        return self.context.pinned and any(step.name == MASK for step in self.ask.steps)


class Computed(NamedTuple):
    """An answer to a question."""

    state: dict[str, Tree]  # the client's, after the answer
    sent: Tree  # after masks and noise
    charge: Charge | None  # its privacy cost


class Site:
    """A node without its network: `reply` takes the bytes of a request and returns the bytes of a reply."""

    def __init__(
        self,
        name: str,
        source: Any,
        vault: Vault,
        *,
        policy: Callable[[], Policy] = Policy,
        ledger: Ledger | None = None,
        also: Sequence[str] = (),
        keep_answer: bool = True,
        identity: Any = None,
    ):
        """Put together a node; nothing is read or answered yet.

        Parameters
        ----------
        name : str
            The node's name in the federation.
        source : Source or TableSource
            Where its rows come from.
        vault : Vault
            Where its state, secrets and answers are kept between rounds and restarts.
        policy : callable
            Gives the policy that holds now: the file may change while the node runs.
        ledger : Ledger, optional
            The record of what left; without one nothing is recorded.
        also : sequence of str
            Modules beside unpooled whose questions may be answered.
        keep_answer : bool
            Whether the last answer is kept, so that a repeated request gets the same bytes.
        identity : Identity, optional
            The node's key, for studies that name participants by fingerprint.
        """
        self.name, self.source, self.vault, self.policy = name, source, vault, policy
        self.ledger, self.also, self.keep_answer, self.identity = ledger, also, keep_answer, identity
        self.studies = Studies(name, vault)
        self.state: dict[str, Tree] = {}  # the latest, for the owner to look at
        self._table = OpenTable(name, source, vault)
        self._lock = threading.Lock()

    def reply(self, message: bytes, private: str = "", letter: bytes = b"") -> bytes:
        """The answer, or the reason why there is none; never an exception, whatever the message is.

        Parameters
        ----------
        message : bytes
            The request, the same for all nodes.
        private : str, default=""
            JSON for this node alone.
        letter : bytes, default=b""
            Messages of layers for this node alone ("letters"): keys, shares, totals of earlier rounds.

        Returns
        -------
        bytes
            The packed answer or refusal.
        """
        head: dict[str, Any] = {"name": self.name, "identity": identity(self.vault)}
        try:
            with self._lock:
                return self._reply(message, private, letter, head)
        except (UnpooledError, SchemaError, ConnectionError) as error:
            reason = str(error)
        except Exception as error:  # its text might hold a value of a row: it stays in the log of the node
            log.exception("a question failed")
            reason = f"{type(error).__name__} at the node: its log says more"
        log.warning("refused: %s", printable(reason))
        return wire.pack({**head, "refused": printable(reason)[:500]})

    def _reply(self, message: bytes, private: str, letter: bytes, head: dict[str, Any]) -> bytes:
        """The answer to one message: hello, a profile for a check, or a question."""
        letters = wire.unpack_letters(letter, self.policy().max_bytes)
        parcel = wire.unpack(message, self.policy().max_bytes)
        request = {**parcel.head, **wire.read_json(private.encode() or b"{}")}
        if request.get("to") not in (None, self.name):
            raise Refused(f"this is {self.name!r}, not {str(request['to'])[:40]!r}: the coordinator mixed up two nodes")
        if request.get("kind") == "hello":
            return wire.pack({**head, "columns": self._columns(), "label": self.source.label})
        if request.get("kind") == "profile":
            return wire.pack({**head, "profile": self._profile(request)})
        if request.get("kind") != "ask":
            raise Refused(f"a message of kind {str(request.get('kind'))[:20]!r} is not known")
        check_fields(request)
        head |= {key: request[key] for key in ("run", "round", "ask")}
        try:
            return self._answer(parcel, request, letters, head)
        except (Unbegun, OverCharged):
            raise
        except (UnpooledError, SchemaError) as error:
            self._note_refusal(request, str(error))
            raise
        except Exception:
            self._note_refusal(request, "the question failed: the log of the node says more")
            raise

    def _note_refusal(self, request: dict[str, Any], reason: str) -> None:
        """Write a refusal to the ledger, where it counts as an answer: so a coordinator cannot try questions without limit."""
        if self.ledger is not None:
            self.ledger.note(replace(refusal_line(request, reason), node=self.name))

    def _columns(self) -> list[str] | None:
        """Names of the columns that the policy lets a coordinator see."""
        return self.source.columns and self.policy().usable(self.source.columns)

    def _profile(self, request: dict[str, Any]) -> dict[str, Any]:
        """The description of the table that the owner's policy allows: counts above the floor, coarse histograms; noted in the ledger."""
        policy = self.policy()
        self._check_ledger()
        self._check_charge(policy)
        policy.admit_check(self.name)
        wanted = Wanted.unpack(request.get("table"))
        self._table.check_labels(wanted, policy)
        columns = self._columns()
        if columns is None:
            raise Refused(f"the columns of {self.name!r} have no names: a check compares columns by name")
        try:
            found = self.source.profile(columns, wanted, policy.floor)
        except Exception as error:
            log.error("the data cannot be read: %s", error)
            raise Refused(f"{self.name!r} cannot read its data: its log says why") from error
        if found.rows < policy.min_rows:
            raise Refused(f"{self.name!r} has fewer rows than the {policy.min_rows} that its policy demands")
        if self.ledger is not None:
            self.ledger.note(replace(profile_line(found.pack()), node=self.name))
        return found.pack()

    # ---- one question ----

    def _answer(
        self, parcel: wire.Parcel, request: dict[str, Any], letters: dict[str, bytes], head: dict[str, Any]
    ) -> bytes:
        """Check a question, answer it (or repeat the answer that it got before), and write the answer to the ledger."""
        question = self._admit(parcel, request, letters)
        key = request_key(parcel, request) if self.keep_answer else ""
        answer = self._earlier_answer(question, key)
        charge = None
        if answer is None:
            computed = self._compute(question)
            if question.session is not None:
                question.session.note_admitted()
            answer = self._keep(question, computed, key, head)
            charge = computed.charge
        self._record(question, answer, charge)
        return answer

    def _admit(self, parcel: wire.Parcel, request: dict[str, Any], letters: dict[str, bytes]) -> Question:
        """The question of a request, refused unless ledger, study, table, policy and limits allow it."""
        policy = self.policy()
        self._check_ledger()
        self._check_charge(policy)
        session = self.studies.session(request, letters, policy)
        rows = self._table.rows(request, policy, session)
        ask = question_of(request, self.also)
        policy.admit(ask, rows.n_rows, self.name)
        down = parcel.value()
        limits.check(ask.name, ask.options, down, policy.limits, self.name, followed=session is not None)
        context = self._context(request, letters, partial(digest, ask, down), session, policy)
        if session is not None:
            down = self.studies.parameters(session, ask, down, request, letters, policy.max_bytes)
        return Question(request, policy, session, rows, ask, down, context)

    def _check_ledger(self) -> None:
        """Refuse if lines were cut off the ledger: what was spent could not be known."""
        if self.ledger is not None and not self.ledger.holds(self.vault.get(LEDGER_HEAD, b"").decode()):
            raise OverCharged(
                f"the ledger of {self.name!r} was cut or replaced: put it back, nothing is answered until then"
            )

    def _check_charge(self, policy: Policy) -> None:
        """Refuse when the answers and refusals of the last 24 hours have reached the policy's limit."""
        if self.ledger is not None and self.ledger.today() >= policy.rounds_per_day:
            raise OverCharged(
                f"the policy of {self.name!r} allows {policy.rounds_per_day} answers and refusals in 24 hours, and they are spent"
            )

    def _context(
        self,
        request: dict[str, Any],
        letters: dict[str, bytes],
        asked: Callable[[], bytes],
        session: Session | None,
        policy: Policy,
    ) -> LayerContext:
        """What layers may use at this node: letters, a digest of the question, secrets."""
        settings: dict[str, Any] = {"min_cohort": max(policy.min_cohort, 3), "identity": self.identity}
        if session is not None:
            settings["pins"] = pins_of(session.study.participants, self.name)
            settings["min_cohort"] = max(settings["min_cohort"], session.study.min_cohort)
        secrets = Secrets(self.vault, request["run"], **settings)
        return LayerContext(letters, asked, secrets, draws_secret(self.vault) if policy.network else b"")

    # ---- its answer ----

    def _earlier_answer(self, question: Question, key: str) -> bytes | None:
        """The answer given to exactly this request last time, so that asking twice is harmless; a look is noted each time."""
        if question.is_look:
            return None
        stored = self.vault.get(f"{question.request['run']}/answer", b"")
        return stored[64:] if stored and stored[:64] == key.encode() else None

    def _compute(self, question: Question) -> Computed:
        """The answer as it would be sent; it is checked against its schema before masks or noise."""
        ask = question.ask
        down = question.down
        request = question.request
        sizes = check_down(down, ask)
        state = load_state(self.vault, request, self.name)
        context = question.context._asdict() | {"moment": (request["seed"], request["round"])}
        if ask.kind == KEYS:  # keys and shares have nothing to do with rows
            me = replace(NOBODY, name=self.name, state=dict(state), **context)
            shares = ask(down, me)
            if question.session is not None:
                self.studies.note_shares(question.session, down, request["run"])
            return Computed(state, shares, None)
        answered = self._ask_rows(question, replace(NOBODY, state=state, **context))
        tree.check(answered.up, ask.types[1], sizes)
        charge = None
        if question.is_look:
            answered, charge = self._with_noise(question, answered)
        elif not question.is_masked:
            question.policy.check_answer(answered.up, ask.types[1], answered.n_rows, self.name)
        sent = answered.ask.through_steps(answered.up, answered.client)
        return Computed(answered.client.state, sent, charge)

    def _ask_rows(self, question: Question, like: Client) -> Answered:
        """The answer before masks and noise. An error message may quote a value of the data, so it stays in the node's log."""
        ask = question.ask
        try:
            return ask_rows(ask, question.down, question.rows, like, question.policy.min_rows)
        except (Refused, ModuleNotFoundError):
            raise
        except UnpooledError as error:
            log.error("%s cannot be answered with this node's data: %s", ask.name, error)
            raise Refused(f"{self.name!r} cannot answer {ask.name} with its data: its log says why") from error
        except MISFITS as error:
            log.exception("%s failed", ask.name)
            raise Refused(
                f"{self.name!r} cannot answer {ask.name} as it was asked: options or parameters do not fit its data "
                f"({type(error).__name__}), its log says more"
            ) from error

    def _with_noise(self, question: Question, answered: Answered) -> tuple[Answered, Charge]:
        """The answer with the noise that its privacy cost asks for, and that cost."""
        budget = question.policy.privacy
        looks = None if self.ledger is None else self.ledger.looks
        if preparation_of(budget) != self.source.preparation:
            raise Refused(
                f"the [privacy] of {self.name!r} has another unit or other bounds than its data were read with: restart the node"
            )
        return add_noise(answered, budget, looks, node_secret(self.vault), question.context.pinned)

    def _keep(self, question: Question, computed: Computed, key: str, head: dict[str, Any]) -> bytes:
        """Keep the new state, and the answer for the same request asked again; the answer as bytes."""
        kept = keep_state(self.vault, question.request, computed.state)
        self.state = computed.state
        answer = wire.pack({**head, "kept": kept}, computed.sent)
        if self.keep_answer:
            self.vault[f"{question.request['run']}/answer"] = key.encode() + answer
        return answer

    def _record(self, question: Question, answer: bytes, charge: Charge | None) -> None:
        """Write the answer's line to the ledger before the answer leaves."""
        policy = question.policy
        if self.ledger is not None:
            sent = wire.unpack(answer, len(answer)).value()
            line = answer_line(question.request, sent, question.ask, policy.dry_run)
            if charge is not None and policy.privacy is not None:
                epsilon = policy.privacy.epsilon
                delta = policy.privacy.delta
                line = replace(line, mu2=charge.mu2, release=charge.name, epsilon=epsilon, delta=delta)
            self.ledger.note(replace(line, node=self.name, followed=question.session is not None))
            self.vault[LEDGER_HEAD] = self.ledger.last.encode()
        if policy.dry_run:
            raise Refused(f"{self.name!r} makes a dry run: what would have left is in its ledger, nothing did")
