"""A run's report: one HTML file that opens offline; everything in it is read from the run folder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from unpooled import config as configs
from unpooled import store
from unpooled.client import REGISTRY
from unpooled.errors import RunError
from unpooled.estimator import load
from unpooled.progress import size
from unpooled.report import svg

MOST_CONTENTS = 240  # characters of an answer's contents that are shown unfolded

CSS = """
body{font:15px/1.5 system-ui,sans-serif;color:#222;max-width:860px;margin:2.5rem auto;padding:0 1rem}
h1{font-size:1.6rem;margin:0 0 .2rem} h2{font-size:1.1rem;margin:2.2rem 0 .4rem} .lead{color:#666;margin:0 0 1rem}
.wide{overflow-x:auto} table{border-collapse:collapse;width:100%;font-size:14px}
th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #e6e6e6;vertical-align:top}
th{color:#666;font-weight:600} td.n,th.n{text-align:right;font-variant-numeric:tabular-nums} code{font-size:13px}
.facts{display:flex;flex-wrap:wrap;gap:.6rem}
.facts div{background:#f4f6f9;border-radius:8px;padding:.5rem .9rem} .facts b{display:block;font-size:1.15rem}
svg{width:100%;height:auto;max-width:700px}
"""


MASK = "secure.mask"  # the step that hides single answers


def write_report(folder: Path, facts: Mapping[str, str] | None = None) -> Path:
    """Write report.html into a finished or unfinished run folder."""
    if not (folder / "config.toml").exists():
        raise RunError(f"{folder} is not a run: there is no config.toml in it")
    extra = folder / "facts.json"
    if facts:
        store.write_file(extra, json.dumps(dict(facts)).encode())
    facts = json.loads(extra.read_text()) if extra.exists() else {}
    store.write_file(folder / "report.html", page(folder, facts).encode())
    return folder / "report.html"


def page(folder: Path, facts: Mapping[str, str]) -> str:
    config = configs.read(folder / "config.toml")
    configs.estimator(config)  # imports the questions, whose docstrings are shown
    history, ledger, refusals = (_lines(folder / f"{name}.jsonl") for name in ("history", "ledger", "refusals"))
    summary = json.loads((folder / "summary.json").read_text()) if (folder / "summary.json").exists() else {}
    model = load(folder) if (folder / "model" / "model.zip").exists() else None
    sections = [
        _facts(model, history, ledger, summary, facts),
        _asked(config),
        _curve(history),
        _who(summary, ledger, refusals),
        _weights(summary),
        _missing(summary),
        _left(ledger),
        *(f"<h2>{escape(title)}</h2>{figure}" for title, figure in getattr(model, "report_figures", dict)().items()),
    ]
    name = escape(config["model"]["name"])
    lead = (
        "finished"
        if model is not None
        else f"stopped after round {len(history)}: <code>unpooled resume {escape(str(folder))}</code> continues it"
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>unpooled: {name}</title><style>{CSS}</style></head>'
        f'<body><h1>{name}</h1><p class="lead">{escape(folder.name)}, {lead}</p>{"".join(sections)}</body></html>'
    )


def _facts(model: Any, history: list, ledger: list, summary: dict, extra: Mapping[str, str]) -> str:
    up, down = sum(e["bytes_up"] for e in ledger), sum(e["bytes_down"] for e in ledger)
    found = {name: getattr(model, f"n_{name}_", None) for name in ("components", "concepts")}
    facts = {
        "clients": str(summary.get("n_clients", max((e["asked"] for e in ledger), default="?"))),
        **{name: str(count) for name, count in found.items() if count is not None},
        "rounds": str(len(history)),
        "sent up": size(up),
        "sent down": size(down),
    }
    if history and "loglik" in history[-1]:
        facts["log-likelihood per row"] = f"{history[-1]['loglik']:.6g}"
    boxes = "".join(f"<div>{escape(k)}<b>{escape(v)}</b></div>" for k, v in {**facts, **extra}.items())
    return f'<div class="facts">{boxes}</div>'


def _asked(config: configs.Config) -> str:
    rows = ((f"{section}.{key}", escape(str(value))) for section, body in config.items() for key, value in body.items())
    return "<h2>What was asked</h2>" + table(("setting", "value"), rows)


def _curve(history: list) -> str:
    for key, name in (("loglik", "log-likelihood per row"), ("loss", "loss"), ("deviance", "deviance")):
        rows = [row for row in history if np.isfinite(row.get(key, np.nan))]  # not every round has it
        if len(rows) > 1:
            curve = svg.line([row["round"] for row in rows], [row[key] for row in rows], "round", name)
            return f"<h2>{name.capitalize()} by round</h2>{curve}"
    return ""


def _who(summary: dict, ledger: list, refusals: list) -> str:
    asked, answered = sum(e["asked"] for e in ledger), sum(e["answered"] for e in ledger)
    counts: dict[str, list] = {}
    for r in refusals:
        counts.setdefault(r["client"], []).append(r["reason"])
    rows = (
        (
            escape(name),
            "unknown" if c["rows"] is None else f"{c['rows']:,}",
            str(len(counts.get(name, []))),
            escape(counts[name][-1]) if name in counts else "",
        )
        for name, c in summary.get("clients", {}).items()
    )
    clients = table(("client", "rows", "answers refused", "last reason"), rows, numbers={1, 2}) if summary else ""
    share = f"<p>{answered:,} of {asked:,} questions were answered and accepted.</p>" if asked else ""
    return f"<h2>Who took part</h2>{share}{clients}"


def _weights(summary: dict) -> str:
    weights = summary.get("weights") or {}
    if not weights:
        return ""
    return "<h2>Weights of the components at each client</h2>" + svg.stacked(
        list(weights), np.array(list(weights.values()))
    )


def _missing(summary: dict) -> str:
    clients = {name: c["missing"] for name, c in summary.get("clients", {}).items() if c["missing"]}
    if not clients or not any(any(shares) for shares in clients.values()):
        return ""
    shares = np.array(list(clients.values()))
    columns = summary["columns"] or [f"x{j}" for j in range(shares.shape[1])]
    return "<h2>Missing values</h2>" + svg.shades(list(clients), columns, shares)


def _left(ledger: list) -> str:
    """What each client sent, by question: its description and the numbers of an answer."""
    totals: dict[tuple[str, str], list] = {}
    for e in ledger:
        kind = "masked" if MASK in e.get("steps", "") else e["kind"]
        entry = totals.setdefault((e["question"], kind), [0, 0, 0, e.get("contents", "")])
        entry[0], entry[1], entry[2] = entry[0] + 1, entry[1] + e["answered"], entry[2] + e["bytes_up"]
        entry[3] = max(entry[3], e.get("contents", ""), key=len)  # the longest of all rounds
    rows = (
        (
            f"<code>{escape(q.rpartition('.')[2])}</code> {escape(_words(q))}",
            _kind(kind),
            _folded(held),
            str(times),
            size(sent / max(answers, 1)),
        )
        for (q, kind), (times, answers, sent, held) in totals.items()
    )
    note = (
        "<p>In a SUM only the total over clients is used; if it is masked, nobody can see more than the total. "
        "In a GATHER the coordinator sees each client's answer, which can reveal much about a small client.</p>"
    )
    return (
        "<h2>What left each client</h2>"
        + note
        + table(("question", "kind", "numbers in an answer", "times", "bytes per answer"), rows, numbers={3, 4})
    )


def _folded(contents: str) -> str:
    """A long list shortened to its beginning, which can be unfolded."""
    if len(contents) <= MOST_CONTENTS:
        return escape(contents)
    parts = contents.split(", ")
    return f"<details><summary>{escape(', '.join(parts[:4]))} and {len(parts) - 4} more</summary>{escape(contents)}</details>"


def _kind(kind: str) -> str:
    names = {
        "sum": "SUM",
        "masked": "SUM, masked",
        "gather": "<b>GATHER</b>",
        "tell": "nothing",
        "keys": "keys of masks",
    }
    return names[kind]


def _words(question: str) -> str:
    """The first line of the docstring of a question, or else of its answer's type."""
    ask = REGISTRY.get(question)
    if ask is None:
        return ""
    kind = get_type_hints(ask.answer).get("return")
    own = getattr(kind, "__doc__", "") if hasattr(kind, "_fields") else ""
    own = "" if (own or "").startswith(f"{getattr(kind, '__name__', '')}(") else own  # generated by NamedTuple
    return (ask.answer.__doc__ or own or "").strip().split("\n")[0]


def table(head: Iterable[str], rows: Iterable[Iterable[str]], numbers: set[int] = frozenset()) -> str:  # type: ignore[assignment]
    mark = lambda i: ' class="n"' if i in numbers else ""  # noqa: E731
    top = "".join(f"<th{mark(i)}>{escape(h)}</th>" for i, h in enumerate(head))
    body = "".join(
        "<tr>" + "".join(f"<td{mark(i)}>{cell}</td>" for i, cell in enumerate(row)) + "</tr>" for row in rows
    )
    return f'<div class="wide"><table><tr>{top}</tr>{body}</table></div>'


def _lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
