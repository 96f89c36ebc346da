"""One approved study at one node: which question comes next, and what has been answered so far. Survives a restart of the node."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from unpooled import tree, wire
from unpooled.client import SUM, Ask, digest
from unpooled.layers.private.look import wanted_mu2
from unpooled.node import follow
from unpooled.node.follow import Expected, Follower, NotFollowed
from unpooled.node.vault import Vault
from unpooled.study import Study
from unpooled.tree import SchemaError, Tree

CheckTotal = Callable[[Any, bytes], Tree]  # (the total as it came, digest of what was asked) -> the total, or an error


class Session:
    """Follows a study for one run.

    Parameters
    ----------
    run : str
        The run's name.
    study : Study
        What was approved.
    name : str
        This node's name.
    vault : Vault
        Where totals and what was asked are kept.
    check_total : callable
        Refuses a total that is not the sum of what the nodes sent, where that can be checked.
    """

    def __init__(self, run: str, study: Study, name: str, vault: Vault, check_total: CheckTotal):
        """Follow `study` for the run `run` from its first question to where the vault says it was."""
        if name not in study.participants:
            raise NotFollowed(f"{name!r} is not a participant of the study {study.title!r}")
        self.run, self.study, self.name, self.vault, self._check_total = run, study, name, vault, check_total
        self._follower = Follower(study)
        self._rounds: dict[bytes, int] = {}  # digest of a masked question -> the first round that asked it
        self._admitted: dict[str, bytes] = {}  # what is noted of a request once it is answered
        self._untried: list[
            str
        ] = []  # totals that came with the request that is looked at, by their names in the vault
        self._catch_up()

    def stop(self) -> None:
        """End the thread that follows."""
        self._follower.stop()

    # ---- totals ----

    def learn(self, totals: Mapping[int, Any]) -> None:
        """Take totals of earlier rounds, in order; those that are known already are passed over."""
        self._untried = []
        for round in sorted(totals):
            expected = self._skip_tells(round)
            if expected is None or round != expected.round:
                continue
            total = self._check_total(totals[round], digest(expected.ask, expected.down))
            if expected.ask.kind == SUM:
                sizes = tree.dims(expected.down, expected.ask.types[0])
                tree.check(total, expected.ask.types[1], sizes)  # what no sum can be would reach the study's model
            key = f"{self.run}/total-{round}"
            self._untried.append(key)
            self.vault[key] = wire.pack({}, total)
            self._follower.give(total)

    def forget_untried(self) -> bool:
        """Forget the totals that came with a request that is refused; whether there were any, so that the model has to begin anew.

        With masks a total is shown to be true by its tag, and stays.
        """
        if self.study.secure:
            return False
        for key in self._untried:
            self.vault.pop(key, None)
        return bool(self._untried)

    def _catch_up(self) -> None:
        """After a restart: give the model the totals that the vault holds."""
        for _ in itertools.count():
            expected = self._skip_tells()
            kept = None if expected is None else self.vault.get(f"{self.run}/total-{expected.round}")
            if kept is None:
                return
            self._follower.give(wire.unpack(kept).value())

    def _skip_tells(self, before: int | None = None) -> Expected | None:
        """The next question that waits for a total; a TELL, which has none, is passed over once it was asked."""
        expected = self._follower.expected()
        while expected is not None and follow.passes_without_total(expected):
            was_asked = f"{self.run}/asked-{expected.round}" in self.vault
            if not was_asked and (before is None or before <= expected.round):
                return expected
            self._follower.give(None)
            expected = self._follower.expected()
        return expected

    # ---- questions ----

    def check_request(self, request: Mapping[str, Any]) -> None:
        """Columns and seed are the study's: other columns, or other draws, would be another question."""
        if "columns" in request and request["columns"] != self.study.columns:
            raise NotFollowed("the coordinator asks for other columns than the study's")
        if "columns" in request and request.get("table") != self.study.wanted.pack():
            raise NotFollowed("the coordinator says other kinds of columns, labels or weights than the study's")
        seed = self.study.config["model"].get("random_state")
        if seed is not None and request["seed"] != seed:
            raise NotFollowed("the coordinator draws with another seed than the study's")

    def admit(self, round: int, ask: Ask, down: Tree, moment: tuple[int, int] = (0, 0)) -> Tree:
        """The study's own parameters for this request, or NotFollowed if the study does not ask it now; nothing is noted yet."""
        self._admitted = {}
        if round > self.study.max_exchanges:
            raise NotFollowed(f"the study allows {self.study.max_exchanges} exchanges, and they are spent")
        self._check_steps(ask)
        views = json.dumps([[s.name, dict(s.options)] for s in follow.views(ask)])
        # the seed, the state it starts from and the rows that it sees belong to it
        asked = f"{digest(ask, down).hex()} {moment} {views}".encode()
        before = self.vault.get(f"{self.run}/asked-{round}")
        if before is not None:
            if before != asked:
                raise NotFollowed(f"round {round} was asked before with another question or other parameters")
            return down
        expected = self._skip_tells(round)
        if expected is None:
            raise NotFollowed("the study has ended: there is nothing left to ask")
        if round != expected.round:
            raise NotFollowed(f"the coordinator asks round {round}, but the study stands at round {expected.round}")
        follow.compare(expected, ask, down, self.name)
        asked_cost = wanted_mu2(ask)
        study_cost = wanted_mu2(expected.ask)
        if asked_cost != study_cost and not np.isclose(asked_cost or 0.0, study_cost or 0.0, rtol=1e-9, atol=0):
            raise NotFollowed(f"{ask.name} was asked to tell more than the study lets it in round {round}")
        own = json.dumps([[s.name, dict(s.options)] for s in follow.views(expected.ask)])
        own_question = digest(expected.ask, expected.down) + own.encode()
        self._admitted = {f"{self.run}/own-{round}": own_question, f"{self.run}/asked-{round}": asked}
        return expected.down

    def note_admitted(self) -> None:
        """Note what was asked in this round, once there is an answer and before it leaves: the round is not asked otherwise again."""
        self.vault.update(self._admitted)
        self._admitted = {}

    def round_of(self, question: bytes) -> int:
        """The round in which a masked sum was asked, by the digest under which its masks are kept; the first, if it was asked twice."""
        if question not in self._rounds:
            self._rounds = self._asked_before()
        if question not in self._rounds:
            raise NotFollowed("shares were asked for a sum that is not of this study")
        return self._rounds[question]

    def _asked_before(self) -> dict[bytes, int]:
        """The first round of every question that was asked in this run, as the vault knows it."""
        from unpooled.secure.keys import question_digest

        expected = self._follower.expected()
        last = self.study.max_exchanges if expected is None else expected.round
        found: dict[bytes, int] = {}
        for round in range(1, last + 1):
            asked = self.vault.get(f"{self.run}/asked-{round}")
            if asked is not None:
                found.setdefault(question_digest(bytes.fromhex(asked[:64].decode())), round)
        return found

    def mark_of(self, round: int) -> bytes:
        """32 bytes that are the same for the same question in any study of the same participants, columns and kinds."""
        kinds = json.dumps(self.study.wanted.pack(), sort_keys=True)
        about = json.dumps([self.study.names, self.study.columns, kinds])
        return hashlib.sha256(self.vault[f"{self.run}/own-{round}"] + about.encode()).digest()

    def _check_steps(self, ask: Ask) -> None:
        """The layers of the study, no more and no fewer."""
        wanted = ["looks.wanted"] if self.study.privacy and ask.kind == SUM else []
        wanted += ["secure.mask"] if self.study.secure and ask.kind == SUM else []
        if {"levels", "quantiser"} & set(self.study.layers):
            wanted = ["compressed.compress"]
        if [step.name for step in ask.steps if step not in follow.views(ask)] != wanted:
            raise NotFollowed(f"{ask.name} was asked with other layers than the study's")


def read_totals(letter: bytes, limit: int) -> dict[int, Any]:
    """The totals in a letter, by round."""
    if not letter:
        return {}
    totals = wire.unpack(letter, limit).value()
    if not (isinstance(totals, dict) and all(isinstance(k, str) and k.isdigit() for k in totals)):
        raise SchemaError("the totals of earlier rounds are not numbered")
    return {int(k): total for k, total in totals.items()}
