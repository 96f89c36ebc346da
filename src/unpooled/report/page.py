"""A run's report: one HTML file that opens offline; everything in it is read from the run folder.

The model comes first (`kinds`), then who took part, how the fit went, what left each client, and what was asked.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from unpooled import store
from unpooled.errors import RunError
from unpooled.progress import size
from unpooled.report import folder as folders
from unpooled.report import kinds, markup, svg, words
from unpooled.report.folder import RunFolder
from unpooled.report.markup import Section, table
from unpooled.report.style import CSS

__all__ = ["CSS", "page", "table", "write_report"]

MASK = "secure.mask"  # the step that hides single answers
MOST_WORDS = 5  # kinds of numbers in an answer that are shown unfolded
CURVES = {"loglik": "log-likelihood per row", "loss": "loss", "deviance": "deviance", "bic": "BIC"}


def write_report(folder: Path, facts: Mapping[str, str] | None = None) -> Path:
    """Write report.html into a finished or unfinished run folder."""
    if not (folder / "config.toml").exists():
        raise RunError(f"{folder} is not a run: there is no config.toml in it")
    if facts:
        store.write_file(folder / "facts.json", json.dumps(dict(facts)).encode())
    store.write_file(folder / "report.html", page(folder).encode())
    return folder / "report.html"


def page(folder: Path) -> str:
    """The report as HTML."""
    run = folders.read(folder)
    sections = [
        *kinds.sections(run.model, run),
        Section("How the fit went", curve(run.history)),
        Section("Who took part", _who(run)),
        Section("Missing values", _missing(run)),
        Section("What left each client", what_left(run.ledger)),
        Section("What was asked", _asked(run)),
    ]
    return markup.page(f"unpooled: {run.name}", _header(run), sections)


# ---- the top ----


def _header(run: RunFolder) -> str:
    """The top of the page: model, what it was fitted on, whether it finished, and privacy spent."""
    state = "" if run.model is not None else _unfinished(run)
    spent = privacy_line(run)
    budget = markup.mark(spent, good=True) if spent else ""
    return (
        f'<h1>{escape(run.name)}</h1><p class="lead">{escape(lead(run))}</p>{state}{markup.facts(facts(run))}{budget}'
    )


def _unfinished(run: RunFolder) -> str:
    """That the run stopped, and how to continue it."""
    again = f"<code>unpooled resume {escape(str(run.folder))}</code>"
    return f'<p class="mark">Not finished: it stopped after round {len(run.history)}. {again} continues it.</p>'


def lead(run: RunFolder) -> str:
    """The run's name, date and version in a line."""
    parts = [run.folder.resolve().name]
    end = run.summary.get("finished")
    if end:
        parts.append(f"finished {folders.when(end)}")
    elif run.begun.get("created"):
        parts.append(f"begun {folders.when(run.begun['created'])}")
    if run.begun.get("unpooled"):
        parts.append(f"unpooled {run.begun['unpooled']}")
    return ", ".join(parts)


def facts(run: RunFolder) -> dict[str, str]:
    """The numbers that stand at the top."""
    found = {name: getattr(run.model, f"n_{name}_", None) for name in ("components", "concepts")}
    sites = run.summary.get("n_clients", max((e["asked"] for e in run.ledger), default="?"))
    rows = [c["rows"] for c in run.clients.values()]
    shown = {"clients": str(sites)}
    if rows and None not in rows:
        shown["rows"] = f"{sum(rows):,}"
    shown |= {name: str(count) for name, count in found.items() if count is not None}
    left_out = run.history[-1].get("left_out") if run.history else None
    if left_out:
        shown["components of few rows left out"] = str(left_out)
    shown["rounds"] = str(len(run.history))
    if run.history and np.isfinite(run.history[-1].get("loglik") or np.nan):
        shown["log-likelihood per row"] = f"{run.history[-1]['loglik']:.6g}"
    wall = folders.wall_time(run)
    if wall is not None:
        shown["wall time"] = folders.duration(wall)
    shown["sent up"] = size(sum(e["bytes_up"] for e in run.ledger))
    shown["sent down"] = size(sum(e["bytes_down"] for e in run.ledger))
    return {**shown, **run.facts}


def privacy_line(run: RunFolder) -> str:
    """ "epsilon 1.83 of 4.0 spent", where the run is private."""
    if run.summary.get("privacy"):
        return str(run.summary["privacy"])
    section = run.config.get("privacy", {})
    spent = [row["epsilon"] for row in run.history if "epsilon" in row]
    return f"epsilon {spent[-1]:.2f} of {section['epsilon']:g} spent so far" if section and spent else ""


# ---- how it went ----


def curve(history: list[dict]) -> str:
    """The log-likelihood, loss or BIC by round, with a separate picture for each phase of the fit."""
    for key, name in CURVES.items():
        rows = [row for row in history if _finite(row.get(key))]  # not every round has it
        if len(rows) > 1:
            return markup.side_by_side(*(_one_phase(phase, some, key, name) for phase, some in phases(rows).items()))
    return ""


