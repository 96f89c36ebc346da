"""What clients are asked about shifts and shared models: first looks, features of x and y, Newton sums, how far sites lie apart.

SUMs only. Where a model is fitted without a fold, the axis v runs over the folds left out, then over all rows together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float
from unpooled.client import SUM, Client, client
from unpooled.maths.gaussian import pack_triangle, unpack_triangle
from unpooled.models.pooling import small_glm
from unpooled.models.pooling.rows import Frame, Prepared, complete, folds, prepared, x_features, y_features
from unpooled.tree import message

WEAK = 0.04  # precision of a weak prior on a site's own coefficients where they predict left-out rows: N(0, 5^2)
DRAWS = 100  # simulated targets for the mean of a likelihood ratio


# ---- a first look ----


@message("pooling.Look")
class Look(NamedTuple):
    """Sites, rows and sums of columns."""

    sites: Float[Array, "", ">=0"]  # clients with a complete row
    n: Float[Array, "", ">=0 rows"]
    missing: Float[Array, "", ">=0 rows"]  # rows with missing values
    outside: Float[Array, "", ">=0 rows"]  # rows whose y the family does not have
    x: Float[Array, "p"]
    y: Float[Array, ""]
    folds: Float[Array, "f", ">=0 rows"]  # complete rows of each fold, in a study


@message("pooling.Centre")
class Centre(NamedTuple):
    """Means of columns and target."""

    x: Float[Array, "p"]
    y: Float[Array, ""]


@message("pooling.Squares")
class Squares(NamedTuple):
    """Sums of squares about the means."""

    xx: Float[Array, "p", ">=0"]
    yy: Float[Array, "", ">=0"]


@client("pooling.look", SUM, batched=False)
def look(nothing: None, client: Client, *, family: str, cv: int = 0) -> Look:
    """Complete rows, rows with missing values, targets that do not fit, sums of every column, and with `cv` rows of each fold."""
    x, y, w, kept = complete(client)
    missing = ((w > 0) & ~kept).sum()
    outside = _outside(family, y[kept]).sum()
    x, y, w = x[kept], y[kept], w[kept]
    sites, rows, missing, outside = (np.asarray(float(a)) for a in (kept.any(), w.sum(), missing, outside))
    by_fold = np.bincount(folds(client, cv)[kept], minlength=cv).astype(np.float64) if cv else np.zeros(0)
    return Look(sites, rows, missing, outside, w @ x, w @ y, by_fold)


def _outside(family: str, y: np.ndarray) -> np.ndarray:
    """Which targets the family does not have."""
    if family == "binomial":
        return (y < 0) | (y > 1)
    if family == "poisson":
        return (y < 0) | (y != np.floor(y))
    return ~np.isfinite(y)


@client("pooling.squares", SUM, batched=False, adds=True)
def squares(centre: Centre, client: Client) -> Squares:
    """Squares of every column about its mean."""
    x, y, w, kept = complete(client)
    return Squares(w[kept] @ (x[kept] - centre.x) ** 2, w[kept] @ (y[kept] - centre.y) ** 2)


# ---- shift of P(x) and P(y) ----


@message("pooling.Features")
class Features(NamedTuple):
    """Sums of features: over rows, of their products over rows, and of the products of sites' sums over sites' rows."""

    x: Float[Array, "f"]
    xx: Float[Array, "t"]
    between: Float[Array, "t"]


@message("pooling.TargetFeatures")
class TargetFeatures(NamedTuple):
    """The same of the targets."""

    x: Float[Array, "g"]
    xx: Float[Array, "u"]
    between: Float[Array, "u"]


@message("pooling.Shift")
class Shift(NamedTuple):
    """Features of columns and of the target, for tests of shift."""

    x: Features
    y: TargetFeatures


@client("pooling.shift", SUM, batched=False)
def shift(frame: Frame, client: Client, *, family: str) -> Shift:
    """First and second moments of columns and targets, within sites and between them."""
    of_x = _moments(*x_features(frame, client))
    of_y = _moments(*y_features(frame, client, family))
    return Shift(Features(*of_x), TargetFeatures(*of_y))


def _moments(phi: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sums and second moments of features, of all rows and of the site's total."""
    total = w @ phi
    second = (phi.T * w) @ phi
    return total, pack_triangle(second), pack_triangle(np.outer(total, total) / max(w.sum(), 1e-300))


