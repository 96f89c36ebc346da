"""Compression of a vector to few bytes: unbiased random rounding and sparsification, top-k, casts.

A quantiser has `encode(x, rng) -> bytes as uint8`, `decode(sent, size, rng) -> x` with a generator in the same state, and `omega(size)`:
E[Q(x)] = x and E|Q(x) - x|^2 <= omega |x|^2. It is a NamedTuple, so it can be saved and travels as JSON (`named.describe`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from unpooled.errors import BadParameter
from unpooled.layers.compression import coding
from unpooled.parameters import at_least, within
from unpooled.tree import message

STEPS = 8  # scales are powers of 2^(1/8), rounded up: one byte a bucket, at most 9 % above the norm
_ROOTS = 2.0 ** (np.arange(STEPS) / STEPS)
NONE = 255  # the scale code of a bucket of zeros
FINER = 8  # times as many steps has the grid of a vector
FAINT = 2.0**-12  # of the largest number: a column of smaller ones has the steps of one of this size


@message("compressed.Identity")
class Identity(NamedTuple):
    """Float64 as it is: 64 bits a coordinate."""

    def check(self) -> None:
        """Nothing to refuse."""

    def omega(self, size: int) -> float:
        return 0.0

    def encode(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.ascontiguousarray(x, np.float64).view(np.uint8)

    def decode(self, sent: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
        return _numbers(sent, np.float64, size).copy()


@message("compressed.Dither")
class Dither(NamedTuple):
    """Random rounding to multiples of norm/levels, bucket by bucket, entropy-coded.

    `norm` is "max" or a number p >= 1; with levels=1 and a p it is block-p quantisation.
    """

    levels: int = 1
    bucket: int = 32
    norm: float | str = "max"

    def check(self) -> None:
        at_least("levels", self.levels, 1)
        at_least("bucket", self.bucket, 1)
        if self.levels > 127:
            raise BadParameter(f"levels={self.levels} must be at most 127: beyond, a float16 cast sends less")
        if self.norm != "max" and not (isinstance(self.norm, int | float) and self.norm >= 1):
            raise BadParameter(f"norm={self.norm!r} must be 'max' or a number of at least 1")

    def omega(self, size: int) -> float:
        """The bound for the worst vector; the scale that is sent may be 2^(1/8) above the norm."""
        b, s = min(self.bucket, size), self.levels
        most = float(b) ** max(0.0, 1 / self._power - 0.5)  # |x|_p <= most |x|_2
        up = 2.0 ** (1 / STEPS) * most / s
        if (
            self.norm == "max"
        ):  # the worst has one large coordinate among equal small ones; the large one is off by a rounded norm
            small = (np.sqrt(1 + (b - 1) * up**2) - 1) / 2
            return small + (up**2 / 4 if s > 1 else up - 1)
        return min(b * up**2 / 4, np.sqrt(b) * up) if s > 1 else up * np.sqrt(b) - 1

    def usual_omega(self) -> float:
        """The relative variance for normal numbers, which is what changes of statistics look like: far below the bound."""
        return _usual_omega(self.levels, self.bucket, self._power)

    def encode(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        top = float(np.abs(x).max(initial=0.0))
        if not top > 1e-300:
            return np.zeros(0, np.uint8)
        rows = self._rows(x, top)  # (buckets, bucket)
        codes, scales = _scale_codes(self._norms(rows))
        wanted = rng.random(rows.shape, dtype=np.float32)
        rows *= (self.levels / scales).astype(np.float32)[:, None]
        wanted += rows
        np.floor(wanted, out=wanted)
        symbols = wanted.astype(np.int8).ravel()[: len(x)]
        np.clip(symbols, -self.levels, self.levels, out=symbols)  # float32 rounds 1 + (1 - 2^-24) up
        head = np.array([_exponent(top)], "<i2").view(np.uint8)
        return np.concatenate([head, codes, coding.pack(symbols, self.levels)])

    def decode(self, sent: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
        if not len(sent):
            return np.zeros(size)
        buckets = -(-size // self.bucket)
        if len(sent) < 2 + buckets:
            raise ValueError(f"{len(sent)} bytes stand for the scales of {buckets} buckets")
        top = _power(sent[:2].view("<i2").astype(np.int64))
        scales = _scales(sent[2 : 2 + buckets]) * (top / self.levels)
        symbols = coding.unpack(sent[2 + buckets :], size, self.levels)
        return symbols * np.repeat(scales, self.bucket)[:size]

    @property
    def _power(self) -> float:
        return np.inf if self.norm == "max" else float(self.norm)

    def _rows(self, x: np.ndarray, top: float) -> np.ndarray:
        """x in units of the message's own scale, so that float32 is enough; padded to whole buckets."""
        buckets = -(-len(x) // self.bucket)
        rows = np.zeros((buckets, self.bucket), np.float32)
        np.multiply(x, 1 / _power(_exponent(top)), out=rows.reshape(-1)[: len(x)], casting="same_kind")
        return rows

    def _norms(self, rows: np.ndarray) -> np.ndarray:
        if self.norm == "max":
            return np.abs(rows).max(axis=1)
        return np.linalg.norm(rows.astype(np.float64), ord=self._power, axis=1)


@message("compressed.Grid")
class Grid(NamedTuple):
    """Random rounding to a grid that stays, so that only what moves costs bits; most numbers of a fit that settles do not.

    The first array lays the grid: for each column `levels` steps to its largest number. With the same draws ever after, a number that
    moves by less than a step is mostly sent as no change, and its rounding is right in the mean over clients. A vector gets finer steps:
    it is short, and often what the columns of a matrix are divided by.
    """

    levels: int = 5

    def check(self) -> None:
        at_least("levels", self.levels, 1)

    def omega(self, size: int) -> float:
        return size * (2.0 ** (1 / STEPS) / self.levels) ** 2 / 4

    def lay(self, x: np.ndarray) -> np.ndarray:
        """The grid as bytes, for numbers (..., columns) or a vector, which is one column; nothing where all are 0."""
        sizes = np.abs(x).reshape(-1, x.shape[-1] if x.ndim > 1 else 1).max(axis=0, initial=0.0)
        top = float(sizes.max(initial=0.0))
        if not top > 1e-300:
            return np.zeros(0, np.uint8)
        finer = 1 if x.ndim > 1 else FINER
        codes = _scale_codes(np.maximum(sizes / _power(_exponent(top)), FAINT) / finer)[0]
        return np.concatenate([np.array([_exponent(top)], "<i2").view(np.uint8), codes])

    def steps(self, laid: np.ndarray) -> np.ndarray:
        """(columns,)"""
        return _scales(laid[2:]) * (_power(laid[:2].view("<i2").astype(np.int64)) / self.levels)

    def cut(self, sent: np.ndarray, columns: int) -> tuple[np.ndarray, np.ndarray]:
        """(steps, what follows the grid)."""
        if len(sent) < 2 + columns:
            raise ValueError(f"{len(sent)} bytes stand for a grid of {columns} columns")
        return self.steps(sent[: 2 + columns]), sent[2 + columns :]

    def moves(self, change: np.ndarray, steps: np.ndarray, draws: np.ndarray) -> np.ndarray:
        """Bytes that say by how many steps numbers have moved."""
        return coding.pack_gaps(np.floor(change / steps + draws).ravel())

    def moved(self, sent: np.ndarray, shape: tuple[int, ...], steps: np.ndarray) -> np.ndarray:
        return coding.unpack_gaps(sent, int(np.prod(shape))).reshape(shape) * steps

    def encode(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        laid = self.lay(x)
        return np.concatenate([laid, self.moves(x, self.steps(laid), rng.random(x.shape))]) if len(laid) else laid

    def decode(self, sent: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
        if not len(sent):
            return np.zeros(size)
        steps, moves = self.cut(sent, 1)
        return self.moved(moves, (size,), steps)


@message("compressed.Sparsify")
class Sparsify(NamedTuple):
    """Each coordinate is kept with probability `keep` and sent, scaled up, as float32; which ones, both ends draw alike."""

    keep: float = 0.5

    def check(self) -> None:
        within("keep", self.keep, 0, 1, "the share of coordinates that are sent")

    def omega(self, size: int) -> float:
        return 1 / self.keep - 1

    def encode(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return (x[self._kept(len(x), rng)] / self.keep).astype("<f4").view(np.uint8)

    def decode(self, sent: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
        x, kept = np.zeros(size), self._kept(size, rng)
        x[kept] = _numbers(sent, "<f4", int(kept.sum()))
        return x

    def _kept(self, size: int, rng: np.random.Generator) -> np.ndarray:
        return rng.random(size) < self.keep


@message("compressed.TopK")
class TopK(NamedTuple):
    """The largest coordinates, as they are: biased, so whoever uses it adds what was left out to the next message."""

    share: float = 0.1

    def check(self) -> None:
        within("share", self.share, 0, 1, "the share of coordinates that are sent")

    def omega(self, size: int) -> float:
        """Of no unbiased quantiser, but |Q(x) - x|^2 <= (1 - share) |x|^2."""
        return 1 - self._count(size) / size

    def encode(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        k = self._count(len(x))
        large = np.sort(np.argpartition(np.abs(x), len(x) - k)[len(x) - k :])
        where = large.astype("<u4").view(np.uint8) if 32 * k < len(x) else np.packbits(_mask(large, len(x)))
        return np.concatenate([where, x[large].astype("<f4").view(np.uint8)])

    def decode(self, sent: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
        k = self._count(size)
        cut = 4 * k if 32 * k < size else -(-size // 8)
        values = _numbers(sent[cut:], "<f4", k)
        where = sent[:cut].view("<u4") if 32 * k < size else np.flatnonzero(np.unpackbits(sent[:cut], count=size))
        if len(where) != k or where.max() >= size:
            raise ValueError(f"{len(where)} places below {size} are told for {k} numbers")
        x = np.zeros(size)
        x[where] = values
        return x

    def _count(self, size: int) -> int:
        return max(1, int(np.ceil(self.share * size)))


@message("compressed.Cast")
class Cast(NamedTuple):
    """Sixteen bits a coordinate, rounded at random to a neighbour so that the mean is right; the message has a scale of its own."""

    dtype: str = "bfloat16"

    def check(self) -> None:
        if self.dtype not in _MANTISSA:
            raise BadParameter(f"dtype={self.dtype!r} is not known: use 'float16' or 'bfloat16'")

    def omega(self, size: int) -> float:
        """A quarter of the squared spacing, and float16 loses what is below 2^-14 of the largest."""
        spacing = 2.0 ** -_MANTISSA[self.dtype]
        return spacing**2 / 4 + (2.0**-48 / 4 * size if self.dtype == "float16" else 0.0)

    def encode(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        top = float(np.abs(x).max(initial=0.0))
        if not top > 1e-300:
            return np.zeros(0, np.uint8)
        exponent = _exponent(top)
        rounded = _round(np.asarray(x / _power(exponent)), self.dtype, rng)
        return np.concatenate([np.array([exponent], "<i2").view(np.uint8), rounded.view(np.uint8)])

    def decode(self, sent: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
        if not len(sent):
            return np.zeros(size)
        halves = _numbers(sent[2:], "<u2", size)
        top = _power(sent[:2].view("<i2").astype(np.int64))
        if self.dtype == "float16":
            return halves.view("<f2").astype(np.float64) * top
        return (halves.astype(np.uint32) << 16).view(np.float32).astype(np.float64) * top


def memory_step(quantiser: Any, size: int) -> float:
    """alpha in V <- V + alpha Q(x - V): 1 / (1 + omega), which follows fastest, with the usual omega of a quantiser whose bound is
    loose; always so that the distance to a fixed x shrinks in the worst case too, which is below 2 / (1 + omega)."""
    if isinstance(quantiser, TopK | Grid):
        return 1.0
    return min(1 / (1 + usual_omega(quantiser, size)), 1.9 / (1 + quantiser.omega(size)))


def usual_omega(quantiser: Any, size: int) -> float:
    """The relative variance that is to be expected: of some quantisers far below the bound."""
    return quantiser.usual_omega() if isinstance(quantiser, Dither) else quantiser.omega(size)


@lru_cache
def _usual_omega(levels: int, bucket: int, power: float) -> float:
    """By a fixed sample; the rounding itself is averaged exactly."""
    x = np.abs(np.random.default_rng(0).normal(size=(2000, bucket)))
    step = np.linalg.norm(x, ord=power, axis=1, keepdims=True) * 2.0 ** (0.5 / STEPS) / levels
    share = x / step % 1
    return float((share * (1 - share) * step**2).sum() / (x**2).sum())


_MANTISSA = {"bfloat16": 7, "float16": 10}

QUANTISERS: dict[str, type] = {
    "identity": Identity,
    "dither": Dither,
    "grid": Grid,
    "sparsify": Sparsify,
    "topk": TopK,
    "cast": Cast,
}


def _round(x: np.ndarray, dtype: str, rng: np.random.Generator) -> np.ndarray:  # |x| <= 1 -> (q,) of 16 bits
    """A neighbour in 16 bits, each with the probability that makes the mean right."""
    if dtype == "bfloat16":  # the upper half of a float32: add noise to the lower half, then cut it off
        bits = x.astype(np.float32).view(np.uint32)
        return ((bits + rng.integers(0, 2**16, len(x), dtype=np.uint32)) >> 16).astype("<u2")
    near = x.astype(np.float16)
    other = np.nextafter(near, np.where(x > near, np.inf, -np.inf).astype(np.float16))
    gap = other.astype(np.float64) - near
    moves = rng.random(len(x)) * np.abs(gap) < np.abs(x - near)
    return np.where(moves, other, near).astype("<f2")


def _exponent(top: float) -> int:
    """The least j with 2^(j / STEPS) >= top."""
    j = int(np.ceil(STEPS * np.log2(top)))
    return j if _power(j) >= top else j + 1


def _power(j):
    """2^(j / STEPS), the same bits on every machine."""
    return np.ldexp(_ROOTS[j % STEPS], j // STEPS)


def _scale_codes(norms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # (buckets,) -> codes uint8, scales >= norms
    with np.errstate(divide="ignore"):
        codes = np.where(norms > 0, np.clip(np.floor(-STEPS * np.log2(norms)), -_HEAD, NONE - 1 - _HEAD), NONE - _HEAD)
    codes = (codes + _HEAD).astype(np.uint8)
    return codes, np.where(codes == NONE, 1.0, _scales(codes))


def _scales(codes: np.ndarray) -> np.ndarray:
    return np.where(codes == NONE, 0.0, _power(_HEAD - codes.astype(np.int64)))


_HEAD = 80  # codes start at 2^10: a p-norm may be above the largest coordinate


def _mask(where: np.ndarray, size: int) -> np.ndarray:
    mask = np.zeros(size, bool)
    mask[where] = True
    return mask


def _numbers(sent: np.ndarray, dtype, size: int) -> np.ndarray:
    """`size` numbers out of bytes; another length is refused."""
    coding.expect(len(sent), np.dtype(dtype).itemsize * size, size)
    return np.ascontiguousarray(sent).view(dtype)
