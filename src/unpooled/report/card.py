"""A model card of a run, in Markdown and HTML: intended use, data by site, metrics by site, privacy, limits.

Only numbers that may be shown: counts below ten are not written out, and a private run shows no number without noise.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unpooled import store
from unpooled.progress import size
from unpooled.report import folder as folders
from unpooled.report import kinds, markup, words
from unpooled.report.folder import RunFolder
from unpooled.report.markup import Section
from unpooled.report.page import MASK, facts, lead, privacy_line

FEW = 10  # a smaller count of rows is not written out
NOT_FOR = {  # kind of model -> what it is not for
    "mixtures": "Clusters describe the rows of these sites. They are not diagnoses: the cluster of a row is not a fact about a person.",
    "imputers": "Filled-in values are estimates. Use them with their intervals or several draws, never as measurements.",
    "classifiers": "Do not decide about single people by this model alone. Check it first at a site unlike those below.",
    "concepts": "A concept is a pattern of labels that sites share. It does not say which site labels rightly.",
    "regressions": "Coefficients are associations, not effects. Do not predict far outside the range of the data below.",
    "summaries": "Numbers describe the rows of these sites. They do not speak for other sites or people.",
}


class Table(NamedTuple):
    """A table of plain text."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


class Part(NamedTuple):
    """One heading of a card: sentences, then tables."""

    title: str
    sentences: Sequence[str]
    tables: Sequence[Table] = ()


def write_card(folder: Path, use: str = "") -> list[Path]:
    """Write card.md and card.html into a run folder; what the model is for is kept for the next time."""
    path = folder / "card.json"
    run = folders.read(folder)
    if use:
        store.write_file(path, json.dumps({"use": use}).encode())
    use = folders.contents(path).get("use", "")
    made = parts(run, use)
    store.write_file(folder / "card.md", markdown(run, made).encode())
    store.write_file(folder / "card.html", html(run, made).encode())
    return [folder / "card.md", folder / "card.html"]


def parts(run: RunFolder, use: str) -> list[Part]:
    """The headings of a card, in order."""
    return [_model(run), _use(run, use), _data(run), _metrics(run), _privacy(run), _limits(run)]


# ---- what it says ----


def _model(run: RunFolder) -> Part:
    """What was fitted, how long it took, and the settings that differ from the defaults."""
    shown = {k: v for k, v in facts(run).items() if k not in ("sent up", "sent down")}
    settings = {k: v for k, v in run.config["model"].items() if k != "name"}
    sentences = [_sentence(lead(run))]
    if run.model is None:
        sentences.append("The run has not finished: this card has no model yet.")
    if settings:
        sentences.append(f"Settings: {', '.join(f'{k} = {v!r}' for k, v in settings.items())}.")
    else:
        sentences.append("All settings are defaults.")
    return Part("Model", sentences, [Table(("", ""), list(shown.items()))])


def _use(run: RunFolder, use: str) -> Part:
    """What the model is meant for, and what it must not be used for."""
    study = run.config.get("study", {})
    purpose = use or study.get("purpose") or ""
    first = _sentence(purpose) if purpose else 'Not told yet: `unpooled card RUN --use "..."` adds it.'
    title = [f"Study: {study['title']}."] if study.get("title") else []
    limit = NOT_FOR.get(kinds.KINDS.get(run.name, ""), "")
    return Part("Intended use", [*title, first, *([limit] if limit else [])])


def _data(run: RunFolder) -> Part:
    """Columns, and rows and missing values by site."""
    columns = run.columns
    sentences = [f"{len(columns)} columns: {', '.join(columns)}."] if columns else []
    rows = [(name, _count(own["rows"]), _share(own["rows"], own.get("missing"))) for name, own in run.clients.items()]
    left_out = run.summary.get("n_clients", len(rows)) - len(rows)
    if left_out > 0:
        sentences.append(f"{left_out} more sites are not listed.")
    return Part("Data by site", sentences, [Table(("site", "rows", "missing values"), rows)] if rows else [])


