"""Bayesian linear regression from sums over rows: y = z'v + b + e with v ~ N(0, prior I), e ~ N(0, noise), and an offset
b ~ N(0, ratio noise) that the rows of a group share, if there are groups; one of all rows, without a prior, if wanted.

`Stats` is all that the data can say about weights, noise and prior: it adds over rows, subtracts to forget them, and
costs k (k + 1) / 2 numbers to send for k features, k more for each group. Everything else follows at the server, with no
further round; offsets are integrated out, so that it costs what k features cost however many groups there are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.sparse import csr_array

from unpooled.arrays import Array, Float, namespace
from unpooled.tree import message

RATIOS = (-9.0, 6.0)  # logs of the ratios searched: below the first, groups have no offset
GRID = 121  # ratios noise / prior tried before the best is refined
TINY = 1e-13  # a share so small that it is what rounding left


@message("maths.bayes_linear.Stats")
class Stats(NamedTuple):
    """Sums over rows with weights w, of features z (k,) and targets y (o,)."""

    n: Float[Array, "", ">=0 rows"]
    z: Float[Array, "k"]
    y: Float[Array, "o"]
    zz: Float[Array, "t"]  # the upper triangle of sum w z z', row by row
    zy: Float[Array, "k o"]
    yy: Float[Array, "o", ">=0"]
    group_n: Float[Array, "g", ">=0 rows"]  # the same over the rows of each group; g is 0 without groups
    group_z: Float[Array, "k g"]
    group_y: Float[Array, "g o"]


@message("maths.bayes_linear.Posterior")
class Posterior(NamedTuple):
    """What the sums say: enough to predict, with no row kept."""

    weights: Float[Array, "k o"]
    basis: Float[Array, "k r"]  # features to the axes along which weights are independent
    spread: Float[Array, "r o", ">=0"]  # variance of the weights along these axes
    centre: Float[Array, "k"]  # of the features; 0 without intercept
    offset: Float[Array, "o"]
    noise: Float[Array, "o", ">=0"]  # variance of y about its mean
    prior: Float[Array, "o", ">=0"]  # variance of a weight before any row was seen
    unsure: Float[Array, "o", ">=0"]  # variance of the offset
    evidence: Float[Array, "o"]  # log p(y), an entry for each output
    ratio: Float[Array, "", ">=0"]  # variance of a group's offset before any row was seen, over the noise
    shrink: Float[Array, "h", ">=0"]  # and after, given the weights; the last entry is that of a group never seen
    pull: Float[Array, "k h"]  # an offset is push - pull'weights on average
    push: Float[Array, "h o"]


def statistics(z: Array, y: Array, w: Array, group: Array | None = None, groups: int = 0) -> Stats:
    """The sums of rows z (..., n, k), y (..., n, o) with weights w (..., n), in groups (..., n): -1 is none of them."""
    xp = namespace(z)
    root = xp.sqrt(w)[..., None]
    rz, ry = z * root, y * root
    rows, columns = _triangle(z.shape[-1])
    zz = (rz.swapaxes(-1, -2) @ rz)[..., rows, columns]
    zy = rz.swapaxes(-1, -2) @ ry
    plain = w.sum(-1), (rz * root).sum(-2), (ry * root).sum(-2), zz, zy, (ry * ry).sum(-2)
    return Stats(*plain, *_group_sums(z, y, w, group, groups))


def _group_sums(z: Array, y: Array, w: Array, group: Array | None, groups: int) -> tuple[Array, Array, Array]:
    """Sums by group: (..., g), (..., k, g), (..., g, o)."""
    (*lead, n, k), o = z.shape, y.shape[-1]
    if group is None or groups == 0:
        return np.zeros((*lead, 0)), np.zeros((*lead, k, 0)), np.zeros((*lead, 0, o))
    stacks = int(np.prod(lead))
    where = (group.reshape(stacks, n) + groups * np.arange(stacks)[:, None]).ravel()
    rows = np.flatnonzero((group.ravel() >= 0) & (w.ravel() > 0))
    member = csr_array((w.ravel()[rows], (where[rows], rows)), shape=(stacks * groups, stacks * n))
    count, by_z, by_y = member.sum(1), member @ z.reshape(-1, k), member @ y.reshape(-1, o)
    by_z = by_z.reshape(*lead, groups, k).swapaxes(-1, -2)
    return count.reshape(*lead, groups), by_z, by_y.reshape(*lead, groups, o)


def _triangle(k: int) -> tuple[np.ndarray, np.ndarray]:
    return np.triu_indices(k)


def pack(square: np.ndarray) -> np.ndarray:
    """The upper triangle of a symmetric (k, k), row by row."""
    return square[_triangle(square.shape[0])]


def unpack(triangle: np.ndarray, k: int) -> np.ndarray:
    square = np.zeros((k, k))
    square[_triangle(k)] = triangle
    return square + np.triu(square, 1).T


def posterior(
    stats: Stats,
    *,
    intercept: bool = False,
    standardize: bool = False,
    noise: Array | float | None = None,
    prior: Array | float | None = None,
    ratio: float | None = None,
) -> Posterior:
    """The posterior at the given noise and prior variances and ratio, or at those that make y most probable.

    `intercept` adds an offset of all rows, without a prior; `standardize` gives every feature the same say whatever its unit.
    """
    at = lambda ratio: _posterior(stats, ratio, intercept, standardize, noise, prior)  # noqa: E731
    if stats.group_n.size == 0:
        return at(0.0)
    return at(_best_group_ratio(stats, at) if ratio is None else float(ratio))


def _posterior(stats: Stats, ratio: float, intercept: bool, standardize: bool, noise: Any, prior: Any) -> Posterior:
    shrink = ratio / (1 + ratio * np.append(stats.group_n, 0.0))  # (h,)
    n, gram, cross, yy, centre, offset = _left_by_groups(stats, shrink[:-1], intercept)
    pull, push = (shrink[:-1] * s for s in _groups_about(stats, centre, offset))
    scale = _scale(stats, intercept) if standardize else np.ones(len(gram))
    values, vectors = np.linalg.eigh(gram / np.outer(scale, scale))
    seen = values > TINY * values.max(initial=0.0)  # along the others rows say nothing: what is there is rounding
    values = np.where(seen, values, 0.0)  # (k,)
    along = seen[:, None] * (vectors.T @ (cross / scale[:, None]))  # (k, o)
    dof = float(stats.n) - intercept
    if noise is None or prior is None:
        noise, prior = _most_probable(values, along**2, yy, dof)
    noise, prior = (np.broadcast_to(np.asarray(v, dtype=np.float64), yy.shape) for v in (noise, prior))
    precision = values[:, None] / noise + 1 / prior  # (k, o)
    basis = vectors / scale[:, None]
    weights = basis @ (along / noise / precision)
    unsure = noise / n if intercept else np.zeros_like(yy)
    evidence = log_evidence(values, along**2, yy, dof, noise, prior) - (0.5 * np.log(n) if intercept else 0.0)
    evidence = evidence - 0.5 * np.log1p(ratio * stats.group_n).sum()
    groups = np.asarray(ratio), shrink, np.pad(pull, ((0, 0), (0, 1))), np.pad(push.T, ((0, 1), (0, 0)))
    return Posterior(weights, basis, 1 / precision, centre, offset, noise, prior, unsure, evidence, *groups)


def _best_group_ratio(stats: Stats, at: Callable[[float], Posterior]) -> float:
    """The ratio at which the evidence is largest: a root of its slope, or the end of the range it rises towards."""

    def slope(t: float) -> float:  # d evidence / d ratio, t = log ratio; noise and prior are given or have slope 0
        post = at(np.exp(t))
        kept = 1 / (1 + post.ratio * stats.group_n)
        group_z, group_y = _groups_about(stats, post.centre, post.offset)
        unsure = ((post.basis.T @ group_z) ** 2).T @ (post.spread / post.noise)  # (g, o)
        unsure = unsure + stats.group_n[:, None] ** 2 * (post.unsure / post.noise)
        away = (group_y.T - group_z.T @ post.weights) ** 2 / post.noise  # (g, o)
        known = (unsure + away) * kept[:, None] ** 2
        return 0.5 * float((known - (stats.group_n * kept)[:, None]).sum())

    low, high = RATIOS
    if slope(low) <= 0:
        return 0.0
    return float(np.exp(high if slope(high) >= 0 else brentq(slope, low, high, xtol=1e-10)))


def _left_by_groups(stats: Stats, shrink: np.ndarray, intercept: bool):
    """(n, gram, cross, yy, centre, offset): sums about the mean, or about 0, once the offsets of groups are integrated out."""
    k, o = stats.zy.shape
    shared = stats.group_z * shrink  # (k, g)
    n = stats.n - (shrink * stats.group_n**2).sum()
    gram, cross = unpack(stats.zz, k) - shared @ stats.group_z.T, stats.zy - shared @ stats.group_y
    yy = stats.yy - (shrink[:, None] * stats.group_y * stats.group_y).sum(0)
    centre, offset = np.zeros(k), np.zeros(o)
    if intercept:
        centre = (stats.z - shared @ stats.group_n) / n
        offset = (stats.y - (shrink * stats.group_n) @ stats.group_y) / n
        gram, cross, yy = gram - n * np.outer(centre, centre), cross - n * np.outer(centre, offset), yy - n * offset**2
    return n, gram, cross, np.maximum(yy, 0.0), centre, offset


def _groups_about(stats: Stats, centre: np.ndarray, offset: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums by group of features and targets less the mean, (k, g) and (o, g)."""
    return stats.group_z - np.outer(centre, stats.group_n), stats.group_y.T - np.outer(offset, stats.group_n)


