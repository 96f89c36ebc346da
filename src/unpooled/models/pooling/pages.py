"""The findings in text and tables: an overview for all, and a page for each site. Nothing is sent."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.models.pooling.sites import STRATEGIES, SiteLosses
from unpooled.report.page import table

if TYPE_CHECKING:
    from unpooled.models.pooling.estimator import Pooling


TESTS = ("P(x)", "P(y)", "P(y | x)", "intercepts", "slopes")


def gains(losses: SiteLosses, i: int) -> dict[str, Any]:
    """A site's held-out losses per row by strategy, its gain over itself alone, that gain's standard error, and its group."""
    n = max(float(losses.n[i]), 1e-300)
    loss = losses.total[i] / n
    gain = loss[-1] - loss
    error = np.sqrt(np.maximum(losses.gain2[i] / n - gain**2, 0.0) / n)
    return {
        "losses": dict(zip(STRATEGIES, loss.tolist())),
        "gain": dict(zip(STRATEGIES, gain.tolist())),
        "gain_stderr": dict(zip(STRATEGIES, error.tolist())),
        "group": int(np.argmax(losses.group[i])),
    }


# ---- text ----


def overview(model: Pooling) -> str:
    """Tests, recommendation, held-out losses and sites."""
    parts = [
        f"{model.n_sites_} sites, {model.n_samples_:g} rows",
        f"Recommended: {model.recommended_}: {model.reason_}.\nFit it with: {model.model_}.",
        _columns(("same at all sites?", "test", "statistic", "df", "p"), _test_rows(model)),
    ]
    if model.losses_ is not None:
        parts.append(_columns(("held-out loss per row", "loss", "to the best", "std. error"), _loss_rows(model)))
    if model.sites_:
        parts.append(_columns(_site_head(model), _site_rows(model)))
    return "\n\n".join(parts)


def site_page(model: Pooling, site: str) -> str:
    """What the site gave, what it got, what would change without it."""
    own = model.sites_[site]
    share = own["rows"] / model.n_samples_
    lines = [
        f"{site}",
        "",
        "What you gave",
        f"  {own['rows']:g} rows, {share:.1%} of all; {own['information']:.1%} of the information on the coefficients.",
        "",
    ]
    if "losses" in own:
        lines += ["What you got (loss of your left-out rows; smaller is better)", *_got(model, own), ""]
    lines += ["What would change without you", *_changes(model, own)]
    return "\n".join(lines)


def _got(model: Pooling, own: dict) -> list[str]:
    """What the site gains by pooling, against its own fit alone."""
    lines = [f"  alone                {own['losses']['own fit']:.4f}"]
    for strategy in ("one model", "personalised", model.recommended_):
        gain = own["gain"][strategy]
        error = own["gain_stderr"][strategy]
        name = "pooled (one model)" if strategy == "one model" else strategy
        lines.append(f"  {name:<20} {own['losses'][strategy]:.4f}: {gain:+.4f} gained (standard error {error:.4f})")
    return list(dict.fromkeys(lines))


def _changes(model: Pooling, own: dict) -> list[str]:
    """Coefficients with and without the site."""
    width = max(len(n) for n in ("coefficient", "intercept", *model.names_))
    lines = [f"  {'coefficient':<{width}} {'with you':>12} {'without':>12}"]
    pairs = zip(("intercept", *model.names_), (model.intercept_, *model.coef_),
                (own["intercept_without"], *own["coef_without"]))  # fmt: skip
    lines += [f"  {name:<{width}} {a:>12.5g} {b:>12.5g}" for name, a, b in pairs]
    lines.append(
        f"  The model of the others loses {own['loss_without']:.4f} per row of yours, the model of all {own['loss_with']:.4f}."
    )
    if own["information"] < 1:
        wider = 1 / np.sqrt(1 - own["information"]) - 1
        lines.append(f"  Standard errors of the common coefficients would be about {wider:.0%} wider.")
    return lines


def _test_rows(model: Pooling) -> list[tuple[str, ...]]:
    """The tests of shift as rows of a table."""
    words = {"lr": "likelihood ratio", "score": "score"}
    return [
        (name, words[kind], f"{r['statistic']:.2f}", f"{r['df']:g}", f"{r['p_value']:.3g}")
        for name in TESTS
        for kind, r in sorted(model.tests_[name].items())
    ]


def _loss_rows(model: Pooling) -> list[tuple[str, ...]]:
    """Held-out losses of the models as rows of a table."""
    found = model.losses_ or {}
    keys = ("loss", "difference", "difference_stderr")
    return [
        (strategy, *(f"{found[strategy][key]:.4f}" for key in keys)) for strategy in STRATEGIES if strategy in found
    ]


def _site_head(model: Pooling) -> tuple[str, ...]:
    """The head of the table of sites."""
    return ("site", "rows", "information", *(("alone", "pooled", "personalised") if model.losses_ else ()))


def _site_rows(model: Pooling) -> list[tuple[str, ...]]:
    """One row per site."""
    strategies = ("own fit", "one model", "personalised") if model.losses_ else ()
    return [
        (name, f"{own['rows']:g}", f"{own['information']:.1%}", *(f"{own['losses'][r]:.4f}" for r in strategies))
        for name, own in sorted(model.sites_.items())
    ]


def _columns(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A text table, the first column to the left."""
    widths = [max(map(len, column)) for column in zip(head, *rows)]
    lines = []
    for row in (head, *rows):
        fields = [row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:]))]
        lines.append("  ".join(fields))
    return "\n".join(lines)


# ---- HTML ----


def figures(model: Pooling) -> dict[str, str]:
    """What the report of a run shows."""
    said = (
        f"<p><b>{escape(model.recommended_)}</b>: {escape(model.reason_)}.<br>Fit it with: {escape(model.model_)}.</p>"
    )
    found = {"Recommendation": said}
    found["Is it the same at all sites?"] = _html(("", "test", "statistic", "df", "p"), _test_rows(model))
    if model.losses_ is not None:
        head = ("model", "held-out loss per row", "to the best", "standard error")
        found["Held-out loss"] = _html(head, _loss_rows(model))
    if model.sites_:
        found["Sites"] = _html(_site_head(model), _site_rows(model))
        pages = "".join(
            f"<details><summary>{escape(name)}</summary><pre>{escape(site_page(model, name))}</pre></details>"
            for name in sorted(model.sites_)
        )
        found["A page for each site"] = pages
    return found


def _html(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table in HTML."""
    return table(head, (tuple(map(escape, r)) for r in rows), numbers=set(range(1, len(head))))