def _count(rows: int | None) -> str:
    """The number of rows; small numbers are not shown."""
    if rows is None:
        return "not told"
    return f"{rows:,}" if rows >= FEW else f"fewer than {FEW}"


def _share(rows: int | None, missing: Sequence[float] | None) -> str:
    """The mean part of missing cells; of few rows it would tell how many they are."""
    if not missing:
        return "not told"
    return f"{np.mean(missing):.0%}" if rows is None or rows >= FEW else "not shown"


def _metrics(run: RunFolder) -> Part:
    """Metrics of the kind that was measured, or the likelihood where none was."""
    found = run.summary.get("measured", {})
    made = {
        "classifier": _accuracy,
        "regressor": _errors,
        "imputer": _filled,
        "scores": _losses,
        "density": _density,
    }.get(found.get("kind", ""))
    return Part("Metrics", _likelihood(run)) if made is None else made(found, run)


def _accuracy(found: dict[str, Any], run: RunFolder) -> Part:
    """Accuracy and log loss, and accuracy by site where it has enough rows."""
    total = np.array(found["confusion"])
    share = np.trace(total) / max(total.sum(), 1)
    sentence = f"Accuracy {share:.1%}, log loss {found['log_loss']:.3g}, on {_whose(found)}."
    return Part(
        "Metrics", [sentence], [_by_site(found, "accuracy", lambda site: f"{site['right'] / site['rows']:.1%}")]
    )


def _errors(found: dict[str, Any], run: RunFolder) -> Part:
    """Root mean squared error by site, beside that of the mean."""
    sentence = f"Root mean squared error by site, on {_whose(found)}; predicting the mean has {found['spread']:.4g}."

    def error(site: dict[str, Any]) -> str:
        """The error of one site."""
        return f"{np.sqrt(site['squares'] / site['rows']):.4g}"

    return Part("Metrics", [sentence], [_by_site(found, "error", error)])


def _density(found: dict[str, Any], run: RunFolder) -> Part:
    sentences = [*_likelihood(run), f"Log-likelihood per row by site, on {_whose(found)}:"]

    def loglik(site: dict[str, Any]) -> str:
        """The log-likelihood per row of one site."""
        return f"{site['loglik'] / site['rows']:.5g}"

    return Part("Metrics", sentences, [_by_site(found, "log-likelihood per row", loglik)])


def _by_site(found: dict[str, Any], metric: str, text: Callable[[dict[str, Any]], str]) -> Table:
    """A metric by site, "-" where a site has few rows."""
    rows = [(name, text(site) if site["rows"] >= FEW else "-") for name, site in found["sites"].items()]
    return Table(("site", metric), rows)


def _filled(found: dict[str, Any], run: RunFolder) -> Part:
    """Errors of hidden cells by column, filled in by the mean and by the model."""
    sentence = (
        "Root mean squared error of known cells that were hidden, filled in by their column's mean and by the model."
    )
    rows = [(name, f"{b:.4g}", f"{a:.4g}") for name, b, a in zip(run.columns, found["before"], found["after"])]
    return Part("Metrics", [sentence], [Table(("column", "mean", "model"), rows)])


def _losses(found: dict[str, Any], run: RunFolder) -> Part:
    """Held-out losses with their standard errors by site."""
    rows = [(m.replace("_", " "), f"{found['mean'][m]:.5g}", f"{found['stderr'][m]:.2g}") for m in found["mean"]]
    table = Table(("metric", "mean", "standard error by site"), rows)
    return Part("Metrics", [f"Held-out losses per row, {found['folds']} folds."], [table])


def _whose(found: dict[str, Any]) -> str:
    """Which rows the metrics are of."""
    return "held-out rows" if found.get("folds") else "the rows of the fit (new rows will do worse)"


