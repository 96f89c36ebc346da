"""Bayesian linear regression from sums over rows. Sends nothing.

`Stats` is the message of `unpooled.models.regression`.

The model is y = z'v + b + e with weights v ~ N(0, prior I),
noise e ~ N(0, noise) and, if rows are in groups, an offset b ~ N(0, ratio * noise) that the rows of a group share. An
intercept without a prior may be added. `Stats` are the sufficient statistics: they add over rows, can be subtracted to
forget rows, and are k (k + 1) / 2 numbers for k features plus k per group. Everything else follows from them at the
server. Group offsets are integrated out, so the cost depends on k and not on the number of groups.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.sparse import csr_array

from unpooled.arrays import Array, Float, namespace
from unpooled.tree import message

RATIOS = (-9.0, 6.0)  # range of log(ratio) that is searched; below it, groups have no offset
GRID = 121  # ratios noise / prior evaluated before the best is refined
TINY = 1e-13  # relative size of rounding errors


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
    """The posterior of weights and offsets: everything that predictions need."""

    weights: Float[Array, "k o"]
    basis: Float[Array, "k r"]  # projects features onto axes along which the weights are independent
    spread: Float[Array, "r o", ">=0"]  # variance of the weights along these axes
    centre: Float[Array, "k"]  # of the features; 0 without intercept
    offset: Float[Array, "o"]
    noise: Float[Array, "o", ">=0"]  # variance of y about its mean
    prior: Float[Array, "o", ">=0"]  # prior variance of a weight
    unsure: Float[Array, "o", ">=0"]  # posterior variance of the intercept
    evidence: Float[Array, "o"]  # log p(y), per output
    ratio: Float[Array, "", ">=0"]  # prior variance of a group's offset, over the noise
    # per group, h = g + 1: the last entry is for a group without rows
    shrink: Float[Array, "h", ">=0"]  # posterior variance of the offset given the weights, over the noise
    pull: Float[Array, "k h"]  # the posterior mean of the offset is push - pull'weights
    push: Float[Array, "h o"]


def statistics(z: Array, y: Array, w: Array, group: Array | None = None, groups: int = 0) -> Stats:
    """`Stats` of rows z (..., n, k) and y (..., n, o) with weights w (..., n).

    `group` (..., n) holds the group of each row, -1 for none; `groups` is their number.
    """
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
    """Row and column indices of the upper triangle of a (k, k) matrix."""
    return np.triu_indices(k)


def pack(square: np.ndarray) -> np.ndarray:
    """The upper triangle of a symmetric (k, k) matrix, row by row: (t,)."""
    return square[_triangle(square.shape[0])]


def unpack(triangle: np.ndarray, k: int) -> np.ndarray:
    """The symmetric (k, k) matrix of an upper triangle (t,)."""
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
    """The posterior at the given noise, prior and ratio; those that are None maximise the evidence.

    `intercept` adds an intercept without a prior; `standardize` gives features of any unit the same prior.
    """
    at = lambda ratio: _posterior(stats, ratio, intercept, standardize, noise, prior)  # noqa: E731
    if stats.group_n.size == 0:
        return at(0.0)
    return at(_best_group_ratio(stats, at) if ratio is None else float(ratio))


class Axes(NamedTuple):
    """The regression along the eigenvectors of the Gram matrix, where weights are independent of each other."""

    values: np.ndarray  # (k,) eigenvalues; 0 where rounding is all there is
    basis: np.ndarray  # (k, k) from features to the eigenvectors
    cross: np.ndarray  # (k, o) products of features and targets along the eigenvectors
    yy: np.ndarray  # (o,) sums of squares of the targets
    centre: np.ndarray  # (k,) mean of the features; 0 without intercept
    offset: np.ndarray  # (o,) mean of the targets; 0 without intercept
    n: np.ndarray  # () rows, less what the offsets of groups take up
    dof: float  # rows less the intercept


def axes(stats: Stats, ratio: float = 0.0, *, intercept: bool = False, standardize: bool = False) -> Axes:
    """The regression along the eigenvectors of the Gram matrix, where groups have offsets of variance ratio * noise."""
    shrink = ratio / (1 + ratio * stats.group_n)  # (g,)
    n, gram, cross, yy, centre, offset = _left_by_groups(stats, shrink, intercept)
    scale = _scale(stats, intercept) if standardize else np.ones(len(gram))
    values, vectors = np.linalg.eigh(gram / np.outer(scale, scale))
    informed = values > TINY * values.max(initial=0.0)  # along the other eigenvectors there is only rounding error
    values = np.where(informed, values, 0.0)
    cross = informed[:, None] * (vectors.T @ (cross / scale[:, None]))
    return Axes(values, vectors / scale[:, None], cross, yy, centre, offset, n, float(stats.n) - intercept)


def _posterior(stats: Stats, ratio: float, intercept: bool, standardize: bool, noise: Any, prior: Any) -> Posterior:
    """The posterior at a given ratio of the variances of group offsets and noise."""
    along = axes(stats, ratio, intercept=intercept, standardize=standardize)
    if noise is None or prior is None:
        noise, prior = _most_probable(along.values, along.cross**2, along.yy, along.dof)
    noise, prior = (np.broadcast_to(np.asarray(v, dtype=np.float64), along.yy.shape) for v in (noise, prior))
    precision = along.values[:, None] / noise + 1 / prior  # (k, o)
    weights = along.basis @ (along.cross / noise / precision)
    offset_variance = noise / along.n if intercept else np.zeros_like(along.yy)
    evidence = log_evidence(along.values, along.cross**2, along.yy, along.dof, noise, prior)
    evidence = evidence - (0.5 * np.log(along.n) if intercept else 0.0) - 0.5 * np.log1p(ratio * stats.group_n).sum()
    groups = _group_offsets(stats, ratio, along)
    return Posterior(
        weights,
        along.basis,
        1 / precision,
        along.centre,
        along.offset,
        noise,
        prior,
        offset_variance,
        evidence,
        *groups,
    )


def _group_offsets(stats: Stats, ratio: float, along: Axes) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(ratio, shrink, pull, push) of `Posterior`, with a last entry for a group without rows."""
    shrink = ratio / (1 + ratio * np.append(stats.group_n, 0.0))  # (h,)
    group_z, group_y = _groups_about(stats, along.centre, along.offset)
    pull, push = shrink[:-1] * group_z, shrink[:-1] * group_y
    return np.asarray(ratio), shrink, np.pad(pull, ((0, 0), (0, 1))), np.pad(push.T, ((0, 1), (0, 0)))


