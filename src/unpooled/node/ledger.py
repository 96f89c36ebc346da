"""A node's own record of what left it: one line per answer, written before the answer leaves, each line sealing all before it.

Append-only: every line carries the hash of the one before, so a line changed, added or taken out in the middle shows. The hash of the
last line, noted elsewhere, shows a cut end too. An answer given twice (asked again after a crash) has one line.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from unpooled import tree, wire
from unpooled.arrays import to_numpy
from unpooled.client import Ask
from unpooled.errors import RunError, printable
from unpooled.node.policy import MASK
from unpooled.tree import Tree

FIRST = "0" * 64
DAY = 86_400.0


@dataclass(frozen=True)
class Line:
    """What is written down of one answer: enough to judge it, nothing of its numbers."""

    run: str
    round: int
    question: str
    kind: str  # sum, gather, tell, keys; refused
    steps: list[str]
    what: list[list[Any]]  # [path, shape, dtype] of each array
    numbers: int
    bytes: int
    digest: str  # sha256 of what left
    dry: bool = False
    node: str = ""  # whose ledger this is
    study: str = ""  # the approved study that it belongs to; "" where the coordinator is trusted
    masked: bool = False  # nobody but this node could read it
    mu2: float = 0.0  # what a look with noise cost; 0 for answers without noise
    release: str = ""  # the name under which it is paid for: the same look twice costs once
    epsilon: float = 0.0  # the budget of the table at that time, and its delta
    delta: float = 0.0
    followed: bool = False  # the node ran the study along and the question was its next


class Ledger:
    """`ledger.jsonl`, as one node writes it."""

    def __init__(self, path: Path):
        """Open the ledger at `path`, cut off a line that was torn by a crash, and read what has been answered."""
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        _drop_torn_end(path)
        self._seen: set[tuple] = set()
        self.looks: dict[str, float] = {}  # release -> mu2 of every look that was answered
        self._times: deque[float] = deque()
        self._last, self._lock = FIRST, threading.Lock()
        self._hashes = {"", FIRST}
        for entry in entries(path):
            self._remember(entry)

    def note(self, line: Line) -> None:
        """Write the line to the disk, unless this very answer stands there already."""
        with self._lock:
            if _key(asdict(line)) in self._seen:
                return
            entry = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **asdict(line), "before": self._last}
            entry["hash"] = _hash(entry)
            self._append(json.dumps(entry) + "\n")
            self._remember(entry)

    def _append(self, text: str) -> None:
        """Write a whole line, or leave the file as it was: a full disk must not leave half a line behind."""
        size = self.path.stat().st_size if self.path.exists() else 0
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            with suppress(OSError):
                os.truncate(self.path, size)
            raise RunError(
                f"the ledger {self.path} cannot be written ({error.strerror}): nothing is answered"
            ) from error

    @property
    def last(self) -> str:
        """The hash of the last line."""
        return self._last

    def holds(self, mark: str) -> bool:
        """Whether a line with this hash stands in the ledger."""
        return mark in self._hashes

    def today(self) -> int:
        """Answers that left in the last 24 hours."""
        start = time.time() - DAY
        while self._times and self._times[0] < start:
            self._times.popleft()
        return len(self._times)

    def _remember(self, entry: dict[str, Any]) -> None:
        """Note a line: its hash, its question, what it cost and when it was."""
        self._last = entry["hash"]
        self._hashes.add(entry["hash"])
        self._seen.add(_key(entry))
        if entry.get("release") and not entry["dry"]:
            self.looks[entry["release"]] = float(entry["mu2"])
        if not entry["dry"]:
            self._times.append(datetime.fromisoformat(entry["time"]).timestamp())


def _key(entry: dict[str, Any]) -> tuple:
    """What makes two lines the same answer."""
    return tuple(entry[k] for k in ("run", "round", "question", "digest", "dry"))


def _hash(entry: dict[str, Any]) -> str:
    """SHA-256 of the line without its own hash; it covers the hash of the line before."""
    sealed = {k: v for k, v in entry.items() if k != "hash"}
    return hashlib.sha256(json.dumps(sealed, sort_keys=True).encode()).hexdigest()


def _drop_torn_end(path: Path) -> None:
    """A line cut off by a crash was never followed by its answer: it goes."""
    content = path.read_bytes() if path.exists() else b""
    if content and not content.endswith(b"\n"):
        with open(path, "r+b") as file:
            file.truncate(content.rfind(b"\n") + 1)


def entries(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a ledger, each checked against the one before; RunError names the first that does not fit."""
    for entry, _ in entries_after(path):
        yield entry


def entries_after(
    path: Path, offset: int = 0, before: str = FIRST, number: int = 0
) -> Iterator[tuple[dict[str, Any], int]]:
    """(line, where it ends in the file) from an offset on, after line `number` whose hash is `before`."""
    if not path.exists():
        return
    with open(path, "rb") as file:
        file.seek(offset)
        for text in file:
            offset = offset + len(text)
            number = number + 1
            entry = _parse(text, path, number)
            if entry["before"] != before or entry["hash"] != _hash(entry):
                raise RunError(f"{path} was changed: line {number} does not fit the line before it")
            before = entry["hash"]
            yield entry, offset


def _parse(text: bytes, path: Path, number: int) -> dict[str, Any]:
    """One line as a dict; an error that names file and line when it is damaged."""
    try:
        entry = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError):
        entry = None
    if isinstance(entry, dict) and _is_line(entry):
        return entry
    raise RunError(f"{path} was changed: line {number} is not a line of a ledger")


