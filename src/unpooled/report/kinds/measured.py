"""Sections on measured predictions: accuracy, confusion, reliability, residuals and errors by site, as the run noted them."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from unpooled.report import markup, svg
from unpooled.report.folder import RunFolder
from unpooled.report.markup import Section

MOST_CLASSES = 20
MIN_ROWS = 20  # a bin with fewer text little


def whose(measured: dict[str, Any]) -> str:
    """On which rows: held out, or those of the fit."""
    if measured.get("folds"):
        return f"held-out rows ({measured['folds']} folds, each predicted by a model that had not seen it)"
    return "the rows of the fit, so that new rows will do worse; cv = 5 under [validation] in the config measures held-out rows"


def classification(run: RunFolder) -> list[Section]:
    """Accuracy, confusion and reliability."""
    found = run.summary.get("measured", {})
    if found.get("kind") != "classifier":
        return scores(run)
    confusion = np.array(found["confusion"], dtype=float)
    accuracy = np.trace(confusion) / max(confusion.sum(), 1e-300)
    text = f"{accuracy:.1%} of {confusion.sum():,.0f} rows get the right class, log loss {found['log_loss']:.3g}."
    text += f" Measured on {whose(found)}."
    return [
        Section("Accuracy", markup.paragraph(text) + _accuracy_by_site(found)),
        Section("Confusion and reliability", markup.side_by_side(_confusion(found, confusion), _reliability(found))),
    ]


def _accuracy_by_site(found: dict[str, Any]) -> str:
    """The table of accuracies, the lowest first."""
    sites = found["sites"]
    accuracy = {name: site["right"] / max(site["rows"], 1) for name, site in sites.items()}
    worst = sorted(sites, key=lambda name: accuracy[name])
    rows = [(escape(name), f"{sites[name]['rows']:,}", f"{accuracy[name]:.1%}") for name in worst]
    some, more = markup.capped(rows, "sites")
    caption = f"Accuracy by site, the lowest first.{more}"
    return markup.table(("site", "rows", "accuracy"), some, numbers={1, 2}, caption=caption)


def _confusion(found: dict[str, Any], confusion: np.ndarray) -> str:
    """The confusion matrix as a heat map, at most MOST_CLASSES classes."""
    classes = [str(c) for c in found["classes"]][:MOST_CLASSES]
    some = confusion[: len(classes), : len(classes)]
    rows = confusion.sum(1)[: len(classes), None]
    shares = some / np.maximum(rows, 1e-300)
    texts = [[f"{v:,.0f}" for v in row] for row in some]
    down = [f"is {c}" for c in classes]
    picture = svg.shades(down, classes, shares, texts)  # long names would be cut in the middle
    return markup.figure(picture, "Rows by their class (down) and by the predicted class (across).")


def _reliability(found: dict[str, Any]) -> str:
    """Given probabilities against how often they were right, in bins with enough rows."""
    n, sure, right = (np.array(found["reliability"][key], float) for key in ("rows", "sure", "right"))
    some = n >= MIN_ROWS
    if not some.any():
        return ""
    picture = svg.reliability(
        sure[some] / n[some], right[some] / n[some], "probability it gave", "share that was right"
    )
    gap = float(np.abs(sure - right).sum() / n.sum())
    caption = f"How sure the model was against how often it was right; on average {gap:.3f} apart."
    return markup.figure(picture, f"{caption} Bins of fewer than {MIN_ROWS} rows are left out.")


def regression(run: RunFolder) -> list[Section]:
    """Residuals, errors by site and coverage."""
    found = run.summary.get("measured", {})
    if found.get("kind") != "regressor":
        return scores(run)
    total = sum(site["rows"] for site in found["sites"].values())
    error = np.sqrt(sum(site["squares"] for site in found["sites"].values()) / max(total, 1))
    text = f"Root mean squared error {error:.4g} over {total:,} rows"
    text += f", against {found['spread']:.4g} for predicting the mean. Measured on {whose(found)}."
    table = _error_by_site(found)
    figures = markup.side_by_side(_residuals(found), _coverage(found))
    return [Section("Error", markup.paragraph(text) + table), Section("Residuals and coverage", figures)]


def _error_by_site(found: dict[str, Any]) -> str:
    """The table of errors and mean residuals, the largest error first."""
    worst = sorted(found["sites"].items(), key=lambda pair: -pair[1]["squares"] / max(pair[1]["rows"], 1))
    rows = [
        (
            escape(n),
            f"{s['rows']:,}",
            f"{np.sqrt(s['squares'] / max(s['rows'], 1)):.4g}",
            f"{s['sum'] / max(s['rows'], 1):.3g}",
        )
        for n, s in worst
    ]
    some, more = markup.capped(rows, "sites")
    head = ("site", "rows", "error", "mean residual")
    return markup.table(head, some, numbers={1, 2, 3}, caption=f"Errors by site, the largest first.{more}")


def _residuals(found: dict[str, Any]) -> str:
    """The histogram of residuals."""
    counts = np.array(found["residuals"], float)
    edges = np.array(found["edges"], float)
    middle = (edges[1:] + edges[:-1]) / 2
    picture = svg.columns(middle, counts, "residual", "rows")
    return markup.figure(picture, "Residuals, what was seen less what was predicted; the outer bars hold all beyond.")


def _coverage(found: dict[str, Any]) -> str:
    """Promised against measured coverage of intervals; nothing where there are no intervals."""
    if not found.get("coverage"):
        return ""
    picture = svg.reliability(found["levels"], found["coverage"], "promised coverage", "rows inside")
    apart = float(np.abs(np.array(found["levels"]) - np.array(found["coverage"])).mean())
    return markup.figure(picture, f"Coverage of prediction intervals; on average {apart:.3f} from what was promised.")


def density(run: RunFolder) -> list[Section]:
    """The held-out log-likelihood of a mixture, by site."""
    found = run.summary.get("measured", {})
    if found.get("kind") != "density":
        return scores(run)
    sites = sorted(found["sites"].items(), key=lambda pair: pair[1]["loglik"] / max(pair[1]["rows"], 1))
    rows = [(escape(n), f"{s['rows']:,}", f"{s['loglik'] / max(s['rows'], 1):.5g}") for n, s in sites]
    total = sum(s["loglik"] for s in found["sites"].values()) / max(sum(s["rows"] for s in found["sites"].values()), 1)
    some, more = markup.capped(rows, "sites")
    head = ("site", "rows", "log-likelihood per row")
    table = markup.table(head, some, numbers={1, 2}, caption=f"By site, the lowest first.{more}")
    text = f"Log-likelihood {total:.6g} per row. Measured on {whose(found)}."
    return [Section("Held-out rows", markup.paragraph(text) + table)]


def scores(run: RunFolder) -> list[Section]:
    """Held-out losses that were measured over a network, as sums."""
    found = run.summary.get("measured", {})
    if found.get("kind") != "scores":
        return []
    rows = ((escape(_metric(m)), f"{found['mean'][m]:.5g}", f"{found['stderr'][m]:.2g}") for m in found["mean"])
    head = ("held-out", "mean per row", "standard error by site")
    note = f"{found['rows']:,.0f} rows, {found['folds']} folds; each site sent sums alone."
    return [Section("Held-out error", markup.table(head, rows, numbers={1, 2}, caption=note))]


def _metric(name: str) -> str:
    """A metric's name in words."""
    return {"error": "share of wrong classes", "log_loss": "log loss", "squared_error": "squared error"}.get(name, name)