def _best_group_ratio(stats: Stats, at: Callable[[float], Posterior]) -> float:
    """The ratio that maximises the evidence: a root of its derivative, or an end of the range."""

    def slope(t: float) -> float:
        """Derivative of the evidence by the ratio at log ratio t; noise and prior are given or optimal."""
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
    """(n, gram (k, k), cross (k, o), yy (o,), centre (k,), offset (o,)) with group offsets integrated out.

    The sums are about the means with an intercept, about 0 without.
    """
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
    """Sums per group of centred features and targets, (k, g) and (o, g)."""
    return stats.group_z - np.outer(centre, stats.group_n), stats.group_y.T - np.outer(offset, stats.group_n)


def _scale(stats: Stats, intercept: bool) -> np.ndarray:
    """The standard deviation of each feature; 1 for a constant one."""
    centre = stats.z / stats.n if intercept else np.zeros_like(stats.z)
    variance = (np.diag(unpack(stats.zz, len(centre))) - stats.n * centre**2) / stats.n
    constant = variance <= TINY * centre**2  # rounding error of a constant column
    return np.sqrt(np.where(constant | (variance <= 0), 1.0, variance))


def log_evidence(values: Array, along2: Array, yy: Array, dof: float, noise: Array, prior: Array) -> np.ndarray:  # (o,)
    """log p(y) per output, (o,), weights integrated out.

    `along2` (k, o) are squared cross products along eigenvectors.
    """
    spread = np.log1p(values[:, None] * (prior / noise)).sum(0)
    left = np.array([unexplained(values, along2[:, j], yy[j], np.atleast_1d(noise / prior)[j]) for j in range(len(yy))])
    return -0.5 * (dof * np.log(2 * np.pi * noise) + spread + left / noise)


def unexplained(values: Array, along2: Array, yy: float, ratio: Array) -> np.ndarray:
    """yy - sum along2 / (values + ratio) for each ratio (...,).

    Accurate also where features explain nearly all of y.
    """
    seen = values > 0
    values, along2, ratio = values[seen], along2[seen], np.asarray(ratio)[..., None]
    never = yy - (along2 / values).sum()  # the residual sum of squares of least squares
    never = never if never > 1e-11 * yy else 0.0
    return np.maximum(never + (along2 / values * (ratio / (values + ratio))).sum(-1), 1e-300)


def _most_probable(values: Array, along2: Array, yy: Array, dof: float) -> tuple[np.ndarray, np.ndarray]:
    """(noise, prior), (o,) each, that maximise the evidence; given their ratio, the noise has a closed form."""
    ratio = np.array([_best_ratio(values, along2[:, j], yy[j], dof) for j in range(len(yy))])
    noise = np.array([unexplained(values, along2[:, j], yy[j], r) / dof for j, r in enumerate(ratio)])
    return noise, noise / ratio


