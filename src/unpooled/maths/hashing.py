"""64-bit hashes of rows of numbers, the same on every machine. Sends nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd, with well spread bits


def mix(h: Any) -> Any:
    """A 64-bit hash of 64-bit integers, of any shape."""
    with np.errstate(over="ignore"):
        h = (h ^ (h >> np.uint64(32))) * MULTIPLIER
        h = (h ^ (h >> np.uint64(29))) * MULTIPLIER
    return h ^ (h >> np.uint64(32))


def absorb(state: np.ndarray, columns: np.ndarray) -> np.ndarray:  # (..., n) uint64
    """The hash state (..., n) after reading the numbers (..., n, d) of each row; 0.0 and -0.0 count as equal."""
    bits = (np.asarray(columns, dtype=np.float64) + 0.0).view(np.uint64)
    for j in range(bits.shape[-1]):
        state = mix(state ^ bits[..., j])
    return state
