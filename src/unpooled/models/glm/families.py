"""Families and links of generalised linear models: for each row its deviance, score and curvature. Pure functions, nothing is sent.

`eta` is the linear predictor, `mu` the mean of y. Log-likelihoods are those at dispersion 1, so that a score is d loglik / d eta.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import digamma, expit, gammaln, logit, ndtr, ndtri, polygamma, xlogy

Array = np.ndarray
TINY = 1e-300


class Link(NamedTuple):
    """How the linear predictor becomes a mean."""

    of: Callable[[Array], Array]  # mu -> eta
    mean: Callable[[Array], Array]  # eta -> mu
    slope: Callable[[Array, Array], Array]  # (eta, mu) -> d mu / d eta
    bend: Callable[[Array, Array], Array]  # (eta, mu) -> d2 mu / d eta2


class Family(NamedTuple):
    """A law of y given its mean."""

    variance: Callable[[Array, float], Array]  # (mu, alpha) -> variance at dispersion 1
    variance_slope: Callable[[Array, float], Array]
    deviance: Callable[[Array, Array, Any], Array]  # (y, mu, alpha) -> twice the distance to the best log-likelihood
    inside: Callable[[Array], Array]  # y -> whether it can be drawn from the family
    range: tuple[float, float]  # where means lie, ends excluded
    link: str  # the one taken unless another is given
    links: tuple[str, ...]
    values: str  # what y must be, in words
    free_scale: bool  # whether the dispersion is estimated


class Terms(NamedTuple):
    """What every row adds to a Newton step."""

    deviance: Array  # (..., n)
    score: Array  # (..., n) d loglik / d eta
    observed: Array  # (..., n) minus d2 loglik / d eta2
    expected: Array  # (..., n) its mean under the family
    outside: Array | None  # (..., n) whether the mean is none that the family has; None if no row's is


def _density(eta: Array) -> Array:
    """The standard normal density."""
    return np.exp(-0.5 * eta**2) / np.sqrt(2 * np.pi)


LINKS = {
    "identity": Link(lambda m: m, lambda e: e, lambda e, m: np.ones_like(e), lambda e, m: np.zeros_like(e)),
    "log": Link(np.log, lambda e: np.exp(np.minimum(e, 700.0)), lambda e, m: m, lambda e, m: m),
    "logit": Link(logit, expit, lambda e, m: m * expit(-e), lambda e, m: m * expit(-e) * (1 - 2 * m)),
    "probit": Link(ndtri, ndtr, lambda e, m: _density(e), lambda e, m: -e * _density(e)),
    "inverse": Link(lambda m: 1 / m, lambda e: 1 / e, lambda e, m: -(m**2), lambda e, m: 2 * m**3),
}


def _binomial_deviance(y: Array, mu: Array, alpha: float) -> Array:
    """Deviance of shares y in [0, 1]."""
    lost = xlogy(y, np.maximum(mu, TINY)) + xlogy(1 - y, np.maximum(1 - mu, TINY))
    return 2 * (xlogy(y, y) + xlogy(1 - y, 1 - y) - lost)


def _poisson_deviance(y: Array, mu: Array, alpha: float) -> Array:
    """Deviance of counts."""
    return 2 * (xlogy(y, y / np.maximum(mu, TINY)) - (y - mu))


def _gamma_deviance(y: Array, mu: Array, alpha: float) -> Array:
    """Deviance of positive values."""
    return 2 * ((y - mu) / mu - np.log(y / mu))


def _negative_binomial_deviance(y: Array, mu: Array, alpha: float) -> Array:
    """Deviance of counts with variance mu + alpha mu^2."""
    beyond = (y + 1 / alpha) * np.log1p(alpha * (y - mu) / (1 + alpha * mu))
    return 2 * (xlogy(y, y / np.maximum(mu, TINY)) - beyond)


def _is_count(y: Array) -> Array:
    """Whether values are whole numbers of at least 0."""
    return (y >= 0) & (y == np.round(y))


ALL = (-np.inf, np.inf)
POSITIVE = (0.0, np.inf)

FAMILIES = {
    "normal": Family(
        lambda m, a: np.ones_like(m),
        lambda m, a: np.zeros_like(m),
        lambda y, m, a: (y - m) ** 2,
        np.isfinite,
        ALL,
        "identity",
        ("identity", "log", "inverse"),
        "finite numbers",
        True,
    ),
    "binomial": Family(
        lambda m, a: m * (1 - m),
        lambda m, a: 1 - 2 * m,
        _binomial_deviance,
        lambda y: (y >= 0) & (y <= 1),
        (0.0, 1.0),
        "logit",
        ("logit", "probit", "log", "identity"),
        "0 or 1, or shares between them",
        False,
    ),
    "poisson": Family(
        lambda m, a: m,
        lambda m, a: np.ones_like(m),
        _poisson_deviance,
        lambda y: y >= 0,
        POSITIVE,
        "log",
        ("log", "identity"),
        "counts of 0 or more",
        False,
    ),
    "gamma": Family(
        lambda m, a: m**2,
        lambda m, a: 2 * m,
        _gamma_deviance,
        lambda y: y > 0,
        POSITIVE,
        "inverse",
        ("inverse", "log", "identity"),
        "numbers above 0",
        True,
    ),
    "negative_binomial": Family(
        lambda m, a: m + a * m**2,
        lambda m, a: 1 + 2 * a * m,
        _negative_binomial_deviance,
        _is_count,
        POSITIVE,
        "log",
        ("log", "identity"),
        "whole numbers of 0 or more",
        False,
    ),
}

SYNONYMS = {"gaussian": "normal"}  # as statsmodels and R call it
CANONICAL = {("normal", "identity"), ("binomial", "logit"), ("poisson", "log"), ("gamma", "inverse")}


def terms(family: str, link: str, eta: Array, y: Array, alpha: float = 1.0) -> Terms:
    """Deviance, score and curvature of rows; a row whose mean is outside of the family counts as `outside` and adds nothing."""
    if (family, link) == ("binomial", "logit"):
        return _logistic(eta, y)
    law = FAMILIES[family]
    transform = LINKS[link]
    mu, outside = _means(law, transform, eta)
    with np.errstate(all="ignore"):  # what overflows is found below
        slope = transform.slope(eta, mu)
        variance = law.variance(mu, alpha)
        residual = y - mu
        score = residual * slope / variance
        expected = slope**2 / variance
        observed = expected
        if (family, link) not in CANONICAL:
            turn = transform.bend(eta, mu) * variance - slope**2 * law.variance_slope(mu, alpha)
            observed = expected - residual * turn / variance**2
        deviance = law.deviance(y, mu, alpha)
        broken = ~np.isfinite(deviance + score + observed)
    if broken.any():
        outside = broken if outside is None else broken | outside
    if outside is None:
        return Terms(deviance, score, observed, expected, None)
    deviance, score, observed, expected = (np.where(outside, 0.0, a) for a in (deviance, score, observed, expected))
    return Terms(deviance, score, observed, expected, outside)


def _means(law: Family, transform: Link, eta: Array) -> tuple[Array, Array | None]:
    """(means, which of them the family does not have); those are replaced by one that it has."""
    with np.errstate(divide="ignore"):
        mu = transform.mean(eta)
    low, high = law.range
    if transform is LINKS["probit"]:
        return np.clip(mu, 1e-16, 1 - 1e-16), None
    if low == -np.inf and np.isfinite(mu).all():
        return mu, None
    outside = ~((mu > low) & (mu < high) & np.isfinite(mu))
    if not outside.any():
        return mu, None
    return np.where(outside, 0.5, mu), outside


def _logistic(eta: Array, y: Array) -> Terms:
    """Stable on both ends, with one exponential and one logarithm per row."""
    small = np.exp(-np.abs(eta))
    tail = 1 / (1 + small)  # the probability of the more probable outcome
    mu = np.where(eta >= 0, tail, small * tail)
    curvature = small * tail**2
    deviance = 2 * (np.maximum(eta, 0) + np.log1p(small) - y * eta)
    if ((y != 0) & (y != 1)).any():
        deviance = deviance + 2 * (xlogy(y, y) + xlogy(1 - y, 1 - y))
    return Terms(deviance, y - mu, curvature, curvature, None)


def pearson(family: str, link: str, eta: Array, y: Array, alpha: float = 1.0) -> Array:
    """Squared residuals in units of the variance."""
    law = FAMILIES[family]
    mu, outside = _means(law, LINKS[link], eta)
    residuals = (y - mu) ** 2 / np.maximum(law.variance(mu, alpha), TINY)
    return residuals if outside is None else np.where(outside, 0.0, residuals)


def starting_means(family: str, link: str, y: Array, mean: float) -> Array:
    """Means to begin with, which the family has whatever y is: halfway between each y and the mean of all, or that mean.

    Halfway is nearer where means differ by orders of magnitude; for outcomes and rare counts, and under other links than log, it is not.
    """
    if (family, link) == ("normal", "identity"):
        return y
    halfway = link == "log" and (family == "gamma" or (family in ("poisson", "negative_binomial") and mean >= 1))
    return (y + mean) / 2 if halfway else np.full_like(y, mean)


def working_response(family: str, link: str, y: Array, mu: Array, alpha: float) -> tuple[Array, Array]:
    """(response, weights) of the least squares problem that a scoring step from the means `mu` solves."""
    law = FAMILIES[family]
    transform = LINKS[link]
    eta = transform.of(mu)
    slope = transform.slope(eta, mu)
    return eta + (y - mu) / slope, slope**2 / law.variance(mu, alpha)


# ---- log-likelihoods ----


def best_loglik(family: str, y: Array, alpha: Any) -> Array:
    """The part of a row's log-likelihood that its deviance leaves out; for gamma log y, which `loglik` needs instead."""
    if family == "binomial":
        shares = xlogy(y, y) + xlogy(1 - y, 1 - y)
        return shares + gammaln(2.0) - gammaln(y + 1) - gammaln(2 - y)
    if family == "poisson":
        return xlogy(y, y) - y - gammaln(y + 1)
    if family == "gamma":
        return np.log(y)
    if family == "negative_binomial":
        chosen = gammaln(y + 1 / alpha) - gammaln(1 / alpha) - gammaln(y + 1)
        return chosen + xlogy(y, alpha * y) - (y + 1 / alpha) * np.log1p(alpha * y)
    return np.zeros_like(y)


