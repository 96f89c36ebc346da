"""The computations of each covariance shape on a chunk of columns: log densities, and moments about the current means.

A shape has `features` (used by both halves of an E-step), `log_density`, `gather` (adds a chunk's sums to the float64
totals that `empty` makes) and `finish` (the totals as n, x and packed xx). Digits are not lost to cancellation: full
covariances take second moments in each component's own whitened coordinates; the others take them about a common
centre, as long as all components are near it. Sends nothing.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, is_torch, namespace
from unpooled.maths import gaussian
from unpooled.maths.kernel import accumulate, buffer, cast, double, has_nan, sum_of_squares, zeros
from unpooled.tree import message

LOG_2PI = math.log(2 * math.pi)


class Full:
    """Each component whitens the columns with its own factor, y = L^-1 (x - mean); one factor may serve all (tied)."""

    by_pattern = True  # rows with missing values go through maths.missing
    common = False  # each component has whitened columns of its own

    def __init__(self, params: Any, shape: str, like: Array, centre: Array | None = None):
        k, d = params.means.shape
        self.shape = shape
        self.size = (k, d)
        self.width = k * (d + 1)
        self.means = params.means
        self.factors = gaussian.cholesky(_stacked(params, shape))  # (k or 1, d, d)
        self.whiten = gaussian.inverse_triangle(self.factors)
        self.centre = _centre(params, like) if centre is None else centre
        self.shift = params.means - double(self.centre, like)  # (k, d)
        self.log_scale = -_log_diagonal(self.factors) - d / 2 * LOG_2PI  # (k or 1,)
        self.maps = cast(homogeneous(self.whiten, self.shift), like)
        self.const = cast(self.log_scale + 0.5, like)  # the leading 1 of y is squared as well
        self.known: dict[bytes, Any] = {}  # projections by pattern of missing values, see maths.patterns

    def features(self, z: Array) -> Array:  # (b, 1 + d, n) to (b, k, 1 + d, n)
        """The whitened columns (b, k, 1 + d, n) of z (b, 1 + d, n)."""
        b, D, n = z.shape
        k = self.size[0]
        y = buffer("y", (b, k, D, n), z)
        if b == 1 and not is_torch(z):
            for i, j in _stairs(D):  # the maps are lower triangular: skip half of the zeros
                np.matmul(self.maps[:, i:j, :j], z[0, :j], out=y[0, :, i:j])
        else:
            namespace(z).matmul(self.maps.reshape(1, k * D, D), z, out=y.reshape(b, k * D, n))
        return y

    def log_density(self, y: Array) -> Array:  # (b, k, n)
        """Log densities (b, k, n)."""
        q = sum_of_squares(y)
        q *= -0.5
        q += self.const[:, None]
        return q

    def empty(self, b: int) -> list[Array]:
        """Totals of zero for sum r y y'; only its lower triangle is used, whose first column holds n and sum r y."""
        k, d = self.size
        return [zeros((b, k, d + 1, d + 1), self.whiten)]

    def gather(self, total: list[Array], y: Array, r: Array) -> None:
        """Add the moments of columns y (b, k, 1 + d, n) with responsibilities r (b, k, n) to `total`."""
        b = y.shape[0]
        ry = namespace(y).multiply(y, r[:, :, None], out=buffer("ry", tuple(y.shape), y))
        if b > 1 or is_torch(y):
            accumulate(total[0], ry @ y.swapaxes(2, 3))
            return
        part = np.zeros(total[0].shape, y.dtype)
        for i, j in _stairs(y.shape[2]):
            np.matmul(ry[0, :, i:j], y[0, :, :j].swapaxes(1, 2), out=part[0, :, i:j, :j])
        total[0] += part

    def finish(self, total: list[Array]) -> tuple[Array, Array, Array]:
        """(n (b, k), x (b, k, d), packed xx) of the totals."""
        sums = total[0]  # (b, k, 1 + d, 1 + d): of rows, and of whitened rows and their products
        n = sums[..., 0, 0]
        yy = gaussian.unpack_triangle(gaussian.pack_triangle(sums[..., 1:, 1:]))  # its lower triangle, mirrored
        x = (self.factors @ sums[..., 1:, :1])[..., 0]
        xx = self.factors @ yy @ self.factors.swapaxes(-1, -2)
        if self.shape == "tied":
            xx = xx.sum(-3)
        return n, x, gaussian.pack_triangle(xx)