# ---- one model, and own intercepts: Newton's method ----


@message("pooling.At")
class At(NamedTuple):
    """Coefficients at which Newton sums are taken."""

    frame: Frame
    common: Float[Array, "v q"]  # one model for all: the intercept first
    slopes: Float[Array, "v p"]  # of the model whose intercepts are the sites' own


@message("pooling.Curvature")
class Curvature(NamedTuple):
    """Newton sums of one model."""

    n: Float[Array, "v", ">=0 rows"]
    loss: Float[Array, "v"]
    score: Float[Array, "v q"]
    hessian: Float[Array, "v t"]


@message("pooling.SlopeCurvature")
class SlopeCurvature(NamedTuple):
    """The same of slopes, with the site's own intercept at its best."""

    loss: Float[Array, "v"]
    score: Float[Array, "v p"]
    hessian: Float[Array, "v u"]


@message("pooling.Both")
class Both(NamedTuple):
    """Newton sums of one model, and of the model with the sites' own intercepts."""

    common: Curvature
    slopes: SlopeCurvature


@client("pooling.newton", SUM, batched=False)
def newton(at: At, client: Client, *, family: str, cv: int) -> Both:
    """Score and curvature of one model for all sites, and of common slopes with the site's own intercept."""
    own = prepared(at.frame, client, family, cv)
    one = small_glm.sums(own.rows, family, own.rows.z @ at.common.T, own.versions)
    apart = _profile(own, family, at.slopes)
    return Both(Curvature(own.versions.sum(0), *one), SlopeCurvature(*apart))


def intercepts(own: Prepared, family: str, slopes: np.ndarray) -> np.ndarray:
    """(v,) the site's own intercepts for given slopes; those that predict left-out rows have a weak prior."""
    z = own.rows.z
    y = own.rows.y[:, None]
    shift = z[:, 1:] @ slopes.T
    weak = weak_prior(slopes.shape[0])
    total = own.versions.sum(0)
    if family == "normal":
        return ((own.versions * (y - shift)).sum(0)) / np.maximum(total + weak, 1e-300)
    at = np.zeros(len(slopes))
    for _ in range(60):
        mu = small_glm.mean(family, at + shift)
        pull = (own.versions * (y - mu)).sum(0) - weak * at
        curve = (own.versions * small_glm.variance(family, mu)).sum(0) + weak
        step = np.clip(pull / np.maximum(curve, 1e-12), -2.0, 2.0)
        at = np.clip(at + step, -small_glm.MOST_ETA / 2, small_glm.MOST_ETA / 2)
        if np.abs(step).max() < 1e-12:
            break
    return at


def weak_prior(versions: int) -> np.ndarray:  # (v,)
    """The precision of the prior of each version: none where all rows are fitted."""
    return np.where(np.arange(versions) < versions - 1, WEAK, 0.0)


def _profile(own: Prepared, family: str, slopes: np.ndarray) -> small_glm.Sums:
    """Loss, score and curvature of the slopes, the intercept being the site's own."""
    at = np.column_stack([intercepts(own, family, slopes), slopes])
    found = small_glm.sums(own.rows, family, own.rows.z @ at.T, own.versions)
    whole = unpack_triangle(found.hessian)
    weak = weak_prior(len(slopes))
    corner = np.maximum(whole[:, 0, 0] + weak, 1e-12)
    side = whole[:, 0, 1:]
    left = whole[:, 1:, 1:] - side[:, :, None] * side[:, None, :] / corner[:, None, None]
    return small_glm.Sums(found.loss + 0.5 * weak * at[:, 0] ** 2, found.score[:, 1:], pack_triangle(left))


# ---- how far sites lie from one model ----


@message("pooling.Shared")
class Shared(NamedTuple):
    """One model, fitted to all."""

    frame: Frame
    coef: Float[Array, "v q"]
    information: Float[Array, "v t"]  # per row
    scale: Float[Array, "v", ">=0"]  # variance of the normal distribution


