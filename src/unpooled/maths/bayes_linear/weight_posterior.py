"""The posterior of weights and group offsets, and its derivatives by the sums. Sends nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq

from unpooled.arrays import Array, Float
from unpooled.maths.bayes_linear.eigen_axes import axes, centred_group_sums
from unpooled.maths.bayes_linear.sums import Stats, pack, unpack
from unpooled.maths.bayes_linear.variances import best_variances, log_evidence
from unpooled.tree import message

RATIOS = (-9.0, 6.0)  # range of log(ratio) that is searched; below it, groups have no offset


@message("maths.bayes_linear.Posterior")
class Posterior(NamedTuple):
    """The posterior of weights and offsets: everything that predictions need.

    Fields after `group_ratio` have an entry per group, h = g + 1: the last is for a group without rows. Given the weights, the offset of
    a group is normal with mean group_targets - group_features'weights and variance group_variance * noise_variance.
    """

    weights: Float[Array, "k o"]
    basis: Float[Array, "k r"]  # projects features onto axes along which the weights are independent
    axis_variance: Float[Array, "r o", ">=0"]  # posterior variance of the weights along these axes
    feature_mean: Float[Array, "k"]  # subtracted from features; 0 without intercept
    intercept: Float[Array, "o"]  # mean of y where features are at their mean
    noise_variance: Float[Array, "o", ">=0"]  # variance of y about its mean
    prior_variance: Float[Array, "o", ">=0"]  # prior variance of a weight
    intercept_variance: Float[Array, "o", ">=0"]  # posterior variance of the intercept
    log_evidence: Float[Array, "o"]  # log p(y), per output
    group_ratio: Float[Array, "", ">=0"]  # prior variance of a group's offset, over the noise
    group_variance: Float[Array, "h", ">=0"]  # posterior variance of the offset given the weights, over the noise
    group_features: Float[Array, "k h"]  # mean features of the group, shrunk towards 0
    group_targets: Float[Array, "h o"]  # mean targets of the group, shrunk alike


def posterior(
    stats: Stats,
    *,
    intercept: bool = False,
    standardize: bool = False,
    noise: Array | float | None = None,
    prior: Array | float | None = None,
    ratio: float | None = None,
) -> Posterior:
    """The posterior at given variances; those that are None maximise the evidence.

    Parameters
    ----------
    stats : Stats
        Sums over rows.
    intercept : bool, default=False
        Whether there is an intercept, which has no prior.
    standardize : bool, default=False
        Whether features are divided by their standard deviations, so that features of any unit have the same prior.
    noise, prior : float, array of shape (o,) or None, default=None
        Variances of y about its mean and of a weight.
    ratio : float or None, default=None
        Prior variance of a group's offset, over the noise.

    Returns
    -------
    Posterior
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
        noise, prior = best_variances(along.eigenvalues, along.cross**2, along.yy, along.dof)
    noise = np.broadcast_to(np.asarray(noise, dtype=np.float64), along.yy.shape)
    prior = np.broadcast_to(np.asarray(prior, dtype=np.float64), along.yy.shape)
    precision = along.eigenvalues[:, None] / noise + 1 / prior  # (k, o)
    evidence = log_evidence(along.eigenvalues, along.cross**2, along.yy, along.dof, noise, prior)
    if intercept:
        evidence = evidence - 0.5 * np.log(along.n)
    evidence = evidence - 0.5 * np.log1p(ratio * stats.group_n).sum()
    group_variance = ratio / (1 + ratio * np.append(stats.group_n, 0.0))  # (h,)
    group_z, group_y = centred_group_sums(stats, along.feature_mean, along.target_mean)
    group_features = group_variance[:-1] * group_z
    group_targets = group_variance[:-1] * group_y
    return Posterior(
        weights=along.basis @ (along.cross / noise / precision),
        basis=along.basis,
        axis_variance=1 / precision,
        feature_mean=along.feature_mean,
        intercept=along.target_mean,
        noise_variance=noise,
        prior_variance=prior,
        intercept_variance=noise / along.n if intercept else np.zeros_like(along.yy),
        log_evidence=evidence,
        group_ratio=np.asarray(ratio),
        group_variance=group_variance,
        group_features=np.pad(group_features, ((0, 0), (0, 1))),
        group_targets=np.pad(group_targets.T, ((0, 1), (0, 0))),
    )


def _best_group_ratio(stats: Stats, at: Callable[[float], Posterior]) -> float:
    """The ratio that maximises the evidence: a root of its derivative, or an end of the range."""

    def slope(t: float) -> float:
        """Derivative of the evidence by the ratio at log ratio t; noise and prior are given or optimal."""
        return _evidence_slope(stats, at(np.exp(t)))

    low, high = RATIOS
    if slope(low) <= 0:
        return 0.0
    return float(np.exp(high if slope(high) >= 0 else brentq(slope, low, high, xtol=1e-10)))


def _evidence_slope(stats: Stats, post: Posterior) -> float:
    """Derivative of the log evidence by the ratio of the variances of group offsets and noise."""
    unshrunk = 1 / (1 + post.group_ratio * stats.group_n)  # (g,)
    group_z, group_y = centred_group_sums(stats, post.feature_mean, post.intercept)
    variance = ((post.basis.T @ group_z) ** 2).T @ (post.axis_variance / post.noise_variance)  # (g, o)
    variance = variance + stats.group_n[:, None] ** 2 * (post.intercept_variance / post.noise_variance)
    squared_residual = (group_y.T - group_z.T @ post.weights) ** 2 / post.noise_variance  # (g, o)
    expected_square = (variance + squared_residual) * unshrunk[:, None] ** 2
    return 0.5 * float((expected_square - (stats.group_n * unshrunk)[:, None]).sum())


@message("maths.bayes_linear.Slopes")
class Slopes(NamedTuple):
    """Derivatives of log p(y) by the sums; clients turn them into gradients of their own features."""

    zz: Float[Array, "t"]  # packed, as Stats.zz
    zy: Float[Array, "k o"]


def slopes(post: Posterior) -> Slopes:
    """The derivatives for a posterior without intercept.

    Noise and prior may be at their optimum, where their own derivative is 0.
    """
    inverse = np.einsum("ir,ro,jr->ij", post.basis, post.axis_variance / post.noise_variance, post.basis, optimize=True)
    outer = (post.weights / post.noise_variance) @ post.weights.T
    return Slopes(pack(-0.5 * (inverse + outer)), post.weights / post.noise_variance)


def cotangent(slope: Slopes, z: Array, y: Array, w: Array) -> np.ndarray:
    """Derivative of log p(y) by the features z (n, k) of rows with targets y (n, o) and weights w (n,): (n, k).

    With groups, subtract their offsets first (`apart`).
    """
    k = z.shape[-1]
    return w[:, None] * (2 * (z @ unpack(slope.zz, k)) + y @ slope.zy.T)
