"""Losses on held-out rows: one SUM for models with a `scoring` method; for others the same sums, in this process."""

from __future__ import annotations

from typing import Any

import numpy as np

from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.client import Client
from unpooled.data.schema.design import level_counts
from unpooled.errors import BadParameter
from unpooled.federation import Federation
from unpooled.maths.folds import fold_of
from unpooled.maths.gaussian import pack_triangle
from unpooled.models.glm import METRICS, Fitted, Scores, held_out


def held_out_losses(
    fitted: dict[str, list], fed: Federation, cv: int | str
) -> tuple[Scores, dict[str, tuple[str, ...]]]:
    """(sums over all clients, names of the metrics of each model); `fitted` has, per model, one fit per fold."""
    if all(hasattr(models[0], "scoring") for models in fitted.values()):
        return _asked(fitted, fed, cv)
    return _in_process(fitted, fed, cv)


def _asked(fitted: dict[str, list], fed: Federation, cv: int | str) -> tuple[Scores, dict[str, tuple[str, ...]]]:
    """One SUM, for all models and folds."""
    kinds = []
    down = []
    for models in fitted.values():
        options, coefs, scales, alphas = zip(*(m.scoring() for m in models))
        kinds.append(options[0])  # the same for the models of all folds
        down.append(Fitted(np.stack(coefs), np.array(scales), np.array(alphas)))
    folds, sites = (0, fed.names) if cv == "site" else (int(cv), [])
    schema = getattr(fed, "schema", None)
    levels = [] if schema is None else level_counts(schema)
    ask = held_out.using(models=kinds, folds=folds, sites=sites, levels=levels)
    total = tree.map(to_numpy, fed.sum(ask, tuple(down)))
    return total, {name: METRICS[options["kind"]] for name, options in zip(fitted, kinds)}


def _in_process(fitted: dict[str, list], fed: Federation, cv: int | str) -> tuple[Scores, dict[str, tuple[str, ...]]]:
    """The same sums for any estimator, where the clients are in this process."""
    total = None
    metrics = {}
    for index, client in enumerate(fed.here()):
        fold = np.full(len(client.w), index) if cv == "site" else _fold_of(client, int(cv))
        columns = []
        for name, models in fitted.items():
            losses = _losses(models, client, fold)
            metrics[name] = tuple(losses)
            columns += list(losses.values())
        part = _sums(to_numpy(client.w), np.stack(columns, 1), fold, len(next(iter(fitted.values()))))
        total = part if total is None else tree.add(total, part)
    assert total is not None
    return total, metrics


def _fold_of(client: Client, folds: int) -> np.ndarray:
    """The fold of each of the client's rows."""
    y = None if client.y is None else to_numpy(client.y)
    return fold_of(to_numpy(client.x), y, folds)


def _sums(w: np.ndarray, loss: np.ndarray, fold: np.ndarray, folds: int) -> Scores:
    """Rows and losses of each fold, and the outer product of the client's totals, for standard errors by site."""
    weighted = w[:, None] * loss
    n = np.array([w[fold == f].sum() for f in range(folds)])
    total = np.array([weighted[fold == f].sum(0) for f in range(folds)])
    mine = np.concatenate([[n.sum()], total.sum(0)])
    return Scores(n, total, pack_triangle(np.outer(mine, mine)))


def _losses(models: list, client: Client, fold: np.ndarray) -> dict[str, np.ndarray]:
    """metric -> (n,) losses, each row under the model that was fitted without it."""
    found: dict[str, np.ndarray] = {}
    for f, model in enumerate(models):
        mine = fold == f
        if mine.any():
            x = to_numpy(client.x)[mine]
            y = None if client.y is None else to_numpy(client.y)[mine]
            for metric, values in _row_losses(model, x, y).items():
                found.setdefault(metric, np.zeros(len(fold)))[mine] = values
    return found


def _row_losses(model: Any, x: np.ndarray, y: np.ndarray | None) -> dict[str, np.ndarray]:
    """Losses of an estimator on rows, one or two metrics by the methods that it has."""
    if hasattr(model, "predict_proba") and hasattr(model, "classes_") and y is not None:
        code = np.searchsorted(model.classes_, y)
        p = np.take_along_axis(model.predict_proba(x), code[:, None], 1)[:, 0]
        error = model.predict(x) != y
        return {"log_loss": -np.log(np.maximum(p, 1e-300)), "error": error.astype(np.float64)}
    if y is None and hasattr(model, "score_samples"):
        return {"log_loss": -model.score_samples(x)}
    if hasattr(model, "predict") and y is not None:
        return {"squared_error": (np.asarray(model.predict(x)) - y) ** 2}
    raise BadParameter(f"{type(model).__name__} cannot be scored on new rows: use a supervised model")