def _scale(stats: Stats, intercept: bool) -> np.ndarray:
    """The standard deviation of each feature, groups or not; 1 for one that never varies."""
    centre = stats.z / stats.n if intercept else np.zeros_like(stats.z)
    variance = (np.diag(unpack(stats.zz, len(centre))) - stats.n * centre**2) / stats.n
    constant = variance <= TINY * centre**2  # what rounding leaves of a column that never varies
    return np.sqrt(np.where(constant | (variance <= 0), 1.0, variance))


def log_evidence(values: Array, along2: Array, yy: Array, dof: float, noise: Array, prior: Array) -> np.ndarray:  # (o,)
    """log p(y) with all weights integrated out; `along2` (k, o) are squared cross products along eigenvectors."""
    spread = np.log1p(values[:, None] * (prior / noise)).sum(0)
    left = np.array([_left(values, along2[:, j], yy[j], np.atleast_1d(noise / prior)[j]) for j in range(len(yy))])
    return -0.5 * (dof * np.log(2 * np.pi * noise) + spread + left / noise)


def _left(values: Array, along2: Array, yy: float, ratio: Array) -> np.ndarray:
    """yy - sum along2 / (values + ratio), (...,) for ratio (...,): without cancellation where the features explain everything."""
    seen = values > 0
    values, along2, ratio = values[seen], along2[seen], np.asarray(ratio)[..., None]
    never = yy - (along2 / values).sum()  # what no weights explain
    never = never if never > 1e-11 * yy else 0.0
    return np.maximum(never + (along2 / values * (ratio / (values + ratio))).sum(-1), 1e-300)


