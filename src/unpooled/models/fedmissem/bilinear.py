"""Sites x dates tables of low rank in the natural parameters, seen through visits (site, date, value) and never built whole.

theta = a_site + b_date + u_site . v_date. Both sides are rows of one form: `left` (J, 2 + r) is (a, 1, u), `right` (L, 2 + r) is
(1, b, v), and theta = left . right. With one side fixed, the other is a small generalised regression for each of its rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import expit, xlogy

from unpooled.arrays import Array, Float
from unpooled.tree import message

CELLS = ("gaussian", "poisson", "geometric", "binomial")
STEP = 2.0  # the most that a Newton step may change a natural parameter's coefficient


@message("fedmissem.Factors")
class Factors(NamedTuple):
    left: Float[Array, "j p"]
    right: Float[Array, "l p"]


@message("fedmissem.Half")
class Half(NamedTuple):
    """What one side's regressions need, summed over visits."""

    slope: Float[Array, "m q"]  # sum of (value - mean) rate / variance z
    curve: Float[Array, "m t"]  # sum of rate^2 / variance z z', packed triangle
    deviance: Float[Array, "", ">=0"]
    pearson: Float[Array, "", ">=0"]  # sum of (value - mean)^2 / variance
    visits: Float[Array, "", ">=0 rows"]


def learned(side: str, p: int) -> np.ndarray:
    """The columns of a side that are not fixed at one."""
    return np.delete(np.arange(p), 1 if side == "left" else 0)


def begin(n_sites: int, n_dates: int, rank: int, level: float, size: float, rng: np.random.Generator) -> Factors:
    """A constant table, and small random factors."""
    left, right = (rng.normal(scale=0.1 * np.sqrt(size), size=(n, 2 + rank)) for n in (n_sites, n_dates))
    left[:, :2], right[:, :2] = (0.0, 1.0), (1.0, level)
    return Factors(left, right)


def theta_at(factors: Factors, site: np.ndarray, date: np.ndarray) -> np.ndarray:
    return np.einsum("np,np->n", factors.left[site], factors.right[date])


def mean(theta: np.ndarray, cells: str, trials: int) -> np.ndarray:
    if cells == "gaussian":
        return theta
    return trials * expit(theta) if cells == "binomial" else np.exp(np.minimum(theta, 30.0))


def variance(mean: np.ndarray, cells: str, trials: int) -> np.ndarray:
    """Of a cell, up to the dispersion."""
    slope = rate(mean, cells, trials)
    return slope * (1 + mean) if cells == "geometric" else slope


def rate(mean: np.ndarray, cells: str, trials: int) -> np.ndarray:
    """The derivative of a mean by its parameter."""
    if cells == "gaussian":
        return np.ones_like(mean)
    return np.maximum(mean * (1 - mean / trials) if cells == "binomial" else mean, 1e-9)


def link(mean: float, cells: str, trials: int) -> float:
    if cells == "gaussian":
        return mean
    share = np.clip(mean / trials, 1e-3, 1 - 1e-3)
    return float(np.log(share / (1 - share)) if cells == "binomial" else np.log(max(mean, 1e-3)))


def deviance(value: np.ndarray, mean: np.ndarray, cells: str, trials: int) -> np.ndarray:
    """Twice the log-likelihood lost against a perfect fit."""
    if cells == "gaussian":
        return (value - mean) ** 2
    if cells == "poisson":
        return 2 * (xlogy(value, value / np.maximum(mean, 1e-300)) - (value - mean))
    if cells == "geometric":
        more = (1 + value) * np.log((1 + value) / (1 + mean))
        return np.maximum(2 * (xlogy(value, value / np.maximum(mean, 1e-300)) - more), 0.0)
    rest, left = trials - value, np.maximum(trials - mean, 1e-300)
    return 2 * (xlogy(value, value / np.maximum(mean, 1e-300)) + xlogy(rest, rest / left))


def half(
    factors: Factors, side: str, visits: np.ndarray, w: np.ndarray, cells: str, trials: int
) -> Half:  # visits (n, 3)
    """One side's sums over visits."""
    site, date, value = visits[:, 0].astype(np.int64), visits[:, 1].astype(np.int64), visits[:, 2]
    mu = mean(theta_at(factors, site, date), cells, trials)
    v, slope = variance(mu, cells, trials), rate(mu, cells, trials)
    own, other, index = (factors.left, factors.right, site) if side == "left" else (factors.right, factors.left, date)
    z = other[date if side == "left" else site][:, learned(side, own.shape[1])]  # (n, q)
    i, j = np.tril_indices(z.shape[1])
    sums = lambda columns: np.stack([np.bincount(index, c, len(own)) for c in columns.T], axis=1)  # noqa: E731
    away = w * (value - mu) * (slope / v)
    totals = (w @ deviance(value, mu, cells, trials), w @ ((value - mu) ** 2 / v), w.sum())
    curve = (w * slope * (slope / v))[:, None] * z[:, i] * z[:, j]
    return Half(sums(away[:, None] * z), sums(curve), *(np.asarray(float(t)) for t in totals))


def newton(factors: Factors, side: str, found: Half, dispersion: float, penalty: float) -> tuple[Factors, np.ndarray]:
    """(factors after one step on a side, covariances of its coefficients (m, q, q))."""
    own = factors.left if side == "left" else factors.right
    which = learned(side, own.shape[1])
    ridge, q = _ridge(side, len(which), penalty), len(which)
    curve = np.zeros((len(own), q, q))
    i, j = np.tril_indices(q)
    curve[:, i, j] = curve[:, j, i] = found.curve / dispersion
    covariance = np.linalg.inv(curve + np.diag(ridge))
    slope = found.slope / dispersion - ridge * own[:, which]
    new = own.copy()
    new[:, which] += np.clip(np.einsum("mpq,mq->mp", covariance, slope), -STEP, STEP)
    return factors._replace(**{side: new}), covariance


def freedom(side: str, covariance: np.ndarray, penalty: float) -> float:  # (m, q, q)
    """How many coefficients of a side are fitted, those that the penalty holds not counted."""
    m, q, _ = covariance.shape
    return m * q - float(np.einsum("mqq->q", covariance) @ _ridge(side, q, penalty))


def _ridge(side: str, q: int, penalty: float) -> np.ndarray:
    ridge = np.full(q, penalty)
    if side == "right":
        ridge[0] = 1e-6  # the dates' levels carry the level of the whole
    return ridge


def penalised(factors: Factors, penalty: float) -> float:
    """Twice the penalty of the factors: what is added to deviance / dispersion."""
    return float(
        penalty
        * ((factors.left[:, learned("left", factors.left.shape[1])] ** 2).sum() + (factors.right[:, 2:] ** 2).sum())
    )