def loglik(family: str, link: str, deviance: Any, best: Any, n: float, scale: Any) -> Any:
    """The log-likelihood of all rows, from sums: of deviances, of `best_loglik`, of weights.

    For the normal family with the identity link the dispersion is the one that makes it largest, as statsmodels has it.
    """
    if family == "normal":
        spread = deviance / n if link == "identity" else scale
        if np.ndim(spread) == 0 and spread == 0:
            return np.inf  # every row is met exactly
        return -0.5 * (deviance / spread + n * np.log(2 * np.pi * spread))
    if family == "gamma":
        shape = 1 / scale
        half = 0.5 * deviance + n + best  # sum of y / mu + log mu
        return -shape * half + (shape - 1) * best + n * (shape * np.log(shape) - gammaln(shape))
    return -0.5 * deviance + best


# ---- the negative binomial's alpha, by its logarithm ----


class AlphaTerms(NamedTuple):
    """What each row says of the negative binomial's alpha."""

    loglik: Array  # (..., n)
    score: Array  # (..., n) d loglik / d log alpha
    curvature: Array  # (..., n) minus d2 loglik / d log alpha2
    mixed: Array  # (..., n) minus d2 loglik / d log alpha d eta


def alpha_terms(link: str, eta: Array, y: Array, alpha: float) -> AlphaTerms:
    """What every row says of log alpha (NB2: the variance is mu + alpha mu^2)."""
    transform = LINKS[link]
    mu, _ = _means(FAMILIES["negative_binomial"], transform, eta)
    r = 1 / alpha
    total = r + mu
    ratio = (y + r) / total
    chosen = gammaln(y + r) - gammaln(r) - gammaln(y + 1)
    loglik = chosen - r * np.log1p(alpha * mu) + xlogy(y, mu / total)
    first = digamma(y + r) - digamma(r) - np.log1p(alpha * mu) + 1 - ratio  # d / d r
    second = polygamma(1, y + r) - polygamma(1, r) + alpha - 2 / total + ratio / total
    mixed = r * (y - mu) / total**2 * transform.slope(eta, mu)
    return AlphaTerms(loglik, -r * first, -(r**2 * second + r * first), mixed)
