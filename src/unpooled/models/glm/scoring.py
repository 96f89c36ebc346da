"""How well fitted models predict rows that they were not fitted to: one SUM for all models, folds and metrics together.

A client finds out itself which of its rows each model has not seen. The outer product of its sums gives standard errors by site.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.data.schema.design import widened
from unpooled.errors import BadData
from unpooled.learners.labels import codes
from unpooled.maths.folds import FOLDS, fold_of
from unpooled.maths.gaussian import pack_triangle
from unpooled.models.glm import families
from unpooled.models.glm.classes import log_probabilities
from unpooled.tree import message

METRICS = {"glm": ("log_loss", "squared_error"), "classes": ("log_loss", "error")}


@message("glm.Fitted")
class Fitted(NamedTuple):
    """One model, as fitted without each of the folds."""

    coef: Float[Array, "f m q"]  # the intercept first; 0 where there is none
    scale: Float[Array, "f"]  # dispersion
    alpha: Float[Array, "f"]  # of the negative binomial


@message("glm.Scores")
class Scores(NamedTuple):
    """Sums over held-out rows, a column for each metric of each model."""

    n: Float[Array, "f", ">=0 rows"]  # sum of w by fold
    total: Float[Array, "f c"]  # sum of w loss by fold
    outer: Float[Array, "t"]  # of (n, totals) over all folds: the lower triangle by rows


@client("glm.held_out", SUM, batched=False)
def held_out(
    down: tuple[Fitted, ...], client: Client, *, models: list, folds: int, sites: list, levels: list
) -> Scores:
    """Losses of held-out rows under each model, summed by fold; `sites` names the clients where each is a fold of its own.

    `levels` are the numbers of levels of the columns, which become indicators; 0 for a number.
    """
    fold = _folds(client, folds, sites)
    names = range(len(sites) or folds)
    x, w = (to_numpy(a).astype(np.float64, copy=False) for a in (client.x, client.w))
    x = widened(x, levels)
    if not client.w.any() or client.y is None:
        raise BadData(f"client {client.name!r} has no labelled rows to score: leave it out")
    whole = ~np.isnan(x.sum(1))
    w = np.where(whole, w, 0.0)
    x = np.where(whole[:, None], x, 0.0)
    columns = [_losses(fitted, model, x, client, fold) for fitted, model in zip(down, models)]
    loss = w[:, None] * np.concatenate(columns, 1)  # (n, c)
    n = np.array([w[fold == f].sum() for f in names])
    total = np.array([loss[fold == f].sum(0) for f in names])
    mine = np.concatenate([[n.sum()], total.sum(0)])
    return Scores(n, total, pack_triangle(np.outer(mine, mine)))


def _folds(client: Client, folds: int, sites: list) -> np.ndarray:
    """(n,) the fold of each of the client's rows."""
    if sites:
        return np.full(len(client.w), sites.index(client.name))
    if folds not in FOLDS:
        raise BadData(f"folds={folds!r} must be one of {', '.join(map(str, FOLDS))}")
    return fold_of(to_numpy(client.x), to_numpy(client.y), folds)


def _losses(fitted: Fitted, model: dict[str, Any], x: np.ndarray, client: Client, fold: np.ndarray) -> np.ndarray:
    """(n, metrics) of one model, each row under the fit that has not seen it."""
    offset = x[:, model["offset"]] if model["offset"] >= 0 else np.zeros(len(x))
    columns = np.delete(x, model["offset"], 1) if model["offset"] >= 0 else x
    design = np.column_stack([np.ones(len(x)), columns])
    eta = np.einsum("nq,nmq->nm", design, fitted.coef[fold])
    if model["kind"] == "classes":
        return _class_losses(eta, codes(client.y, model["classes"], client.w))
    scale = fitted.scale[fold]
    alpha = fitted.alpha[fold]
    return _glm_losses(model["family"], model["link"], eta[:, 0] + offset, to_numpy(client.y), scale, alpha)


def _class_losses(eta: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Log-loss and error of each row, (n, 2)."""
    log_p = log_probabilities(eta)
    log_loss = -np.take_along_axis(log_p, y[:, None], 1)[:, 0]
    return np.stack([log_loss, (log_p.argmax(1) != y).astype(np.float64)], 1)


def _glm_losses(
    family: str, link: str, eta: np.ndarray, y: np.ndarray, scale: np.ndarray, alpha: np.ndarray
) -> np.ndarray:
    """(n, 2): minus the log-likelihood of each row, and its squared distance from the mean."""
    y = np.asarray(y, dtype=np.float64)
    law = families.FAMILIES[family]
    mu = _inside(families.LINKS[link].mean(eta), law.range)
    deviance = law.deviance(y, mu, alpha)
    best = families.best_loglik(family, y, alpha)
    loglik = families.loglik(family, "", deviance, best, 1.0, scale)  # at the dispersion given, not the best one
    return np.stack([-loglik, (y - mu) ** 2], 1)


def _inside(mu: np.ndarray, ends: tuple[float, float]) -> np.ndarray:
    """Means that the family has: a held-out row may lie where the link gives none."""
    low, high = ends
    least = 1e-12 if np.isfinite(low) else -np.inf
    most = 1 - 1e-12 if np.isfinite(high) else np.inf
    return np.clip(np.nan_to_num(mu, nan=1.0, posinf=1e300), least, most)