class TiedWithHoles(Full):
    """One factor for all components, for rows by pattern of missing values.

    The columns are whitened once, as long as all means are close together.
    """

    def __init__(self, params: Any, shape: str, like: Array):
        super().__init__(params, shape, like)
        self.common = len(_groups(self.shift, ((self.shift @ self.whiten[0].T) ** 2).sum(-1), like)) == 1

    def gather(self, total: list[Array], y: Array, r: Array) -> None:
        """Add the moments.

        The second moment is summed over components and stored at the first, see `patterns.halve`.
        """
        if not self.common:
            super().gather(total, y, r)
            return
        half = double(y[0, 1, 1:] @ y[0, 0, 1:].T, self.whiten)
        total[0][0, :, :, 0] += r[0] @ y[0, 0].T
        total[0][0, 0, 1:, 1:] += half + half.T


class Tied:
    """One factor for all components: columns are whitened once, log densities differ by a linear term."""

    by_pattern = True

    def __init__(self, params: Any, shape: str, like: Array, centre: Array | None = None):
        k, d = params.means.shape
        self.size = (k, d)
        self.width = 2 * (d + 1) + k
        self.factor = gaussian.cholesky(_stacked(params, shape))[0]
        whiten = gaussian.inverse_triangle(self.factor[None])[0]
        self.centre = _centre(params, like) if centre is None else centre
        shift = params.means - double(self.centre, like)
        self.groups = _groups(shift, ((shift @ whiten.T) ** 2).sum(-1), like)
        self.white = [(shift[g.members] - g.centre) @ whiten.T for g in self.groups]
        const = -_log_diagonal(self.factor) - d / 2 * LOG_2PI + 0.5
        self.linear = [cast(_column_first(const - (v**2).sum(-1) / 2, v), like) for v in self.white]
        self.maps = [cast(homogeneous(whiten[None], g.centre[None])[0], like) for g in self.groups]

    def features(self, z: Array) -> list[Array]:  # (b, 1 + d, n) per group
        """The whitened columns (b, 1 + d, n) of each group."""
        return [m @ z for m in self.maps]

    def log_density(self, ys: list[Array]) -> Array:
        """Log densities (b, k, n)."""
        xp = namespace(ys[0])
        return xp.concatenate([t @ y - sum_of_squares(y[:, None]) / 2 for t, y in zip(self.linear, ys)], 1)

    def empty(self, b: int) -> list[Array]:
        """Totals of zero: n and sum r y per component, then one sum r y y' per group."""
        k, d = self.size
        return [zeros((b, k, d + 1), self.factor), *(zeros((b, d + 1, d + 1), self.factor) for _ in self.groups)]

    def gather(self, total: list[Array], ys: list[Array], r: Array) -> None:
        """Add the moments of the groups' columns with responsibilities r (b, k, n) to `total`."""
        for g, y, second in zip(self.groups, ys, total[1:]):
            mine = r[:, g.members]
            across = y.swapaxes(1, 2)
            accumulate(total[0][:, g.members], mine @ across)
            accumulate(second, (y * mine.sum(1)[:, None]) @ across)

    def finish(self, total: list[Array]) -> tuple[Array, Array, Array]:
        """(n (b, k), x (b, k, d), packed xx) of the totals."""
        xp = namespace(total[0])
        n = total[0][..., 0]
        v = xp.concatenate(self.white, 0)
        a = total[0][..., 1:] - n[..., None] * v
        yy = sum(t[..., 1:, 1:] for t in total[1:])
        cross = a.swapaxes(-1, -2) @ v
        yy = yy - cross - cross.swapaxes(-1, -2) - (v.T * n[..., None, :]) @ v
        return n, a @ self.factor.T, gaussian.pack_triangle(self.factor @ yy @ self.factor.T)


