"""Levels in a mixed mixture: probabilities of categories, smoothed towards the overall shares; ordered ones by two numbers.

An ordered column with more than three levels has in every component the overall shares times exp(a s + b s^2), where s are the standardised
scores of the levels: two numbers instead of one for each level, and neighbouring levels move together. Everything is read off the
sums of responsibilities by level.
"""

from __future__ import annotations

import numpy as np

from unpooled.models.mixed.columns import Columns

FLOOR = 1e-12  # the least probability of a level
NEWTON = 100  # steps at most; a few are usual
FLAT = 1e-11  # of the gradient per row: less stops Newton's method


def shares(counts: np.ndarray, columns: Columns) -> np.ndarray:
    """Overall shares (t,) of the levels; half a row is added to each level."""
    found = counts + 0.5
    for part in columns.parts:
        found[part] /= found[part].sum()
    return found


def m_step(sums: np.ndarray, overall: np.ndarray, columns: Columns, smoothing: float) -> np.ndarray:
    """Probabilities (k, t) that maximise the expected log-likelihood and the log prior of `smoothing` rows."""
    weights = sums + smoothing * overall
    out = np.empty_like(weights)
    for part, is_tilted in zip(columns.parts, columns.is_tilted):
        out[:, part] = (_tilted if is_tilted else _free)(weights[:, part], overall[part])
    return out


def log_prior(levels: np.ndarray, overall: np.ndarray, smoothing: float) -> float:
    """Log of the prior that smooths levels towards the overall shares."""
    return float(smoothing * (overall * np.log(levels)).sum()) if smoothing else 0.0


def n_parameters(columns: Columns) -> int:
    """Free parameters of a component."""
    return int(np.where(columns.is_tilted, 2, columns.sizes - 1).sum())


def _free(weights: np.ndarray, overall: np.ndarray) -> np.ndarray:
    """Shares of levels, the overall ones where a component has no rows."""
    total = weights.sum(1, keepdims=True)
    probs = np.where(total > 0, weights / np.where(total > 0, total, 1.0), overall)
    probs = np.maximum(probs, FLOOR)
    return probs / probs.sum(1, keepdims=True)


# ---- ordered levels ----


def scores(overall: np.ndarray) -> np.ndarray:
    """Standardised places of the levels and their squares, (2, n)."""
    place = np.arange(len(overall), dtype=np.float64)
    place -= overall @ place
    place /= np.sqrt(overall @ place**2)
    return np.stack([place, place**2 - 1])


def _tilted(weights: np.ndarray, overall: np.ndarray) -> np.ndarray:
    """overall times exp(a s + b s^2), the likeliest a and b of each component by Newton's method: (k, n)."""
    s = scores(overall)
    total = weights.sum(1)
    target = weights @ s.T / np.where(total > 0, total, 1.0)[:, None]  # (k, 2)
    target = np.where(total[:, None] > 0, target, 0.0)
    tilt = np.zeros((len(weights), 2))
    probs, value = _evaluate(tilt, target, s, overall)
    for _ in range(NEWTON):
        gradient = target - probs @ s.T
        if np.abs(gradient).max() <= FLAT:
            break
        step = np.linalg.solve(_curvature(probs, s), gradient[..., None])[..., 0]
        tilt, probs, value = _searched(tilt, step, value, target, s, overall)
    probs = np.maximum(probs, FLOOR)
    return probs / probs.sum(1, keepdims=True)


def _evaluate(
    tilt: np.ndarray, target: np.ndarray, s: np.ndarray, overall: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities (k, n) and the concave objective (k,), per row."""
    log_p = tilt @ s + np.log(overall)
    top = log_p.max(1, keepdims=True)
    raised = np.exp(log_p - top)
    normaliser = raised.sum(1)
    return raised / normaliser[:, None], (tilt * target).sum(1) - np.log(normaliser) - top[:, 0]


def _curvature(probs: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Second derivatives of the two numbers of an ordered column."""
    mean = probs @ s.T
    second = np.einsum("kn,in,jn->kij", probs, s, s)
    return second - mean[:, :, None] * mean[:, None, :] + 1e-12 * np.eye(2)


def _searched(
    tilt: np.ndarray, step: np.ndarray, value: np.ndarray, target: np.ndarray, s: np.ndarray, overall: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The step, halved for each component until its objective does not fall."""
    size = np.ones(len(tilt))
    for _ in range(40):
        tried = tilt + size[:, None] * step
        probs, new = _evaluate(tried, target, s, overall)
        fell = new < value - 1e-15 * np.abs(value)
        if not fell.any():
            return tried, probs, new
        size = np.where(fell, size / 2, size)
    keep = np.where(fell, 0.0, size)
    tried = tilt + keep[:, None] * step
    return tried, *_evaluate(tried, target, s, overall)
