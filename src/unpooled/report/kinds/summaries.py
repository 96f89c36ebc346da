"""Report sections of Describe, KaplanMeier, Cox and PCA: the tables and pictures that statisticians expect."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.report import markup, statistics, svg
from unpooled.report.folder import RunFolder
from unpooled.report.kinds import own_figures
from unpooled.report.markup import Section

MOST_AXES = 8
MOST_COLUMNS = 40


def sections(model: Any, run: RunFolder) -> list[Section]:
    """Tables and pictures of one of these models."""
    return {"PCA": _pca, "Cox": _cox, "KaplanMeier": _kaplan_meier}.get(type(model).__name__, _described)(model, run)


def _described(model: Any, run: RunFolder) -> list[Section]:
    """Sections of Describe, its pictures with captions."""
    captions = {
        "Histograms": "Rows by value of each column; bins with too few rows are left out.",
        "Size of correlations": "The size of the correlation of each pair of columns.",
    }
    return [
        Section(s.title, markup.figure(s.body, captions[s.title]) if s.title in captions else s.body)
        for s in own_figures(model)
    ]


def _kaplan_meier(model: Any, run: RunFolder) -> list[Section]:
    """Survival curves with intervals, rows and events by group, and the log-rank test."""
    groups = [_group(model.by, g) if model.by is not None else "all" for g in to_numpy(model.groups_)]
    bands = zip(to_numpy(model.survival_), to_numpy(model.lower_), to_numpy(model.upper_))
    curve = statistics.curves(to_numpy(model.times_), dict(zip(groups, bands)))
    at_risk = to_numpy(model.at_risk_)
    events = to_numpy(model.events_)
    rows = (
        (
            escape(name),
            f"{at_risk[k, 0]:,.0f}" if at_risk.shape[1] else "-",
            f"{events[k].sum():,.0f}",
            markup.number(float(to_numpy(model.median_)[k])),
        )
        for k, name in enumerate(groups)
    )
    table = markup.table(("group", "rows at risk at first", "events", "median"), rows, numbers={1, 2, 3})
    test = model.logrank_
    result = "" if test is None else markup.paragraph(f"Log-rank test: {_test(test)}.")
    caption = "The share without an event by time, with its 95 % interval."
    return [Section("Survival", markup.figure(curve, caption) + table + result)]


def _group(by: Any, value: Any) -> str:
    """What a group is called: the column and its value, a text or a number."""
    return f"{by} {value}" if isinstance(value, str) else f"{by} {value:g}"


def _test(test: Any) -> str:
    """A test's numbers in one line."""
    if hasattr(test, "_asdict"):
        fields = test._asdict()
    else:
        fields = test if isinstance(test, dict) else {"": test}
    numbers = {name.replace("_", " "): float(value) for name, value in fields.items() if np.ndim(value) == 0}
    return ", ".join(f"{name} {value:.4g}".strip() for name, value in numbers.items())


def _cox(model: Any, run: RunFolder) -> list[Section]:
    """Hazard ratios with intervals as a picture and as a table."""
    names = list(model._labels())
    ends = to_numpy(model.confidence_interval_)
    picture = statistics.intervals(names, to_numpy(model.coef_), ends)
    rows = (
        (escape(n), f"{h:.3g}", f"{np.exp(a):.3g} to {np.exp(b):.3g}", f"{c:.4g}", f"{e:.3g}", f"{p:.3g}")
        for n, h, (a, b), c, e, p in zip(names, model.hazard_ratio_, ends, model.coef_, model.stderr_, model.p_value_)
    )
    head = ("covariate", "hazard ratio", "95 % interval", "coefficient", "std. error", "p")
    facts = {
        "rows": f"{model.n_samples_:,.0f}",
        "events": f"{model.n_events_:,.0f}",
        "log-likelihood": f"{model.loglik_:.5g}",
        **({} if model.concordance_ is None else {"concordance": f"{model.concordance_:.3f}"}),
    }
    caption = (
        "Log hazard ratios per unit of each covariate, with 95 % confidence intervals; right of 0 is a higher risk."
    )
    body = markup.facts(facts) + markup.figure(picture, caption) + markup.table(head, rows, numbers={1, 2, 3, 4, 5})
    return [Section("Hazard ratios", body)]


def _pca(model: Any, run: RunFolder) -> list[Section]:
    """Explained variance by component, and the weights of columns on the first axes."""
    share = to_numpy(model.explained_variance_ratio_)
    number = np.arange(1, len(share) + 1)
    figure = ""
    if len(share) > 1:
        curves = {"each": (number, share), "together": (number, np.cumsum(share))}
        figure = markup.figure(
            svg.lines(curves, "component", "share of variance", floor=0.0), "Share of variance by component."
        )
    loads = to_numpy(model.components_)[:MOST_AXES]
    names = run.columns[: loads.shape[1]][:MOST_COLUMNS]
    texts = [[f"{v:.1f}".replace("-0.0", "0.0") for v in row] for row in loads.T[: len(names)]]
    heads = [f"axis {k + 1}" for k in range(len(loads))]
    picture = svg.shades(names, heads, np.abs(loads.T[: len(names)]), texts)
    caption = "The weight of each column on each axis; darker is larger, whatever its sign."
    words = f"{len(share)} axes hold {share.sum():.1%} of the variance of {model.n_samples_:,.0f} rows."
    return [
        Section(
            "Principal axes", markup.paragraph(words) + markup.side_by_side(figure, markup.figure(picture, caption))
        )
    ]