class Diagonal:
    """Independent columns: log densities and moments are products with the features (1, z, z^2, is missing)."""

    by_pattern = False  # a missing value adds its variance, independently of the others

    def __init__(self, params: Any, shape: str, like: Array, centre: Array | None = None):
        k, d = params.means.shape
        self.shape = shape
        self.size = (k, d)
        self.width = 3 * d + 1 + k
        self.means = params.means
        self.variances = gaussian.positive(gaussian.variances(params, shape))
        self.centre = _centre(params, like) if centre is None else centre
        shift = params.means - double(self.centre, like)
        self.groups = _groups(shift, (shift**2 / self.variances).sum(-1), like)
        self.shift = [shift[g.members] - g.centre for g in self.groups]
        self.moves = [cast(g.centre, like)[:, None] for g in self.groups]
        self.linear = [cast(self._linear(self.variances[g.members], s), like) for g, s in zip(self.groups, self.shift)]

    def _linear(self, v: Array, shift: Array) -> Array:  # (k, 1 + 3 d)
        """The coefficients (k, 1 + 3 d) by which the features give log densities."""
        xp = namespace(v)
        absent = (shift**2 / v + xp.log(v) + LOG_2PI) / 2  # a column's term at the centre, added back if it is missing
        return _column_first(-absent.sum(-1), xp.concatenate([shift / v, -0.5 / v, absent], -1))

    def features(self, z: Array) -> list[Array]:  # (b, 1 + 2 d or 1 + 3 d, n) per group
        """The features (b, 1 + 2 d or 1 + 3 d, n) of each group; the last d only where values are missing."""
        xp = namespace(z)
        holes = xp.isnan(z[:, 1:]) if has_nan(z) else None
        return [self._features(z, move, holes, f"phi{i}") for i, move in enumerate(self.moves)]

    def _features(self, z: Array, move: Array, holes: Array | None, name: str) -> Array:
        """The features of one group, in the buffer `name`."""
        xp = namespace(z)
        b, D, n = z.shape
        d = D - 1
        phi = buffer(name, (b, 1 + (2 if holes is None else 3) * d, n), z)
        phi[:, 0] = 1
        xp.subtract(z[:, 1:], move, out=phi[:, 1:D])
        if holes is not None:
            phi[:, 1:D] = xp.where(holes, 0, phi[:, 1:D])
            phi[:, D + d :] = holes
        xp.multiply(phi[:, 1:D], phi[:, 1:D], out=phi[:, D : D + d])
        return phi

    def log_density(self, phis: list[Array]) -> Array:
        """Log densities (b, k, n)."""
        return namespace(phis[0]).concatenate([t[:, : p.shape[1]] @ p for t, p in zip(self.linear, phis)], 1)

    def empty(self, b: int) -> list[Array]:
        """Totals of zero: sums of r (1, z, z^2, is missing) per component."""
        k, d = self.size
        return [zeros((b, k, 1 + 3 * d), self.variances)]

    def gather(self, total: list[Array], phis: list[Array], r: Array) -> None:
        """Add the moments of the groups' features with responsibilities r (b, k, n) to `total`."""
        for g, p in zip(self.groups, phis):
            accumulate(total[0][:, g.members, : p.shape[1]], r[:, g.members] @ p.swapaxes(1, 2))

    def finish(self, total: list[Array]) -> tuple[Array, Array, Array]:
        """(n (b, k), x (b, k, d), xx) of the totals; a missing value counts as its mean with its variance."""
        d = self.size[1]
        t = total[0]
        n = t[..., :1]
        first = t[..., 1 : d + 1]
        second = t[..., d + 1 : 2 * d + 1]
        absent = t[..., 2 * d + 1 :]
        shift = namespace(t).concatenate(self.shift, 0)
        there = n - absent
        x = first - shift * there
        xx = second - shift * (first + x) + self.variances * absent
        return n[..., 0], x, xx if self.shape == "diag" else xx.mean(-1)


