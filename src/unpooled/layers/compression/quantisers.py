"""Compression of a vector to few bytes: unbiased random rounding and sparsification, top-k, casts. Sends nothing.

A quantiser has `encode(x, rng)`, which gives uint8 bytes, `decode(sent, size, rng)` with a generator in the same state,
and `omega(size)` with E[Q(x)] = x and E|Q(x) - x|^2 <= omega |x|^2. It is a NamedTuple, so it can be saved and sent as
JSON (`choices.describe`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from unpooled.errors import BadParameter
from unpooled.layers.compression import coding
from unpooled.layers.compression.scales import (
    MANTISSA,
    STEPS,
    as_mask,
    as_numbers,
    exponent_of,
    in_16_bits,
    scale_at,
    scale_codes,
    scales_of,
)
from unpooled.parameters import at_least, within
from unpooled.tree import message


@message("compressed.Identity")
class Identity(NamedTuple):
    """No compression: float64 as it is, 64 bits per number."""

    def check(self) -> None:
        """Nothing to refuse."""

    def omega(self, size: int) -> float:
        """0: nothing is lost."""
        return 0.0

    def encode(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The numbers (q,) as bytes."""
        return np.ascontiguousarray(x, np.float64).view(np.uint8)

    def decode(self, sent: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
        """The numbers (size,)."""
        return as_numbers(sent, np.float64, size).copy()


@message("compressed.Dither")
class Dither(NamedTuple):
    """Random rounding to multiples of norm / levels, bucket by bucket, entropy-coded.

    Parameters
    ----------
    levels : int, default=1
        Levels on each side of zero, 1 to 127.
    bucket : int, default=32
        Numbers that share one scale.
    norm : "max" or float, default="max"
        Norm of a bucket: the largest absolute value, or the p-norm for a number p >= 1. With levels=1 and a p this is
        block-p quantisation.

    References
    ----------
    Alistarh, Grubic, Li, Tomioka, Vojnovic, QSGD: communication-efficient SGD via gradient quantization and encoding,
    NeurIPS 2017.
    Mishchenko et al., Distributed learning with compressed gradient differences, 2019.

    Examples
    --------
    >>> import numpy as np
    >>> quantiser, x = Dither(levels=7), np.linspace(-1, 1, 100)
    >>> sent = quantiser.encode(x, np.random.default_rng(0))
    >>> len(sent) < x.nbytes / 8
    True
    >>> back = quantiser.decode(sent, len(x), np.random.default_rng(0))
    >>> bool(np.abs(back - x).max() < 0.2)
    True
    """

    levels: int = 1
    bucket: int = 32
    norm: float | str = "max"

    def check(self) -> None:
        """Refuse parameters out of range."""
        at_least("levels", self.levels, 1)
        at_least("bucket", self.bucket, 1)
        if self.levels > 127:
            raise BadParameter(f"levels={self.levels} must be at most 127: beyond, a float16 cast sends less")
        if self.norm != "max" and not (isinstance(self.norm, int | float) and self.norm >= 1):
            raise BadParameter(f"norm={self.norm!r} must be 'max' or a number of at least 1")

    def omega(self, size: int) -> float:
        """A bound for the worst vector of `size` numbers; the scale that is sent may be 2^(1/8) above the norm."""
        b = min(self.bucket, size)
        s = self.levels
        most = float(b) ** max(0.0, 1 / self._power - 0.5)  # |x|_p <= most |x|_2
        up = 2.0 ** (1 / STEPS) * most / s
        # worst case for the maximum norm: one large coordinate among equal small ones, with a rounded norm
        if self.norm == "max":
            small = (np.sqrt(1 + (b - 1) * up**2) - 1) / 2
            return small + (up**2 / 4 if s > 1 else up - 1)
        return min(b * up**2 / 4, np.sqrt(b) * up) if s > 1 else up * np.sqrt(b) - 1

    def usual_omega(self) -> float:
        """The relative variance for normally distributed numbers, as changes of statistics are: far below the bound."""
        return _usual_omega(self.levels, self.bucket, self._power)

    def encode(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The numbers (q,) as bytes: one scale for all, one scale code per bucket, then the packed levels."""
        top = float(np.abs(x).max(initial=0.0))
        if not top > 1e-300:
            return np.zeros(0, np.uint8)
        rows = self._rows(x, top)  # (buckets, bucket)
        codes, scales = scale_codes(self._norms(rows))
        wanted = rng.random(rows.shape, dtype=np.float32)
        rows *= (self.levels / scales).astype(np.float32)[:, None]
        wanted += rows
        np.floor(wanted, out=wanted)
        symbols = wanted.astype(np.int8).ravel()[: len(x)]
        np.clip(symbols, -self.levels, self.levels, out=symbols)  # float32 rounds 1 + (1 - 2^-24) up
        head = np.array([exponent_of(top)], "<i2").view(np.uint8)
        return np.concatenate([head, codes, coding.pack(symbols, self.levels)])

    def decode(self, sent: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
        """The quantised numbers (size,); ValueError for bytes that `encode` never writes."""
        if not len(sent):
            return np.zeros(size)
        buckets = -(-size // self.bucket)
        if len(sent) < 2 + buckets:
            raise ValueError(f"{len(sent)} bytes stand for the scales of {buckets} buckets")
        top = scale_at(sent[:2].view("<i2").astype(np.int64))
        scales = scales_of(sent[2 : 2 + buckets]) * (top / self.levels)
        symbols = coding.unpack(sent[2 + buckets :], size, self.levels)
        return symbols * np.repeat(scales, self.bucket)[:size]

    @property
    def _power(self) -> float:
        """The p of the norm."""
        return np.inf if self.norm == "max" else float(self.norm)

    def _rows(self, x: np.ndarray, top: float) -> np.ndarray:
        """x (q,) as float32 rows (buckets, bucket), padded with zeros and divided by the largest number's scale."""
        buckets = -(-len(x) // self.bucket)
        rows = np.zeros((buckets, self.bucket), np.float32)
        np.multiply(x, 1 / scale_at(exponent_of(top)), out=rows.reshape(-1)[: len(x)], casting="same_kind")
        return rows

    def _norms(self, rows: np.ndarray) -> np.ndarray:
        """The norm of each bucket, (buckets,)."""
        if self.norm == "max":
            return np.abs(rows).max(axis=1)
        return np.linalg.norm(rows.astype(np.float64), ord=self._power, axis=1)


@message("compressed.Sparsify")
class Sparsify(NamedTuple):
    """Random sparsification: each number is kept with probability `keep`, scaled up by 1 / keep and sent as float32.

    Both ends draw the same random numbers, so it is not sent which ones are kept.

    Parameters
    ----------
    keep : float, default=0.5
        Probability that a number is sent, above 0 and at most 1.

    Examples
    --------
    >>> import numpy as np
    >>> sent = Sparsify(0.25).encode(np.ones(1000), np.random.default_rng(0))
    >>> back = Sparsify(0.25).decode(sent, 1000, np.random.default_rng(0))
    >>> sorted(set(back.tolist()))
    [0.0, 4.0]
    """

    keep: float = 0.5

    def check(self) -> None:
        """Refuse a share out of range."""
        within("keep", self.keep, 0, 1, "the share of coordinates that are sent")

    def omega(self, size: int) -> float:
        """The exact relative variance."""
        return 1 / self.keep - 1

    def encode(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The kept numbers as bytes."""
        return (x[self._kept(len(x), rng)] / self.keep).astype("<f4").view(np.uint8)

    def decode(self, sent: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
        """The numbers (size,), 0 where they were not kept."""
        x = np.zeros(size)
        kept = self._kept(size, rng)
        x[kept] = as_numbers(sent, "<f4", int(kept.sum()))
        return x

    def _kept(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """Which numbers are kept, (size,) bool."""
        return rng.random(size) < self.keep


@message("compressed.TopK")
class TopK(NamedTuple):
    """The largest numbers by absolute value, as float32; the others are left out.

    This is biased: whoever uses it must add what was left out to the next message (error feedback).

    Parameters
    ----------
    share : float, default=0.1
        Share of the numbers that is sent, above 0 and at most 1.

    Examples
    --------
    >>> import numpy as np
    >>> sent = TopK(0.5).encode(np.array([0.1, -3.0, 2.0, 0.2]), np.random.default_rng(0))
    >>> TopK(0.5).decode(sent, 4, np.random.default_rng(0))
    array([ 0., -3.,  2.,  0.])
    """

    share: float = 0.1

    def check(self) -> None:
        """Refuse a share out of range."""
        within("share", self.share, 0, 1, "the share of coordinates that are sent")

    def omega(self, size: int) -> float:
        """The bound of |Q(x) - x|^2 <= omega |x|^2; the mean is not right, unlike that of the other quantisers."""
        return 1 - self._count(size) / size

    def encode(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The positions (as indices or as a bit mask, whichever is shorter) and the numbers, as bytes."""
        n = len(x)
        k = self._count(n)
        large = np.sort(np.argpartition(np.abs(x), n - k)[n - k :])
        if 32 * k < n:  # k indices of 32 bits are shorter than a mask of n bits
            positions = large.astype("<u4").view(np.uint8)
        else:
            positions = np.packbits(as_mask(large, n))
        numbers = x[large].astype("<f4").view(np.uint8)
        return np.concatenate([positions, numbers])

    def decode(self, sent: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
        """The numbers (size,), 0 where they were left out."""
        k = self._count(size)
        cut = 4 * k if 32 * k < size else -(-size // 8)
        values = as_numbers(sent[cut:], "<f4", k)
        where = sent[:cut].view("<u4") if 32 * k < size else np.flatnonzero(np.unpackbits(sent[:cut], count=size))
        if len(where) != k or where.max() >= size:
            raise ValueError(f"{len(where)} positions below {size} were sent for {k} numbers")
        x = np.zeros(size)
        x[where] = values
        return x

    def _count(self, size: int) -> int:
        """How many of `size` numbers are sent."""
        return max(1, int(np.ceil(self.share * size)))


@message("compressed.Cast")
class Cast(NamedTuple):
    """Sixteen bits per number, rounded up or down at random so that the mean is right; each message has its own scale.

    Parameters
    ----------
    dtype : {"bfloat16", "float16"}, default="bfloat16"
        The 16-bit format.

    Examples
    --------
    >>> import numpy as np
    >>> sent = Cast("float16").encode(np.array([1.0, 0.5]), np.random.default_rng(0))
    >>> Cast("float16").decode(sent, 2, np.random.default_rng(0))
    array([1. , 0.5])
    """

    dtype: str = "bfloat16"

    def check(self) -> None:
        """Refuse an unknown dtype."""
        if self.dtype not in MANTISSA:
            raise BadParameter(f"dtype={self.dtype!r} is not known: use 'float16' or 'bfloat16'")

    def omega(self, size: int) -> float:
        """A quarter of the squared spacing of numbers; float16 also loses what is below 2^-14 of the largest."""
        spacing = 2.0 ** -MANTISSA[self.dtype]
        return spacing**2 / 4 + (2.0**-48 / 4 * size if self.dtype == "float16" else 0.0)

    def encode(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The scale and the rounded numbers (q,) as bytes."""
        top = float(np.abs(x).max(initial=0.0))
        if not top > 1e-300:
            return np.zeros(0, np.uint8)
        exponent = exponent_of(top)
        rounded = in_16_bits(np.asarray(x / scale_at(exponent)), self.dtype, rng)
        return np.concatenate([np.array([exponent], "<i2").view(np.uint8), rounded.view(np.uint8)])

    def decode(self, sent: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
        """The rounded numbers (size,)."""
        if not len(sent):
            return np.zeros(size)
        halves = as_numbers(sent[2:], "<u2", size)
        top = scale_at(sent[:2].view("<i2").astype(np.int64))
        if self.dtype == "float16":
            return halves.view("<f2").astype(np.float64) * top
        return (halves.astype(np.uint32) << 16).view(np.float32).astype(np.float64) * top


def memory_step(quantiser: Any, size: int) -> float:
    """The step alpha of the memory V <- V + alpha Q(x - V), for answers of `size` numbers.

    It is 1 / (1 + omega), which follows x fastest, with the usual omega where the bound is loose. It stays below
    2 / (1 + omega) with omega the bound, so that V comes closer to a fixed x even in the worst case.
    """
    if isinstance(quantiser, TopK):
        return 1.0
    return min(1 / (1 + usual_omega(quantiser, size)), 1.9 / (1 + quantiser.omega(size)))


def usual_omega(quantiser: Any, size: int) -> float:
    """The relative variance to be expected, which for some quantisers is far below the bound."""
    return quantiser.usual_omega() if isinstance(quantiser, Dither) else quantiser.omega(size)


@lru_cache
def _usual_omega(levels: int, bucket: int, power: float) -> float:
    """The relative variance of `Dither` on a fixed sample of normal numbers; the rounding is averaged exactly."""
    x = np.abs(np.random.default_rng(0).normal(size=(2000, bucket)))
    norms = np.linalg.norm(x, ord=power, axis=1, keepdims=True)
    step = norms * 2.0 ** (0.5 / STEPS) / levels
    share = x / step % 1  # the probability of rounding up
    variance = share * (1 - share) * step**2
    return float(variance.sum() / (x**2).sum())


QUANTISERS: dict[str, type] = {"identity": Identity, "dither": Dither, "sparsify": Sparsify, "topk": TopK, "cast": Cast}
