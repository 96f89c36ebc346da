"""Partial pooling: three models between one fit for all sites and separate fits. One SUM per EM round serves all three.

- groups: each site belongs to one of k components. Sent: the site's membership probabilities, and Newton sums weighted by them.
- own weights: each row belongs to one of k components; each site has its own mixing proportions, which are not sent.
- personalised: each site has its own coefficients, shrunk to a common mean by a normal prior whose variances are learned.

A component is a regression of y on x; its Newton sums are the loss, the score and the Hessian. Candidates with different k, and several
starts of each (`starts`), are fitted side by side.

Axes of arrays: n rows of a site; v versions of the fit (without each cross-validation fold, then of all rows); c candidates; g components
of all candidates, one candidate after the other; q coefficients, the intercept first; t the packed triangle of a (q, q) matrix.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float
from unpooled.client import SUM, Client, client
from unpooled.maths.gaussian import unpack_triangle
from unpooled.models.pooling import small_glm
from unpooled.models.pooling.rows import Frame, Prepared, prepared
from unpooled.tree import message

WEIGHT_STEPS = 20  # EM steps for a site's own weights in each round
PRIOR_ROWS = 0.5  # pseudo-rows of each component in a site's own weights (the estimate of Krichevsky and Trofimov)
LEAST_VARIANCE = 1e-6
PRIOR_PRECISION = 0.04  # of every coefficient: the prior is N(0, 5^2) for standardised columns
TOLERANCE = 1e-7  # change of log-likelihood per row below which a candidate has converged


@message("pooling.Components")
class Components(NamedTuple):
    """Components of all candidates, for each version of the fit."""

    coef: Float[Array, "v g q"]
    scale: Float[Array, "v g", ">=0"]
    share: Float[Array, "v g", ">=0"]  # mixing weight: share of sites (groups) or of rows (own weights)


@message("pooling.Personal")
class Personal(NamedTuple):
    """Mean and variance of coefficients over sites."""

    mean: Float[Array, "v q"]
    variance: Float[Array, "v q", ">=0"]  # between sites
    scale: Float[Array, "v", ">=0"]


@message("pooling.PartialPooling")
class PartialPooling(NamedTuple):
    """All models that EM fits in the same rounds."""

    frame: Frame
    groups: Components
    weights: Components
    personal: Personal


@message("pooling.GroupSums")
class GroupSums(NamedTuple):
    """Newton sums of models of groups of sites: over all rows of each site, weighted by how probably it is in the group."""

    member: Float[Array, "v g", ">=0"]  # expected number of sites
    n: Float[Array, "v g", ">=0"]  # their rows
    loss: Float[Array, "v g"]
    score: Float[Array, "v g q"]
    hessian: Float[Array, "v g t"]
    loglik: Float[Array, "v c"]  # of each candidate


@message("pooling.ComponentSums")
class ComponentSums(NamedTuple):
    """Newton sums of models that every site has weights of its own of: over rows, weighted by their memberships."""

    member: Float[Array, "v g", ">=0 rows"]  # expected number of rows
    n: Float[Array, "v g", ">=0 rows"]  # the same
    loss: Float[Array, "v g"]
    score: Float[Array, "v g q"]
    hessian: Float[Array, "v g t"]
    loglik: Float[Array, "v c"]  # of each candidate


@message("pooling.PersonalSums")
class PersonalSums(NamedTuple):
    """Sums over sites of their own coefficients."""

    sites: Float[Array, "", ">=0"]
    n: Float[Array, "v", ">=0 rows"]
    mode: Float[Array, "v q"]
    square: Float[Array, "v q", ">=0"]  # of the mode
    variance: Float[Array, "v q", ">=0"]  # of the posterior
    loss: Float[Array, "v"]  # expected under the posterior of the coefficients
    loglik: Float[Array, "v"]  # marginal, by Laplace's approximation


@message("pooling.PartialSums")
class PartialSums(NamedTuple):
    """Sums of all models of a round."""

    groups: GroupSums
    weights: ComponentSums
    personal: PersonalSums


def blocks(sizes: Sequence[int]) -> Iterator[slice]:
    """Where the components of each candidate are."""
    start = 0
    for k in sizes:
        yield slice(start, start + k)
        start += k


def log_sum(a: np.ndarray) -> np.ndarray:
    """The logarithm of the sum of exponentials along the last axis."""
    top = a.max(-1)
    return top + np.log(np.exp(a - top[..., None]).sum(-1))


# ---- the client's side ----


@client("pooling.e_step", SUM, batched=False)
def e_step(partial: PartialPooling, client: Client, *, family: str, cv: int, sizes: list) -> PartialSums:
    """Newton sums of every component, weighted by memberships of the site or its rows; moments of the site's own coefficients."""
    own = prepared(partial.frame, client, family, cv)
    grouped, by_row = _component_sums(partial, own, family, sizes)
    return PartialSums(grouped, by_row, _personal_sums(partial.personal, own, family))


