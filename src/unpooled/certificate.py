"""Checks of a finished run: each total is the sum of the answers in the nodes' ledgers, and the totals lead to the saved model.

Needs the run's folder (study, totals with the answers they were computed from, model) and the nodes' ledgers. Nothing is sent, and no row
is needed.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from unpooled import store, study, tree, wire
from unpooled.client import TELL, digest
from unpooled.errors import RunError, UnpooledError
from unpooled.node import ledger
from unpooled.node.follow import Follower
from unpooled.study import Study
from unpooled.tree import Tree


class Finding(NamedTuple):
    """One thing that was checked."""

    what: str
    wrong: str = ""  # why it does not hold; "" if it does

    def __str__(self) -> str:
        """One line: ok or FAILED, what was checked, and what is wrong."""
        return f"FAILED  {self.what}: {self.wrong}" if self.wrong else f"ok  {self.what}"


MANIFEST = "certificate.json"


def write(run: Path) -> None:
    """Write the SHA-256 of every file that the certificate covers to certificate.json."""
    store.write_file(run / MANIFEST, json.dumps(_marks(run), indent=1, sort_keys=True).encode())


def _marks(run: Path) -> dict[str, str]:
    """SHA-256 of the files that a certificate covers, by their path within the run."""
    files = [run / "study.toml", run / "model" / "model.zip", *sorted((run / "totals").glob("*.zip"))]
    return {
        path.relative_to(run).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if path.exists()
    }


def _check_files(run: Path) -> list[Finding]:
    """Whether every file is as it was when the run ended."""
    try:
        wanted = json.loads((run / MANIFEST).read_bytes())
        marks = _marks(run)
        names = sorted(wanted.keys() | marks.keys())
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        wrong = f"it cannot be read ({type(error).__name__}): the run did not end, or the file is damaged"
        return [Finding(MANIFEST, wrong)]
    changed = [name for name in names if wanted.get(name) != marks.get(name)]
    if not changed:
        return [Finding(f"{len(marks)} files are as the run left them")]
    return [Finding(name, "it is not the file that the run ended with") for name in changed]


def verify(run: Path, ledgers: Sequence[Path]) -> list[Finding]:
    """Check a finished run of a study against the nodes' ledgers.

    Parameters
    ----------
    run : Path
        The run's folder.
    ledgers : list of Path
        The ledgers of the nodes; shares of nodes whose ledger is missing are not checked.

    Returns
    -------
    list of Finding
        Everything that was checked, in order. The run is certified if no finding is wrong.
    """
    try:
        approved = study.read(run / "study.toml")
    except UnpooledError as error:
        return [Finding("the study", str(error))]
    findings = [Finding(f"the study is {approved.digest[:16]}"), *_check_files(run)]
    records, ledger_findings = _read_ledgers(ledgers, approved)
    findings += ledger_findings
    try:
        totals = _read_totals(run / "totals")
    except UnpooledError as error:
        return [*findings, Finding("the totals", str(error))]
    for round, kept in totals.items():
        findings += list(_check_total(round, kept, records))
    return findings + _check_model(run, approved, totals)


# ---- what the nodes wrote down ----

Records = dict[str, set[tuple[str, str, str]]]  # node -> (round, question, digest of what left)


def _read_ledgers(paths: Sequence[Path], approved: Study) -> tuple[Records, list[Finding]]:
    """What each node's ledger says has left for this study, and findings on ledgers that cannot be read."""
    records: Records = {}
    findings = []
    for path in paths:
        try:
            entries = list(ledger.entries(path)) if path.is_file() else []
            if not entries:
                raise RunError("there is no line in it, or no such file")
        except UnpooledError as error:
            findings.append(Finding(f"the ledger {path}", str(error)))
            continue
        node = str(entries[0].get("node", ""))
        ours = [e for e in entries if e.get("study") == approved.digest and e.get("kind") != "refused"]
        records[node] = {(str(e.get("round")), str(e.get("question")), str(e.get("digest"))) for e in ours}
        wrong = "" if node in approved.participants else f"{node!r} is not a participant of the study"
        findings.append(Finding(f"the ledger of {node!r} is whole, {len(ours)} answers of this study", wrong))
    return records, findings


