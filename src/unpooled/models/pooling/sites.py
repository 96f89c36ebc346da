"""What each strategy loses on rows it was not fitted to, and what each site gave and got. SUMs; by site only where the study asks for it.

In the questions "..._by_site" every site writes into a place of its own, so that the total shows each site's few numbers. A node may refuse
them by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float
from unpooled.client import SUM, Client, client
from unpooled.maths.gaussian import pack_triangle, unpack_triangle
from unpooled.models.pooling import small_glm
from unpooled.models.pooling.mixtures import (
    Components,
    PartialPooling,
    Personal,
    blocks,
    log_densities,
    log_sum,
    memberships,
    own_weights,
    personal_fit,
)
from unpooled.models.pooling.questions import WEAK, intercepts
from unpooled.models.pooling.rows import Frame, Prepared, prepared
from unpooled.tree import message

STRATEGIES = ("one model", "own intercepts", "groups", "own weights", "personalised", "own fit")
GROUPS = STRATEGIES.index("groups")


@message("pooling.Fitted")
class Fitted(NamedTuple):
    """Every strategy, as fitted without each fold and to all rows."""

    common: Float[Array, "v q"]
    common_scale: Float[Array, "v", ">=0"]
    slopes: Float[Array, "v p"]
    slopes_scale: Float[Array, "v", ">=0"]
    partial: PartialPooling


@message("pooling.Losses")
class Losses(NamedTuple):
    """Held-out losses of all models."""

    n: Float[Array, "", ">=0 rows"]
    total: Float[Array, "r"]  # sum of w loss over left-out rows
    outer: Float[Array, "t"]  # of the site's (n, totals)


@message("pooling.SiteLosses")
class SiteLosses(NamedTuple):
    """Held-out losses of all models by site."""

    n: Float[Array, "s", ">=0 rows"]
    total: Float[Array, "s r"]
    gain2: Float[Array, "s r", ">=0"]  # sum of w (loss alone - loss)^2
    group: Float[Array, "s k", ">=0"]  # how probably the site has each model of the groups


def candidates(sizes: Sequence[int]) -> list[tuple[str, int]]:
    """(strategy, number of components) of everything that is fitted: groups and own weights once for each number of components."""
    several = [(strategy, k) for strategy in STRATEGIES[2:4] for k in sizes]
    return [(STRATEGIES[0], 1), (STRATEGIES[1], 1), *several, (STRATEGIES[4], 1), (STRATEGIES[5], 1)]


@client("pooling.held_out", SUM, batched=False)
def held_out(fitted: Fitted, client: Client, *, family: str, cv: int, sizes: list) -> Losses:
    """Losses of left-out rows under every candidate."""
    loss, w = _losses(fitted, client, family, cv, sizes)
    mine = np.concatenate([[w.sum()], w @ loss])
    return Losses(mine[0], mine[1:], pack_triangle(np.outer(mine, mine)))


@client("pooling.held_out_by_site", SUM, batched=False)
def held_out_by_site(
    fitted: Fitted, client: Client, *, family: str, cv: int, sizes: list, sites: list, chosen: list
) -> SiteLosses:
    """Losses of left-out rows under the chosen candidate of every strategy, site by site, and the group that each site is in."""
    loss, w = _losses(fitted, client, family, cv, sizes)
    loss = loss[:, chosen]
    own = prepared(fitted.partial.frame, client, family, cv)
    share, _ = memberships(fitted.partial.groups, own, family, sizes)
    block = list(blocks(sizes))[chosen[GROUPS] - GROUPS]
    group = np.zeros(max(sizes))
    group[: block.stop - block.start] = share[-1, block]
    gain2 = w @ (loss[:, -1:] - loss) ** 2
    return SiteLosses(*(placed(client, sites, a) for a in (w.sum(), w @ loss, gain2, group)))


def placed(client: Client, sites: list, mine: np.ndarray) -> np.ndarray:
    """An array with a leading axis for sites: this site's numbers at its place, zeros elsewhere."""
    mine = np.asarray(mine)
    out = np.zeros((len(sites), *mine.shape))
    out[sites.index(client.name)] = mine
    return out


def _losses(fitted: Fitted, client: Client, family: str, cv: int, sizes: list) -> tuple[np.ndarray, np.ndarray]:
    """((n, candidates) minus the log-likelihood of every row under the fit that has not seen it, (n,) weights)."""
    own = prepared(fitted.partial.frame, client, family, cv)
    if not len(own.rows.y):
        return np.zeros((0, len(candidates(sizes)))), np.zeros(0)
    rows = np.arange(len(own.fold))
    models = site_models(fitted, own, family, sizes)
    loss = -np.stack([densities(model, family, own.rows)[rows, own.fold] for model in models], 1)
    return loss + np.log(fitted.partial.frame.y_sd) * (family == "normal"), own.rows.w


# ---- every strategy as a mixture of components at one site ----


class SiteModel(NamedTuple):
    """The model of y given x at one site: a mixture of k components (often of one), for each version."""

    coef: np.ndarray  # (v, k, q)
    scale: np.ndarray  # (v, k)
    weight: np.ndarray  # (v, k)