def _one_phase(phase: str, rows: list[dict], key: str, name: str) -> str:
    """The curve of one phase, whose values cannot be compared with those of another."""
    picture = svg.line([row["round"] for row in rows], [row[key] for row in rows], "round", name)
    text = f"{name[0].upper()}{name[1:]} by round"
    return markup.figure(picture, f"{text}: {escape(phase)}." if phase else f"{text}.")


def _finite(value: Any) -> bool:
    """Whether a value is a number that can be drawn."""
    return isinstance(value, int | float) and bool(np.isfinite(value))


def phases(rows: list[dict]) -> dict[str, list[dict]]:
    """The rounds by the phase that they name."""
    found: dict[str, list[dict]] = {}
    for row in rows:
        found.setdefault(str(row.get("phase", "")), []).append(row)
    return {name: some for name, some in found.items() if len(some) > 1}


# ---- who, and what left ----


def _who(run: RunFolder) -> str:
    """Who took part: rows, refused answers and the latest reason of each client."""
    asked = sum(e["asked"] for e in run.ledger)
    answered = sum(e["answered"] for e in run.ledger)
    share = markup.paragraph(f"{answered:,} of {asked:,} questions were answered and accepted.") if asked else ""
    reasons: dict[str, list[str]] = {}
    for refusal in run.refusals:
        reasons.setdefault(refusal["client"], []).append(refusal["reason"])
    rows = [
        (
            escape(name),
            "not told" if own["rows"] is None else f"{own['rows']:,}",
            str(len(reasons.get(name, []))),
            escape(reasons[name][-1]) if name in reasons else "",
        )
        for name, own in run.clients.items()
    ]
    if not rows:
        return share
    head = ("client", "rows", "answers refused", "last reason")
    return share + table(head, rows, numbers={1, 2})


def _missing(run: RunFolder) -> str:
    """The heat map of missing values by client and column; nothing where none are missing."""
    clients = {name: c["missing"] for name, c in run.clients.items() if c.get("missing")}
    if not any(any(shares) for shares in clients.values()):
        return ""
    shares = np.array(list(clients.values()))
    columns = run.summary.get("columns") or [f"x{j}" for j in range(shares.shape[1])]
    picture = svg.shades(list(clients), columns, shares)
    return markup.figure(picture, "The share of missing values by client and column.")


def what_left(ledger: list[dict]) -> str:
    """What each client sent, by question: its description and the numbers of an answer; GATHERs with their risk."""
    totals: dict[tuple[str, str], list] = {}
    for e in ledger:
        kind = "masked" if MASK in e.get("steps", "") else e["kind"]
        entry = totals.setdefault((e["question"], kind), [0, 0, 0, e.get("contents", "")])
        entry[0], entry[1], entry[2] = entry[0] + 1, entry[1] + e["answered"], entry[2] + e["bytes_up"]
        entry[3] = max(entry[3], e.get("contents", ""), key=len)  # the longest of all rounds
    if not totals:
        return ""
    rows = (
        (
            f"<code>{escape(name.rpartition('.')[2])}</code> {escape(words.question(name))}",
            _kind(kind),
            folded_words(held),
            str(times),
            size(sent / max(answers, 1)),
        )
        for (name, kind), (times, answers, sent, held) in totals.items()
    )
    note = markup.paragraph(
        "In a SUM only the total over clients is used; if it is masked, nobody can see more than the total."
    )
    head = ("question", "kind", "numbers in an answer", "times", "bytes per answer")
    return note + table(head, rows, numbers={3, 4}, caption="What left each client, by question.", roomy=True)


def _kind(kind: str) -> str:
    """What a kind of question is; GATHERs are marked with their risk."""
    if kind != "gather":
        return words.KINDS[kind]
    return f'<strong class="warn">GATHER</strong><br><span class="warn">{escape(words.RISK)}</span>'


def folded_words(contents: str) -> str:
    """The numbers of an answer in words; a long list can be unfolded."""
    parts = words.contents(contents)
    if len(parts) <= MOST_WORDS:
        return "<br>".join(escape(p) for p in parts)
    return markup.folded(f"{', '.join(parts[:2])} and {len(parts) - 2} more", "<br>".join(escape(p) for p in parts))


# ---- what was asked ----


def _asked(run: RunFolder) -> str:
    """Settings of the run, and parameters that were left at their defaults."""
    rows = (
        (f"<code>{escape(section)}.{escape(key)}</code>", f'<span class="long">{escape(str(value))}</span>')
        for section, body in run.config.items()
        for key, value in body.items()
    )
    given = table(("setting", "value"), rows)
    left = defaults(run)
    if not left:
        return given
    kept = table(("parameter", "value"), ((f"<code>{escape(k)}</code>", escape(str(v))) for k, v in left.items()))
    return given + markup.folded(f"{len(left)} parameters were left at their defaults", kept)


def defaults(run: RunFolder) -> dict[str, Any]:
    """The parameters of the model that the config does not set."""
    from unpooled.config import model_class

    known = inspect.signature(model_class(run.name).__init__).parameters
    return {k: p.default for k, p in known.items() if p.default is not p.empty and k not in run.config["model"]}