KERNELS: dict[str, Any] = {"full": Full, "tied": Tied, "diag": Diagonal, "spherical": Diagonal}
WITH_HOLES: dict[str, Any] = {"tied": TiedWithHoles}


def kernel_for(params: Any, shape: str, x: Array, holes: bool = False, centre: np.ndarray | None = None) -> Any:
    """The computations for these parameters on arrays like x; with `holes`, a version for rows by pattern.

    Columns are about `centre`, or about the mean of the mixture. Results are cached, so the same parameters are
    factorised once however many clients ask.
    """
    make = WITH_HOLES.get(shape, KERNELS[shape]) if holes else KERNELS[shape]
    mixture = _Mixture(*(double(a, x) for a in params))
    if is_torch(x):
        return make(mixture, shape, x)
    about = None if centre is None else centre.tobytes()
    return _prepared(make, shape, x.dtype, tuple((a.shape, a.tobytes()) for a in mixture), about)


@lru_cache(maxsize=16)
def _prepared(make: Any, shape: str, dtype: Any, arrays: tuple, about: bytes | None) -> Any:
    """`kernel_for` NumPy arrays, with arguments that can be cached."""
    mixture = _Mixture(*(np.frombuffer(data).reshape(size) for size, data in arrays))
    given = () if about is None else (np.frombuffer(about, dtype),)
    return make(mixture, shape, np.empty(0, dtype), *given)


class _Mixture(NamedTuple):
    """The parameters in float64, as the same kind of array as the rows."""

    weights: Array
    means: Array
    covs: Array


# ---- shared by the shapes ----


@message("maths.shapes.Group")
class Group(NamedTuple):
    """Components whose moments are taken about one centre."""

    centre: Array  # (d,), relative to the centre of all
    members: slice


def _groups(shift: Array, distance2: Array, like: Array) -> list[Group]:
    """One group while squared distances from the common centre, in widths, cost few digits; else one per component."""
    k = len(shift)
    if float(distance2.max()) <= namespace(like).finfo(like.dtype).eps ** (-1 / 3):
        return [Group(0 * shift[0], slice(0, k))]
    return [Group(double(cast(shift[i], like), like), slice(i, i + 1)) for i in range(k)]


def homogeneous(whiten: Array, shift: Array) -> Array:
    """The maps (..., k, 1 + d, 1 + d) from columns (1, z) to (1, W (z - shift)), for W (..., k or 1, d, d)."""
    k, d = shift.shape
    maps = zeros((*whiten.shape[:-3], k, d + 1, d + 1), whiten)
    maps[..., 0, 0] = 1
    maps[..., 1:, 1:] = whiten
    maps[..., 1:, 0] = -(whiten @ shift[:, :, None])[..., 0]
    return maps


def _stairs(D: int) -> list[tuple[int, int]]:
    """Row ranges that cut a lower triangular (D, D) matrix into few blocks: threads synchronise between products."""
    step = max(11, D // 8)
    edges = [0, *range(1 + step, D, step), D]
    return list(pairwise(edges))


def _stacked(params: Any, shape: str) -> Array:
    """The covariances as (k, d, d), or (1, d, d) if they are tied."""
    covs = gaussian.unpack_triangle(params.covs)
    return covs if shape == "full" else covs[None]


def _centre(params: Any, like: Array) -> Array:
    """The mean of the mixture, rounded to the dtype of `like`, so that the subtraction is exact."""
    return cast(params.weights @ params.means / params.weights.sum(), like)


def _log_diagonal(factors: Array) -> Array:
    """Sum of the logarithms of the diagonals of factors (..., d, d): (...)."""
    xp = namespace(factors)
    return xp.log(xp.einsum("...ii->...i", factors)).sum(-1)


def _column_first(column: Array, rest: Array) -> Array:
    """`column` (k,) in front of the columns of `rest` (k, m): (k, 1 + m)."""
    return namespace(rest).concatenate([column[:, None], rest], -1)
