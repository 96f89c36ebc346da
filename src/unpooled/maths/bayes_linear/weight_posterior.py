"""The posterior of weights and group offsets, and its derivatives by the sums. Sends nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq

from unpooled.arrays import Array, Float
from unpooled.maths.bayes_linear.eigen_axes import Axes, axes, centred_group_sums
from unpooled.maths.bayes_linear.sums import Stats, pack, unpack
from unpooled.maths.bayes_linear.variances import best_variances, log_evidence
from unpooled.tree import message

RATIOS = (-9.0, 6.0)  # range of log(ratio) that is searched; below it, groups have no offset


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

    def at(ratio: float) -> Posterior:
        return _posterior(stats, ratio, intercept, standardize, noise, prior)

    if stats.group_n.size == 0:
        return at(0.0)
    return at(_best_group_ratio(stats, at) if ratio is None else float(ratio))


def _posterior(stats: Stats, ratio: float, intercept: bool, standardize: bool, noise: Any, prior: Any) -> Posterior:
    """The posterior at a given ratio of the variances of group offsets and noise."""
    along = axes(stats, ratio, intercept=intercept, standardize=standardize)
    if noise is None or prior is None:
        noise, prior = best_variances(along.values, along.cross**2, along.yy, along.dof)
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
    group_z, group_y = centred_group_sums(stats, along.centre, along.offset)
    pull, push = shrink[:-1] * group_z, shrink[:-1] * group_y
    return np.asarray(ratio), shrink, np.pad(pull, ((0, 0), (0, 1))), np.pad(push.T, ((0, 1), (0, 0)))


def _best_group_ratio(stats: Stats, at: Callable[[float], Posterior]) -> float:
    """The ratio that maximises the evidence: a root of its derivative, or an end of the range."""

    def slope(t: float) -> float:
        """Derivative of the evidence by the ratio at log ratio t; noise and prior are given or optimal."""
        post = at(np.exp(t))
        kept = 1 / (1 + post.ratio * stats.group_n)
        group_z, group_y = centred_group_sums(stats, post.centre, post.offset)
        unsure = ((post.basis.T @ group_z) ** 2).T @ (post.spread / post.noise)  # (g, o)
        unsure = unsure + stats.group_n[:, None] ** 2 * (post.unsure / post.noise)
        residual2 = (group_y.T - group_z.T @ post.weights) ** 2 / post.noise  # (g, o)
        expected2 = (unsure + residual2) * kept[:, None] ** 2
        return 0.5 * float((expected2 - (stats.group_n * kept)[:, None]).sum())

    low, high = RATIOS
    if slope(low) <= 0:
        return 0.0
    return float(np.exp(high if slope(high) >= 0 else brentq(slope, low, high, xtol=1e-10)))


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
