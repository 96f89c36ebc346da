"""Discrete Gaussian noise in integer arithmetic, a fixed function of a seed of bytes. Sends nothing.

Noise from floating-point arithmetic has gaps that give away what it was added to [1]_. Here every number is an integer:
a draw of standard deviation 2^10 comes from a table of 128-bit thresholds, and x + 2^8 x' widens it; two such steps give 2^34. The steps
are exact up to 2^-400, because each added part is at least four spacings wide [2]_. The stream of random bytes is SHAKE-256 of the seed.

References
----------
.. [1] Mironov (2012). On significance of the least significant bits for differential privacy. CCS.
.. [2] Micciancio and Walter (2017). Gaussian sampling over the integers: efficient, generic, constant-time. CRYPTO.
"""

from __future__ import annotations

import hashlib
from functools import cache
from math import sqrt

import numpy as np

BASE = 1 << 10  # standard deviation of the draws from the table
TAIL = 14  # standard deviations that the table covers: what is beyond has probability 2^-140
SHIFTS = (8, 16)  # x + 2^8 x', then + 2^16 of another such
WIDTH = BASE * sqrt((1 + 4.0 ** SHIFTS[0]) * (1 + 4.0 ** SHIFTS[1]))  # standard deviation of `draw`, about 2^34
FRACTION = 256  # bits after the point while the table is made
WORD = (1 << 64) - 1


@cache
def thresholds() -> tuple[np.ndarray, np.ndarray]:
    """P(|X| <= j) for j = 0, 1, ... in units of 2^-128: the upper and the lower 64 bits."""
    weights = _weights()
    total = weights[0] + 2 * sum(weights[1:])
    reached, found = 0, []
    for j, weight in enumerate(weights):
        reached += weight if j == 0 else 2 * weight
        found.append((reached << 128) // total)
    found[-1] = (1 << 128) - 1
    high = np.array([t >> 64 for t in found], np.uint64)
    low = np.array([t & WORD for t in found], np.uint64)
    return high, low


def _weights() -> list[int]:
    """exp(-j^2 / (2 BASE^2)) for j = 0, 1, ... as integers; the ratio of neighbours is q^(2 j + 1)."""
    q = _exp_minus(2 * BASE * BASE)
    weight, ratio = 1 << FRACTION, q
    found = [weight]
    for _ in range(TAIL * BASE):
        weight = weight * ratio >> FRACTION
        ratio = (ratio * q >> FRACTION) * q >> FRACTION
        found.append(weight)
    return found


def _exp_minus(inverse: int) -> int:
    """exp(-1 / inverse) as an integer, by its series."""
    term, total, i = 1 << FRACTION, 0, 0
    while term:
        total += term if i % 2 == 0 else -term
        i += 1
        term //= inverse * i
    return total


class DiscreteGaussian:
    """Integers of a discrete Gaussian law, the same for the same seed on every machine.

    Parameters
    ----------
    seed : bytes
        At least 16 bytes that nobody else can guess.

    Examples
    --------
    >>> from unpooled.privacy.sampler import DiscreteGaussian
    >>> DiscreteGaussian(b"a secret of 32 bytes, say...").base(3)
    array([-830, 1623,  614])
    """

    def __init__(self, seed: bytes):
        """Noise from `seed`, which nobody else may know: at least 16 bytes."""
        if len(seed) < 16:
            raise ValueError(f"a seed of {len(seed)} bytes can be guessed: give at least 16")
        self._seed, self._calls = bytes(seed), 0

    def draw(self, size: int) -> np.ndarray:
        """`size` integers (int64) of standard deviation `WIDTH`."""
        first = self.base(size) + (self.base(size) << SHIFTS[0])
        second = self.base(size) + (self.base(size) << SHIFTS[0])
        return first + (second << SHIFTS[1])

    def base(self, size: int) -> np.ndarray:
        """`size` integers (int64) of standard deviation `BASE`."""
        words = self._words(2 * size)
        upper, lower = words[:size], words[size:]
        magnitude = _look_up(upper, lower)
        negative = (lower & np.uint64(1)).astype(bool)  # which decides between magnitudes with probability 2^-110 only
        return np.where(negative, -magnitude, magnitude)

    def _words(self, count: int) -> np.ndarray:
        """The next `count` random 64-bit words."""
        self._calls += 1
        stream = hashlib.shake_256(self._seed + self._calls.to_bytes(8, "big"))
        return np.frombuffer(stream.digest(8 * count), "<u8")


def _look_up(upper: np.ndarray, lower: np.ndarray) -> np.ndarray:
    """The smallest j whose threshold is above the 128-bit number (upper, lower)."""
    high, low = thresholds()
    last = len(high) - 1
    j = np.searchsorted(high, upper, side="left")
    tie = high[np.minimum(j, last)] == upper
    while tie.any():  # of probability 2^-50: the lower words decide
        up = tie & (lower >= low[np.minimum(j, last)])
        j = j + up
        tie = up & (high[np.minimum(j, last)] == upper)
    return np.minimum(j, last).astype(np.int64)