def _most_probable(values: Array, along2: Array, yy: Array, dof: float) -> tuple[np.ndarray, np.ndarray]:
    """(noise, prior) that maximise the evidence of each output: given their ratio the noise has a closed form."""
    ratio = np.array([_best_ratio(values, along2[:, j], yy[j], dof) for j in range(len(yy))])
    noise = np.array([_left(values, along2[:, j], yy[j], r) / dof for j, r in enumerate(ratio)])
    return noise, noise / ratio


def _best_ratio(values: Array, along2: Array, yy: float, dof: float) -> float:
    """The ratio noise / prior at which the evidence is largest: best of a grid, then a root of its slope."""

    def slope(t: float) -> float:  # d/dt of -2 log evidence, t = log ratio
        ratio = np.exp(t)
        fitted = ratio * (along2 / (values + ratio) ** 2).sum() * dof / _left(values, along2, yy, ratio)
        return float(fitted - (values / (values + ratio)).sum())

    grid = np.log(values.max(initial=0.0) or 1.0) + np.linspace(-28.0, 14.0, GRID)
    cost = dof * np.log(_left(values, along2, yy, np.exp(grid))) + np.log1p(values / np.exp(grid)[:, None]).sum(1)
    best = int(np.argmin(cost))
    lo, hi = grid[max(best - 1, 0)], grid[min(best + 1, GRID - 1)]
    if slope(lo) < 0 < slope(hi):
        return float(np.exp(brentq(slope, lo, hi, xtol=1e-14, rtol=1e-14)))
    return float(np.exp(grid[best]))


@message("maths.bayes_linear.Slopes")
class Slopes(NamedTuple):
    """d log p(y) by the sums: what a client needs to turn the global evidence into a gradient of its own features."""

    zz: Float[Array, "t"]  # packed, as Stats.zz
    zy: Float[Array, "k o"]


def slopes(post: Posterior) -> Slopes:
    """Of a posterior without intercept; noise and prior may be at their optimum (their own slope is 0 there)."""
    inverse = np.einsum("ir,ro,jr->ij", post.basis, post.spread / post.noise, post.basis, optimize=True)
    outer = (post.weights / post.noise) @ post.weights.T
    return Slopes(pack(-0.5 * (inverse + outer)), post.weights / post.noise)


def cotangent(slope: Slopes, z: Array, y: Array, w: Array) -> np.ndarray:
    """d log p(y) by the features z (n, k) of rows with targets y (n, o) and weights w (n,); of rows in groups, as `apart` leaves them."""
    k = z.shape[-1]
    return w[:, None] * (2 * (z @ unpack(slope.zz, k)) + y @ slope.zy.T)


