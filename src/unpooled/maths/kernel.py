"""Shared parts of a pass over rows: buffers, chunks, rows transposed to columns, the softmax. Sends nothing.

Rows become columns z of homogeneous coordinates (1, x - centre): one product with a matrix then also subtracts a mean,
and a second moment also holds the first moment and the count. Arrays are (batch, ..., columns). The columns are the
last axis, contiguous for BLAS, and one batch entry is one leading index of the caller's rows.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, is_torch, namespace, to_numpy

CACHED = 230_000  # numbers per chunk on a CPU, at most: about the size of the level 2 cache
WORTH_IT = 80_000  # numbers per chunk of narrow rows, so that arithmetic outweighs the calls
ON_DEVICE = 2**27  # numbers per chunk on a GPU, at most
SEGMENT = 2048  # columns per product on a GPU: many short products run in parallel, one long product does not


class _Buffers(threading.local):
    """Reusable arrays by name and thread: allocating them for each chunk would take as long as the arithmetic."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, Any], np.ndarray] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """An array of this shape with arbitrary contents, a view of the buffer of this name."""
        size = math.prod(shape)
        held = self.held.get((name, dtype))
        if held is None or held.size < size:
            held = self.held[name, dtype] = np.empty(size, dtype)
        return held[:size].reshape(shape)


_BUFFERS = _Buffers()


def buffer(name: str, shape: tuple[int, ...], like: Array) -> Array:
    """Scratch memory of this thread, overwritten by the next call with the same name; torch has its own memory pool."""
    if is_torch(like):
        return namespace(like).empty(shape, dtype=like.dtype, device=like.device)
    return _BUFFERS.take(name, shape, like.dtype)


def double(a: Any, like: Array) -> Array:
    """`a` in float64, as the same kind of array as `like`."""
    xp = namespace(like)
    if xp is np:
        return np.asarray(to_numpy(a), dtype=np.float64)
    return xp.as_tensor(a, dtype=xp.float64, device=like.device)


def cast(a: Array, like: Array) -> Array:
    """`a` in the dtype of `like`, which is the same kind of array."""
    return a.to(like.dtype) if is_torch(a) else a.astype(like.dtype, copy=False)


def floating(x: Any) -> Array:
    """x itself if it is float64 or float32, else x in float64."""
    xp = namespace(x)
    x = xp.asarray(x)
    return x if x.dtype in (xp.float64, xp.float32) else double(x, x)


def log(weights: Array) -> Array:
    """log, with -inf for 0 and no warning."""
    with np.errstate(divide="ignore"):
        return namespace(weights).log(weights)


def indices(n: int, like: Array) -> Array:
    """0 to n - 1, as the same kind of array as `like`."""
    return namespace(like).arange(n, device=like.device) if is_torch(like) else np.arange(n)


def zeros(shape: tuple[int, ...], like: Array) -> Array:
    """float64 zeros, as the same kind of array as `like`."""
    xp = namespace(like)
    return xp.zeros(shape, dtype=xp.float64, **({"device": like.device} if xp is not np else {}))


class Beside(NamedTuple):
    """What columns outside the Gaussian block say about rows (n, d), and room for the responsibilities of the rows."""

    log_density: Array  # (n, k), added to the log density of each component
    r: Array  # (n, k), filled: responsibilities times row weights

    def part(self, rows: slice) -> Beside:
        """The same for a slice of the rows."""
        return Beside(self.log_density[rows], self.r[rows])


# ---- chunks ----


def room(width: int, like: Array) -> int:
    """How many rows of `width` numbers fit into one chunk."""
    if _on_gpu(like):
        return max(SEGMENT, ON_DEVICE // width)
    return min(max(128, CACHED // width), max(2000, WORTH_IT // width))


def chunks(batch: int, n: int, width: int, like: Array) -> Iterator[tuple[slice, list[slice]]]:
    """Yield (slice of leading indices, slices of rows): several short clients together, or one long client in pieces.

    Each row takes `width` numbers.
    """
    most = room(width, like)
    if 2 * n > most:
        pieces = _segments(n, most) if _on_gpu(like) else _even(n, most)
        yield from ((slice(i, i + 1), pieces) for i in range(batch))
        return
    step = max(1, most // max(n, 1))
    yield from ((slice(i, min(i + step, batch)), [slice(0, n)] if n else []) for i in range(0, batch, step))


def _even(n: int, most: int) -> list[slice]:
    """Slices of 0 to n of nearly equal length, `most` at most."""
    cuts = np.linspace(0, n, -(-n // most) + 1).round().astype(int)
    return [slice(a, b) for a, b in zip(cuts[:-1].tolist(), cuts[1:].tolist())]


def _segments(n: int, most: int) -> list[slice]:
    """Slices of 0 to n whose lengths are multiples of SEGMENT, and one for the remainder."""
    whole = n // SEGMENT * SEGMENT
    step = most // SEGMENT * SEGMENT
    pieces = [slice(a, min(a + step, whole)) for a in range(0, whole, step)]
    return [*pieces, slice(whole, n)] if whole < n else pieces


def accumulate(total: Array, part: Array) -> None:
    """Add a chunk's sums to float64 totals; where the chunk was cut into segments, those are summed first."""
    total += part if part.shape[0] == total.shape[0] else part.sum(0, dtype=total.dtype)


def fold(x: Array) -> Array:
    """(1, n, ...) as (n / SEGMENT, SEGMENT, ...), on a GPU and if n is a multiple of SEGMENT.

    Anything else stays as it is.
    """
    b, n = x.shape[:2]
    return x.reshape(n // SEGMENT, SEGMENT, *x.shape[2:]) if _on_gpu(x) and b == 1 and n % SEGMENT == 0 else x


def _on_gpu(a: Array) -> bool:
    return is_torch(a) and a.device.type != "cpu"


# ---- columns and responsibilities ----


def columns(x: Array, w: Array | None, centre: Array) -> Array:
    """Rows (b, n, d) as columns (b, 1 + d, n) about `centre`.

    A row of weight 0 may hold any values; it becomes `centre`.
    """
    xp = namespace(x)
    b, n, d = x.shape
    z = buffer("z", (b, d + 1, n), x)
    z[:, 0] = 1
    xp.subtract(x.swapaxes(1, 2), centre[:, None], out=z[:, 1:])
    if w is not None and not bool(w.all()):
        z[:, 1:] = xp.where((w == 0)[:, None], 0, z[:, 1:])
    return z


def has_nan(z: Array) -> bool:
    """Whether a value is NaN: then z'z is NaN, which takes one fast pass."""
    xp = namespace(z)
    return bool(xp.isnan(xp.vdot(z.reshape(-1), z.reshape(-1))))


def responsibilities(q: Array, w: Array) -> tuple[Array, Array]:
    """(responsibilities times w (b, k, n), log p(x) times w (b, n)) of log joints q (b, k, n), computed in place."""
    xp = namespace(q)
    top = xp.amax(q, 1)
    q -= top[:, None]
    xp.exp(q, out=q)
    total = q.sum(1)
    q *= (w / total)[:, None]
    return q, (xp.log(total) + top) * w


def sum_of_squares(y: Array) -> Array:
    """Sums of squares over d of y (b, k, d, n): (b, k, n), in one pass and without a copy of y."""
    if is_torch(y):
        return namespace(y).linalg.vector_norm(y, dim=2) ** 2
    b, k, _, n = y.shape
    return np.einsum("bkdn,bkdn->bkn", y, y, out=buffer("q", (b, k, n), y))
