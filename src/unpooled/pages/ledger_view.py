"""HTML views of a node's ledger: totals by study and question, and its lines in pages. Nothing is sent.

Each line of the file is read and checked once: `LedgerView.refresh` goes on where the last call stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from unpooled.errors import RunError
from unpooled.node import ledger
from unpooled.progress import size
from unpooled.report import markup, words

PER_PAGE = 50
KINDS = {  # kind of a ledger line -> what its answers are
    "sum": "added up over sites",
    "gather": "seen singly",
    "tell": "a receipt",
    "keys": "keys for masks",
    "profile": "a description of the table",
}
CHECK = "no study: the coordinator ran unpooled check"


class Total(NamedTuple):
    """What left in answer to one question of one study."""

    times: int = 0  # answers
    numbers: int = 0  # numbers in them
    bytes: int = 0
    masked: int = 0  # answers that were masked
    last: str = ""  # time of the latest answer


class LedgerView:
    """The lines of a ledger that were read so far, and their totals; `refresh` reads the lines added since."""

    def __init__(self, path: Path):
        """A view of the ledger at `path`; nothing is read yet."""
        self.path = path
        self.lines: list[dict[str, Any]] = []
        self.totals: dict[tuple[str, str, str], Total] = {}  # (study, question, kind)
        self.refusals = 0
        self.problem = ""  # why the ledger cannot be trusted
        self._offset = 0
        self._last = ledger.FIRST
        self._lock = threading.Lock()
        self.ready = threading.Event()  # set once the ledger was read for the first time

    def begin(self) -> None:
        """Read the ledger for the first time in a separate thread, so that a page need not wait for a long one."""
        threading.Thread(target=self._first, daemon=True).start()

    def _first(self) -> None:
        """Read the whole ledger once, and import the modules that describe its questions."""
        try:
            self.refresh()
            for _, question, _ in list(self.totals):
                words.question(question)  # imports the module with its description
        finally:
            self.ready.set()

    def refresh(self) -> None:
        """Read and check the lines that were added."""
        with self._lock:
            end = self.path.stat().st_size if self.path.exists() else 0
            if end < self._offset:
                self.problem = f"{self.path.name} is shorter than before: lines were taken out"
                return
            if end == self._offset or self.problem:
                return
            try:
                for entry, offset in ledger.entries_after(self.path, self._offset, self._last, len(self.lines)):
                    self._add(entry)
                    self._offset = offset
                    self._last = entry["hash"]
            except RunError as error:
                self.problem = "" if self._torn() else str(error)

    def _torn(self) -> bool:
        """Whether the last line is still being written."""
        with open(self.path, "rb") as file:
            file.seek(-1, 2)
            return file.read(1) != b"\n"

    def _add(self, entry: dict[str, Any]) -> None:
        """Count one line in its total by study, question and kind."""
        self.lines.append(entry)
        if entry["kind"] == "refused":
            self.refusals += 1
            return
        if entry["dry"]:
            return
        key = (entry.get("study", ""), entry["question"], entry["kind"])
        old = self.totals.get(key, Total())
        self.totals[key] = Total(
            old.times + 1,
            old.numbers + entry["numbers"],
            old.bytes + entry["bytes"],
            old.masked + bool(entry.get("masked")),
            entry["time"],
        )

    @property
    def looks(self) -> dict[str, float]:
        """Id of a noisy release -> mu^2, its cost in Gaussian differential privacy."""
        return {e["release"]: float(e["mu2"]) for e in self.lines if e.get("release") and not e["dry"]}

    @property
    def head(self) -> str:
        """The hash of the last line."""
        return self._last

    @property
    def pages(self) -> int:
        """How many pages of lines there are."""
        return max(1, -(-len(self.lines) // PER_PAGE))


def summary(view: LedgerView, titles: Mapping[str, str]) -> str:
    """What has left so far, by study and question."""
    if view.problem:
        return markup.mark(f"Do not trust this ledger: {view.problem}.")
    if not view.lines:
        return markup.paragraph("Nothing has left this node yet.")
    answers = sum(t.times for t in view.totals.values())
    sent = sum(t.bytes for t in view.totals.values())
    refused = "1 question was refused" if view.refusals == 1 else f"{view.refusals:,} questions were refused"
    text = f"{answers:,} answers have left ({size(sent)}), {refused}."
    text += f" All {len(view.lines):,} lines of the ledger fit together."
    return markup.paragraph(text) + _totals(view, titles) + _seal(view)


def _totals(view: LedgerView, titles: Mapping[str, str]) -> str:
    """The table of totals, the latest first."""
    order = sorted(view.totals.items(), key=lambda pair: pair[1].last, reverse=True)
    rows = (
        (
            f"<code>{escape(question)}</code> {escape(words.question(question))}",
            escape(_study(study, kind, titles)),
            _use(kind, total),
            f"{total.times:,}",
            f"{total.numbers:,}",
            escape(total.last[:16].replace("T", " ")),
        )
        for (study, question, kind), total in order
    )
    head = ("question", "study", "its answers are", "times", "numbers", "last (UTC)")
    return markup.table(head, rows, numbers={3, 4, 5}, caption="What left, by question, the latest first.", roomy=True)


def _study(digest: str, kind: str, titles: Mapping[str, str]) -> str:
    """The title of a study, or why an answer belongs to none."""
    if digest:
        return titles.get(digest, digest[:12])
    return CHECK if kind == "profile" else "no study: the coordinator was trusted"


def _use(kind: str, total: Total) -> str:
    """How the coordinator sees answers of this kind; a warning where it sees the answers of single sites."""
    all_masked = total.masked == total.times
    text = KINDS.get(kind, kind) + (", masked" if all_masked else "")
    return f'<strong class="warn">{escape(text)}</strong>' if kind == "gather" else escape(text)


def _seal(view: LedgerView) -> str:
    """The hash of the last line, for the reader to write down."""
    text = "Keep this hash of the last line elsewhere: it shows later whether lines were cut off the end: "
    return f'<p class="soft">{text}<code>{escape(view.head[:32])}…</code></p>'


def lines(view: LedgerView, number: int) -> str:
    """One page of lines in words, the latest first."""
    number = min(max(number, 1), view.pages)
    end = len(view.lines) - (number - 1) * PER_PAGE
    some = view.lines[max(0, end - PER_PAGE) : end][::-1]
    items = "".join(f"<li>{_line(entry)}</li>" for entry in some)
    links = _page_links(number, view.pages)
    return f'{links}<ol class="ledger">{items}</ol>{links}'


def _line(entry: dict[str, Any]) -> str:
    """One line of the ledger in words, refusals marked."""
    when = entry["time"][:19].replace("T", " ")
    text = escape(ledger.explain(entry).removeprefix(entry["time"]).strip())
    if entry["kind"] == "refused":
        text = f'<strong class="warn">{text}</strong>'
    return f'<time datetime="{escape(entry["time"])}">{escape(when)}</time>{text}'


def _page_links(number: int, pages: int) -> str:
    """Links to newer and older lines."""
    newer = f'<a href="ledger?page={number - 1}" rel="prev">newer</a>' if number > 1 else ""
    older = f'<a href="ledger?page={number + 1}" rel="next">older</a>' if number < pages else ""
    return f'<p>{newer} page {number:,} of {pages:,} {older} · <a href="./">back to the node</a></p>'