def apart(post: Posterior, z: Array, y: Array, group: Array | None) -> tuple[Array, Array]:
    """Features and targets less what the offsets of their groups (..., n) explain, for a posterior without intercept."""
    pull, push, _, _ = _shared(post, group)
    return z - pull, y - push


class _Shared(NamedTuple):
    """What rows have from their groups: numbers where there are none."""

    pull: Any  # (..., n, k)
    push: Any  # (..., n, o)
    shrink: Any  # (..., n, 1)
    kept: Any  # (..., n, 1) of the intercept's error: the offset of a group that is well known makes up for the rest


def _shared(post: Posterior, group: Array | None) -> _Shared:
    """By group (..., n), -1 for one never seen."""
    if group is None or len(post.shrink) == 1:
        return _Shared(0.0, 0.0, post.ratio, 1.0)
    shrink = post.shrink[group][..., None]
    return _Shared(post.pull.T[group], post.push[group], shrink, shrink / post.ratio if post.ratio > 0 else 1.0)


def predict(post: Posterior, z: Array, group: Array | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(mean, variance) of y at features z (n, k), (n, o) each; the noise is part of the variance."""
    pull, push, shrink, kept = _shared(post, group)
    z = z - post.centre - pull
    variance = post.noise * (1 + shrink) + kept**2 * post.unsure + (z @ post.basis) ** 2 @ post.spread
    return z @ post.weights + post.offset + push, variance


def left_out(post: Posterior, z: Array, y: Array, group: Array | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(mean, variance) of each row's y as if it had not been fitted; exact for rows of weight 1, given noise, prior and ratio."""
    mean, variance = predict(post, z, group)
    alone = _alone(post, group)
    free = np.maximum(1 - (variance - alone - post.noise) / post.noise, 1e-9)  # 1 - leverage
    return y - (y - mean) / free, post.noise / free + alone


def _alone(post: Posterior, group: Array | None) -> Any:
    """The variance of offsets that rows without a group would have: such rows were fitted without one, (..., n, o)."""
    return 0.0 if group is None else (group < 0)[..., None] * post.noise * post.ratio


def left_out_together(post: Posterior, z: Array, y: Array, group: Array | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(mean, variance) of each row's y as if none of these rows had been fitted; exact for rows of weight 1, given the variances."""
    mean, _ = predict(post, z, group)
    shared = np.zeros((len(z), 0))
    if group is not None:
        member = group[:, None] == np.unique(group[group >= 0])  # (n, groups here)
        shared = member * np.sqrt(post.shrink[group])[:, None]
    pull, _, _, kept = _shared(post, group)
    z = z - post.centre - pull
    left, variance = np.empty_like(mean), np.empty_like(mean)
    for j, noise in enumerate(post.noise):
        u = z @ post.basis * np.sqrt(post.spread[:, j] / noise)  # (n, r): leverages are u u'
        u = np.column_stack([u, kept * np.full((len(u), 1), np.sqrt(post.unsure[j] / noise)), shared])
        solved = np.linalg.solve(np.eye(u.shape[1]) - u.T @ u, u.T)  # (I - u u')^-1 = I + u (I - u'u)^-1 u'
        away = y[:, j] - mean[:, j]
        left[:, j] = y[:, j] - away - u @ (solved @ away)
        variance[:, j] = noise * (1 + (u * solved.T).sum(1))
    return left, variance + _alone(post, group)


def draw(post: Posterior, z: Array, n: int, rng: np.random.Generator, group: Array | None = None) -> np.ndarray:
    """n joint draws of y at features z (m, k), with noise: (m, o, n). Rows of groups never seen have an offset each."""
    pull, push, shrink, kept = _shared(post, group)
    z = z - post.centre - pull
    axes, o = post.basis.shape[1], len(post.noise)
    weights = np.sqrt(post.spread)[:, :, None] * rng.standard_normal((axes, o, n))
    unsure = np.sqrt(post.unsure)[:, None] * rng.standard_normal((o, n))
    noise = np.sqrt(post.noise)[:, None] * rng.standard_normal((len(z), o, n))
    together = np.arange(len(z)) if group is None else np.where(group < 0, np.arange(len(z)), len(z) + group)
    member = np.unique(together, return_inverse=True)[1]
    offsets = np.sqrt(shrink * post.noise)[..., None] * rng.standard_normal((member.max() + 1, o, n))[member]
    mean = z @ post.weights + post.offset + push
    drawn = np.einsum("mr,ron->mon", z @ post.basis, weights) + np.reshape(kept, (-1, 1, 1)) * unsure
    return mean[:, :, None] + drawn + noise + offsets
