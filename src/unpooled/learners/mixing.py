"""Responsibilities from joint log-probabilities, and weights from responsibilities; NumPy or torch. Nothing is sent."""

from __future__ import annotations

from typing import Any

from unpooled.arrays import Array, like, namespace


def responsibilities(log_p: Array) -> tuple[Array, Array]:
    """(softmax over the last axis, its log-normaliser): (..., n, k) and (..., n)."""
    xp = namespace(log_p)
    top = xp.amax(log_p, axis=-1, keepdims=True)
    p = xp.exp(log_p - top)
    total = p.sum(-1)
    return p / total[..., None], xp.log(total) + top[..., 0]


def mass(r: Array, w: Array) -> Array:
    """How many rows each component answers for: (..., k) of r (..., n, k) and row weights (..., n)."""
    return (w[..., None, :] @ r)[..., 0, :]


def shares(counts: Array) -> Array:
    """Counts (..., k) as shares of one; a client without any has equal shares."""
    total = counts.sum(-1)[..., None]
    return namespace(counts).where(total > 0, counts / total.clip(min=1e-30), 1.0 / counts.shape[-1])


def log_shares(shares: Any, reference: Array) -> Array:
    """log of private weights beside the rows, with a floor instead of minus infinity."""
    shares = like(shares, reference)
    return namespace(shares).log(shares.clip(min=1e-30))


def average(total: Array, weight: Array, before: Array) -> Array:
    """Models (k, p) from the sum of weight x model and the weights (k,); one that nobody answers for stays as it was."""
    heavy = (weight > 1e-12)[..., None]
    return namespace(total).where(heavy, total / weight.clip(min=1e-12)[..., None], like(before, total))
