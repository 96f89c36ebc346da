"""Which rows are held out: a hash of their numbers decides, so the choice does not depend on who holds a row."""

from __future__ import annotations

import numpy as np

from unpooled.maths.hashing import absorb, mix


def held_out(x: np.ndarray, y: np.ndarray, share: float, seed: int) -> np.ndarray:  # (..., n) bool
    """A share of the rows x (..., n, d), y (..., n, o), as good as random; equal rows have equal fates."""
    if share <= 0:
        return np.zeros(x.shape[:-1], dtype=bool)
    state = np.full(x.shape[:-1], mix(np.uint64(seed % 2**63)))
    for part in (x, y):
        state = absorb(state, part)
    return (state >> np.uint64(11)) < share * 2.0**53
