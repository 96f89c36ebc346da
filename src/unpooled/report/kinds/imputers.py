"""Imputers: how far filled-in values are from hidden ones, by column, against filling in the mean."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from unpooled.report import markup, svg
from unpooled.report.folder import RunFolder
from unpooled.report.kinds import parts as shapes
from unpooled.report.kinds.parts import Parts
from unpooled.report.markup import Section

DRAWS = 2000  # rows drawn from the model to find the error it expects
MOST_COLUMNS = 40


def sections(model: Any, run: RunFolder) -> list[Section]:
    """What a fitted imputer fills in, and how well."""
    if hasattr(model, "dates_"):
        return _counts(model)
    parts = shapes.parts_of(model)
    columns = run.columns
    if parts is None or parts.means.shape[1] != len(columns):  # categories have several numbers each
        return [Section("Error of hidden cells", _hidden(model)), Section("Coverage of intervals", _coverage(model))]
    return [
        Section("Error of hidden cells", _hidden(model)),
        Section("By column, before and after", markup.side_by_side(_by_column(parts, columns, run), _coverage(model))),
    ]


def _hidden(model: Any) -> str:
    """How well hidden cells were filled in when candidates were compared."""
    errors = np.atleast_1d(np.asarray(getattr(model, "hidden_rmse_", []), dtype=float))
    if not np.isfinite(errors).any():
        return ""
    best = float(np.nanmin(errors))
    return markup.paragraph(
        f"{model.hide:.0%} of the known cells were hidden at every client while {len(errors)} candidates were fitted. The chosen one "
        f"({model.n_components_} component{'s' if model.n_components_ != 1 else ''}) filled them in with a root mean squared error of "
        f"{best:.3g} standard deviations of their column; filling in the column's mean has an error of about 1."
    )


def _by_column(parts: Parts, columns: list[str], run: RunFolder) -> str:
    """Error of the mean and of the model, measured where rows are in this process, else as the model expects."""
    measured = run.summary.get("measured", {})
    if measured.get("kind") == "imputer":
        before = np.array(measured["before"], float)
        after = np.array(measured["after"], float)
        how = (
            f"Measured on {measured['cells']:,} known cells that were hidden one part at a time from the fitted model, "
            "which had seen them in the fit."
        )
    else:
        before, after = expected_errors(parts)
        how = "As the model itself expects, computed from its parameters for one missing cell in a row."
    return how_much(columns, before, after, how)


def how_much(columns: list[str], before: np.ndarray, after: np.ndarray, how: str) -> str:
    """A bar per column: the share of the mean's error that is left, and the numbers."""
    left = np.where(before > 0, after / np.where(before > 0, before, 1.0), np.nan)
    order = np.argsort(np.nan_to_num(left, nan=9.0), kind="stable")[:MOST_COLUMNS]
    shares = {columns[j]: float(left[j]) for j in order if np.isfinite(left[j])}
    if not shares:
        return ""
    picture = svg.bars(shares, notes={name: f"{v:.0%}" for name, v in shares.items()})
    caption = f"The error of a filled-in value as a share of the error of the column's mean: smaller is better. {how}"
    rows = ((escape(columns[j]), f"{before[j]:.4g}", f"{after[j]:.4g}") for j in order)
    table = markup.table(("column", "error of the mean", "error of the model"), rows, numbers={1, 2})
    return f"<div>{markup.figure(picture, caption)}{markup.folded('The same in numbers', table)}</div>"


def expected_errors(parts: Parts) -> tuple[np.ndarray, np.ndarray]:
    """(before, after), (d,) each: standard deviation of each column, and its root mean squared error given all others."""
    rng = np.random.default_rng(0)
    share = parts.weights / parts.weights.sum()
    label = rng.choice(len(share), size=DRAWS, p=share)
    noise = rng.standard_normal((DRAWS, parts.means.shape[1]))
    roots = np.linalg.cholesky(parts.covs + 1e-12 * np.eye(noise.shape[1]))
    x = parts.means[label] + np.einsum("nij,nj->ni", roots[label], noise)
    after = np.array([_error_of(parts, share, x, j) for j in range(x.shape[1])])
    return shapes.whole(parts).scale, after


def _error_of(parts: Parts, share: np.ndarray, x: np.ndarray, j: int) -> float:
    """Root mean squared error of column j predicted from the other columns of rows x."""
    others = np.delete(np.arange(x.shape[1]), j)
    guess = np.empty((len(x), len(share)))
    log_weight = np.empty((len(x), len(share)))
    for k, (mean, cov) in enumerate(zip(parts.means, parts.covs)):
        inner = cov[np.ix_(others, others)]
        apart = x[:, others] - mean[others]
        solved = np.linalg.solve(inner, apart.T).T if len(others) else apart
        guess[:, k] = mean[j] + solved @ cov[others, j]
        log_det = np.linalg.slogdet(inner)[1] if len(others) else 0.0
        log_weight[:, k] = np.log(max(share[k], 1e-300)) - 0.5 * (apart * solved).sum(1) - 0.5 * log_det
    weight = np.exp(log_weight - log_weight.max(1, keepdims=True))
    value = (weight * guess).sum(1) / weight.sum(1)
    return float(np.sqrt(np.mean((x[:, j] - value) ** 2)))


def _coverage(model: Any) -> str:
    """Promised against seen coverage of intervals before they were calibrated, from the histograms of all columns."""
    central = np.atleast_2d(np.asarray(getattr(model, "central_", []), dtype=float)).mean(0)
    if not len(central) or np.ptp(central) == 0 or not getattr(model, "hide", 0):
        return ""
    seen = np.cumsum(central) / central.sum()
    every = np.arange(len(central) // 10, len(central) + 1, len(central) // 10)
    picture = svg.reliability(every / len(central), seen[every - 1], "promised coverage", "cells inside")
    return markup.figure(
        picture,
        "Intervals as the mixture gives them, mean of all columns; those of the model are corrected by a curve per column.",
    )


def _counts(model: Any) -> list[Section]:
    """FedMissEM: totals by date with their error."""
    totals = np.asarray(model.totals_, float)
    errors = np.asarray(model.totals_std_, float)
    if len(totals) < 2:
        return []
    at = np.arange(len(totals), dtype=float)
    curves = {"total": (at, totals), "low": (at, totals - 1.96 * errors), "high": (at, totals + 1.96 * errors)}
    picture = svg.lines(curves, "date", "total over all sites")
    held = np.atleast_1d(np.asarray(getattr(model, "held_losses_", []), float))
    note = f" Loss of visits held back {np.nanmin(held):.4g}, rank {model.rank_}." if np.isfinite(held).any() else ""
    caption = f"Total by date with gaps filled in, and its 95 % interval.{note}"
    return [Section("Totals by date", markup.figure(picture, caption))]
