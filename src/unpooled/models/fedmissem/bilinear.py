"""A table of sites by dates of low rank in the linear predictor, evaluated at visits (site, date, value) alone; sends nothing.

theta = a_site + b_date + u_site . v_date. Both sides have rows of one form: `left` (sites, 2 + r) is (a, 1, u), `right` (dates, 2 + r)
is (1, b, v), and theta is their product. With one side fixed, each row of the other is a small generalised linear regression.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float
from unpooled.models.fedmissem import families
from unpooled.tree import message

MAX_STEP = 2.0  # largest change of a coefficient in one Newton step


@message("fedmissem.Factors")
class Factors(NamedTuple):
    """Coefficients of sites and dates."""

    left: Float[Array, "j p"]
    right: Float[Array, "l p"]


@message("fedmissem.Half")
class Half(NamedTuple):
    """Sums over visits that the regressions of one side need."""

    slope: Float[Array, "m q"]  # sum of (value - mean) rate / variance z
    curve: Float[Array, "m t"]  # sum of rate^2 / variance z z', packed triangle
    deviance: Float[Array, "", ">=0"]
    pearson: Float[Array, "", ">=0"]  # sum of (value - mean)^2 / variance
    visits: Float[Array, "", ">=0 rows"]


@message("fedmissem.Penalties")
class Penalties(NamedTuple):
    """Ridge penalties, relative to the dispersion."""

    sites: float  # of the sites' effects, towards 0
    dates: float  # of the dates' effects, towards their mean
    factors: float  # of both sides' factors, towards 0


def learned(side: str, p: int) -> np.ndarray:
    """The columns of a side that are not fixed at one."""
    return np.delete(np.arange(p), 1 if side == "left" else 0)


def begin(n_sites: int, n_dates: int, rank: int, level: float, rng: np.random.Generator) -> Factors:
    """A constant table, and small random factors."""
    left = rng.normal(scale=0.1, size=(n_sites, 2 + rank))
    right = rng.normal(scale=0.1, size=(n_dates, 2 + rank))
    left[:, :2] = (0.0, 1.0)
    right[:, :2] = (1.0, level)
    return Factors(left, right)


def with_rank(factors: Factors, rank: int, rng: np.random.Generator) -> Factors:
    """The effects of a fit, with small random factors."""
    fresh = begin(len(factors.left), len(factors.right), rank, 0.0, rng)
    fresh.left[:, :2] = factors.left[:, :2]
    fresh.right[:, :2] = factors.right[:, :2]
    return fresh


def with_curves(factors: Factors, n_curves: int) -> Factors:
    """The effects of a fit, with smooth functions of the date as the dates' factors and factors 0 of the sites.

    Cosines of growing frequency, divided by it: a ridge penalty of the sites' factors then prefers slow changes to fast ones.
    """
    n_sites = len(factors.left)
    n_dates = len(factors.right)
    frequency = np.arange(1, n_curves + 1)
    date = (np.arange(n_dates) + 0.5) / n_dates
    curves = np.sqrt(2) * np.cos(np.pi * date[:, None] * frequency) / frequency
    left = np.hstack([factors.left[:, :2], np.zeros((n_sites, n_curves))])
    right = np.hstack([factors.right[:, :2], curves])
    return Factors(left, right)


def theta_at(factors: Factors, site: np.ndarray, date: np.ndarray) -> np.ndarray:
    """The linear predictor of cells."""
    return np.einsum("np,np->n", factors.left[site], factors.right[date])


def average_theta(
    weights: np.ndarray, factors: list[Factors], site: np.ndarray, date: np.ndarray
) -> np.ndarray:  # (m,), (n,), (n,) -> (n,)
    """The linear predictor of cells, averaged over models."""
    return sum(w * theta_at(own, site, date) for w, own in zip(weights, factors))


def half(factors: Factors, side: str, visits: np.ndarray, w: np.ndarray, family: str, trials: int) -> Half:
    """Sums of one side over visits (n, 3)."""
    site = visits[:, 0].astype(np.int64)
    date = visits[:, 1].astype(np.int64)
    value = visits[:, 2]
    mean = families.mean(theta_at(factors, site, date), family, trials)
    variance = families.variance(mean, family, trials)
    rate = families.rate(mean, family, trials)
    own, other = (factors.left, factors.right) if side == "left" else (factors.right, factors.left)
    own_index, other_index = (site, date) if side == "left" else (date, site)
    z = other[other_index][:, learned(side, own.shape[1])]  # (n, q)
    i, j = np.tril_indices(z.shape[1])
    slope = sums_by(own_index, (w * (value - mean) * (rate / variance))[:, None] * z, len(own))
    curve = sums_by(own_index, (w * rate * (rate / variance))[:, None] * z[:, i] * z[:, j], len(own))
    deviance = w @ families.deviance(value, mean, family, trials)
    pearson = w @ ((value - mean) ** 2 / variance)
    totals = [np.asarray(float(total)) for total in (deviance, pearson, w.sum())]
    return Half(slope, curve, *totals)


def sums_by(index: np.ndarray, columns: np.ndarray, size: int) -> np.ndarray:  # (n,), (n, c) -> (size, c)
    """Sums of columns by index; floats even of no rows, for which bincount has integers."""
    return np.stack([np.bincount(index, column, size) for column in columns.T], axis=1).astype(np.float64)


def newton(
    factors: Factors, side: str, found: Half, dispersion: float, penalties: Penalties, curves: bool = False
) -> tuple[Factors, np.ndarray]:
    """(factors after one Newton step on a side, covariances of its coefficients (m, q, q)); with `curves` dates' factors stay."""
    own = factors.left if side == "left" else factors.right
    which = learned(side, own.shape[1])
    ridge = _ridge(side, len(which), penalties)
    q = len(which)
    curve = np.zeros((len(own), q, q))
    i, j = np.tril_indices(q)
    curve[:, i, j] = curve[:, j, i] = found.curve / dispersion
    moving = slice(0, 1 if curves and side == "right" else q)
    covariance = np.zeros_like(curve)
    covariance[:, moving, moving] = np.linalg.inv((curve + np.diag(ridge))[:, moving, moving])
    slope = found.slope / dispersion - ridge * (own[:, which] - _target(side, own, q))
    new = own.copy()
    new[:, which] += np.clip(np.einsum("mpq,mq->mp", covariance, slope), -MAX_STEP, MAX_STEP)
    return factors._replace(**{side: new}), covariance


