"""Shamir's secret sharing: any `threshold` of the shares give the secret, fewer reveal nothing about it. Sends nothing.

The field is the integers modulo 2^256 + 297, the smallest prime above 2^256, so that any 32 bytes can be shared.

References
----------
Shamir, How to share a secret, Communications of the ACM 22 (1979).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache

PRIME = 2**256 + 297
SHARE_BYTES = 33
_WIDE = 48  # bytes drawn for one coefficient: enough that the remainder modulo PRIME is uniform


def split(secret: bytes, threshold: int, points: Sequence[int], seed: bytes) -> list[int]:
    """One share of a secret of 32 bytes per point: a random polynomial whose value at 0 is the secret, at that point.

    The same seed gives the same shares.

    >>> shares = split(bytes(31) + b"!", 2, [1, 2, 3], seed=b"of this secret alone")
    >>> combine({1: shares[0], 3: shares[2]})[-1:]
    b'!'
    """
    drawn = hashlib.shake_256(seed).digest(_WIDE * (threshold - 1))
    coefficients = [int.from_bytes(drawn[i : i + _WIDE], "big") % PRIME for i in range(0, len(drawn), _WIDE)]
    coefficients.append(int.from_bytes(secret, "big"))  # the constant term comes last in Horner's scheme
    return [_evaluate(coefficients, x) for x in points]


def _evaluate(coefficients: Sequence[int], x: int) -> int:
    """The polynomial at x, modulo PRIME, by Horner's scheme."""
    value = 0
    for c in coefficients:
        value = (value * x + c) % PRIME
    return value


def combine(shares: Mapping[int, int]) -> bytes:
    """The secret, from point -> share for exactly `threshold` points; a wrong share gives a wrong secret, not an error."""
    points = tuple(sorted(shares))
    value = sum(w * shares[x] for w, x in zip(_weights(points), points)) % PRIME
    return value.to_bytes(SHARE_BYTES, "big")[1:]


@lru_cache(maxsize=256)
def _weights(points: tuple[int, ...]) -> tuple[int, ...]:
    """Lagrange weights at 0 for these points."""
    weights = []
    for i in points:
        top = bottom = 1
        for j in points:
            if j != i:
                top = top * j % PRIME
                bottom = bottom * (j - i) % PRIME
        weights.append(top * pow(bottom, -1, PRIME) % PRIME)
    return tuple(weights)