def _is_line(entry: dict[str, Any]) -> bool:
    """Whether these are the fields of a line, with the types that they are written with."""
    kinds = {
        "before": str,
        "hash": str,
        "time": str,
        "dry": bool,
        "run": str,
        "round": int,
        "question": str,
        "digest": str,
    }
    if not all(isinstance(entry.get(field), kind) for field, kind in kinds.items()):
        return False
    if not isinstance(entry.get("mu2", 0.0), int | float) or not isinstance(entry.get("release", ""), str):
        return False
    try:
        return bool(datetime.fromisoformat(entry["time"]))
    except ValueError:
        return False


def verify(path: Path, head: str | None = None) -> tuple[int, str]:
    """(lines, hash of the last): RunError if any line was changed, or if the last is not `head` where that is given."""
    if not path.is_file():
        raise RunError(f"{path} is not there: a node writes it with its first answer")
    last, count = FIRST, 0
    for entry in entries(path):
        last, count = entry["hash"], count + 1
    if head is not None and not last.startswith(head):
        raise RunError(f"{path} ends with {last[:16]}, not with {head[:16]}: lines were cut off, added or replaced")
    return count, last


USES = {
    "sum": "to be added to those of other nodes",
    "gather": "to be looked at singly",
    "tell": "as a receipt",
    "keys": "as keys and shares of masks, nothing about rows",
    "profile": "as a description of the table: kinds, levels and coarse histograms of its columns",
}


def budget_line(path: Path) -> str:
    """What the looks of a ledger have cost together, in a sentence; nothing if there were none."""
    from unpooled.privacy.accountant import epsilon_of

    looks = {e["release"]: e for e in entries(path) if e.get("release") and not e["dry"]}
    if not looks:
        return ""
    last = list(looks.values())[-1]
    cost = epsilon_of(sum(e["mu2"] for e in looks.values()) ** 0.5, last["delta"])
    return f"epsilon {cost:.2f} of {last['epsilon']:g} spent (delta {last['delta']:g}), {len(looks)} looks"


def explain(entry: dict[str, Any]) -> str:
    """One line in words, for a person who answers for the data; a coordinator's own words cannot hide or fake lines."""
    return printable(_explained(entry)).replace("\n", "?")


def _explained(entry: dict[str, Any]) -> str:
    """The line with the words of the request as they came."""
    when = f"{entry['time']}  run {entry['run'][:8]} round {entry['round']}"
    study = f" of the approved study {entry['study'][:12]}" if entry.get("study") else ""
    if entry["kind"] == "refused":
        return f"{when}: refused {entry['question']}{study}: {entry['digest']}"
    verb = "would have left (dry run)" if entry["dry"] else "left"
    masked = "masked, " if entry.get("masked") else ""
    masked = f"with noise (mu^2 {entry['mu2']:.3g}), {masked}" if entry.get("mu2") else masked
    trust = "" if study or entry["kind"] == "profile" else " (no study: the policy trusts the coordinator)"
    if entry.get("masked") and not entry.get("followed"):
        trust += " (peers were not pinned: whoever invents them can take the mask off)"
    return (
        f"{when}: {entry['numbers']} numbers ({entry['bytes']} bytes) {verb} {masked}{USES[entry['kind']]}, "
        f"in answer to {entry['question']}{study}{_what(entry)}{trust}"
    )


def _what(entry: dict[str, Any]) -> str:
    """Which numbers an answer held; of masks and keys there is nothing to tell."""
    if entry.get("masked") or entry["kind"] in ("keys", "profile"):
        return ""
    steps = f", after {', '.join(s.rpartition('.')[2] for s in entry['steps'])}" if entry["steps"] else ""
    what = ", ".join(f"{path} ({_shape(shape)})" for path, shape, _ in entry["what"][:8]) or "nothing but a receipt"
    more = f" and {len(entry['what']) - 8} more" if len(entry["what"]) > 8 else ""
    return f"{steps}: {what}{more}"


def _shape(shape: list[int]) -> str:
    """The shape of an array in words: "3 x 4", "one number"."""
    return " x ".join(map(str, shape)) if shape else "one number"


# ---- what is written down of an answer, a refusal and a check ----


def answer_line(request: dict[str, Any], sent: Tree, ask: Ask, dry: bool) -> Line:
    """What is written down of an answer."""
    leaves = list(tree.iter_paths(sent))
    content = wire.pack({}, sent)
    return Line(
        run=request["run"],
        round=request["round"],
        question=ask.name,
        kind=ask.kind,
        steps=[s.name for s in ask.steps],
        what=[[path or "value", list(np.shape(leaf)), str(to_numpy(leaf).dtype)] for path, leaf in leaves],
        numbers=sum(int(np.size(to_numpy(leaf))) for _, leaf in leaves),
        bytes=len(content),
        digest=hashlib.sha256(content).hexdigest(),
        dry=dry,
        study=str(request.get("study") or "")[:64],
        masked=any(step.name == MASK for step in ask.steps),
    )


def refusal_line(request: dict[str, Any], reason: str) -> Line:
    """What is written down of a question that was not answered."""
    study = str(request.get("study") or "")[:64]
    return Line(
        request["run"], request["round"], request["ask"][:80], "refused", [], [], 0, 0, reason[:200], study=study
    )


def profile_line(content: dict[str, Any]) -> Line:
    """What is written down of a check of the table."""
    body = json.dumps(content).encode()
    return Line("check", 0, "tables.profile", "profile", [], [], 0, len(body), hashlib.sha256(body).hexdigest())
