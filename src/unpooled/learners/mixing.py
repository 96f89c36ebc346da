"""Responsibilities from joint log-probabilities, and weights from responsibilities; NumPy or torch. Nothing is sent."""

from __future__ import annotations

from typing import Any

import numpy as np

from unpooled.arrays import Array, like, namespace


def responsibilities(log_p: Array) -> tuple[Array, Array]:
    """(softmax over the last axis, its log-normaliser): (..., n, k) and (..., n)."""
    xp = namespace(log_p)
    top = xp.amax(log_p, axis=-1, keepdims=True)
    p = xp.exp(log_p - top)
    total = p.sum(-1)
    return p / total[..., None], xp.log(total) + top[..., 0]


def mass(r: Array, w: Array) -> Array:
    """Weighted rows per component: (..., k) from responsibilities r (..., n, k) and row weights w (..., n)."""
    return (w[..., None, :] @ r)[..., 0, :]


def shares(counts: Array) -> Array:
    """Counts (..., k) divided by their sum; equal shares where the sum is 0."""
    total = counts.sum(-1)[..., None]
    return namespace(counts).where(total > 0, counts / total.clip(min=1e-30), 1.0 / counts.shape[-1])


def log_shares(shares: Any, reference: Array) -> Array:
    """log of weights, on the device and in the dtype of `reference`; bounded below instead of minus infinity."""
    shares = like(shares, reference)
    return namespace(shares).log(shares.clip(min=1e-30))


def average(total: Array, weight: Array, before: Array) -> Array:
    """Models (k, p) from the sum of weight x model and the weights (k,); a model of weight 0 stays as `before`."""
    heavy = (weight > 1e-12)[..., None]
    return namespace(total).where(heavy, total / weight.clip(min=1e-12)[..., None], like(before, total))


def normalised(proba: np.ndarray) -> np.ndarray:
    """Probabilities (..., classes) within [0, 1] whose rows sum to 1: rounding may leave a sum of products just outside."""
    clipped = proba.clip(0.0, 1.0)
    return clipped / clipped.sum(-1, keepdims=True)