def _likelihood(run: RunFolder) -> list[str]:
    """Log-likelihood and BIC, where the model has them."""
    values = {
        "log-likelihood per row": getattr(run.model, "lower_bound_", None),
        "BIC": getattr(run.model, "bic_", None),
    }
    sentences = [f"{name[0].upper()}{name[1:]}: {float(v):.6g}." for name, v in values.items() if v is not None]
    return sentences or ["No metric was measured in this run."]


def _privacy(run: RunFolder) -> Part:
    """How many sums and single answers were asked, what was masked, and what noise was added."""
    masked = sum(MASK in e.get("steps", "") for e in run.ledger)
    kinds_of = {kind: sum(e["kind"] == kind for e in run.ledger) for kind in ("sum", "gather", "tell")}
    sentences = [
        f"{kinds_of['sum']:,} sums were asked, {masked:,} of them masked so that nobody sees a single site's part."
    ]
    names = sorted({e["question"] for e in run.ledger if e["kind"] == "gather"})
    if names:
        sentences.append(
            f"{kinds_of['gather']:,} times single answers were asked (GATHER: {', '.join(names)}). {words.RISK}"
        )
    else:
        sentences.append("No single answer was asked for.")
    noise = privacy_line(run) or "No noise was added: there is no guarantee of differential privacy."
    sentences.append(_sentence(noise))
    sentences.append(f"{size(sum(e['bytes_up'] for e in run.ledger))} were sent by all sites together.")
    return Part("Privacy", sentences)


def _limits(run: RunFolder) -> Part:
    """What a reader should doubt: missing answers, small sites, fits that did not converge."""
    sentences = []
    asked = sum(e["asked"] for e in run.ledger)
    answered = sum(e["answered"] for e in run.ledger)
    if answered < asked:
        sentences.append(f"{asked - answered:,} of {asked:,} questions were not answered: some rounds lack some sites.")
    small = [n for n, own in run.clients.items() if own["rows"] is not None and own["rows"] < 100]
    if small:
        sentences.append(f"Fewer than 100 rows at {markup.listed(small)}: statements about these sites are uncertain.")
    if getattr(run.model, "converged_", True) is False:
        sentences.append("The fit stopped at its limit of rounds before it had settled.")
    if run.summary.get("measured", {}).get("folds") == 0 and run.summary["measured"].get("kind"):
        sentences.append(
            "Metrics are on the rows of the fit; `[validation] cv = 5` in the config measures held-out rows."
        )
    sentences.append("Sites chose to take part; they do not stand for all sites.")
    return Part("Limits", sentences)


def _sentence(text: str) -> str:
    """The text with a full stop."""
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."


# ---- how it is written ----


def markdown(run: RunFolder, made: Iterable[Part]) -> str:
    """The card as Markdown."""
    blocks = [f"# Model card: {run.name}"]
    for part in made:
        blocks.append(f"## {part.title}")
        blocks += list(part.sentences)
        blocks += [_markdown_table(t) for t in part.tables]
    return "\n\n".join(blocks) + "\n"


def _markdown_table(table: Table) -> str:
    """The table in Markdown."""
    lines = []
    for row in (table.head, ["---"] * len(table.head), *table.rows):
        cells = [str(cell).replace("|", "\\|").replace("\n", " ") for cell in row]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def html(run: RunFolder, made: Iterable[Part]) -> str:
    """The card as one HTML file."""
    header = f'<h1>Model card: {escape(run.name)}</h1><p class="lead">{escape(lead(run))}</p>'
    return markup.page(f"Model card: {run.name}", header, [Section(part.title, _html_part(part)) for part in made])


def _html_part(part: Part) -> str:
    """One part of the card in HTML."""
    sentences = "".join(markup.paragraph(text) for text in part.sentences)
    tables = (
        markup.table(
            t.head, [[escape(str(c)) for c in row] for row in t.rows], numbers=range(1, len(t.head)), label=part.title
        )
        for t in part.tables
    )
    return sentences + "".join(tables)
