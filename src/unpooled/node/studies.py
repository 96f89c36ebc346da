"""The studies that runs at a node follow: which one a run names, whether its owner approved it, how far it has come. Sends nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled import study as studies
from unpooled.client import KEYS, Ask, Client
from unpooled.layers.secure import masking_node
from unpooled.node.cohorts import Addition, check_total, note_total
from unpooled.node.limits import admit_study
from unpooled.node.policy import Policy
from unpooled.node.questions import Refused, Unbegun
from unpooled.node.secrets import Secrets
from unpooled.node.session import Session, read_totals
from unpooled.node.vault import Vault
from unpooled.secure.messages import RevealRequest, to_count, to_names
from unpooled.study import Study
from unpooled.tree import Tree

if TYPE_CHECKING:
    from unpooled.secure import MaskingNode


class Studies:
    """The study that the current run follows, at one node.

    Parameters
    ----------
    name : str
        The node's name.
    vault : Vault
        Where studies and their totals are kept.
    """

    def __init__(self, name: str, vault: Vault):
        self.name, self.vault = name, vault
        self._sessions: dict[str, Session] = {}  # run -> the study that it follows; at most one

    def session(self, request: Mapping[str, Any], letters: Mapping[str, bytes], policy: Policy) -> Session | None:
        """The study that a run follows, if its owner approved it; None where the owner trusts the coordinator instead."""
        run = request["run"]
        digest = request.get("study")
        if digest is None:
            remedy = "have its owner review and approve one (`unpooled node approve`)"
            self._require_trust(policy, f"{self.name!r} answers approved studies only: {remedy}")
            return None
        if digest not in policy.studies:
            raise Refused(f"the study {str(digest)[:12]} is not approved at {self.name!r}: ask its owner to review it")
        if run not in self._sessions:
            study = self._study_of(run, digest, letters)
            admit_study(study, policy, self.name)
            self.stop()
            if not study.follow:  # the node cannot check the questions: treated as no study
                only = f"{self.name!r} answers it only with trust_coordinator = true"
                self._require_trust(policy, f"the study {digest[:12]} is not followed along: {only}")
                return None
            check_total = partial(self._check_total, run, study)
            self._sessions = {run: Session(run, study, self.name, self.vault, check_total)}
        self._sessions[run].check_request(request)
        return self._sessions[run]

    def stop(self) -> None:
        """End the session of the current run; its next request begins it again from the vault."""
        for session in self._sessions.values():
            session.stop()
        self._sessions = {}

    def parameters(
        self,
        session: Session,
        ask: Ask,
        down: Tree,
        request: Mapping[str, Any],
        letters: Mapping[str, bytes],
        max_bytes: int,
    ) -> Tree:
        """The parameters that the study itself leads to for this request; refused if the coordinator asks something else."""
        if ask.kind == KEYS:
            self._admit_keys(session, down, request["run"])
            return down
        try:
            session.learn(read_totals(letters.get("study", b""), max_bytes))
            return session.admit(request["round"], ask, down, (request["seed"], request["base"]))
        except Exception:
            if session.forget_untried():
                self.stop()
            raise

    def _admit_keys(self, session: Session, down: Tree, run: str) -> None:
        """Refuse to exchange keys in a study without masks, and to reveal a total of other nodes than before."""
        study = session.study
        if not study.secure:
            raise Refused("the study does not mask its sums: no keys are needed for it")
        if isinstance(down, RevealRequest):
            check_total(self.vault, self._addition(session, down, run))

    def note_shares(self, session: Session, down: Tree, run: str) -> None:
        """Note over which nodes a sum is added up, once this node has decided to give its shares."""
        if isinstance(down, RevealRequest):
            note_total(self.vault, self._addition(session, down, run))

    def _addition(self, session: Session, down: RevealRequest, run: str) -> Addition:
        """The sum that shares are asked for."""
        t = to_count(down.t)
        round = session.round_of(self._masking(run, session.study).question_of(t))
        return Addition(session.study, t, round, session.mark_of(round), to_names(down.answered, "the names"))

    def _masking(self, run: str, study: Study) -> MaskingNode:
        """This node's side of the masked sums of a run."""
        me = Client(self.name, np.zeros((0, 1)), secrets=Secrets(self.vault, run, min_cohort=study.min_cohort))
        return masking_node(me)

    @staticmethod
    def _require_trust(policy: Policy, refusal: str) -> None:
        """Refuse with this sentence unless the owner trusts the coordinator."""
        if not policy.trust_coordinator:
            raise Refused(refusal)

    def _study_of(self, run: str, digest: str, letters: Mapping[str, bytes]) -> Study:
        """The study of a run, kept from its first message; refused when it is not the one that is named."""
        key = f"{run}/study"
        content = self.vault.get(key, letters.get("study file", b""))
        if not content:
            raise Unbegun("begin")
        if hashlib.sha256(content).hexdigest() != digest:  # before anything in it is read
            raise Refused("the study that the coordinator sent is not the one that it names")
        self.vault[key] = content
        return studies.parse(content)

    def _check_total(self, run: str, study: Study, total: Any, asked: bytes) -> Tree:
        """A total of an earlier round: with masks its tag shows that it is the sum of what the nodes sent."""
        if not study.secure:
            return total
        return self._masking(run, study).check_total(total, asked)
