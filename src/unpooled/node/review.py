"""What a study would do at this node, in words, before anybody approves it: a rehearsal with the node's own table. Nothing is sent.

The rows are dealt out to as many pretended sites as the study has participants, and the study's model is fitted over them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from unpooled import config as configs
from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.client import GATHER, SUM, Ask, Client
from unpooled.errors import BadData, UnpooledError
from unpooled.federation import Federation, Layer
from unpooled.local import Local
from unpooled.node import disclosures, limits
from unpooled.node.policy import Policy
from unpooled.node.questions import Refused
from unpooled.study import Study
from unpooled.tree import Tree

REHEARSED = 20  # rounds of the model at most
MAX_CANDIDATES = 16
SMALL_BATCH = 32  # rows: a step on fewer shows the gradient of few people


class Question(NamedTuple):
    """One question of the rehearsal."""

    name: str
    kind: str
    times: int
    numbers: int  # in one answer
    least_rows: float  # the smallest count of rows above 0 in a total; inf where it counts none


class Review(NamedTuple):
    """What a study would do at this node."""

    study: Study
    questions: list[Question]
    warnings: list[str]  # what an officer should look at twice
    failure: str = ""  # why the rehearsal stopped, if it did
    alone: bool = (
        False  # whether it stopped because of totals over this table alone, which other sites' rows may change
    )


class Witness(Layer):
    """Notes what is asked, what the node's policy would refuse, and the least rows behind a number of a total."""

    def __init__(self, inner: Federation, node: str, policy: Policy, study: Study):
        """Wrap `inner` and note what it is asked, by question."""
        super().__init__(inner)
        self.node, self.policy, self.study = node, policy, study
        self.seen: dict[str, Question] = {}
        self.refused: dict[str, str] = {}  # question -> why
        self.few: dict[str, float] = {}  # level, class or outcome -> its rows, where they are few

    def sum(self, ask: Ask, down: Tree) -> Tree:
        """Pass the question on; note its total and the smallest positive count of rows within."""
        self._look_up(ask, down)
        total = self.inner.sum(ask, down)
        counts = [to_numpy(c)[to_numpy(c) > 0] for c in tree.row_counts(total, ask.types[1])]
        self._note(ask, total, min((float(c.min()) for c in counts if c.size), default=np.inf))
        return total

    def gather(self, ask: Ask, down: Tree) -> dict[str, Tree]:
        """Pass the question on; note the size of one answer."""
        self._look_up(ask, down)
        answers = self.inner.gather(ask, down)
        self._note(ask, next(iter(answers.values())), np.inf)
        return answers

    def tell(self, ask: Ask, down: Tree) -> None:
        """Pass the message on; note that nothing comes back."""
        self.inner.tell(ask, down)
        self._note(ask, None, np.inf)

    def note_few(self, rows: Mapping[str, float]) -> None:
        """Note levels, classes and outcomes of few rows: the study stops if there are not more at all sites together."""
        self.few |= rows

    def _look_up(self, ask: Ask, down: Tree) -> None:
        """Note a question that looks more closely than [limits] of the policy allows."""
        try:
            limits.check(ask.name, ask.options, down, self.policy.limits, self.node, self.study.follow)
        except Refused as error:
            self.refused[ask.name] = str(error)

    def _note(self, ask: Ask, up: Tree, least: float) -> None:
        """Add one exchange to what is known of this question: how often, how many numbers, how few rows."""
        numbers = sum(int(np.size(to_numpy(leaf))) for leaf in tree.leaves(up))
        old = self.seen.get(ask.name, Question(ask.name, ask.kind, 0, 0, np.inf))
        self.seen[ask.name] = Question(
            ask.name, ask.kind, old.times + 1, max(old.numbers, numbers), min(old.least_rows, least)
        )


