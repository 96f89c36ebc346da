"""Patterns of missing values, and their projections in the whitened coordinates of each component. Sends nothing.

In the coordinates y = L^-1 (x - mean), the missing values span the columns u of L^-1. Let Q be an orthonormal basis of
that span. Given the observed values, E[y] = (I - QQ') y0 whatever stands in the missing entries, Cov[y] = QQ', and
|E[y]|^2 is the squared distance in the marginal density. So each pattern has one map in place of L^-1, and the rest is
as for complete rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, namespace, to_numpy
from unpooled.maths.kernel import buffer, cast, columns, double, sum_of_squares
from unpooled.maths.shapes import LOG_2PI, Full, homogeneous
from unpooled.tree import message

KEPT = 1_000_000  # numbers in the cache of projections, at most
AT_ONCE = 2_000_000  # numbers in projections that are computed together, at most


@message("maths.patterns.Projection")
class Projection(NamedTuple):
    """The projection of one pattern of missing values, for each component."""

    maps: Array  # (k or 1, 1 + d, 1 + d), from columns with 0 in the holes to (1, E[y]), or to (1, E[y] + shift)
    shift: Array  # (k, d) where one map serves all components; (0, d) where each has its own
    spread: Array  # (k or 1, d, d), Cov[y]
    const: Array  # (k or 1,), of the log density


@message("maths.patterns.Run")
class Run(NamedTuple):
    """Consecutive columns with the same pattern."""

    pattern: int
    start: int
    stop: int


def patterns(rows: Array, places: Array) -> tuple[np.ndarray, Array]:
    """(distinct patterns (p, d) of missing values in rows[places], index of the pattern of each place)."""
    xp = namespace(rows)
    d = rows.shape[1]
    powers = np.zeros((d, -(-d // 50)))  # 50 bits fit exactly into a float64
    powers[np.arange(d), np.arange(d) // 50] = 2.0 ** (np.arange(d) % 50)
    powers = double(powers, rows)
    parts = [double(xp.isnan(rows[places[i : i + 50_000]]), rows) @ powers for i in range(0, len(places), 50_000)]
    codes = xp.concatenate(parts).T
    _, ids = xp.unique(codes[0], return_inverse=True)
    for code in codes[1:]:
        values, value_of_row = xp.unique(code, return_inverse=True)
        _, ids = xp.unique(ids * len(values) + value_of_row, return_inverse=True)
    example = places[: int(ids.max()) + 1] * 0
    example[ids] = places  # one row per pattern
    return to_numpy(xp.isnan(rows[example])), ids


def projections(kernel: Full, found: np.ndarray) -> list[Projection]:
    """The projection of each pattern (p, d); patterns with equally many missing values are factorised together."""
    keys = [p.tobytes() for p in found]
    counts = found.sum(1)
    new = np.array([key not in kernel.known for key in keys], dtype=bool)
    made: dict[bytes, Projection] = {}
    for u in np.unique(counts[new]).tolist():
        which = found[new & (counts == u)]
        made.update(zip((p.tobytes() for p in which), _project(kernel, which, u)))
    out = [made[key] if key in made else kernel.known[key] for key in keys]
    if fits(kernel, len(kernel.known) + len(made)):
        kernel.known.update(made)
    return out


def fits(kernel: Full, count: int) -> bool:
    """Whether the projections of `count` patterns fit into the cache."""
    return count * kernel.width * (kernel.size[1] + 1) <= KEPT


def _project(kernel: Full, which: np.ndarray, u: int) -> Iterator[Projection]:
    """Projections of patterns (p, d) with u missing values each."""
    xp = namespace(kernel.whiten)
    like = kernel.centre
    holes = np.nonzero(which)[1].reshape(-1, u)
    span = kernel.whiten[:, :, xp.asarray(holes)]  # (k, d, p, u)
    q, r = xp.linalg.qr(xp.moveaxis(span, 2, 0))  # (p, k, d, u)
    across = q.swapaxes(-1, -2)
    whiten = (kernel.whiten - q @ (across @ kernel.whiten)) * double(~which, like)[:, None, None, :]
    const = kernel.log_scale - xp.log(abs(xp.einsum("...ii->...i", r))).sum(-1) + u / 2 * LOG_2PI + 0.5
    if kernel.common:  # the components' maps differ only in the shift
        maps = homogeneous(whiten, 0 * kernel.shift[:1])
        shift = kernel.shift @ whiten[:, 0].swapaxes(-1, -2)
    else:
        maps = homogeneous(whiten, kernel.shift)
        shift = whiten[:, 0, :0]
    return (Projection(*p) for p in zip(cast(maps, like), cast(shift, like), q @ across, cast(const, like)))


def _slices(present: np.ndarray, counts: np.ndarray, most_rows: int, most_patterns: int) -> Iterator[list[Run]]:
    """Runs of rows sorted by pattern, in portions of limited size; `counts` are the rows of each pattern in `present`."""
    runs: list[Run] = []
    start = 0
    for pattern, stop in zip(present.tolist(), np.cumsum(counts).tolist()):
        while start < stop:
            first = runs[0].start if runs else start
            if start - first == most_rows or len(runs) == most_patterns:
                yield runs
                runs = []
                first = start
            cut = min(stop, first + most_rows)
            runs.append(Run(pattern, start, cut))
            start = cut
    if runs:
        yield runs


def _order(ids: Array) -> Array:
    """Indices that sort rows by pattern; small integers are sorted in one pass."""
    if namespace(ids) is not np:
        return ids.argsort()
    return np.argsort(ids.astype(np.int16) if ids.max(initial=0) < 2**15 else ids, kind="stable")


def portions(ids: Array, kernel: Any, most_rows: int) -> Iterator[tuple[Array, list[Run]]]:
    """Yield (indices of rows, their runs counted from 0), sorted by pattern; every row comes once."""
    xp = namespace(ids)
    order = _order(ids)
    counts = to_numpy(xp.bincount(ids))
    present = np.flatnonzero(counts)
    counts = counts[present]
    for runs in _slices(present, counts, most_rows, max(1, AT_ONCE // (kernel.width * (kernel.size[1] + 1)))):
        first = runs[0].start
        yield order[first : runs[-1].stop], [Run(r.pattern, r.start - first, r.stop - first) for r in runs]


def whitened(kernel: Full, x: Array, runs: list[Run], made: list[Projection]) -> tuple[Array, Array]:
    """Rows x (n, d) in runs as columns (1, E[y]), (1, k, 1 + d, n), and their log densities (1, k, n).

    Where all components share the map, they share the columns (1, E[y] + shift), as (1, 2, 1 + d, n); the second half
    is filled by `halve`.
    """
    xp = namespace(x)
    k = kernel.size[0]
    z = columns(x[None], None, kernel.centre)[0]
    z[1:] = xp.where(xp.isnan(z[1:]), 0, z[1:])
    y = buffer("y", (1, 2 if kernel.common else k, *z.shape), z)
    q = buffer("const", (1, k, z.shape[1]), z)
    for run, p in zip(runs, made):
        part = slice(run.start, run.stop)
        y[0, : len(p.maps), :, part] = p.maps @ z[:, part]
        q[0, :, part] = p.const[:, None]
        if kernel.common:
            q[0, :, part] += p.shift @ y[0, 0, 1:, part] - (p.shift**2).sum(1)[:, None] / 2
    own = y[:, :1] if kernel.common else y  # without the half that `halve` fills
    return y, q - sum_of_squares(own) / 2


def halve(y: Array, r: Array, runs: list[Run], made: list[Projection]) -> None:
    """Fill the second half of shared columns with sum_k r (E[y] + shift) / 2 - sum_k r shift.

    Its product with the first half, plus the transpose, is sum_k r E[y] E[y]' except for r shift shift', which
    `missing._spread` adds.
    """
    r = r[0]  # (k, n)
    first, second = y[0, 0, 1:], y[0, 1, 1:]  # (d, n)
    namespace(y).multiply(first, r.sum(0) / 2, out=second)
    for run, p in zip(runs, made):
        part = slice(run.start, run.stop)
        second[:, part] -= p.shift.T @ r[:, part]