def site_models(fitted: Fitted, own: Prepared, family: str, sizes: Sequence[int]) -> list[SiteModel]:
    """The model of the site under every candidate, in the order of `candidates`."""
    partial = fitted.partial
    slopes = np.asarray(fitted.slopes)
    levels = np.column_stack([intercepts(own, family, slopes), slopes])
    personal, _ = personal_fit(partial.personal, own, family)
    groups, _ = memberships(partial.groups, own, family, sizes)
    return [
        _single(fitted.common, fitted.common_scale),
        _single(levels, fitted.slopes_scale),
        *_mixed(partial.groups, groups, sizes),
        *_mixed(partial.weights, _weights(partial.weights, own, family, sizes), sizes),
        _single(personal.coef, partial.personal.scale),
        _alone(own, family),
    ]


def densities(model: SiteModel, family: str, rows: small_glm.Rows) -> np.ndarray:
    """(n, v) log-likelihood of rows."""
    eta = np.einsum("nq,vkq->nvk", rows.z, model.coef)
    each = small_glm.log_density(family, eta, rows.y[:, None, None], model.scale)
    return log_sum(each + np.log(np.maximum(model.weight, 1e-300)))


def _single(coef: Array, scale: Array) -> SiteModel:
    """One model as a mixture of one."""
    return SiteModel(np.asarray(coef)[:, None], np.asarray(scale)[:, None], np.ones((len(coef), 1)))


def _weights(components: Components, own: Prepared, family: str, sizes: Sequence[int]) -> np.ndarray:
    """(v, g) the site's own weights of the components of every candidate."""
    density = log_densities(components, own, family)
    return np.concatenate([own_weights(density[..., block], own.versions) for block in blocks(sizes)], 1)


def _mixed(components: Components, weight: np.ndarray, sizes: Sequence[int]) -> list[SiteModel]:
    """The components of each size with the site's weights of them."""
    coef = np.asarray(components.coef)
    scale = np.asarray(components.scale)
    return [SiteModel(coef[:, b], scale[:, b], weight[:, b]) for b in blocks(sizes)]


def _alone(own: Prepared, family: str) -> SiteModel:
    """The site's own fit, with a weak prior that keeps its coefficients finite."""
    v = own.versions.shape[1]
    q = own.rows.z.shape[1]
    none = np.zeros((v, q))
    found = small_glm.fit(own.rows, family, own.versions, none, none, np.full((v, q), WEAK))
    left = np.maximum(own.versions.sum(0) - q, 1.0)
    scale = np.maximum(2 * found.loss / left, 1e-6) if family == "normal" else np.ones(v)
    return _single(found.coef, scale)


# ---- leave one site out ----


@message("pooling.Others")
class Others(NamedTuple):
    """The shared model without each site."""

    frame: Frame
    coef: Float[Array, "s q"]


@message("pooling.OtherSums")
class OtherSums(NamedTuple):
    """Newton sums of all other sites."""

    n: Float[Array, "s", ">=0 rows"]
    loss: Float[Array, "s"]
    score: Float[Array, "s q"]
    hessian: Float[Array, "s t"]


@message("pooling.Influence")
class Influence(NamedTuple):
    """What each site brings, and its loss with and without it."""

    n: Float[Array, "s", ">=0 rows"]
    information: Float[Array, "s"]  # share of all information that is the site's
    own: Float[Array, "s"]  # its loss per row under the model fitted without it
    shared: Float[Array, "s"]  # and under the model of all


@message("pooling.Compared")
class Compared(NamedTuple):
    """Components without each site, beside the model of all."""

    others: Others
    coef: Float[Array, "q"]
    scale: Float[Array, "", ">=0"]
    information: Float[Array, "t"]


@client("pooling.without_each_by_site", SUM, batched=False)
def without_each(others: Others, client: Client, *, family: str, sites: list) -> OtherSums:
    """Newton sums of the shared model without each site: the site adds to all of them but its own."""
    own = prepared(others.frame, client, family, 0)
    w = np.repeat(own.rows.w[:, None], len(sites), 1)
    w[:, sites.index(client.name)] = 0.0
    found = small_glm.sums(own.rows, family, own.rows.z @ np.asarray(others.coef).T, w)
    return OtherSums(w.sum(0), *found)


@client("pooling.influence_by_site", SUM, batched=False)
def influence(down: Compared, client: Client, *, family: str, sites: list) -> Influence:
    """How much of the information is the site's, and how well the model of the others predicts it."""
    own = prepared(down.others.frame, client, family, 0)
    rows = own.rows
    mine = small_glm.sums(rows, family, (rows.z @ down.coef)[:, None], rows.w[:, None])
    whole = unpack_triangle(np.asarray(down.information))
    share = np.trace(np.linalg.solve(whole, unpack_triangle(mine.hessian[0]))) / len(whole)
    coefs = np.stack([down.others.coef[sites.index(client.name)], down.coef])
    density = small_glm.log_density(family, rows.z @ coefs.T, rows.y[:, None], float(down.scale))
    n = rows.w.sum()
    loss = -(rows.w @ density) / max(n, 1e-300)
    return Influence(*(placed(client, sites, a) for a in (n, share, loss[0], loss[1])))


@message("pooling.OwnCoefficients")
class OwnCoefficients(NamedTuple):
    """Coefficients of each site's own fit."""

    coef: Float[Array, "s q"]


@client("pooling.personal_by_site", SUM, batched=False)
def personal_by_site(partial: PartialPooling, client: Client, *, family: str, sites: list) -> OwnCoefficients:
    """The coefficients of each site, drawn to their common mean."""
    own = prepared(partial.frame, client, family, 0)
    last = Personal(*(np.asarray(a)[-1:] for a in partial.personal))
    found, _ = personal_fit(last, own, family)
    return OwnCoefficients(placed(client, sites, found.coef[0]))