def review(study: Study, name: str, source: Any, policy: Policy, others: Iterable[Study] = ()) -> Review:
    """Rehearse a study with a node's own table.

    Parameters
    ----------
    study : Study
        What is to be approved.
    name : str
        This node's name.
    source : Source
        The node's table.
    policy : Policy
        Its rules.
    others : iterable of Study, default=()
        Studies that the node has approved already.
    """
    failure = ""
    alone = False
    witness: Any = None
    rows = 0
    try:
        policy.check_columns(study.columns, source.columns, name)
        clients = _dealt(source, study)
        rows = sum(len(c.w) for c in clients)
        witness = Witness(Local(clients), name, policy, study)
        witness.inner.columns = study.columns
        witness.inner.schema = study.schema
        _rehearse(study, witness)
    except UnpooledError as error:
        failure = str(error)
        alone = isinstance(error, BadData) and witness is not None and bool(witness.seen)
    questions = list(witness.seen.values()) if witness is not None else []
    refused = _not_admitted(study, name, policy) + (list(witness.refused.values()) if witness is not None else [])
    found = [f"this node would refuse: {why}" for why in refused]
    found += _warnings(study, name, questions, rows, policy) + _beside(study, others)
    found += _rare(study, {} if witness is None else witness.few)
    return Review(study, questions, found, failure, alone)


def _not_admitted(study: Study, name: str, policy: Policy) -> list[str]:
    """Why this node's policy would refuse the study as a whole, if it would."""
    try:
        limits.admit_study(study, policy, name)
    except Refused as error:
        return [str(error)]
    return []


def _dealt(source: Any, study: Study) -> list[Client]:
    """The node's rows dealt out to pretended sites."""
    parts = list(source.open(study.columns, study.wanted).parts())
    x = np.concatenate([to_numpy(p.x) for p in parts])
    y = None if parts[0].y is None else np.concatenate([to_numpy(p.y) for p in parts])
    n = max(len(study.names), 1)
    return [Client(name, x[i::n], None if y is None else y[i::n]) for i, name in enumerate(study.names) if len(x[i::n])]