# ---- totals ----


def _read_totals(folder: Path) -> dict[int, dict[str, Any]]:
    """The kept totals of a run, by round."""
    paths = sorted(folder.glob("*.zip"))
    if not paths:
        raise RunError(f"{folder} holds no totals: only runs of a study keep them")
    return {_round_of(path): _kept_in(path) for path in paths}


def _round_of(path: Path) -> int:
    """The round that a file of totals is named by."""
    if not path.stem.isdecimal():
        raise RunError(f"{path} is not named by a round: it was not written by a run")
    return int(path.stem)


def _kept_in(path: Path) -> dict[str, Any]:
    """What was kept of a round."""
    kept = store.read(path)
    named = isinstance(kept, dict) and all(isinstance(kept.get(key), str) for key in ("asked", "question"))
    if not (named and kept.keys() >= {"total", "raw", "answers"}):
        raise RunError(f"{path} does not hold the total of a round: it was not written by a run")
    return kept


def _check_total(round: int, kept: Mapping[str, Any], records: Records) -> Iterator[Finding]:
    """Compute a round's total again from the kept answers, and compare each answer with its node's ledger."""
    what = f"round {round}, {kept['question']}"
    try:
        single, total = _recomputed(kept)
    except Exception as error:  # a changed bit can cause any error
        yield Finding(f"{what}: the total", f"it cannot be computed again from what was sent ({error})")
        return
    same = store.dumps(total) == store.dumps(kept["total"])
    yield Finding(f"{what}: the total is the sum of {len(single)} answers", "" if same else "it is another number")
    for name, answer in sorted(single.items()):
        if name in records:
            mark = hashlib.sha256(wire.pack({}, answer)).hexdigest()
            known = (str(round), kept["question"], mark) in records[name]
            yield Finding(f"{what}: the answer of {name!r}", "" if known else "it is not what its ledger says has left")


def _recomputed(kept: Mapping[str, Any]) -> tuple[dict[str, Tree], Tree]:
    """(what each node sent, the total of it)."""
    if "hub" not in kept["answers"]:
        single = kept["answers"]["plain"]
        total: Tree = None
        for name in sorted(single):
            total = single[name] if total is None else tree.add(total, single[name])
        return single, total
    from unpooled.secure import MaskingCoordinator, decode_total

    state = kept["answers"]["hub"]
    answered = state["reveal"].answered
    again = MaskingCoordinator.from_state(state).finish()
    if store.dumps(again) != store.dumps(kept["raw"]):
        raise RunError("the masked answers add up to another total")
    return {name: state["masked"][name] for name in answered}, decode_total(again)


# ---- the model ----


def _check_model(run: Path, approved: Study, totals: Mapping[int, Mapping[str, Any]]) -> list[Finding]:
    """Run the study once more on the totals: each question and the model must come out the same."""
    follower = Follower(approved)
    try:
        expected = follower.expected()
        while expected is not None:
            kept = totals.get(expected.round)
            if kept is None and expected.ask.kind != TELL:
                wrong = f"round {expected.round} has no total: the run did not end"
                return [Finding("the study on these totals", wrong)]
            if kept is not None and digest(expected.ask, expected.down).hex() != kept["asked"]:
                return [Finding("the study on these totals", f"it asks something else in round {expected.round}")]
            follower.give(None if kept is None else kept["total"])
            expected = follower.expected()
    except UnpooledError as error:
        return [Finding("the study on these totals", str(error))]
    return [
        Finding(f"the study asks the same {len(totals)} questions on these totals"),
        _same_model(run, follower.model),
    ]


def _same_model(run: Path, model: Any) -> Finding:
    """Whether the saved model has the same bytes as the one that the totals lead to."""
    path = run / "model" / "model.zip"
    if not path.exists():
        return Finding("the model", f"{path} is not there")
    with tempfile.TemporaryDirectory() as folder:
        again = (model.save(Path(folder)) / "model.zip").read_bytes()
    wrong = "" if again == path.read_bytes() else "it is not what the study makes of these totals"
    return Finding("the model is what the study makes of these totals", wrong)
