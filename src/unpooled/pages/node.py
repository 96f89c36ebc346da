"""A site's page: studies that wait for a decision with their rehearsal, those that are answered, the budget, and what left in words.

Buttons call the same functions as `unpooled node approve`, `refuse` and `revoke`. A form carries a token of its own, and the SHA-256 of the
study that was shown: a file that was exchanged meanwhile is not approved.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from secrets import compare_digest, token_urlsafe
from typing import Any
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from unpooled.errors import UnpooledError
from unpooled.node import approval, budget, policy
from unpooled.node.config import NodeConfig
from unpooled.node.review import Review
from unpooled.pages import ledger_view
from unpooled.pages.ledger_view import LedgerView
from unpooled.pages.live import document
from unpooled.pages.rehearsals import Rehearsals, roles_of, shown
from unpooled.report import markup
from unpooled.report.folder import when
from unpooled.study import Study

MAX_STUDY = 1_000_000  # bytes of a study file
MAX_FORM = 10_000
MOST_DECISIONS = 20
FIRST_WAIT = 0.4  # seconds that the first look at the page waits for a long ledger


class NodePage:
    """One node's folder.

    Parameters
    ----------
    node : NodeConfig
        The node.
    files : sequence of Path, default=()
        Studies to show besides those in the folder `waiting`.
    """

    def __init__(self, node: NodeConfig, files: Sequence[Path] = ()):
        """The page of a node; `files` are studies to show beside those that wait."""
        self.node, self.files = node, files
        self.title = f"Node {node.name}"
        self.lead = '<p class="lead">What this site takes part in, and what has left it</p>'
        self.form_token = token_urlsafe(24)
        self.rehearsals = Rehearsals(node)
        self.ledger = LedgerView(node.paths["ledger"])
        self.ledger.begin()

    def stamp(self) -> object:
        """Times of the files that the page shows, and how many rehearsals have ended."""
        node = self.node
        paths = [
            node.paths["policy"],
            node.paths["ledger"],
            node.folder / "decisions.jsonl",
            node.folder / "waiting",
            *self.files,
        ]
        times = tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in paths)
        return times, len(self.rehearsals.found), self.ledger.ready.is_set()

    def parts(self) -> dict[str, str]:
        """The parts of the page."""
        if self.ledger.ready.wait(FIRST_WAIT):
            self.ledger.refresh()
        known = approval.approved(self.node)
        titles = {digest: study.title for digest, study in known.items() if study is not None}
        titles |= {d.study: d.title for d in approval.decisions(self.node) if d.title and d.study not in titles}
        return {
            "waiting": self._waiting(),
            "add": self._add(),
            "approved": self._approved(known),
            "budget": self._budget(),
            "left": f"<section><h2>What left</h2>{self._left(titles)}</section>",
            "rules": self._rules(),
            "decisions": self._decisions(),
        }

    # ---- studies ----

    def _waiting(self) -> str:
        """Studies that wait for a decision, each with its rehearsal and buttons."""
        found = approval.waiting(self.node, self.files)
        broken = "".join(
            markup.mark(f"waiting/{name} is not a study: {why}") for name, why in approval.unreadable(self.node).items()
        )
        cards = "".join(self._card(study) for study in found)
        none = markup.paragraph("No study waits for a decision.") if not found else ""
        return f"<section><h2>Waiting for review</h2>{none}{broken}{cards}</section>"

    def _add(self) -> str:
        """The field by which a study's file is added."""
        label = '<label for="file">Add a study file that you were sent: </label>'
        field = f'<input type="file" id="file" accept=".toml" data-token="{self.form_token}">'
        return f'<p>{label}{field}</p><p id="submitted" role="status" class="soft"></p>'

    def _card(self, study: Study) -> str:
        """One study: what it is for, what it fits, who takes part, and what would leave."""
        model = study.config["model"]
        settings = ", ".join(f"{k} = {v!r}" for k, v in model.items() if k != "name") or "defaults"
        sums = "not masked: the coordinator sees this site's answers"
        if study.secure:
            sums = "masked: nobody sees this site's own answer"
        noise = "none"
        if study.privacy:
            noise = f"epsilon {study.privacy['epsilon']:g}, delta {study.privacy['delta']:g}"
        facts = {
            "purpose": study.purpose or "not told",
            "model": f"{model['name']} ({settings})",
            "columns": ", ".join([*study.columns, *roles_of(study)]),
            "sites": f"{', '.join(study.names)}; at least {study.min_cohort} in a sum",
            "sums": sums,
            "noise": noise,
            "limit": f"at most {study.max_exchanges:,} questions",
            "SHA-256": study.digest,
        }
        terms = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in facts.items())
        found = self.rehearsals.of(study)
        return (
            f'<article class="study" id="study-{study.digest[:16]}"><h3>{escape(study.title)}</h3>'
            f'<dl class="words">{terms}</dl>{shown(found)}{self._buttons(study, found)}</article>'
        )

    def _buttons(self, study: Study, found: Review | str | None) -> str:
        """Approve once the rehearsal is there; refuse at any time."""
        yes = self._form("approve", study, "Approve") if found is not None else ""
        return f"{yes}{self._form('refuse', study, 'Refuse', 'no')}"

    def _form(self, action: str, study: Study, label: str, kind: str = "") -> str:
        """One button with the tokens that make it count."""
        hidden = f'<input type="hidden" name="form" value="{self.form_token}"><input type="hidden" name="study" value="{study.digest}">'
        description = escape(f"{label} {study.title}")
        return f'<form method="post" action="{action}">{hidden}<button class="{kind}" aria-label="{description}">{label}</button></form>'

    def _approved(self, known: dict[str, Study | None]) -> str:
        """Studies that are answered, how often, and a button to revoke each."""
        if not known:
            return "<section><h2>Studies that are answered</h2><p>None.</p></section>"
        counts: dict[str, int] = {}
        for (digest, _, _), total in self.ledger.totals.items():
            counts[digest] = counts.get(digest, 0) + total.times
        rows = (
            (
                escape(study.title if study else "no copy of its file is kept"),
                f"<code>{digest[:16]}</code>",
                f"{counts.get(digest, 0):,}",
                self._form("revoke", study, "Revoke", "quiet") if study else "",
            )
            for digest, study in known.items()
        )
        table = markup.table(("study", "SHA-256", "answers", ""), rows, numbers={2})
        return f"<section><h2>Studies that are answered</h2>{table}</section>"

    def _decisions(self) -> str:
        """The latest decisions."""
        last = approval.decisions(self.node)[-MOST_DECISIONS:][::-1]
        if not last:
            return ""
        rows = (
            (escape(when(d.time)), escape(d.title or "-"), f"<code>{escape(d.study[:16])}</code>", escape(d.decision))
            for d in last
        )
        table = markup.table(("when", "study", "SHA-256", "decision"), rows)
        return f"<section><h2>Decisions</h2>{table}</section>"

    # ---- budget, rules, ledger ----

    def _budget(self) -> str:
        """The privacy budget and what is spent; nothing where the policy has none."""
        limit = policy.read(self.node.paths["policy"]).privacy
        if limit is None:
            return ""
        looks = self.ledger.looks
        spent = budget.spent(looks, limit.delta)
        bar = f'<progress value="{spent:.4f}" max="{limit.epsilon}" aria-label="budget spent"></progress>'
        text = f"epsilon {spent:.2f} of {limit.epsilon:g} spent (delta {limit.delta:g}), {len(looks)} looks"
        return f"<section><h2>Budget</h2><p>{escape(text)}</p>{bar}</section>"

    def _rules(self) -> str:
        """What the policy allows, in sentences."""
        rules = policy.read(self.node.paths["policy"])
        gathers = "not given."
        if rules.gather:
            gathers = f"given: {'all' if rules.gather is True else rules.gather}."
        lines = [
            f"With fewer than {rules.min_rows} rows nothing is answered; no count below {rules.min_rows_per_component:g} rows leaves.",
            f"Single answers (GATHER) are {gathers}",
            f'Masked sums are "{rules.secure}", with at least {rules.min_cohort} sites.',
            f"At most {rules.rounds_per_day:,} questions a day are answered.",
        ]
        marks = ""
        if rules.trust_coordinator:
            marks += markup.mark("The policy trusts the coordinator: questions of no approved study are answered too.")
        if rules.dry_run:
            marks += markup.mark("Dry run: nothing leaves, the ledger notes what would have.", good=True)
        body = f'{marks}{markup.bullets(lines)}<p class="soft">They stand in policy.toml.</p>'
        return f"<section><h2>Rules of this node</h2>{body}</section>"

    def _left(self, titles: dict[str, str]) -> str:
        """What left so far, or that the ledger is still being read."""
        if not self.ledger.ready.is_set():
            return '<p role="status">Reading and checking the ledger.</p>'
        more = '<p><a href="ledger?page=1">Every answer in words</a></p>' if self.ledger.lines else ""
        return ledger_view.summary(self.ledger, titles) + more

    # ---- what the browser sends ----

    def routes(self) -> list[Route]:
        """Further addresses of the page."""
        return [
            Route("/ledger", self._show_ledger),
            Route("/approve", self._decide, methods=["POST"]),
            Route("/refuse", self._decide, methods=["POST"]),
            Route("/revoke", self._decide, methods=["POST"]),
            Route("/submit", self._submit, methods=["POST"]),
        ]

    def _show_ledger(self, request: Request) -> Response:
        """A page of ledger lines."""
        self.ledger.ready.wait()
        self.ledger.refresh()
        given = request.query_params.get("page", "1")
        body = ledger_view.lines(self.ledger, int(given) if given.isdigit() and len(given) < 9 else 1)
        lead = f'<p class="lead">{len(self.ledger.lines):,} lines, the latest first</p>'
        return HTMLResponse(
            document(f"What left {self.node.name}", lead, {"lines": body}, request.scope["nonce"], follows=False)
        )

    async def _decide(self, request: Request) -> Response:
        """Carry out approve, refuse or revoke, when the form is of this page."""
        body = await _body(request, MAX_FORM)
        form = {k: v[0] for k, v in parse_qs((body or b"").decode("utf-8", "replace")).items()}
        if not self._is_ours(form.get("form", "")):
            return PlainTextResponse("this form is of another page: reload it", 403)
        action = request.url.path.rpartition("/")[2]
        problem = await run_in_threadpool(self._act, action, form.get("study", ""))
        if problem:
            return PlainTextResponse(problem, 409)
        return RedirectResponse("./", status_code=303)

    def _act(self, action: str, digest: str) -> str:
        """Do what a button text; "" or why not."""
        try:
            if action == "revoke":
                if digest not in policy.read(self.node.paths["policy"]).studies:
                    return "this study is not approved: reload the page"
                approval.revoke(self.node, digest)
                return ""
            study = next((s for s in approval.waiting(self.node, self.files) if s.digest == digest), None)
            if study is None:
                return "this study does not wait any more, or its file has changed: reload the page"
            (approval.approve if action == "approve" else approval.refuse)(self.node, study)
            return ""
        except UnpooledError as error:
            return str(error)

    async def _submit(self, request: Request) -> Response:
        """Take a study's file into the folder of waiting studies."""
        if not self._is_ours(request.headers.get("x-form-token", "")):
            return PlainTextResponse("this form is of another page: reload it", 403)
        body = await _body(request, MAX_STUDY)
        if body is None:
            return PlainTextResponse("the file is too large for a study", 413)
        try:
            study = await run_in_threadpool(approval.submit, self.node, body)
        except UnpooledError as error:
            return PlainTextResponse(str(error), 400)
        return PlainTextResponse(f"{study.title} waits for review.")

    def _is_ours(self, given: str) -> bool:
        """Whether the form's token is this page's, compared in constant time."""
        return compare_digest(given.encode(), self.form_token.encode())


async def _body(request: Request, most: int) -> bytes | None:
    """What was sent; None if it is more than `most` bytes."""
    found = b""
    async for part in request.stream():
        found += part
        if len(found) > most:
            return None
    return found


def serve(node: NodeConfig, files: Sequence[Path] = (), port: int = 0) -> Any:
    """The server of a node's page, ready to run."""
    from unpooled.pages.server import Server

    page = NodePage(node, files)
    return Server(page, page.routes(), port)
