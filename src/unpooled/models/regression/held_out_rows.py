"""Which rows are held out: a hash of their values decides, so the choice depends neither on the client nor on row order. Sends nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio, made odd


def held_out(x: np.ndarray, y: np.ndarray, share: float, seed: int) -> np.ndarray:  # (..., n) bool
    """A pseudo-random fraction `share` of the rows x (..., n, d), y (..., n, o); equal rows are all held out or all fitted."""
    if share <= 0:
        return np.zeros(x.shape[:-1], dtype=bool)
    state = np.full(x.shape[:-1], mix(np.uint64(seed % 2**63)))
    for part in (x, y):
        bits = (np.asarray(part, dtype=np.float64) + 0.0).view(np.uint64)  # + 0.0 turns -0.0 into 0.0
        for j in range(bits.shape[-1]):
            state = mix(state ^ bits[..., j])
    return (state >> np.uint64(11)) < share * 2.0**53


def mix(h: Any) -> Any:
    """Mix 64 bits, so that inputs that differ in one bit differ in about half of the output."""
    with np.errstate(over="ignore"):
        h = (h ^ (h >> np.uint64(32))) * MULTIPLIER
        h = (h ^ (h >> np.uint64(29))) * MULTIPLIER
    return h ^ (h >> np.uint64(32))