def level_in_dates(factors: Factors) -> Factors:
    """The same table with site effects of mean 0: what sites have in common moves to the dates, whose level has no penalty.

    No other division of the level has a smaller penalty, and steps of one side at a time would take many rounds to find it.
    """
    left = factors.left.copy()
    right = factors.right.copy()
    level = left[:, 0].mean()
    left[:, 0] -= level
    right[:, 1] += level
    return Factors(left, right)


def curves_in_dates(factors: Factors, penalties: Penalties) -> Factors:
    """The same table with the part of the sites' curves that all have in common moved to the dates as far as the penalty falls."""
    left = factors.left.copy()
    right = factors.right.copy()
    curves = right[:, 2:]
    sites = penalties.factors
    dates = penalties.dates
    away = right[:, 1] - right[:, 1].mean()
    curvature = len(left) * sites * np.eye(curves.shape[1]) + dates * curves.T @ curves
    common = np.linalg.solve(curvature, sites * left[:, 2:].sum(axis=0) - dates * curves.T @ away)
    left[:, 2:] -= common
    right[:, 1] += curves @ common
    return Factors(left, right)


def freedom(side: str, covariance: np.ndarray, penalties: Penalties) -> float:  # (m, q, q)
    """The effective number of coefficients of a side, those that the penalty shrinks counted in part, fixed ones not at all."""
    m, q, _ = covariance.shape
    variances = np.einsum("mqq->q", covariance)
    return float(((variances > 0) * (m - variances * _ridge(side, q, penalties))).sum())


def penalised(factors: Factors, penalties: Penalties) -> float:
    """Twice the penalty of the factors: what is added to deviance / dispersion."""
    total = 0.0
    for side, own in (("left", factors.left), ("right", factors.right)):
        which = learned(side, own.shape[1])
        away = own[:, which] - _target(side, own, len(which))
        total += float((away**2).sum(axis=0) @ _ridge(side, len(which), penalties))
    return total


def _ridge(side: str, q: int, penalties: Penalties) -> np.ndarray:  # (q,)
    """The ridge of one side's coefficients: its effect first, then its factors."""
    ridge = np.full(q, penalties.factors)
    ridge[0] = penalties.sites if side == "left" else penalties.dates
    return ridge


def _target(side: str, own: np.ndarray, q: int) -> np.ndarray:  # (q,)
    """What coefficients are shrunk to: dates' effects to their mean, all others to 0."""
    target = np.zeros(q)
    if side == "right":
        target[0] = own[:, 1].mean()
    return target
