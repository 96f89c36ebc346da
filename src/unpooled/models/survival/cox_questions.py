"""What clients are asked for a Cox regression: each answer is a plain sum over patients, by step of time or over all of them.

Covariates are standardised, z = (x - mean) / scale, with mean and scale over all clients; r = exp(z'b).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, Int
from unpooled.client import SUM, Client, client
from unpooled.models.survival import harrell, partial_likelihood
from unpooled.models.survival.partial_likelihood import Deaths, curvature_weights, last_step, risk
from unpooled.models.survival.rows import Rows, survival_rows
from unpooled.tree import message

SCORE_DECIMALS = 10  # scores are rounded so, that equal rows have equal scores wherever they are


@message("survival.Centred")
class Centred(NamedTuple):
    """Means of covariates and steps of time."""

    mean: Float[Array, "k"]
    starts: Float[Array, "g"]


@message("survival.Start")
class Start(NamedTuple):
    """Who leaves in each step of time, and the spread of covariates."""

    died: Float[Array, "g", ">=0 rows"]
    died_weight: Float[Array, "g", ">=0 rows"]
    censored: Float[Array, "g", ">=0 rows"]
    xx: Float[Array, "k", ">=0"]  # sum of w (x - mean)^2
    died_x: Float[Array, "k"]  # sum of w (x - mean) over those who die


@message("survival.Scale")
class Scale(NamedTuple):
    """Means and standard deviations of covariates."""

    mean: Float[Array, "k"]
    scale: Float[Array, "k"]


@message("survival.At")
class At(NamedTuple):
    """Coefficients of standardised covariates, the steps of time, and those of them with two deaths or more."""

    coef: Float[Array, "k"]
    scale: Scale
    starts: Float[Array, "g"]
    tied: Int[Array, "q"]


@message("survival.RiskSums")
class RiskSums(NamedTuple):
    """Sums of r and r z over those who leave the risk set in each step, and over those who die where several do."""

    rows: Float[Array, "g", ">=0 rows"]  # over how many patients they are, for the node's own rules
    r: Float[Array, "g", ">=0"]
    rz: Float[Array, "g k"]
    died_r: Float[Array, "q", ">=0"]
    died_rz: Float[Array, "q k"]


@message("survival.Hazard")
class Hazard(NamedTuple):
    """The hazard up to each step, at some coefficients."""

    at: At
    cumulated: Float[Array, "g"]  # hazard up to each step
    relief: Float[Array, "g"]  # less for those who die in it


@message("survival.Curvature")
class Curvature(NamedTuple):
    """The second derivative of the partial likelihood."""

    zz: Float[Array, "t"]  # the upper triangle, row by row


@message("survival.Means")
class Means(NamedTuple):
    """What robust standard errors need beside the hazard: mean covariates by step."""

    hazard: Hazard
    mean: Float[Array, "g k"]
    cumulated_mean: Float[Array, "g k"]
    relief_mean: Float[Array, "g k"]


@message("survival.SiteAt")
class SiteAt(NamedTuple):
    """Coefficients, for sums within each site."""

    coef: Float[Array, "k"]
    scale: Scale


@message("survival.SiteTerms")
class SiteTerms(NamedTuple):
    """The partial likelihood of one site's patients among themselves."""

    loglik: Float[Array, ""]
    gradient: Float[Array, "k"]
    zz: Float[Array, "t"]  # minus the second derivative, the upper triangle row by row


@message("survival.SiteStart")
class SiteStart(NamedTuple):
    """Spread of covariates within sites."""

    xx: Float[Array, "k", ">=0"]


@message("survival.SitePairs")
class SitePairs(NamedTuple):
    """Pairs of patients of one site: in the right order, tied, and all."""

    right: Float[Array, "", ">=0"]
    same: Float[Array, "", ">=0"]
    all: Float[Array, "", ">=0"]


# ---- risk sets over all clients ----


@client("survival.start", SUM, adds=True, batched=False)
def start(centred: Centred, client: Client, *, columns: dict) -> Start:
    """Deaths and censored patients by step of time; squares of every covariate about its mean, and its sum over deaths."""
    rows = survival_rows(client, columns)
    g = len(centred.starts)
    step = last_step(centred.starts, rows.time)
    inside = step >= 0
    died = inside & rows.died
    censored = inside & ~rows.died
    z = rows.x - centred.mean
    w_died = rows.w[died]
    deaths = np.bincount(step[died], None, g).astype(np.float64)
    weights = np.bincount(step[died], w_died, g).astype(np.float64)
    censorings = np.bincount(step[censored], None, g).astype(np.float64)
    return Start(deaths, weights, censorings, rows.w @ z**2, w_died @ z[died])


@client("survival.risk_sums", SUM, adds=True, batched=False)
def risk_sums(at: At, client: Client, *, columns: dict) -> RiskSums:
    """Sums of exp(z'b) and of exp(z'b) z over the patients who leave the risk set, by step of time."""
    rows = survival_rows(client, columns)
    z = _standard(rows, at.scale)
    step = last_step(at.starts, rows.time)
    wr = rows.w * risk(z, at.coef)
    g = len(at.starts)
    leaving = np.bincount(step[step >= 0], minlength=g).astype(np.float64)
    return RiskSums(leaving, *partial_likelihood.sums(z, wr, step, rows.died, at.tied, g))


