"""What a run's folder says of its data and its model: summary.json for the report. Nothing is sent, save held-out losses as sums."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from unpooled import store
from unpooled.arrays import to_numpy
from unpooled.client import Client
from unpooled.federation import find_private
from unpooled.layers.folds import Folded
from unpooled.maths.folds import fold_of
from unpooled.report.measured import measure

MAX_CLIENTS_SHOWN = 200  # clients described in a summary at most


def summarise(folder: Path, fed: Any, estimator: Any) -> None:
    """Write summary.json for the report: names of clients, and rows, missing values and weights of those in this
    process.
    """
    clients = [] if find_private(fed) is not None else fed.here()[:MAX_CLIENTS_SHOWN]  # without noise only the names
    elsewhere: dict[str, Any] = {
        n: {"rows": None, "missing": []} for n in ([] if clients else fed.names[:MAX_CLIENTS_SHOWN])
    }
    summary: dict[str, Any] = {
        "columns": [str(c) for c in fed.columns or []],
        "clients": elsewhere | {c.name: {"rows": len(c.w), "missing": _missing(c.x)} for c in clients},
        "n_clients": len(fed.names),
        "finished": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "privacy": _spent(fed),
        "weights": {
            c.name: to_numpy(_weights(estimator, c)).tolist() for c in clients if hasattr(estimator, "adapt_weights")
        },
    }
    store.write_file(folder / "summary.json", json.dumps(summary).encode())


def add_to_summary(folder: Path, more: dict[str, Any]) -> None:
    """Add entries to summary.json."""
    path = folder / "summary.json"
    store.write_file(path, json.dumps(json.loads(path.read_text()) | more).encode())


def _spent(fed: Any) -> str:
    """ "epsilon 1.83 of 4.0 spent", for a run with a privacy budget."""
    private = find_private(fed)
    return "" if private is None else str(private.accountant)


def _missing(x: Any) -> list[float]:
    """The part of missing cells in each column, none for tensors of images."""
    a = to_numpy(x)
    return np.isnan(a).mean(0).round(6).tolist() if a.dtype.kind == "f" and a.ndim == 2 else []


def _weights(estimator: Any, c: Any) -> Any:
    """A client's weights of components: its own where the fit has them, else estimated from its rows."""
    known = getattr(estimator, "client_weights_", {})
    return known[c.name] if c.name in known else estimator.adapt_weights(c.x)


def held_out(fed: Any, estimator: Any, folds: int) -> dict[str, Any]:
    """Each row by a model that was fitted without its fold."""
    pairs = []
    for fold in range(folds):
        model = clone(estimator).fit(Folded(fed, folds, fold))
        pairs += [(model, _rows_of_fold(client, folds, fold)) for client in fed.here()]
    return measure(pairs, folds)


def _rows_of_fold(client: Any, folds: int, fold: int) -> Client:
    """The client's rows in one fold."""
    x = to_numpy(client.x)
    w = to_numpy(client.w)
    y = None if client.y is None else to_numpy(client.y)
    mine = fold_of(x, y, folds) == fold
    return Client(client.name, x[mine], None if y is None else y[mine], w[mine])


def held_out_sums(fed: Any, estimator: Any, folds: int) -> dict[str, Any]:
    """Mean score on held-out rows by sums, for clients that are elsewhere."""
    from unpooled.validation import cross_validate

    score = cross_validate(estimator, fed, cv=folds)
    return {"kind": "scores", "folds": folds, "mean": score.mean, "stderr": score.stderr, "rows": score.n_rows}