@message("pooling.Apart")
class Apart(NamedTuple):
    """How far sites lie apart."""

    score: Float[Array, ""]  # sum over sites of U' I^-1 U
    rank: Float[Array, "", ">=0"]
    own_loss: Float[Array, ""]  # of each site's own fit
    expected: Float[Array, ""]  # mean of twice the gain of own fits, if there is one model
    scatter: Float[Array, "v t"]  # of own coefficients about the shared ones, whitened, weighted by rows
    precision: Float[Array, "v q", ">=0"]  # sum of 1 / var of each own coefficient
    precision2: Float[Array, "v q", ">=0"]  # of its square
    away: Float[Array, "v q"]  # sum of (own - shared) / var
    away2: Float[Array, "v q", ">=0"]  # sum of (own - shared)^2 / var


@client("pooling.apart", SUM, batched=False)
def apart(shared: Shared, client: Client, *, family: str, cv: int) -> Apart:
    """How far the site's own coefficients lie from the shared ones, and what its own fit gains."""
    own = prepared(shared.frame, client, family, cv)
    if not len(own.rows.y):
        return _nothing(shared)
    rows = own.rows
    coef = np.asarray(shared.coef)
    here = small_glm.sums(rows, family, rows.z @ coef[-1:].T, own.versions[:, -1:])
    information = unpack_triangle(here.hessian[0])
    rank, inverse = small_glm.rank_and_inverse(information)
    none = np.zeros_like(coef[-1:])
    best = small_glm.fit(rows, family, own.versions[:, -1:], coef[-1:], none, none)
    expected = rank if family == "normal" else rank + _excess(own, family, coef[-1], client.rng)
    score = here.score[0] @ inverse @ here.score[0]
    tests = [np.asarray(a) for a in (score, float(rank), best.loss[0], float(expected))]
    return Apart(*tests, *_spread(shared, own, family))


def _nothing(shared: Shared) -> Apart:
    """The answer of a site without complete rows."""
    zero = np.zeros(())
    wide = np.zeros_like(shared.coef)
    return Apart(zero, zero, zero, zero, np.zeros_like(shared.information), wide, wide, wide, wide)


def _excess(own: Prepared, family: str, coef: np.ndarray, rng: np.random.Generator) -> float:
    """How much larger the mean of twice the gain of an own fit is than that of its score statistic, by simulation."""
    z = own.rows.z
    mu = small_glm.mean(family, z @ coef)
    size = (len(mu), DRAWS)
    drawn = rng.random(size) < mu[:, None] if family == "binomial" else rng.poisson(mu[:, None], size)
    y = drawn.astype(np.float64)
    w = np.repeat(own.rows.w[:, None], DRAWS, 1)
    start = np.tile(coef, (DRAWS, 1))
    here = small_glm.sums(own.rows, family, z @ start.T, w, y)
    _, inverse = small_glm.rank_and_inverse(unpack_triangle(here.hessian[0]))
    statistic = np.einsum("mq,qr,mr->m", here.score, inverse, here.score)
    tiny = np.full_like(start, 1e-8)
    best = small_glm.fit(own.rows, family, w, start, start, tiny, y)
    return float(np.mean(2 * (here.loss - best.loss) - statistic))


def _spread(shared: Shared, own: Prepared, family: str) -> tuple[np.ndarray, ...]:
    """Scatter and moments of the site's own coefficients about the shared ones, version by version."""
    coef = np.asarray(shared.coef)
    weak = np.full_like(coef, WEAK)
    best = small_glm.fit(own.rows, family, own.versions, coef, coef, weak)
    away = best.coef - coef
    q = coef.shape[1]
    covariance = np.linalg.inv(best.hessian + WEAK * np.eye(q)) * np.asarray(shared.scale)[:, None, None]
    precision = 1 / np.maximum(np.einsum("vqq->vq", covariance), 1e-12)
    lower = np.linalg.cholesky(unpack_triangle(np.asarray(shared.information)) + 1e-9 * np.eye(q))
    white = np.einsum("vqk,vq->vk", lower, away)
    scatter = own.versions.sum(0)[:, None, None] * white[:, :, None] * white[:, None, :]
    return pack_triangle(scatter), precision, precision**2, precision * away, precision * away**2