def _best_ratio(values: Array, along2: Array, yy: float, dof: float) -> float:
    """The ratio noise / prior that maximises the evidence: the best of a grid, refined to a root of the derivative."""

    def slope(t: float) -> float:
        """Derivative of -2 log evidence by t = log ratio."""
        ratio = np.exp(t)
        fitted = ratio * (along2 / (values + ratio) ** 2).sum() * dof / unexplained(values, along2, yy, ratio)
        return float(fitted - (values / (values + ratio)).sum())

    grid = np.log(values.max(initial=0.0) or 1.0) + np.linspace(-28.0, 14.0, GRID)
    cost = dof * np.log(unexplained(values, along2, yy, np.exp(grid))) + np.log1p(values / np.exp(grid)[:, None]).sum(1)
    best = int(np.argmin(cost))
    lo, hi = grid[max(best - 1, 0)], grid[min(best + 1, GRID - 1)]
    if slope(lo) < 0 < slope(hi):
        return float(np.exp(brentq(slope, lo, hi, xtol=1e-14, rtol=1e-14)))
    return float(np.exp(grid[best]))


@message("maths.bayes_linear.Slopes")
class Slopes(NamedTuple):
    """Derivatives of log p(y) by the sums; clients turn them into gradients of their own features."""

    zz: Float[Array, "t"]  # packed, as Stats.zz
    zy: Float[Array, "k o"]


def slopes(post: Posterior) -> Slopes:
    """The derivatives for a posterior without intercept.

    Noise and prior may be at their optimum, where their own derivative is 0.
    """
    inverse = np.einsum("ir,ro,jr->ij", post.basis, post.spread / post.noise, post.basis, optimize=True)
    outer = (post.weights / post.noise) @ post.weights.T
    return Slopes(pack(-0.5 * (inverse + outer)), post.weights / post.noise)


def cotangent(slope: Slopes, z: Array, y: Array, w: Array) -> np.ndarray:
    """Derivative of log p(y) by the features z (n, k) of rows with targets y (n, o) and weights w (n,): (n, k).

    With groups, subtract their offsets first (`apart`).
    """
    k = z.shape[-1]
    return w[:, None] * (2 * (z @ unpack(slope.zz, k)) + y @ slope.zy.T)


def apart(post: Posterior, z: Array, y: Array, group: Array | None) -> tuple[Array, Array]:
    """Features (..., n, k) and targets (..., n, o) minus their groups' offsets, for a posterior without intercept."""
    pull, push, _, _ = shared_offsets(post, group)
    return z - pull, y - push


class GroupOffsets(NamedTuple):
    """Group offsets per row; scalars without groups."""

    pull: Any  # (..., n, k)
    push: Any  # (..., n, o)
    shrink: Any  # (..., n, 1)
    kept: Any  # (..., n, 1) factor of the intercept's error: a well-known group offset makes up for it


def shared_offsets(post: Posterior, group: Array | None) -> GroupOffsets:
    """The offsets of each row's group (..., n); -1 is a group without rows."""
    if group is None or len(post.shrink) == 1:
        return GroupOffsets(0.0, 0.0, post.ratio, 1.0)
    shrink = post.shrink[group][..., None]
    return GroupOffsets(post.pull.T[group], post.push[group], shrink, shrink / post.ratio if post.ratio > 0 else 1.0)


def predict(post: Posterior, z: Array, group: Array | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(mean, variance) of y at features z (n, k), (n, o) each; the variance includes the noise."""
    pull, push, shrink, kept = shared_offsets(post, group)
    z = z - post.centre - pull
    variance = post.noise * (1 + shrink) + kept**2 * post.unsure + (z @ post.basis) ** 2 @ post.spread
    return z @ post.weights + post.offset + push, variance


def left_out(post: Posterior, z: Array, y: Array, group: Array | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(mean, variance), (n, o) each, of every y as if its row had been left out of the fit.

    Exact for weights of 1, given noise, prior and ratio.
    """
    mean, variance = predict(post, z, group)
    alone = _alone(post, group)
    free = np.maximum(1 - (variance - alone - post.noise) / post.noise, 1e-9)  # 1 - leverage
    return y - (y - mean) / free, post.noise / free + alone


def _alone(post: Posterior, group: Array | None) -> Any:
    """The offset variance of rows without a group (..., n, o): they were fitted without an offset."""
    return 0.0 if group is None else (group < 0)[..., None] * post.noise * post.ratio


def left_out_together(post: Posterior, z: Array, y: Array, group: Array | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(mean, variance), (n, o) each, of every y as if all of these rows had been left out of the fit.

    Exact for weights of 1, given noise, prior and ratio.
    """
    mean, _ = predict(post, z, group)
    shared = np.zeros((len(z), 0))
    if group is not None:
        member = group[:, None] == np.unique(group[group >= 0])  # (n, groups here)
        shared = member * np.sqrt(post.shrink[group])[:, None]
    pull, _, _, kept = shared_offsets(post, group)
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
    """n joint draws of y at features z (m, k), with noise: (m, o, n).

    Each row without a group has an offset of its own.
    """
    pull, push, shrink, kept = shared_offsets(post, group)
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
