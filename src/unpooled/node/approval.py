"""A site's decisions on studies: approve, refuse, revoke, and the studies that wait for a decision. Nothing is sent.

`policy.toml` lists approved studies by their SHA-256; the node reads it before every answer. A copy of each is kept in the folder
`studies`, and every decision is a line of `decisions.jsonl`. Files in the folder `waiting` are studies that nobody has decided on yet.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from unpooled import store
from unpooled import study as studies
from unpooled.errors import BadParameter, UnpooledError
from unpooled.node import policy
from unpooled.node.config import NodeConfig
from unpooled.study import Study

STUDIES_LINE = re.compile(r"^studies\s*=\s*\[[^\]]*\]", re.M)
APPROVED, REFUSED, REVOKED = "approved", "refused", "revoked"


class Decision(NamedTuple):
    """One decision of the site's owner."""

    time: str
    study: str  # SHA-256
    title: str
    decision: str  # approved, refused, revoked


def approve(node: NodeConfig, study: Study) -> None:
    """Let the node take part in a study, from the next question on."""
    rules = policy.read(node.paths["policy"])
    _write_approved(node.paths["policy"], sorted({*rules.studies, study.digest}))
    store.write_file(_copy_of(node, study.digest), study.content)
    _note(node, study.digest, study.title, APPROVED)


def refuse(node: NodeConfig, study: Study) -> None:
    """Record that the node does not take part in a study; an earlier approval is revoked."""
    if study.digest in policy.read(node.paths["policy"]).studies:
        revoke(node, study.digest)
    _note(node, study.digest, study.title, REFUSED)


def revoke(node: NodeConfig, start: str) -> list[str]:
    """Withdraw the approval of the studies whose SHA-256 begins with `start`; returns their SHA-256."""
    rules = policy.read(node.paths["policy"])
    ended = [digest for digest in rules.studies if digest.startswith(start)]
    if not ended or not start:
        raise BadParameter(f"{node.name} has approved no study {start!r}: its policy.toml lists {len(rules.studies)}")
    _write_approved(node.paths["policy"], [digest for digest in rules.studies if digest not in ended])
    for digest in ended:
        known = _read_copy(node, digest)
        _note(node, digest, "" if known is None else known.title, REVOKED)
    return ended


def approved(node: NodeConfig) -> dict[str, Study | None]:
    """SHA-256 -> study, for every study in the policy; None where no copy of it is kept."""
    return {digest: _read_copy(node, digest) for digest in policy.read(node.paths["policy"]).studies}


def others(node: NodeConfig) -> list[Study]:
    """The approved studies of which a copy is kept; the review of a new study compares it with them."""
    return [study for study in approved(node).values() if study is not None]


def waiting(node: NodeConfig, more: Sequence[Path] = ()) -> list[Study]:
    """The studies in the folder `waiting` and in the files `more` that are neither approved now nor refused or revoked."""
    decided = {d.study: d.decision for d in decisions(node)}
    approved_now = set(policy.read(node.paths["policy"]).studies)
    found: dict[str, Study] = {}
    for path in [*sorted((node.folder / "waiting").glob("*.toml")), *more]:
        study = _read_study(path)
        if study is None or study.digest in approved_now:
            continue
        turned_down = decided.get(study.digest) in (REFUSED, REVOKED)
        if not turned_down:
            found[study.digest] = study
    return list(found.values())


def unreadable(node: NodeConfig) -> dict[str, str]:
    """File in `waiting` -> why it is not a study."""
    found = {}
    for path in sorted((node.folder / "waiting").glob("*.toml")):
        try:
            studies.read(path)
        except UnpooledError as error:
            found[path.name] = str(error)
    return found


def submit(node: NodeConfig, content: bytes) -> Study:
    """Put a study into the folder `waiting`, after it was checked."""
    study = studies.parse(content)
    store.write_file(node.folder / "waiting" / f"{study.digest[:16]}.toml", content)
    return study


def decisions(node: NodeConfig) -> list[Decision]:
    """All decisions, the first one first."""
    path = node.folder / "decisions.jsonl"
    if not path.exists():
        return []
    return [Decision(**json.loads(line)) for line in path.read_text().splitlines() if line.strip()]


def _note(node: NodeConfig, digest: str, title: str, decision: str) -> None:
    """Append a decision, with the time, to decisions.jsonl."""
    line = Decision(datetime.now(UTC).isoformat(timespec="seconds"), digest, title, decision)
    with open(node.folder / "decisions.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(line._asdict()) + "\n")


def _copy_of(node: NodeConfig, digest: str) -> Path:
    """Where the node keeps its copy of the study with this digest."""
    return node.folder / "studies" / f"{digest[:16]}.toml"


def _read_copy(node: NodeConfig, digest: str) -> Study | None:
    """The node's copy of the study, None when it is missing or was changed."""
    known = _read_study(_copy_of(node, digest))
    return known if known is not None and known.digest == digest else None


def _read_study(path: Path) -> Any:
    """The study in a file, None when it cannot be read."""
    try:
        return studies.read(path)
    except UnpooledError:
        return None


def _write_approved(path: Path, digests: list[str]) -> None:
    """Change the line `studies = [...]` of a policy file and nothing else."""
    text = path.read_text()
    line = f"studies = {json.dumps(digests)}"
    new, count = STUDIES_LINE.subn(lambda _: line, text, count=1)
    store.write_file(path, (new if count else f"{line}\n{text}").encode())