def log_densities(components: Components, own: Prepared, family: str) -> np.ndarray:
    """(n, v, g) log-density of every row under every component."""
    eta = np.einsum("nq,vgq->nvg", own.rows.z, np.asarray(components.coef))
    return small_glm.log_density(family, eta, own.rows.y[:, None, None], np.asarray(components.scale))


def memberships(
    components: Components, own: Prepared, family: str, sizes: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """(v, g) probability that the site belongs to each component, and (v, c) its log-likelihood under each candidate."""
    each = np.einsum("nv,nvg->vg", own.versions, log_densities(components, own, family))
    joint = each + np.log(np.maximum(components.share, 1e-300))
    share = np.empty_like(joint)
    total = np.empty((len(joint), len(sizes)))
    for c, block in enumerate(blocks(sizes)):
        total[:, c] = log_sum(joint[:, block])
        share[:, block] = np.exp(joint[:, block] - total[:, c : c + 1])
    return share, total


def own_weights(density: np.ndarray, w: np.ndarray) -> np.ndarray:
    """(v, k) a site's own weights of k components, from log-densities (n, v, k) and row weights (n, v)."""
    k = density.shape[2]
    share = np.full(density.shape[1:], 1 / k)
    top = density.max(2, keepdims=True)
    likely = np.exp(density - top).transpose(1, 0, 2)  # (v, n, k)
    rows = w.sum(0)[:, None]
    weight = w.T
    for _ in range(WEIGHT_STEPS):
        total = (likely @ share[:, :, None])[..., 0]  # (v, n)
        each = weight / np.maximum(total, 1e-300)
        share = (share * (each[:, None] @ likely)[:, 0] + PRIOR_ROWS) / (rows + k * PRIOR_ROWS)
    return share


def _component_sums(
    partial: PartialPooling, own: Prepared, family: str, sizes: Sequence[int]
) -> tuple[GroupSums, ComponentSums]:
    """One site's sums for groups of sites, and for own weights of shared components."""
    share, total = memberships(partial.groups, own, family, sizes)
    present = float(len(own.rows.y) > 0)  # a site without rows counts as none
    w = own.versions[:, :, None] * share  # (n, v, g)
    grouped = GroupSums(*_weighted(partial.groups, own, family, w, present * share, total))
    density = log_densities(partial.weights, own, family)
    r = np.empty_like(density)
    loglik = np.empty((density.shape[1], len(sizes)))
    for c, block in enumerate(blocks(sizes)):
        weights = own_weights(density[..., block], own.versions)
        joint = density[..., block] + np.log(weights)
        each = log_sum(joint)
        r[..., block] = np.exp(joint - each[..., None])
        loglik[:, c] = (own.versions * each).sum(0)
    w = own.versions[:, :, None] * r
    return grouped, _weighted(partial.weights, own, family, w, w.sum(0), loglik)


def _weighted(
    components: Components, own: Prepared, family: str, w: np.ndarray, member: np.ndarray, loglik: np.ndarray
) -> ComponentSums:
    """Newton sums with weights w (rows, versions, components)."""
    v, g, q = np.shape(components.coef)
    eta = own.rows.z @ np.asarray(components.coef).reshape(v * g, q).T
    found = small_glm.sums(own.rows, family, eta, w.reshape(len(w), v * g))
    loss = found.loss.reshape(v, g)
    score = found.score.reshape(v, g, q)
    hessian = found.hessian.reshape(v, g, -1)
    return ComponentSums(member, w.sum(0), loss, score, hessian, loglik)


def personal_fit(at: Personal, own: Prepared, family: str) -> tuple[small_glm.Fits, np.ndarray]:
    """(the site's coefficients under the prior, their precision (v, q, q)), in units of the data's dispersion."""
    scale = np.asarray(at.scale)[:, None]
    ridge = scale / np.maximum(at.variance, LEAST_VARIANCE)
    mean = np.asarray(at.mean)
    found = small_glm.fit(own.rows, family, own.versions, mean, mean, ridge)
    return found, found.hessian + ridge[:, :, None] * np.eye(mean.shape[1])


def _personal_sums(at: Personal, own: Prepared, family: str) -> PersonalSums:
    """One site's coefficients under the shared prior, and their uncertainty."""
    found, precision = personal_fit(at, own, family)
    scale = np.asarray(at.scale)
    present = float(len(own.rows.y) > 0)
    covariance = np.linalg.inv(precision) * scale[:, None, None]
    variance = np.einsum("vqq->vq", covariance)
    n = own.versions.sum(0)
    loss = found.loss + 0.5 * np.einsum("vab,vab->v", found.hessian, covariance)
    prior_variance = np.maximum(at.variance, LEAST_VARIANCE)
    distance = (found.coef - at.mean) ** 2 / prior_variance
    rows = small_glm.log_density(family, own.rows.z @ found.coef.T, own.rows.y[:, None], scale)
    loglik = (own.versions * rows).sum(0) - 0.5 * (distance + np.log(prior_variance)).sum(1)
    loglik = loglik + 0.5 * np.linalg.slogdet(covariance)[1]
    sums = (a * present for a in (found.coef, found.coef**2, variance, loss, loglik))
    return PersonalSums(np.asarray(present), n, *sums)


# ---- the server's side ----


def m_step(components: Components, total: GroupSums | ComponentSums, family: str, sizes: Sequence[int]) -> Components:
    """One Newton step of every component, its variance, and its share of sites or rows."""
    v, g, q = components.coef.shape
    hessian = unpack_triangle(total.hessian).reshape(v * g, q, q)
    ridge = PRIOR_PRECISION * (components.scale if family == "normal" else np.ones_like(components.scale))
    gradient = total.score - ridge[..., None] * components.coef
    step = small_glm.newton_step(hessian, gradient.reshape(v * g, q), ridge.reshape(-1, 1)).reshape(v, g, q)
    scale = components.scale
    if family == "normal":
        # the loss is quadratic: its value after the step follows from the sums before it
        curvature = np.einsum("vgq,vgqr,vgr->vg", step, hessian.reshape(v, g, q, q), step)
        squares = 2 * total.loss - 2 * (step * total.score).sum(-1) + curvature
        scale = np.maximum((squares + LEAST_VARIANCE) / np.maximum(total.n + 1e-9, 1e-9), LEAST_VARIANCE)
    share = np.empty_like(components.share)
    for block in blocks(sizes):
        members = total.member[:, block] + 1.0
        share[:, block] = members / members.sum(1, keepdims=True)
    return Components(components.coef + step, scale, share)


def personal_m_step(at: Personal, total: PersonalSums, family: str) -> Personal:
    """Mean and variances between sites, and the variance of the normal distribution."""
    sites = float(total.sites)
    mean = total.mode / sites
    between = np.maximum(total.square - sites * mean**2, 0.0) / max(sites - 1, 1.0)
    variance = np.maximum(between + total.variance / sites, LEAST_VARIANCE)
    scale = 2 * total.loss / np.maximum(total.n, 1e-300) if family == "normal" else at.scale
    return Personal(mean, variance, np.maximum(scale, LEAST_VARIANCE))
