"""The coordinator's page: how far a run is, who is late and why, likelihood and bytes by round, refusals; or the nodes of a link.

Everything is read from the run folder, which the run writes after every round, and from `live.json`, which it writes while it waits.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from unpooled.errors import UnpooledError
from unpooled.pages.live import document
from unpooled.progress import size
from unpooled.report import folder as folders
from unpooled.report import markup, svg
from unpooled.report.folder import RunFolder
from unpooled.report.page import curve, facts, lead, page, privacy_line

FILES = ("history.jsonl", "refusals.jsonl", "live.json", "summary.json", "config.toml", "lock")
MOST_REFUSALS = 50
MOST_NAMES = 8
STATUS_EVERY = 5.0  # seconds between two questions to the link's server


class RunPage:
    """One run folder."""

    def __init__(self, folder: Path):
        """The page of a run's folder."""
        self.folder = folder
        run = folders.read(folder)
        self.title = run.name
        self.lead = f'<p class="lead">{escape(lead(run))}</p>'

    def stamp(self) -> object:
        """Times and sizes of the files; every few seconds while the run goes on, for its clock."""
        found = tuple(_mark(self.folder / name) for name in FILES)
        return found, int(time.time() / 2) if is_running(self.folder) else 0

    def parts(self) -> dict[str, str]:
        """The parts of the page."""
        run = folders.read(self.folder)
        live = folders.contents(self.folder / "live.json")
        return {
            "progress": _progress(run, live),
            "facts": markup.facts(facts(run))
            + (markup.mark(privacy_line(run), good=True) if privacy_line(run) else ""),
            "curves": _section("Rounds", markup.side_by_side(curve(run.history), _bytes(run))),
            "refusals": _section("Refusals", _refusals(run)),
        }


def _section(title: str, body: str) -> str:
    """A section with a heading; nothing when it has no content."""
    return f"<section><h2>{escape(title)}</h2>{body}</section>" if body else ""


def _mark(path: Path) -> tuple[int, int]:
    """Time and size of a file, to see whether it changed."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def is_running(folder: Path) -> bool:
    """Whether a process is working on a run folder: the one whose number stands in its lock."""
    try:
        pid = int((folder / "lock").read_text().strip() or 0)
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return pid > 0 and not (folder / "summary.json").exists()


# ---- how far ----


def _progress(run: RunFolder, live: dict[str, Any]) -> str:
    """How far the run is, whether it works, and how to continue one that stopped."""
    done = len(run.history)
    most = _max_rounds(run)
    if run.model is not None and run.summary:
        link = '<p><a href="report">Open the report</a></p>' if (run.folder / "report.html").exists() else ""
        return markup.mark(f"Finished after {done} rounds.", good=True) + link
    bar = f'<progress value="{done}" max="{most}" aria-label="rounds done">{done} of {most}</progress>'
    rounds = markup.paragraph(f"Round {done} of at most {most} is done; it may settle earlier.")
    if not (run.folder / "lock").exists():
        return markup.paragraph("Not begun yet: the run is being started, or it was never.")
    if not is_running(run.folder):
        again = f"<code>unpooled resume {escape(str(run.folder))}</code>"
        return f'<p class="mark">Stopped: no process is working on this run. {again} continues it.</p>{rounds}{bar}'
    return rounds + bar + _waiting(live)


def _max_rounds(run: RunFolder) -> int:
    """The largest number of rounds that the run can take."""
    from unpooled.config import estimator

    return max(int(getattr(estimator(run.config), "max_iter", 1)), len(run.history), 1)


def _waiting(live: dict[str, Any]) -> str:
    """The question that is open now: who has answered, for whom it waits and why."""
    if not live:
        return markup.paragraph("It reads its data, or waits for nodes to connect.")
    seconds = (datetime.now(UTC) - datetime.fromisoformat(live["since"])).total_seconds()
    question = live["question"].rpartition(".")[2]
    waiting: dict[str, str] = live["waiting"]
    answered = f"{live['answered']} of {live['asked']} have answered after {folders.duration(seconds)}"
    text = f"Exchange {live['round']} asks {question}: {answered}."
    late = [f"Waiting for {name}: {why}." for name, why in list(waiting.items())[:MOST_NAMES]]
    more = [f"And {len(waiting) - MOST_NAMES} more."] if len(waiting) > MOST_NAMES else []
    return markup.paragraph(text) + markup.bullets([*late, *more])


def _bytes(run: RunFolder) -> str:
    """The picture of bytes by round."""
    rows = [row for row in run.history if "bytes_up" in row]
    if len(rows) < 2:
        return ""
    up = [row["bytes_up"] / 1000 for row in rows]
    picture = svg.columns([row["round"] for row in rows], up, "round", "kB up")
    total = size(sum(row["bytes_up"] for row in rows))
    return markup.figure(picture, f"Bytes that clients sent up by round, {total} in all.")


def _refusals(run: RunFolder) -> str:
    """Who was refused or late, how often, and the latest reasons."""
    if not run.refusals:
        return markup.paragraph("No answer was refused, and nobody was too late.")
    by_client: dict[str, int] = {}
    for r in run.refusals:
        by_client[r["client"]] = by_client.get(r["client"], 0) + 1
    counts = ", ".join(f"{name} {n}" for name, n in sorted(by_client.items(), key=lambda pair: -pair[1])[:MOST_NAMES])
    last = run.refusals[-MOST_REFUSALS:][::-1]
    rows = ((escape(r["client"]), str(r["round"]), escape(r["question"]), escape(r["reason"])) for r in last)
    table = markup.table(
        ("client", "exchange", "question", "why"), rows, numbers={1}, caption="The latest first.", roomy=True
    )
    return markup.paragraph(f"{len(run.refusals)} answers were refused or late: {counts}.") + table


# ---- a link ----


class LinkPage:
    """The nodes of a link, and the run folders beside it."""

    def __init__(self, folder: Path, runs: Path):
        """The page of a link, with the run folders in `runs`."""
        from unpooled.remote.link import Link

        self.link = Link.open(folder)
        self.runs = runs
        self.title = f"Link {self.link.address}"
        self.lead = '<p class="lead">Nodes and runs</p>'
        self._known: tuple[float, dict[str, Any] | str] = (0.0, {})

    def stamp(self) -> object:
        """Every few seconds."""
        return int(time.time() / STATUS_EVERY), tuple(_mark(f / "history.jsonl") for f in run_folders(self.runs))

    def parts(self) -> dict[str, str]:
        """The parts of the page."""
        return {"nodes": _section("Nodes", self._nodes()), "runs": _section("Runs", _runs(self.runs))}

    def _nodes(self) -> str:
        """The nodes of the link and whether they are connected."""
        status = self._status()
        if isinstance(status, str):
            return markup.mark(f"The link does not answer: {status}")
        rows = ((escape(str(n["name"] or n["id"])), _node_state(str(n["status"]))) for n in status["nodes"])
        return (
            markup.table(("node", "state"), rows) if status["nodes"] else markup.paragraph("No node was admitted yet.")
        )

    def _status(self) -> dict[str, Any] | str:
        """What the link's server says, or why it says nothing; asked every few seconds at most."""
        from unpooled.remote.engines import engine

        if time.monotonic() - self._known[0] < STATUS_EVERY and self._known[1]:
            return self._known[1]
        try:
            found: dict[str, Any] | str = engine(self.link.engine).status(self.link)
        except (UnpooledError, OSError) as error:
            found = str(error)
        self._known = (time.monotonic(), found)
        return found


