"""An order-preserving map from float64 to 64-bit integers, so that a bisection ends after 64 steps. Sends nothing."""

from __future__ import annotations

import numpy as np

SIGN = np.uint64(1) << np.uint64(63)


def to_keys(values: np.ndarray) -> np.ndarray:
    """Keys (uint64) in the same order as the numbers; 0.0 and -0.0 have the same key.

    >>> keys = to_keys(np.array([-1.5, 0.0, 2.0]))
    >>> bool(keys[0] < keys[1] < keys[2])
    True
    """
    bits = np.asarray(values, dtype=np.float64, order="C").view(np.uint64)
    size = bits & ~SIGN
    return np.where(bits >= SIGN, SIGN - size, SIGN + size)


def to_values(keys: np.ndarray) -> np.ndarray:
    """The numbers of keys; the inverse of `to_keys`.

    >>> to_values(to_keys(np.array([-0.1, 7.0])))
    array([-0.1,  7. ])
    """
    keys = np.asarray(keys, dtype=np.uint64)
    return np.where(keys >= SIGN, keys - SIGN, SIGN + (SIGN - keys)).view(np.float64)


# keys of the smallest and the largest finite number
LOWEST, HIGHEST = to_keys(np.array([-1.0, 1.0]) * np.finfo(np.float64).max)
ZERO = to_keys(np.zeros(1))[0]
