"""What each client can expect: its accuracy on everybody's test rows, weighted by its own label shares.

Rows are dealt to clients by their labels alone, so that a label's rows look alike at every client. A client's accuracy is then the mean
of its model's accuracies by label, weighted by its label shares, and every test row of the federation helps to estimate it. With its own
test rows alone (about 150) the difference of two models would have a standard error of three points.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from unpooled.learners import label_shift
from unpooled.learners.rows import Rows as Coded

Rows = Mapping[str, tuple[np.ndarray, np.ndarray]]


def label_shares(parts: Iterable[Rows], classes: int) -> dict[str, np.ndarray]:
    """The label shares of each client over all its rows: those to train with, to validate and to test."""
    counts: dict[str, np.ndarray] = {}
    for part in parts:
        for name, (_, y) in part.items():
            counts[name] = counts.get(name, 0) + np.bincount(y.astype(int), minlength=classes)
    return {name: found / found.sum() for name, found in counts.items()}


def expected(model: Any, test: Rows, shares: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The accuracy that each client can expect of its own model."""
    x, y = (np.concatenate(columns) for columns in zip(*test.values()))
    return {name: by_label(model.predict(x, client=name) == y, y.astype(int), own) for name, own in shares.items()}


def by_label(hits: np.ndarray, y: np.ndarray, shares: np.ndarray) -> float:
    """The mean of accuracies by label, weighted by label shares; labels without rows are left out."""
    n = np.bincount(y, minlength=len(shares))
    mean = np.bincount(y, weights=hits, minlength=len(shares)) / n.clip(min=1)
    return float(np.average(mean, weights=shares * (n > 0)))


def with_label_shares(model: Any, train: Rows, test: Rows, classes: int) -> float:
    """Mean accuracy over clients of P(y | x) times own label share / share of all, both of training rows: no training."""
    every = np.bincount(np.concatenate([y for _, y in train.values()]).astype(int), minlength=classes) + 0.5
    hits = []
    for name, (x, y) in test.items():
        labels = train[name][1].astype(int)
        rows = Coded(train[name][0], labels, np.ones(len(labels)))
        ratio = label_shift.log_ratio(rows, every / every.sum())
        scores = np.log(model.predict_proba(x, client=name).clip(min=1e-30)) + ratio
        hits.append((model.classes_[scores.argmax(1)] == y).mean())
    return float(np.mean(hits))


def with_seeds(cells: Iterable[tuple[dict, dict]]) -> list[tuple[dict, dict]]:
    """Cells whose measurements hold their seed as well."""
    return [(key, found | {"seed": key.get("seed")}) for key, found in cells]


def beside_alone(kept: list[dict], alone: list[dict]) -> dict[str, float]:
    """How clients fare against training alone, in points over all seeds: the mean gain, the worst, and the share that loses over 1.

    Both are measurements with a "seed" and "expected by client".
    """
    others = {f["seed"]: f["expected by client"] for f in alone}
    pairs = [(f["expected by client"], others[f["seed"]]) for f in kept if f["seed"] in others]
    gains = np.array([100 * (own[name] - other[name]) for own, other in pairs for name in own])
    if not len(gains):
        return {}
    return {
        "mean gain": float(gains.mean()),
        "worst client": float(gains.min()),
        "lose over 1 point": float((gains < -1).mean()),
    }
