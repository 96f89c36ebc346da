"""Rehearsals of studies for the owner's page, computed in threads and shown as tables of what would be sent. Nothing is sent."""

from __future__ import annotations

import threading
from html import escape

from unpooled.node import approval, policy, review
from unpooled.node.config import NodeConfig, table_source
from unpooled.node.review import Review
from unpooled.pages import ledger_view
from unpooled.report import markup, words
from unpooled.study import Study


class Rehearsals:
    """Reviews of studies, each computed once per study and version of the policy, in its own thread."""

    def __init__(self, node: NodeConfig):
        """Keep rehearsals of studies, by study and state of the policy."""
        self.node = node
        # (SHA-256 of the study, time of the policy) -> the review, or why there is none
        self.found: dict[tuple[str, int], Review | str] = {}
        self._begun: set[tuple[str, int]] = set()

    def of(self, study: Study) -> Review | str | None:
        """The review of a study under the rules of today; None while it is being made."""
        key = (study.digest, self.node.paths["policy"].stat().st_mtime_ns)
        if key not in self._begun:
            self._begun.add(key)
            threading.Thread(target=self._make, args=(study, key), daemon=True).start()
        return self.found.get(key)

    def _make(self, study: Study, key: tuple[str, int]) -> None:
        """Rehearse one study; what stops it is shown in place of a review."""
        try:
            rules = policy.read(self.node.paths["policy"])
            self.found[key] = review.review(
                study, self.node.name, table_source(self.node), rules, approval.others(self.node)
            )
        except Exception as error:  # a page shows whatever stopped the rehearsal
            self.found[key] = f"{type(error).__name__}: {error}"


def roles_of(study: Study) -> list[str]:
    """The columns of labels and weights that a study uses, with their roles."""
    data = study.config["data"]
    return [f"{data[key]} ({key})" for key in ("label", "weight") if data.get(key)]


def shown(found: Review | str | None) -> str:
    """The result of a rehearsal on the node's own table, as HTML."""
    if found is None:
        return '<p role="status">Rehearsing with this node\'s own table; nothing is sent. The button to approve comes with the result.</p>'
    if isinstance(found, str):
        return markup.mark(f"The rehearsal stopped: {found}")
    failed = markup.mark(sentence(review.stopped(found))) if found.failure else ""
    warnings = "".join(markup.mark(text) for text in found.warnings)
    fine = "" if failed or warnings else markup.mark("The rehearsal found nothing to warn of.", good=True)
    return failed + warnings + fine + markup.folded("What would leave", _questions(found))


def sentence(text: str) -> str:
    """A text with a capital."""
    return text[:1].upper() + text[1:]


def _questions(found: Review) -> str:
    """The table of a rehearsal: each question, what its answer is, and the fewest rows behind a number."""
    rows = (
        (
            f"<code>{escape(q.name)}</code> {escape(words.question(q.name))}",
            _answer_kind(q.kind),
            f"{q.times:,}",
            f"{q.numbers:,}",
            _least_rows(q.least_rows),
        )
        for q in found.questions
    )
    head = ("question", "its answer is", "times", "numbers", "fewest rows behind a number")
    caption = f"A rehearsal of at most {review.REHEARSED} rounds, with this node's rows dealt out to simulated sites."
    return markup.table(head, rows, numbers={2, 3, 4}, caption=caption, roomy=True)


def _answer_kind(kind: str) -> str:
    """How the coordinator sees an answer; a warning where it sees the answers of single sites."""
    if kind == "gather":
        return f'<strong class="warn">{escape(words.RISK)}</strong>'
    return ledger_view.KINDS.get(kind, kind)


def _least_rows(rows: float) -> str:
    """The fewest rows behind a number, for a cell of the table."""
    if rows == float("inf"):
        return "-"
    return "below 1" if rows < 1 else f"{rows:,.0f}"