@client("survival.curvature", SUM, adds=True, batched=False)
def curvature(hazard: Hazard, client: Client, *, columns: dict) -> Curvature:
    """Second moments of covariates, each patient weighted by exp(z'b) times the hazard it has gone through."""
    at = hazard.at
    rows = survival_rows(client, columns)
    z = _standard(rows, at.scale)
    step = last_step(at.starts, rows.time)
    passed = curvature_weights(hazard.cumulated, hazard.relief, step, rows.died)
    weights = rows.w * risk(z, at.coef) * passed
    return Curvature(_triangle((z.T * weights) @ z))


@client("survival.scores_by_site", SUM, batched=False)
def scores_by_site(means: Means, client: Client, *, columns: dict) -> Curvature:
    """The product of the client's score with itself, for standard errors that hold when a site's patients are alike."""
    hazard = means.hazard
    at = means.hazard.at
    rows = survival_rows(client, columns)
    z = _standard(rows, at.scale)
    step = last_step(at.starts, rows.time)
    kept = step >= 0
    z = z[kept]
    step = step[kept]
    died = rows.died[kept]
    w = rows.w[kept]
    r = risk(z, at.coef)
    passed = curvature_weights(hazard.cumulated, hazard.relief, step, died)
    mean_passed = means.cumulated_mean[step] - died[:, None] * means.relief_mean[step]
    residual = died[:, None] * (z - means.mean[step]) - r[:, None] * (z * passed[:, None] - mean_passed)
    score = w @ residual
    return Curvature(_triangle(np.outer(score, score)))


# ---- risk sets within each site ----


@client("survival.site_start", SUM, adds=True, batched=False)
def site_start(scale: Scale, client: Client, *, columns: dict) -> SiteStart:
    """Squares of every covariate about its mean."""
    rows = survival_rows(client, columns)
    return SiteStart(rows.w @ (rows.x - scale.mean) ** 2)


@client("survival.site_likelihood", SUM, batched=False)
def site_likelihood(at: SiteAt, client: Client, *, columns: dict, ties: str) -> SiteTerms:
    """The partial likelihood of the client's patients among themselves, and its two derivatives."""
    loglik, gradient, information = _site_terms(at, survival_rows(client, columns), ties)
    return SiteTerms(np.asarray(loglik), gradient, _triangle(information))


@client("survival.site_scores", SUM, batched=False)
def site_scores(at: SiteAt, client: Client, *, columns: dict, ties: str) -> Curvature:
    """The product of the client's score with itself, for standard errors that hold when a site's patients are alike."""
    _, gradient, _ = _site_terms(at, survival_rows(client, columns), ties)
    return Curvature(_triangle(np.outer(gradient, gradient)))


@client("survival.site_pairs", SUM, batched=False)
def site_pairs(at: SiteAt, client: Client, *, columns: dict) -> SitePairs:
    """Pairs of the client's own patients that can be compared, those ranked rightly, and those with one score."""
    rows = survival_rows(client, columns)
    found = harrell.of_rows(rows.time, rows.died, scores(rows, at.scale, at.coef), rows.w)
    return SitePairs(*(np.asarray(n) for n in found))


def _site_terms(at: SiteAt, rows: Rows, ties: str) -> tuple[float, np.ndarray, np.ndarray]:
    """Log-likelihood, gradient and second derivative of one site's own partial likelihood."""
    k = len(at.coef)
    if not rows.died.any():
        return 0.0, np.zeros(k), np.zeros((k, k))
    z = _standard(rows, at.scale)
    starts = np.unique(rows.time[rows.died])
    step = last_step(starts, rows.time)
    n_died = np.bincount(step[rows.died], None, len(starts)).astype(np.float64)
    w_died = np.bincount(step[rows.died], rows.w[rows.died], len(starts)).astype(np.float64)
    deaths = Deaths(n_died, w_died)
    wr = rows.w * risk(z, at.coef)
    tied = partial_likelihood.tied(deaths, ties)
    sums = partial_likelihood.sums(z, wr, step, rows.died, tied, len(starts))
    terms = partial_likelihood.terms(deaths, sums, ties)
    died_z = rows.w[rows.died] @ z[rows.died]
    passed = curvature_weights(np.cumsum(terms.hazard), terms.relief, step, rows.died)
    information = (z.T * (wr * passed)) @ z - terms.outer
    return float(died_z @ at.coef) + terms.loglik, died_z + terms.gradient, information


def scores(rows: Rows, scale: Scale, coef: np.ndarray) -> np.ndarray:
    """Linear predictors z'b, (n,), rounded."""
    return np.round(_standard(rows, scale) @ coef, SCORE_DECIMALS) + 0.0


def _standard(rows: Rows, scale: Scale) -> np.ndarray:
    """Standardised covariates."""
    return (rows.x - scale.mean) / scale.scale


def _triangle(a: np.ndarray) -> np.ndarray:
    """The upper triangle of a matrix, row by row."""
    return a[np.triu_indices(len(a))]


def square(triangle: np.ndarray, k: int) -> np.ndarray:
    """The symmetric matrix of an upper triangle."""
    out = np.zeros((k, k))
    out[np.triu_indices(k)] = triangle
    return out + np.triu(out, 1).T
