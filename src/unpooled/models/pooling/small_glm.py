"""Generalised linear models of few rows, many at a time: normal, binomial and Poisson, canonical links. Sends nothing.

All m models have the same n rows z (n, q), a column of ones first; row weights, targets and coefficients differ. A packed
lower triangle of a (q, q) matrix has t = q (q + 1) / 2 numbers. Losses are minus the log-likelihood at dispersion 1 without
constants: half the squared residuals for the normal distribution.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import expit, gammaln

from unpooled.maths.gaussian import unpack_triangle

FAMILIES = ("normal", "binomial", "poisson")
MOST_ETA = 30.0  # bound of linear predictors; larger ones would make means overflow
LONGEST_STEP = 4.0  # largest change of a coefficient (of a standardised column) in one step
STEPS = 40  # Newton steps at most
HALVINGS = 12  # of one step at most


class Rows(NamedTuple):
    """The rows that all models share."""

    z: np.ndarray  # (n, q)
    zz: np.ndarray  # (n, t) the packed lower triangles of z z', row by row
    y: np.ndarray  # (n,)
    w: np.ndarray  # (n,)


class Sums(NamedTuple):
    """What a Newton step needs, of m models."""

    loss: np.ndarray  # (m,)
    score: np.ndarray  # (m, q) minus the gradient of the loss
    hessian: np.ndarray  # (m, t) packed


class Fits(NamedTuple):
    """m fitted models."""

    coef: np.ndarray  # (m, q)
    loss: np.ndarray  # (m,) without the penalty
    hessian: np.ndarray  # (m, q, q) without the penalty


def products(z: np.ndarray) -> np.ndarray:  # (n, t)
    """The packed lower triangles of z z' for each row of z (n, q)."""
    i, j = np.tril_indices(z.shape[1])
    return z[:, i] * z[:, j]


def mean(family: str, eta: np.ndarray) -> np.ndarray:
    """The mean of y at linear predictors eta."""
    if family == "normal":
        return eta
    return expit(eta) if family == "binomial" else np.exp(np.clip(eta, -MOST_ETA, MOST_ETA))


def variance(family: str, mu: np.ndarray) -> np.ndarray:
    """The variance of y at means mu and dispersion 1."""
    if family == "normal":
        return np.ones_like(mu)
    return mu * (1 - mu) if family == "binomial" else mu


def losses(family: str, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Minus the log-likelihood of each row at dispersion 1, constants left out."""
    if family == "normal":
        return 0.5 * (y - eta) ** 2
    if family == "binomial":
        return np.logaddexp(0, eta) - y * eta
    eta = np.clip(eta, -MOST_ETA, MOST_ETA)
    return np.exp(eta) - y * eta


def constants(family: str, y: np.ndarray) -> np.ndarray:
    """The terms of minus the log-likelihood that `losses` leaves out, except for the normal dispersion."""
    return gammaln(y + 1) if family == "poisson" else np.zeros_like(y)


def log_density(family: str, eta: np.ndarray, y: np.ndarray, scale: np.ndarray | float) -> np.ndarray:
    """The log-likelihood of each row; `scale` is the variance of the normal distribution."""
    found = -losses(family, eta, y)
    if family == "normal":
        return found / scale - 0.5 * np.log(2 * np.pi * scale)
    return found - constants(family, y)


def sums(rows: Rows, family: str, eta: np.ndarray, w: np.ndarray, y: np.ndarray | None = None) -> Sums:
    """Loss, score and Hessian of m models at linear predictors eta (n, m) with weights w (n, m)."""
    y = rows.y[:, None] if y is None else y
    mu = mean(family, eta)
    score = (w * (y - mu)).T @ rows.z
    hessian = (w * variance(family, mu)).T @ rows.zz
    return Sums((w * losses(family, eta, y)).sum(0), score, hessian)


def fit(
    rows: Rows,
    family: str,
    w: np.ndarray,
    start: np.ndarray,
    prior_mean: np.ndarray,
    prior_precision: np.ndarray,
    y: np.ndarray | None = None,
) -> Fits:
    """m penalised fits with weights w (n, m), from coefficients `start` (m, q), by Newton's method with halved steps.

    The penalty is prior_precision / 2 (coef - prior_mean)^2, both (m, q).
    """
    coef = start.copy()
    here = sums(rows, family, rows.z @ coef.T, w, y)
    for _ in range(STEPS):
        gradient = here.score - prior_precision * (coef - prior_mean)
        step = newton_step(unpack_triangle(here.hessian), gradient, prior_precision)
        objective = here.loss + _penalty(coef, prior_mean, prior_precision)
        new, after = _halved(rows, family, w, y, coef, step, objective, prior_mean, prior_precision)
        moved = np.abs(new - coef).max(initial=0.0)
        coef, here = new, after
        if moved < 1e-10 or (family == "normal" and moved < 1e-6):
            break
    return Fits(coef, here.loss, unpack_triangle(here.hessian))


def newton_step(hessian: np.ndarray, gradient: np.ndarray, ridge: np.ndarray | float = 0.0) -> np.ndarray:  # (m, q)
    """(hessian + ridge)^-1 gradient, (m, q), for m Hessians (m, q, q); 0 in directions without curvature.

    A step that would change a coefficient by more than LONGEST_STEP is shortened.
    """
    q = hessian.shape[-1]
    full = hessian + np.broadcast_to(ridge, gradient.shape)[..., None] * np.eye(q)
    values, vectors = np.linalg.eigh(full)
    known = values > 1e-12 * np.maximum(values[..., -1:], 1e-300)
    along = np.einsum("mqk,mq->mk", vectors, gradient)
    step = np.einsum("mqk,mk->mq", vectors, np.where(known, along / np.where(known, values, 1.0), 0.0))
    longest = np.abs(step).max(-1, keepdims=True, initial=0.0)
    return step * np.minimum(1.0, LONGEST_STEP / np.maximum(longest, 1e-300))


def _penalty(coef: np.ndarray, mean: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """The penalty (m,) of coefficients (m, q)."""
    return 0.5 * (precision * (coef - mean) ** 2).sum(-1)


def _halved(
    rows: Rows,
    family: str,
    w: np.ndarray,
    y: np.ndarray | None,
    coef: np.ndarray,
    step: np.ndarray,
    before: np.ndarray,
    prior_mean: np.ndarray,
    prior_precision: np.ndarray,
) -> tuple[np.ndarray, Sums]:
    """The coefficients after a step, and their sums; the step is halved for models whose objective rises above `before` (m,)."""
    share = np.ones(len(coef))
    for _ in range(HALVINGS):
        new = coef + share[:, None] * step
        after = sums(rows, family, rows.z @ new.T, w, y)
        worse = after.loss + _penalty(new, prior_mean, prior_precision) > before + 1e-12 * np.abs(before) + 1e-300
        if not worse.any():
            break
        share = np.where(worse, share / 2, share)
    return new, after


def rank_and_inverse(hessian: np.ndarray) -> tuple[int, np.ndarray]:
    """(rank, pseudo-inverse) of one symmetric matrix (q, q)."""
    scale = np.sqrt(np.maximum(np.diag(hessian), 1e-300))
    values, vectors = np.linalg.eigh(hessian / np.outer(scale, scale))
    known = values > 1e-9 * max(values[-1], 1e-300)
    half = vectors[:, known] / np.sqrt(values[known]) / scale[:, None]
    return int(known.sum()), half @ half.T
