"""Calibration of the shared model's probabilities, by one SUM of held-out log-losses over a grid of temperatures and floors.

Scores are divided by a temperature, and a small share of equal probabilities is added: p = (1 - floor) softmax(scores / T) + floor / c. The
temperature mends probabilities that are too certain or not certain enough, the floor bounds what a row costs that no model expects.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.tree import message

TEMPERATURES = np.array([0.3, 0.4, 0.55, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.5, 2.0, 3.0, 4.0])
FLOORS = np.array([0.0, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1])
MOST_BEHIND = 80.0  # nats that a label is behind another class, at most
PSEUDO_LOSS = 2.0  # nats that a calibration must gain over none
CELLS = 30_000  # numbers of the grid that are computed at once: they stay in the processor's cache
SPREAD = 0.3  # prior deviation of the logarithm of the temperature
PRIOR_FLOORS = np.array([0.4, 0.2, 0.15, 0.1, 0.08, 0.05, 0.02])  # prior weights of the floors


@message("learners.CalibrationLosses")
class CalibrationLosses(NamedTuple):
    """Held-out log-losses of shared models, summed over rows."""

    n: Float[Array, "", ">=0 rows"]
    loss: Float[Array, "models temperatures floors"]


@message("learners.Calibration")
class Calibration(NamedTuple):
    """How probabilities are mended; (1, 0) leaves them as they are."""

    temperature: float = 1.0
    floor: float = 0.0


NONE = Calibration()


def calibrated(log_p: np.ndarray, how: Calibration) -> np.ndarray:
    """Log-probabilities (..., c) after calibration."""
    if how == NONE:
        return log_p
    return with_floor(tempered(log_p, how.temperature), how.floor)


def tempered(log_p: np.ndarray, temperature: float) -> np.ndarray:
    """Log-probabilities (..., c) at another temperature."""
    scores = np.moveaxis(log_p, -1, 0) / temperature
    scores = np.ascontiguousarray(scores)  # classes first: sums over a short last axis take long
    scores -= scores.max(0)
    scores -= np.log(np.exp(scores).sum(0))
    return np.moveaxis(scores, 0, -1)


def with_floor(log_p: np.ndarray, floor: float) -> np.ndarray:
    """Log-probabilities (..., c) with a share `floor` of equal probabilities."""
    return np.log((1 - floor) * np.exp(log_p) + floor / log_p.shape[-1]) if floor else log_p


def losses(log_bases: np.ndarray, y: np.ndarray, w: np.ndarray) -> CalibrationLosses:
    """A client's losses from held-out log-probabilities (models, ..., n, c), label codes (..., n) and row weights (..., n)."""
    return CalibrationLosses(np.asarray(w.sum(-1)), np.stack([_losses(log_p, y, w) for log_p in log_bases], -3))


def _losses(log_p: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:  # (..., temperatures, floors)
    """The losses of one model."""
    classes = log_p.shape[-1]
    if classes == 2:
        behind = ((log_p[..., 1] - log_p[..., 0]) * (1 - 2 * y))[..., None].astype(np.float32)
    else:
        others = y[..., None] != np.arange(classes)
        behind = log_p - np.take_along_axis(log_p, y[..., None], -1)  # scores minus that of the label
        behind = behind[others].astype(np.float32).reshape(*y.shape, classes - 1)
    behind = np.moveaxis(behind, -1, 0)  # (c - 1, ..., n): rows last, the only long axis
    weights = w.astype(np.float32)[..., None]
    few = max(1, CELLS // max(weights.size * len(FLOORS), 1))
    parts = [TEMPERATURES[i : i + few] for i in range(0, len(TEMPERATURES), few)]
    return np.concatenate([_losses_at(behind, weights, some, classes) for some in parts], -2)


def _losses_at(
    behind: np.ndarray, w: np.ndarray, temperatures: np.ndarray, classes: int
) -> np.ndarray:  # (..., temperatures, floors)
    """The losses at some temperatures, of scores minus that of the label (c - 1, ..., n)."""
    others = np.minimum(behind[..., None, :] * _column(1 / temperatures), MOST_BEHIND)
    np.exp(others, out=others)
    p = np.maximum(1 / (1 + others.sum(0)), 1e-13)  # of the label
    mended = p[..., None, :] * _column(1 - FLOORS) + _column(FLOORS / classes)  # (..., temperatures, floors, n)
    return np.asarray(-(np.log(mended, out=mended) @ w[..., None, :, :])[..., 0], dtype=np.float64)


def _column(a: np.ndarray) -> np.ndarray:
    """A grid as a column of 32 bit floats."""
    return a.astype(np.float32)[:, None]


def best(total: CalibrationLosses) -> list[Calibration]:
    """The calibration of each model: none unless it gains enough, else the mean of its posterior, of the floor and of the logarithm of
    the temperature. The smallest loss alone would follow a few rows, where there are not many.
    """
    return [_mean(loss) for loss in to_numpy(total.loss)]


def _mean(loss: np.ndarray) -> Calibration:
    """The same for one model, from its losses (temperatures, floors)."""
    none = loss[np.flatnonzero(TEMPERATURES == 1.0)[0], 0]
    if loss.min() > none - PSEUDO_LOSS:
        return NONE
    log_t = np.log(TEMPERATURES)
    log_weights = -loss - 0.5 * (log_t[:, None] / SPREAD) ** 2 + np.log(PRIOR_FLOORS)
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    return Calibration(float(np.exp(weights.sum(1) @ log_t)), float(weights.sum(0) @ FLOORS))


def calibrated_bases(log_bases: np.ndarray, how: Any) -> np.ndarray:
    """Log-probabilities (b, n, c) after calibration: of the last ones by all but the first of `how` (m, 2), of the others by the first."""
    first, *rest = (Calibration(*map(float, one)) for one in to_numpy(how))
    if not rest:
        return calibrated(log_bases, first)
    last = len(log_bases) - len(rest)
    parts = [calibrated(log_bases[:last], first)]
    parts += [calibrated(one[None], own) for one, own in zip(log_bases[last:], rest)]
    return np.concatenate(parts)
