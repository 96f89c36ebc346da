"""A node without its network: it gets the bytes of a request and returns an answer, or a refusal with its reason.

A request names the state it starts from (`base`, the last round whose answer the coordinator accepted), so the same request always gets
the same answer: after a crash on either side the coordinator asks again. State is kept by run and round; rounds before `floor` are deleted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from unpooled import study as studies
from unpooled import tree, wire
from unpooled.client import KEYS, Ask, Client, digest
from unpooled.data.schema import Wanted
from unpooled.errors import UnpooledError
from unpooled.layers.secure import masking_node
from unpooled.node import limits
from unpooled.node.budget import LOOK, Charge, answer_privately, preparation_of
from unpooled.node.cohorts import admit_total
from unpooled.node.computing import NOBODY, ask_rows, check_down
from unpooled.node.ledger import Ledger, answer_line, profile_line, refusal_line
from unpooled.node.opening import OpenTable
from unpooled.node.policy import MASK, Policy
from unpooled.node.questions import OverCharged, Refused, Unbegun, check_fields, question_of, request_key
from unpooled.node.rows import Rows
from unpooled.node.secrets import Secrets, draws_secret, node_secret, pins_of
from unpooled.node.session import Session, read_totals
from unpooled.node.vault import Vault, identity, keep_state, load_state
from unpooled.secure.messages import RevealRequest, to_count, to_names
from unpooled.study import Study
from unpooled.tree import SchemaError, Tree

log = logging.getLogger("unpooled.node")

LEDGER_HEAD = "ledger-head"  # the hash of the last line that this node wrote


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
        self._sessions: dict[str, Session] = {}  # run -> the study that it follows
        self.state: dict[str, Tree] = {}  # the latest, for the owner to look at
        self._table = OpenTable(name, source, vault)
        self._lock = threading.Lock()

    def reply(self, message: bytes, private: str = "", letter: bytes = b"") -> bytes:
        """The answer, or the reason why there is none; never an exception, whatever the message is.

        `message` is the same for all nodes, `private` is JSON for this node alone, `letter` holds the letters of layers to it.
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
        log.warning("refused: %s", reason)
        return wire.pack({**head, "refused": reason[:500]})

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
        """Check a question against ledger, policy, study and limits; compute, record and pack the answer."""
        policy = self.policy()
        self._check_ledger()
        self._check_charge(policy)
        session = self._session(request, letters, policy)
        rows = self._table.rows(request, policy, session)
        ask = question_of(request, self.also)
        policy.admit(ask, rows.n_rows, self.name)
        down = parcel.value()
        limits.check(ask.name, ask.options, down, policy.limits, self.name, followed=session is not None)
        private = self._private(request, letters, partial(digest, ask, down), session, policy)
        if session is not None:
            down = self._followed(session, ask, down, request, private)
        key = request_key(parcel, request) if self.keep_answer else ""
        cached = None if any(step.name == LOOK for step in ask.steps) else self._cached(request, key)
        charge = None
        if cached is None:
            state, sent, charge = self._compute(ask, down, request, rows, policy, private)
            kept, self.state = keep_state(self.vault, request, state), state
            cached = wire.pack({**head, "kept": kept}, sent)
            if self.keep_answer:
                self.vault[f"{request['run']}/answer"] = key.encode() + cached
        self._record(policy, ask, request, cached, session, charge)
        return cached

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

    # ---- studies ----

    def _session(self, request: dict[str, Any], letters: dict[str, bytes], policy: Policy) -> Session | None:
        """The study that a run follows, if its owner approved it; None where the owner trusts the coordinator instead."""
        run, name = request["run"], request.get("study")
        if name is None:
            if policy.trust_coordinator:
                return None
            raise Refused(
                f"{self.name!r} answers approved studies only: have its owner review and approve one (`unpooled node approve`)"
            )
        if name not in policy.studies:
            raise Refused(f"the study {str(name)[:12]} is not approved at {self.name!r}: ask its owner to review it")
        if run not in self._sessions:
            study = self._study_of(run, name, letters)
            for old in self._sessions.values():
                old.stop()
            self._sessions = {}
            if not study.follow:  # the node cannot check the questions: treated as no study
                if policy.trust_coordinator:
                    return None
                raise Refused(
                    f"the study {name[:12]} is not followed along: {self.name!r} answers it only with trust_coordinator = true"
                )
            check = partial(self._check_total, run, study)
            self._sessions = {run: Session(run, study, self.name, self.vault, check)}
        self._sessions[run].check_request(request)
        return self._sessions[run]

    def _study_of(self, run: str, name: str, letters: dict[str, bytes]) -> Study:
        """The study of a run, kept from its first message; refused when it is not the one that is named."""
        key = f"{run}/study"
        if "study file" in letters and key not in self.vault:
            self.vault[key] = letters["study file"]
        if key not in self.vault:
            raise Unbegun("begin")
        study = studies.parse(self.vault[key])
        if study.digest != name:
            raise Refused("the study that the coordinator sent is not the one that it names")
        return study

    def _private(
        self,
        request: dict[str, Any],
        letters: dict[str, bytes],
        asked: Callable[[], bytes],
        session: Session | None,
        policy: Policy,
    ) -> dict[str, Any]:
        """The fields of `Client` that layers use at this node: letters, a digest of the question, secrets."""
        settings: dict[str, Any] = {"min_cohort": max(policy.min_cohort, 3), "identity": self.identity}
        if session is not None:
            settings["pins"] = pins_of(session.study.participants, self.name)
            settings["min_cohort"] = max(settings["min_cohort"], session.study.min_cohort)
        kept = Secrets(self.vault, request["run"], **settings)
        draws = draws_secret(self.vault) if policy.network else b""
        return {"letters": letters, "asked": asked, "secrets": kept, "draws": draws}

    def _followed(
        self, session: Session, ask: Ask, down: Tree, request: dict[str, Any], private: dict[str, Any]
    ) -> Tree:
        """The parameters that the study itself leads to for this request; refused if the coordinator asks something else."""
        if ask.kind == KEYS:
            if not session.study.secure:
                raise Refused("the study does not mask its sums: no keys are needed for it")
            if isinstance(down, RevealRequest):
                admit_total(self.vault, session.study, to_count(down.t), to_names(down.answered, "the names"))
            return down
        session.learn(read_totals(private["letters"].get("study", b""), self.policy().max_bytes))
        return session.admit(request["round"], ask, down, (request["seed"], request["base"]))

    def _check_total(self, run: str, study: Study, total: Any, asked: bytes) -> Tree:
        """A total of an earlier round: with masks its tag shows that it is the sum of what the nodes sent."""
        if not study.secure:
            return total
        me = Client(self.name, np.zeros((0, 1)), secrets=Secrets(self.vault, run, min_cohort=study.min_cohort))
        return masking_node(me).check_total(total, asked)

    def _cached(self, request: dict[str, Any], key: str) -> bytes | None:
        """The answer given to exactly this request last time, so that asking twice is harmless."""
        stored = self.vault.get(f"{request['run']}/answer", b"")
        return stored[64:] if stored and stored[:64] == key.encode() else None

    def _compute(
        self, ask: Ask, down: Tree, request: dict[str, Any], rows: Rows, policy: Policy, private: dict[str, Any]
    ) -> tuple[dict, Tree, Charge | None]:
        """(new state, what would be sent, its privacy cost); the answer is checked against its schema before masks or noise."""
        bound = check_down(down, ask)
        state, moment = load_state(self.vault, request, self.name), (request["seed"], request["round"])
        if ask.kind == KEYS:  # keys and shares have nothing to do with rows
            me = replace(NOBODY, name=self.name, state=dict(state), moment=moment, **private)
            return state, ask(down, me), None
        like = replace(NOBODY, state=state, moment=moment, **private)
        up, me = self._ask_rows(ask, down, rows, like, policy.min_rows)
        tree.check(up, ask.types[1], bound)
        charge = None
        # without pinned keys the coordinator could pretend to be the other nodes
        pinned = private["secrets"].settings().get("pins") is not None
        if any(step.name == LOOK for step in ask.steps):
            looks = None if self.ledger is None else self.ledger.looks
            secret = node_secret(self.vault)
            if preparation_of(policy.privacy) != self.source.preparation:
                raise Refused(
                    f"the [privacy] of {self.name!r} has another unit or other bounds than its data were read with: restart the node"
                )
            ask, up, charge = answer_privately(ask, up, down, me, policy.privacy, looks, secret, pinned, rows.n_rows)
        elif not (pinned and any(step.name == MASK for step in ask.steps)):
            policy.check_answer(up, ask.types[1], rows.n_rows, self.name)
        sent = replace(ask, answer=lambda *_, **__: up, options={})(down, me)
        return me.state, sent, charge

    def _ask_rows(self, ask: Ask, down: Tree, rows: Rows, like: Client, least: int) -> tuple[Tree, Client]:
        """The answer before masks and noise. An error message may quote a value of the data, so it stays in the node's log."""
        try:
            return ask_rows(ask, down, rows, like, least)
        except (Refused, ModuleNotFoundError):
            raise
        except UnpooledError as error:
            log.error("%s cannot be answered with this node's data: %s", ask.name, error)
            raise Refused(f"{self.name!r} cannot answer {ask.name} with its data: its log says why") from error

    # ---- the ledger: written before an answer is sent ----

    def _record(
        self,
        policy: Policy,
        ask: Ask,
        request: dict[str, Any],
        answer: bytes,
        session: Session | None,
        charge: Charge | None,
    ) -> None:
        """Write the answer's line to the ledger before the answer leaves."""
        if self.ledger is not None:
            sent = wire.unpack(answer, len(answer)).value()
            line = answer_line(request, sent, ask, policy.dry_run)
            if charge is not None and policy.privacy is not None:
                epsilon, delta = policy.privacy.epsilon, policy.privacy.delta
                line = replace(line, mu2=charge.mu2, release=charge.name, epsilon=epsilon, delta=delta)
            self.ledger.note(replace(line, node=self.name, followed=session is not None))
            self.vault[LEDGER_HEAD] = self.ledger.last.encode()
        if policy.dry_run:
            raise Refused(f"{self.name!r} makes a dry run: what would have left is in its ledger, nothing did")
