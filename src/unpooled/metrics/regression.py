"""Metrics of predictions with their uncertainty: errors, log densities, coverage and calibration of intervals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm

LEVELS = np.arange(1, 20) / 20  # 5 % to 95 %

Interval = Callable[[float], tuple[np.ndarray, np.ndarray]]  # level -> (lower, upper), (n,) each


class Calibration(NamedTuple):
    """Coverage of central intervals by nominal level."""

    levels: np.ndarray  # (l,)
    covered: np.ndarray  # (l,)
    ece: float  # mean |level - covered|
    mce: float  # largest |level - covered|
    brier: float  # mean (level - 1{inside})^2


def rmse(y: Any, mean: Any) -> float:
    """Root mean squared error."""
    return float(np.sqrt(np.mean((np.asarray(y) - np.asarray(mean)) ** 2)))


def nlpd(y: Any, mean: Any, std: Any) -> float:
    """Negative mean log predictive density of y under normal predictions; smaller is better."""
    return float(-np.mean(norm.logpdf(np.asarray(y), np.asarray(mean), np.asarray(std))))


def coverage(y: Any, lower: Any, upper: Any) -> float:
    """The share of y inside its interval."""
    y = np.asarray(y)
    return float(np.mean((y >= lower) & (y <= upper)))


def width(lower: Any, upper: Any) -> float:
    """The mean width of intervals; at equal coverage smaller is better."""
    return float(np.mean(np.asarray(upper) - np.asarray(lower)))


def normal_interval(mean: Any, std: Any) -> Interval:
    """Central intervals of normal predictions."""
    mean = np.asarray(mean)
    std = np.asarray(std)

    def interval(level: float) -> tuple[np.ndarray, np.ndarray]:
        half = norm.ppf(0.5 + level / 2) * std
        return mean - half, mean + half

    return interval


def calibration(y: Any, interval: Interval, levels: np.ndarray = LEVELS) -> Calibration:
    """Coverage at each level: `calibration(y, lambda p: model.interval(X, p))`."""
    y = np.asarray(y)
    inside = np.stack([(y >= lower) & (y <= upper) for lower, upper in map(interval, levels)])  # (l, n)
    covered = inside.mean(1)
    error = np.abs(levels - covered)
    brier = float(np.mean((levels[:, None] - inside) ** 2))
    return Calibration(levels, covered, float(error.mean()), float(error.max()), brier)
