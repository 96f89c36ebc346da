"""Distributions of a cell: mean, variance and deviance as functions of the linear predictor theta; sends nothing.

"gaussian" has the identity link, "binomial" the logit, all others the logarithm. Variances are up to a dispersion that is estimated.
"poisson" and "tweedie" (variance proportional to mean^1.5) keep their form when values are multiplied by a constant, so they suit any
non-negative values. "geometric" (variance mean + mean^2) is for counts alone.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit, xlogy

FAMILIES = ("gaussian", "poisson", "tweedie", "geometric", "binomial")
MAX_THETA = 30.0  # limit of the exponent of a log link
TINY = 1e-300
INSIDE = 0.02  # of the mean value, or of the trials


def mean(theta: np.ndarray, family: str, trials: int) -> np.ndarray:
    """Mean of a cell."""
    if family == "gaussian":
        return theta
    return trials * expit(theta) if family == "binomial" else np.exp(np.minimum(theta, MAX_THETA))


def rate(mean: np.ndarray, family: str, trials: int) -> np.ndarray:
    """Derivative of the mean by theta."""
    if family == "gaussian":
        return np.ones_like(mean)
    return np.maximum(mean * (1 - mean / trials) if family == "binomial" else mean, 1e-9)


def variance(mean: np.ndarray, family: str, trials: int) -> np.ndarray:
    """Variance of a cell, up to the dispersion."""
    slope = rate(mean, family, trials)
    if family == "tweedie":
        return slope**1.5
    return slope * (1 + mean) if family == "geometric" else slope


def typical_variance(mean: np.ndarray, family: str, trials: int) -> np.ndarray:
    """The variance of a cell that its squared errors are divided by; means near the ends of their range count as a little inside."""
    if family != "gaussian":
        mean = np.clip(mean, INSIDE * trials, (1 - INSIDE) * trials if family == "binomial" else None)
    return variance(mean, family, trials)


def link(mean: float, family: str, trials: int) -> float:
    """The theta of a mean."""
    if family == "gaussian":
        return mean
    share = np.clip(mean / trials, 1e-3, 1 - 1e-3)
    return float(np.log(share / (1 - share)) if family == "binomial" else np.log(max(mean, 1e-3)))


def deviance(value: np.ndarray, mean: np.ndarray, family: str, trials: int) -> np.ndarray:
    """Twice the log-likelihood lost against a perfect fit, up to the dispersion."""
    if family == "gaussian":
        return (value - mean) ** 2
    positive = np.maximum(mean, TINY)
    if family == "tweedie":
        return 4 * (np.sqrt(value) - np.sqrt(mean)) ** 2 / np.sqrt(positive)
    if family == "poisson":
        rest = mean - value
    elif family == "geometric":
        rest = -(1 + value) * np.log((1 + value) / (1 + mean))
    else:
        failures = trials - value
        left = np.maximum(trials - mean, TINY)
        rest = xlogy(failures, failures / left)
    return np.maximum(2 * (xlogy(value, value / positive) + rest), 0.0)  # rounding can take it below 0


def units(family: str, level: float, spread: float) -> tuple[float, float]:
    """(centre, scale) of the values a model is fitted to: they make the fit independent of the unit of measurement."""
    if family == "gaussian":
        return level, spread
    if family in ("poisson", "tweedie"):
        return 0.0, level
    return 0.0, 1.0


def dispersion_scale(family: str, scale: float) -> float:
    """What the dispersion of scaled values is multiplied by for values in their own unit."""
    power = {"gaussian": 2.0, "poisson": 1.0, "tweedie": 0.5}.get(family, 0.0)
    return scale**power
