"""How a fitted model does on rows that are in this process: sums by site, for the report. Nothing is sent.

A run over a network has no rows here, and nothing is measured by this file.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.client import Client
from unpooled.report.kinds import KINDS

BINS = 10  # of reliability
RESIDUAL_BINS = 21
LEVELS = [0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95]
HIDE_EVERY = 10  # one in so many known cells of a row is hidden at a time
MOST_ROWS = 20_000  # of each site that a model is tried on, spread over its table

Pair = tuple[Any, Client]  # a fitted model, and rows of a client to try it on


def measure(pairs: Iterable[Pair], folds: int = 0) -> dict[str, Any]:
    """Sums over the rows of all pairs, by the kind of model; empty if the model says nothing that can be compared."""
    some = [(model, _complete(model, _fewer(client))) for model, client in pairs if len(to_numpy(client.w))]
    if not some:
        return {}
    kind = KINDS.get(type(some[0][0]).__name__, "")
    labelled = all(client.y is not None for _, client in some)
    if labelled and kind in ("classifiers", "concepts"):
        return {"kind": "classifier", "folds": folds, **_classified(some)}
    if labelled and kind == "regressions" and _of_chances(some):
        return {"kind": "classifier", "folds": folds, **_classified([(_Chances(m), c) for m, c in some])}
    if labelled and kind == "regressions":
        return {"kind": "regressor", "folds": folds, **_predicted(some)}
    if kind == "mixtures" and folds and hasattr(some[0][0], "score_samples"):
        return {"kind": "density", "folds": folds, "sites": _likely(some)}
    numbers = all(to_numpy(client.x).dtype.kind in "fiu" for _, client in some)
    if kind == "imputers" and numbers and hasattr(some[0][0], "hidden_rmse_"):
        return {"kind": "imputer", **_filled(some)}
    return {}


def _fewer(client: Client) -> Client:
    """At most MOST_ROWS of a client's rows, equally far apart."""
    x = to_numpy(client.x)
    step = -(-len(to_numpy(client.w)) // MOST_ROWS)
    y = None if client.y is None else to_numpy(client.y)[::step]
    return Client(client.name, x[::step], y)


def _complete(model: Any, client: Client) -> Client:
    """The rows without gaps, for a model that was fitted to such rows alone."""
    if getattr(model, "missing", None) not in ("drop", "refuse"):
        return client
    x = to_numpy(client.x)
    some = ~np.isnan(x).any(1)
    return Client(client.name, x[some], None if client.y is None else to_numpy(client.y)[some])


def _own(method: Any, client: Client) -> dict[str, str]:
    """`client=` for a model that has a personal version for this client."""
    return {"client": client.name} if "client" in inspect.signature(method).parameters else {}


# ---- densities ----


def _likely(pairs: list[Pair]) -> dict[str, dict[str, float]]:
    """Rows and their log-likelihood, by site."""
    sites: dict[str, dict[str, float]] = {}
    for model, client in pairs:
        own = {"client": client.name} if client.name in getattr(model, "client_weights_", {}) else {}
        found = np.asarray(model.score_samples(to_numpy(client.x), **own), dtype=float)
        site = sites.setdefault(client.name, {"rows": 0, "loglik": 0.0})
        site["rows"] += len(found)
        site["loglik"] += float(found.sum())
    return sites


# ---- outcomes of 0 and 1 ----


class _Chances:
    """A regression of outcomes 0 and 1, seen as a classifier."""

    classes_ = np.array([0, 1])

    def __init__(self, model: Any):
        self.model = model

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        p = np.asarray(self.model.predict(x), dtype=float)
        return np.stack([1 - p, p], 1)


def _of_chances(pairs: list[Pair]) -> bool:
    """Whether this is a regression of probabilities, and every label 0 or 1."""
    if getattr(pairs[0][0], "family", "") != "binomial":
        return False
    return all(np.isin(to_numpy(client.y), (0, 1)).all() for _, client in pairs)


# ---- classes ----


def _classified(pairs: list[Pair]) -> dict[str, Any]:
    """Confusion, log loss, reliability and accuracy by site, over pairs of a model and the rows it predicts."""
    classes = to_numpy(pairs[0][0].classes_)
    k = len(classes)
    confusion = np.zeros((k, k))
    loss = 0.0
    rows = 0
    bins = np.zeros((3, BINS))
    sites: dict[str, dict[str, int]] = {}
    for model, client in pairs:
        x, code = _known_labels(client, classes)
        if not len(code):
            continue
        p = np.asarray(model.predict_proba(x, **_own(model.predict_proba, client)), dtype=float)
        predicted, sure = p.argmax(1), p.max(1)
        right = predicted == code
        np.add.at(confusion, (code, predicted), 1)
        loss -= float(np.log(np.maximum(p[np.arange(len(p)), code], 1e-12)).sum())
        rows += len(p)
        at = np.minimum((sure * BINS).astype(int), BINS - 1)
        for i, values in enumerate((np.ones(len(p)), sure, right)):
            np.add.at(bins[i], at, values)
        site = sites.setdefault(client.name, {"rows": 0, "right": 0})
        site["rows"] += len(p)
        site["right"] += int(right.sum())
    return {
        "classes": [str(c) for c in classes],
        "confusion": confusion.astype(int).tolist(),
        "log_loss": loss / max(rows, 1),
        "reliability": dict(zip(("rows", "sure", "right"), bins.tolist())),
        "sites": sites,
    }


def _known_labels(client: Client, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(rows, codes of their labels) of the rows whose label the model knows."""
    y = to_numpy(client.y)
    code = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    known = classes[code] == y
    return to_numpy(client.x)[known], code[known]


# ---- numbers ----


def _predicted(pairs: list[Pair]) -> dict[str, Any]:
    """Residuals, coverage and errors by site, over pairs of a model and the rows it predicts."""
    residuals, inside, truth = [], [], []
    sites: dict[str, dict[str, Any]] = {}
    for model, client in pairs:
        x = to_numpy(client.x)
        y = np.asarray(to_numpy(client.y), dtype=float)
        mean = np.asarray(model.predict(x, **_own(model.predict, client)), dtype=float)
        if mean.shape != y.shape or y.ndim != 1:
            return {"sites": {}, "residuals": [], "edges": [], "spread": 0.0, "levels": [], "coverage": []}
        apart = y - mean
        site = sites.setdefault(client.name, {"rows": 0, "squares": 0.0, "sum": 0.0})
        site["rows"] += len(y)
        site["squares"] += float((apart**2).sum())
        site["sum"] += float(apart.sum())
        residuals.append(apart)
        truth.append(y)
        inside.append(_inside(model, x, y))
    every = np.concatenate(residuals)
    y = np.concatenate(truth)
    counts, edges = _histogram(every)
    known = [i for i in inside if i is not None]
    covered = np.concatenate(known, 1).mean(1).tolist() if len(known) == len(pairs) else []
    return {
        "sites": sites,
        "residuals": counts.tolist(),
        "edges": edges.tolist(),
        "spread": float(y.std()),
        "levels": LEVELS,
        "coverage": covered,
    }


def _inside(model: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray | None:
    """(levels, n) whether each row is in its interval; None if the model has no intervals."""
    if not (hasattr(model, "interval") and hasattr(model, "noise_variance_")):  # of new rows, not of the mean
        return None
    found = [model.interval(x, level) for level in LEVELS]
    return np.stack([(y >= low) & (y <= high) for low, high in found])


def _histogram(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Counts between symmetric ends that hold all but two in a hundred; what is beyond counts at the ends."""
    reach = float(np.quantile(np.abs(values), 0.98)) or 1.0
    edges = np.linspace(-reach, reach, RESIDUAL_BINS + 1)
    return np.histogram(np.clip(values, -reach, reach), bins=edges)


# ---- gaps ----


def _filled(pairs: list[Pair]) -> dict[str, Any]:
    """Root mean squared errors by column of hidden cells, filled in by the model and by the mean of known cells."""
    model = pairs[0][0]
    tables = [to_numpy(client.x).astype(float) for _, client in pairs]
    mean = np.nanmean(np.concatenate(tables), 0)
    d = len(mean)
    squares = np.zeros((2, d))
    cells = np.zeros(d)
    for x in tables:
        known = ~np.isnan(x)
        turn = (np.arange(len(x))[:, None] + np.arange(d)) % max(d, HIDE_EVERY)
        hidden = known & (turn == 0) & (known.sum(1, keepdims=True) > 1)
        filled = np.asarray(model.transform(np.where(hidden, np.nan, x)), dtype=float)
        for i, guess in enumerate((np.broadcast_to(mean, x.shape), filled)):
            squares[i] += np.where(hidden, (np.where(known, x, 0.0) - guess) ** 2, 0.0).sum(0)
        cells += hidden.sum(0)
    errors = np.sqrt(squares / np.maximum(cells, 1))
    return {"before": errors[0].tolist(), "after": errors[1].tolist(), "cells": int(cells.sum())}