def _rehearse(study: Study, fed: Federation) -> None:
    """Run the first rounds of the study on this node's table alone, without warnings."""
    model = study.estimator()
    model.max_iter = min(model.max_iter, REHEARSED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in model.rounds(configs.with_privacy(fed, study.config)):
            pass


def _warnings(study: Study, name: str, questions: Sequence[Question], rows: int, policy: Policy) -> list[str]:
    """What stands out, most serious first."""
    found = [
        f"{q.name} is a GATHER: the coordinator sees this node's own answer, and no node can follow the study beyond it"
        for q in questions
        if q.kind == GATHER
    ]
    if name not in study.participants:
        found.append(f"{name!r} is not among the participants: it would not answer")
    if not study.secure:
        found.append("sums are not masked: the coordinator sees each of this node's answers")
    if not study.follow:
        found.append("nodes do not follow this study along: the coordinator chooses what is asked")
    if study.secure and study.min_cohort < len(study.names):
        found.append(
            f"sums go on over {study.min_cohort} sites or more when others are said to be lost, and two sums in a row, with and "
            f"without a site, nearly show what it sent: min_cohort = {len(study.names)} ends the run instead"
        )
    if not all(study.participants.values()):
        found.append("some participants have no fingerprint: the coordinator could invent them")
    found += [
        f"{q.name} sends {q.numbers} numbers for {rows} rows here, more than {policy.max_parameters_per_row} per row"
        for q in questions
        if q.kind in (SUM, GATHER) and q.numbers > policy.max_parameters_per_row * rows > 0
    ]
    seen = f"; masked, only totals over {study.min_cohort} or more sites are seen" if study.secure else ""
    found += [
        f"{q.name} has sums over {few_rows(q.least_rows)} of this table{seen}"
        for q in questions
        if q.least_rows < policy.min_rows_per_component
    ]
    return found + _weighted(study) + _disclosed(study) + _parameter_warnings(study)


def _weighted(study: Study) -> list[str]:
    """A warning where rows are weighted: then no count says how many rows it is of."""
    column = study.config["data"].get("weight")
    if column is None:
        return []
    return [
        f"rows are weighted by column {column!r}: one row may count as many, so that counts of rows say little here"
    ]


def _disclosed(study: Study) -> list[str]:
    """What the model's honest totals tell about single people or sites."""
    if study.privacy:
        return []
    model = study.config["model"]["name"].removeprefix("baselines.")
    told = disclosures.of(model, study.estimator().get_params(deep=False))
    return [f"{study.config['model']['name']} tells in its totals: {text}" for text in told]


def _rare(study: Study, rows: Mapping[str, float]) -> list[str]:
    """Levels, classes and outcomes of few rows in this table."""
    return [
        f"{what} is held by {n:g} in this table: the study stops if fewer than {study.min_rows_per_component} hold it at all sites together"
        for what, n in rows.items()
    ]


def few_rows(n: float) -> str:
    """A count of rows in words; rows count in part where a model shares them out among components."""
    return "less than one row" if n < 1 else f"{n:,.0f} rows"


def _beside(study: Study, others: Iterable[Study]) -> list[str]:
    """Approved studies whose totals, beside this one's, would show few sites."""
    found = []
    for other in others:
        apart = sorted(set(study.names) ^ set(other.names))
        shared = set(study.columns) & set(other.columns)
        if other.digest != study.digest and shared and 0 < len(apart) < max(study.min_cohort, 3):
            found.append(
                f"the approved study {other.title!r} ({other.digest[:12]}) uses some of the same columns, and its sites differ by "
                f"{', '.join(apart)} alone: the totals of both together can show what these sites send; revoke one of the two"
            )
    return found


def _parameter_warnings(study: Study) -> list[str]:
    """Sentences on parameters that look closely at rows: small batches, many candidates."""
    model, found = study.config["model"], []
    batch = model.get("batch_size")
    if isinstance(batch, int) and batch < SMALL_BATCH:
        found.append(f"batch_size = {batch}: a step on so few rows shows much of each of them")
    for key, value in model.items():
        if isinstance(value, list) and len(value) > MAX_CANDIDATES:
            found.append(f"{key} lists {len(value)} values: more than {MAX_CANDIDATES} candidates look closely")
    return found


def _one_line(text: str) -> str:
    """A text of the study without line breaks, so that it cannot look like lines of the review."""
    return " ".join(text.split())


def stopped(found: Review) -> str:
    """Why the rehearsal stopped, and what that means."""
    means = " (of this table alone: with the rows of the other sites the study may go on)" if found.alone else ""
    return f"the rehearsal stopped: {found.failure}{means}"


def explain(found: Review) -> list[str]:
    """The review as lines of text, warnings marked with "!"."""
    study = found.study
    model = found.study.config["model"]
    pinned = sum(bool(mark) for mark in study.participants.values())
    lines = [
        f"Study   {_one_line(study.title)}",
        *([f"Purpose {_one_line(study.purpose)}"] if study.purpose else []),
        f"SHA-256 {study.digest}",
        f"Model   {model['name']} with "
        + (", ".join(f"{k}={v!r}" for k, v in model.items() if k != "name") or "defaults"),
        f"Columns {_one_line(', '.join(study.columns))}",
        f"Sites   {_one_line(', '.join(study.names))} ({pinned} of {len(study.names)} known by their key; "
        f"at least {study.min_cohort} in a sum)",
        f"Limits  at most {study.max_exchanges} exchanges; sums {'masked' if study.secure else 'not masked'}",
        *([f"Noise   epsilon {study.privacy['epsilon']:g}, delta {study.privacy['delta']:g}"] if study.privacy else []),
        "",
        f"Rehearsed with this node's own table (at most {REHEARSED} rounds). What would leave:",
    ]
    for q in found.questions:
        what = {"sum": "added up over sites", "gather": "SEEN BY THE COORDINATOR", "tell": "nothing"}[q.kind]
        least = "" if q.least_rows == np.inf else f", {few_rows(q.least_rows)} behind the least of them"
        times = "once" if q.times == 1 else f"{q.times} times"
        lines.append(f"  {q.name}: {times}, {q.numbers} numbers, {what}{least}")
    if found.failure:
        lines.append(f"! {stopped(found)}")
    return lines + [f"! {text}" for text in found.warnings]
