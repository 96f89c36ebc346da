"""Classifiers: accuracy, confusion, reliability, what each site gains, and which parts of the model each site uses."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.report import markup, statistics, svg
from unpooled.report.folder import RunFolder
from unpooled.report.kinds import measured
from unpooled.report.markup import Section

MOST_CLIENTS = 40


def sections(model: Any, run: RunFolder) -> list[Section]:
    """How well a fitted classifier predicts, and what differs between sites."""
    return [
        *measured.classification(run),
        Section("Gain by site", gain(model)),
        Section("What each site uses", _personal(model)),
        Section("Coefficients", _coefficients(model, run)),
    ]


def gain(model: Any) -> str:
    """By how much each site does better together than alone, where the fit has measured it."""
    known = getattr(model, "gain_", None)
    if not isinstance(known, dict) or not known:
        return ""
    least = sorted(known.items(), key=lambda pair: float(np.mean(to_numpy(pair[1]))))[:MOST_CLIENTS]
    values = {str(name): float(np.mean(to_numpy(v))) for name, v in least}
    caption = "Held-out log-loss per row of each site's own rows alone, minus that of what it keeps; above 0 is a gain."
    return markup.figure(svg.bars(values), caption) + _comparison(getattr(model, "comparison_", None))


def _comparison(known: Any) -> str:
    """Held-out losses alone, shared and kept, by site."""
    if not isinstance(known, dict) or not known:
        return ""
    keys = [key for key in ("alone", "shared", "kept", "rows") if key in next(iter(known.values()))]
    rows = [(escape(str(name)), *(markup.number(float(row[key])) for key in keys)) for name, row in known.items()]
    some, more = markup.capped(rows, "sites")
    table = markup.table(
        ("site", *keys), some, numbers=range(1, len(keys) + 1), caption=f"Held-out log-loss per row.{more}"
    )
    return markup.folded("The same in numbers", table)


def _personal(model: Any) -> str:
    """FedGMM: the weights of learners at each client."""
    clients = getattr(model, "clients_", None) or {}
    some = {name: to_numpy(own["pi"]) for name, own in list(clients.items())[:MOST_CLIENTS] if "pi" in own}
    if not some:
        return ""
    shares = np.array([pi.sum(0) / pi.sum() for pi in some.values()])  # over Gaussians: (clients, learners)
    if shares.shape[1] < 2:
        return ""
    names = [str(k + 1) for k in range(shares.shape[1])]
    return markup.figure(
        svg.stacked(list(some), shares, parts_names=names), "The weight of each classifier of the mixture at each site."
    )


def _coefficients(model: Any, run: RunFolder) -> str:
    """Coefficients of a linear classifier as a table, and as a picture where there are two classes."""
    coef = getattr(model, "coef_", None)
    if coef is None:
        return ""
    values = np.atleast_2d(to_numpy(coef))
    names = run.features[: values.shape[1]]
    classes = [str(c) for c in model.classes_]
    heads = classes[1:] if len(values) == 1 else classes
    rows = ((escape(name), *(f"{v:.4g}" for v in values[:, j])) for j, name in enumerate(names))
    table = markup.table(
        ("column", *heads), rows, numbers=range(1, len(heads) + 1), caption="Log odds per unit of each column."
    )
    if len(values) > 1 or len(names) > statistics.MOST:
        return table
    shown = {name: float(v) for name, v in zip(names, values[0])}
    return markup.figure(svg.bars(shown), f"Log odds of {escape(heads[0])} per unit of each column.") + markup.folded(
        "The same in numbers", table
    )
