"""Numbers as integers modulo 2^192: sums are exact, have the same bits in any order, and masks hide them perfectly.

A number x is the integer round(x 2^96), negative ones in two's complement, kept as three uint64 limbs, the lowest
first: an array of m numbers is `limbs` of shape (3, m). The resolution is 2^-96 = 1.3e-29, so float64 numbers of
1.2e-13 and more are kept exactly. A total may be as large as 2^94 = 2e28; each of n clients may use an n-th of it.
Sends nothing.
"""

from __future__ import annotations

import numpy as np

from unpooled.errors import BadData, MaskingRefused

LIMBS = 3
FRACTION_BITS = 96
TOTAL_BITS = 94  # a total is below 2^94 in size: one bit for the sign, one to spare
LIMB = np.dtype("<u8")

_LOW_HALF = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def bits_per_client(n_clients: int) -> int:
    """The b such that numbers below 2^b of each of n clients cannot overflow in their sum.

    >>> bits_per_client(1), bits_per_client(10), bits_per_client(64)
    (94, 90, 88)
    """
    return TOTAL_BITS - (n_clients - 1).bit_length()


def encode(values: np.ndarray, n_clients: int) -> np.ndarray:
    """Float numbers (m,) as limbs (3, m); refuses NaN, infinite numbers and those too large for a sum over n clients.

    >>> encode(np.array([1.0, 0.5]), 3)[1].tolist()  # 1.0 is 2^96: bit 32 of the middle limb
    [4294967296, 2147483648]
    """
    values = np.asarray(values, np.float64)
    _check_range(values, bits_per_client(n_clients))
    steps = np.rint(np.ldexp(np.abs(values), FRACTION_BITS))  # whole numbers; each line below is exact in float64
    high = np.floor(np.ldexp(steps, -128))
    below_high = steps - np.ldexp(high, 128)
    middle = np.floor(np.ldexp(below_high, -64))
    low = below_high - np.ldexp(middle, 64)
    limbs = np.stack([low, middle, high]).astype(LIMB)
    negative = values < 0
    limbs[:, negative] = negate(limbs[:, negative])
    return limbs


def _check_range(values: np.ndarray, bits: int) -> None:
    """BadData for NaN, infinite numbers and numbers of 2^bits or more."""
    if not np.isfinite(values).all():
        raise BadData(
            "the answer holds NaN or an infinite number, which cannot be part of a masked sum: check the rows"
        )
    if values.size and np.abs(values).max() >= 2.0**bits:
        raise BadData(f"the answer holds a number of 2^{bits} or more, too large for a masked sum: scale the columns")


def decode(limbs: np.ndarray) -> np.ndarray:
    """Limbs (3, m) as float64 numbers (m,), with at most two roundings.

    >>> decode(encode(np.array([0.1, -3e20]), 3))
    array([ 1.e-01, -3.e+20])
    """
    negative = is_negative(limbs)
    size = np.where(negative, negate(limbs), limbs)
    low, middle, high = (np.ldexp(size[i].astype(np.float64), 64 * i - FRACTION_BITS) for i in range(LIMBS))
    total = high + middle + low
    return np.where(negative, -total, total)


def encode_integers(values: np.ndarray) -> np.ndarray:
    """Integers (m,) as limbs (3, m), exactly."""
    limbs = np.zeros((LIMBS, len(values)), LIMB)
    whole = values.astype(np.uint64 if values.dtype.kind == "u" else np.int64)
    limbs[1] = whole.astype(np.uint64) << _HALF
    limbs[2] = (whole >> whole.dtype.type(32)).astype(np.uint64)  # keeps the sign
    return limbs


def decode_integers(limbs: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Limbs (3, m) as integers (m,) of `dtype`; refuses a total that is not whole or does not fit."""
    wide = np.dtype(np.uint64 if dtype.kind == "u" else np.int64)
    whole = ((limbs[2] << _HALF) | (limbs[1] >> _HALF)).astype(wide)
    if not np.array_equal(encode_integers(whole), limbs):
        raise MaskingRefused("a total of integers is not a whole number of 64 bits: it overflowed or was altered")
    bounds = np.iinfo(dtype)
    if whole.size and not (bounds.min <= int(whole.min()) and int(whole.max()) <= bounds.max):
        raise MaskingRefused(f"a total of integers does not fit into {dtype}: answer with int64")
    return whole.astype(dtype)


def is_negative(limbs: np.ndarray) -> np.ndarray:
    """Which of the numbers are negative, (m,) bool."""
    return (limbs[-1] >> np.uint64(63)).astype(bool)


def negate(limbs: np.ndarray) -> np.ndarray:
    """The limbs (3, m) of the numbers with the opposite sign."""
    return subtract(np.zeros_like(limbs), limbs)


def subtract(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a - b modulo 2^192."""
    out = np.empty_like(a)
    borrow = np.zeros(a.shape[1], np.uint64)
    for i in range(LIMBS):
        partial = a[i] - b[i]
        out[i] = partial - borrow
        borrow = ((a[i] < b[i]) | (partial < borrow)).astype(np.uint64)
    return out


class RingSum:
    """A running sum of many limb arrays, whose carries are resolved once at the end.

    It holds 32-bit digits in int64, which have room for 2^31 terms. The digits before carrying would reveal more than
    the sum: they never leave this object.
    """

    def __init__(self, size: int) -> None:
        """A sum of `size` numbers that starts at zero."""
        self._digits = np.zeros((LIMBS, size, 2), np.int64)

    def add(self, limbs: np.ndarray) -> None:
        """Add limbs (3, m)."""
        self._digits += _digits(limbs)

    def subtract(self, limbs: np.ndarray) -> None:
        """Subtract limbs (3, m)."""
        self._digits -= _digits(limbs)

    def total(self) -> np.ndarray:
        """The sum modulo 2^192 as limbs (3, m)."""
        size = self._digits.shape[1]
        out = np.empty((LIMBS, size), LIMB)
        carry = np.zeros(size, np.int64)
        for i in range(LIMBS):
            low = self._digits[i, :, 0] + carry
            high = self._digits[i, :, 1] + (low >> 32)
            carry = high >> 32
            out[i] = (low.astype(np.uint64) & _LOW_HALF) | (high.astype(np.uint64) << _HALF)
        return out


def _digits(limbs: np.ndarray) -> np.ndarray:
    """Limbs (3, m) as digits (3, m, 2) of 32 bits, the lower first."""
    return np.ascontiguousarray(limbs, LIMB).view("<u4").reshape(*limbs.shape, 2)


def from_integer(value: int) -> np.ndarray:
    """One Python integer, modulo 2^192, as limbs (3, 1)."""
    content = (value % 2 ** (64 * LIMBS)).to_bytes(8 * LIMBS, "little")
    return np.frombuffer(content, LIMB).reshape(LIMBS, 1).copy()


def to_integer(limbs: np.ndarray) -> int:
    """One number (3, 1), read as unsigned, as a Python integer."""
    return int.from_bytes(np.ascontiguousarray(limbs, LIMB).tobytes(), "little")
