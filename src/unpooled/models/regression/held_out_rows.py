"""Which rows are held out: a hash of their numbers decides, so the choice does not depend on who holds a row."""

from __future__ import annotations

from typing import Any

import numpy as np

MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd, with well spread bits


def held_out(x: np.ndarray, y: np.ndarray, share: float, seed: int) -> np.ndarray:  # (..., n) bool
    """A share of the rows x (..., n, d), y (..., n, o), as good as random; equal rows have equal fates."""
    if share <= 0:
        return np.zeros(x.shape[:-1], dtype=bool)
    state = np.full(x.shape[:-1], mix(np.uint64(seed % 2**63)))
    for part in (x, y):
        bits = (np.asarray(part, dtype=np.float64) + 0.0).view(np.uint64)  # + 0.0: one zero, not two
        for j in range(bits.shape[-1]):
            state = mix(state ^ bits[..., j])
    return (state >> np.uint64(11)) < share * 2.0**53


def mix(h: Any) -> Any:
    """Well spread bits of 64 others."""
    with np.errstate(over="ignore"):
        h = (h ^ (h >> np.uint64(32))) * MULTIPLIER
        h = (h ^ (h >> np.uint64(29))) * MULTIPLIER
    return h ^ (h >> np.uint64(32))
