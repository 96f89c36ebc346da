"""Numbers as few bits: scales of buckets as bytes, random rounding to 16 bits, sets of places as masks. Nothing is sent."""

from __future__ import annotations

import numpy as np

from unpooled.layers.compression import coding

STEPS = 8  # scales are powers of 2^(1/8), rounded up: one byte per bucket, at most 9 % above the norm
_ROOTS = 2.0 ** (np.arange(STEPS) / STEPS)
NONE = 255  # the scale code of a bucket of zeros
MANTISSA = {"bfloat16": 7, "float16": 10}
_CODE_OFFSET = 80  # offset of scale codes, which start at 2^10: a p-norm may be above the largest coordinate


def in_16_bits(x: np.ndarray, dtype: str, rng: np.random.Generator) -> np.ndarray:  # |x| <= 1 -> (q,) of 16 bits
    """One of the two neighbours of x (q,) in 16 bits, drawn so that the mean is x."""
    if dtype == "bfloat16":  # the upper half of a float32: add noise to the lower half, then cut it off
        bits = x.astype(np.float32).view(np.uint32)
        return ((bits + rng.integers(0, 2**16, len(x), dtype=np.uint32)) >> 16).astype("<u2")
    near = x.astype(np.float16)
    other = np.nextafter(near, np.where(x > near, np.inf, -np.inf).astype(np.float16))
    gap = other.astype(np.float64) - near
    moves = rng.random(len(x)) * np.abs(gap) < np.abs(x - near)
    return np.where(moves, other, near).astype("<f2")


def exponent_of(top: float) -> int:
    """The smallest integer j with 2^(j / STEPS) >= top."""
    j = int(np.ceil(STEPS * np.log2(top)))
    return j if scale_at(j) >= top else j + 1


def scale_at(j):
    """2^(j / STEPS), the same bits on every machine."""
    return np.ldexp(_ROOTS[j % STEPS], j // STEPS)


def scale_codes(norms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # (buckets,) -> codes uint8, scales >= norms
    """(codes, scales) of norms (buckets,): codes as uint8, scales rounded up to at least the norms."""
    with np.errstate(divide="ignore"):
        codes = np.where(
            norms > 0,
            np.clip(np.floor(-STEPS * np.log2(norms)), -_CODE_OFFSET, NONE - 1 - _CODE_OFFSET),
            NONE - _CODE_OFFSET,
        )
    codes = (codes + _CODE_OFFSET).astype(np.uint8)
    return codes, np.where(codes == NONE, 1.0, scales_of(codes))


def scales_of(codes: np.ndarray) -> np.ndarray:
    """The scales (buckets,) of codes; 0 for a bucket of zeros."""
    return np.where(codes == NONE, 0.0, scale_at(_CODE_OFFSET - codes.astype(np.int64)))


def as_mask(where: np.ndarray, size: int) -> np.ndarray:
    """A boolean array (size,) that is True at these positions."""
    mask = np.zeros(size, bool)
    mask[where] = True
    return mask


def as_numbers(sent: np.ndarray, dtype, size: int) -> np.ndarray:
    """Bytes as `size` numbers of this dtype; ValueError for another number of bytes."""
    coding.expect(len(sent), np.dtype(dtype).itemsize * size, size)
    return np.ascontiguousarray(sent).view(dtype)
