"""Which rows are held out: a hash of their values decides, so the choice depends neither on the client nor on row order. Sends nothing."""

from __future__ import annotations

import numpy as np

from unpooled.maths.hashing import absorb, mix


def held_out(x: np.ndarray, y: np.ndarray, share: float, seed: int) -> np.ndarray:  # (..., n) bool
    """A pseudo-random fraction `share` of the rows x (..., n, d), y (..., n, o); equal rows are all held out or all fitted."""
    if share <= 0:
        return np.zeros(x.shape[:-1], dtype=bool)
    state = np.full(x.shape[:-1], mix(np.uint64(seed % 2**63)))
    for part in (x, y):
        state = absorb(state, part)
    return (state >> np.uint64(11)) < share * 2.0**53
