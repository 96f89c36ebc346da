"""Well spread bits from rows of numbers, the same on every machine."""

from __future__ import annotations

from typing import Any

import numpy as np

MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd, with well spread bits


def mix(h: Any) -> Any:
    """Well spread bits of 64 others."""
    with np.errstate(over="ignore"):
        h = (h ^ (h >> np.uint64(32))) * MULTIPLIER
        h = (h ^ (h >> np.uint64(29))) * MULTIPLIER
    return h ^ (h >> np.uint64(32))


def absorb(state: np.ndarray, columns: np.ndarray) -> np.ndarray:  # (..., n) uint64
    """The state (..., n) after the numbers (..., n, d) of each row; the two zeros count as one."""
    bits = (np.asarray(columns, dtype=np.float64) + 0.0).view(np.uint64)
    for j in range(bits.shape[-1]):
        state = mix(state ^ bits[..., j])
    return state