def _node_state(status: str) -> str:
    """The state as a coloured tag with its word."""
    good = status == "online"
    return f'<span class="tag {"good" if good else "warn"}">{escape(status)}</span>'


def run_folders(folder: Path) -> list[Path]:
    """The run folders in a folder, the newest first."""
    found = [path.parent for path in folder.glob("*/config.toml")]
    return sorted(found, key=lambda path: -(path / "config.toml").stat().st_mtime)


def _runs(folder: Path) -> str:
    """The run folders with their state and rounds."""
    rows = (
        (
            f'<a href="run/{escape(path.name)}/">{escape(path.name)}</a>',
            _state(path),
            str(len(folders.lines(path / "history.jsonl"))),
        )
        for path in run_folders(folder)[:MOST_REFUSALS]
    )
    if not run_folders(folder):
        return markup.paragraph(f"There is no run folder in {folder.absolute()}: --runs names another place.")
    return markup.table(("run", "state", "rounds"), rows, numbers={2}, caption=f"Run folders in {folder.absolute()}.")


def _state(folder: Path) -> str:
    """Finished, running or stopped, as a coloured tag with its word."""
    if (folder / "summary.json").exists():
        return '<span class="tag good">finished</span>'
    return '<span class="tag">running</span>' if is_running(folder) else '<span class="tag warn">stopped</span>'


# ---- further addresses ----


def routes(find: Callable[[Request], Path | None]) -> list[Route]:
    """The report of a run; `find` gives its folder."""

    def report(request: Request) -> Response:
        """The run's report within the page's rules on scripts."""
        folder = find(request)
        return HTMLResponse("not found", 404) if folder is None else HTMLResponse(_nonced(page(folder), request))

    return [Route("/report", report)]


def link_routes(runs: Path) -> list[Route]:
    """A run of a link's page, looked at once, and its report."""

    def find(request: Request) -> Path | None:
        """The run folder that a request names, None when there is none."""
        known = {path.name: path for path in run_folders(runs)}
        return known.get(request.path_params["name"])

    def show(request: Request) -> Response:
        """The page of one run of the link."""
        folder = find(request)
        if folder is None:
            return HTMLResponse("not found", 404)
        one = RunPage(folder)
        return HTMLResponse(document(one.title, one.lead, one.parts(), request.scope["nonce"], follows=False))

    def report(request: Request) -> Response:
        """The report of one run of the link."""
        folder = find(request)
        return HTMLResponse("not found", 404) if folder is None else HTMLResponse(_nonced(page(folder), request))

    return [Route("/run/{name}/", show), Route("/run/{name}/report", report)]


def _nonced(html: str, request: Request) -> str:
    """A report with its style sheet allowed by the page's content policy."""
    return html.replace("<style>", f'<style nonce="{request.scope["nonce"]}">', 1)
