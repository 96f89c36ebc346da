"""Predictive intervals of a Bayesian linear regression whose noise and prior variances are unknown. Sends nothing.

Given the ratio noise / prior, the noise has an inverse gamma posterior and a new target has a Student t distribution.
The ratio itself is integrated over a grid, so the predictive distribution is a mixture of t distributions. With many
rows it is the normal distribution at the most probable variances; with few rows it is wider.

The prior of R^2, the share of the variance of y that the features explain, is Beta(1/2, 3/2): R^2 may well be near 0, but
a perfect fit is not likely beforehand. With Beta(1/2, 1/2), few rows that happen to lie on a line make intervals that are
too narrow; with Beta(1/2, 1), they still are where y is a curve that few rows show as a line. The prior of log(noise) is flat.

References
----------
Zhang, Naughton, Bondell, Reich, Bayesian regression using a prior on the model fit: the R2-D2 shrinkage prior, JASA
2022.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import beta, stdtr, stdtrit

from unpooled.maths.bayes_linear import Axes, Posterior, shared_offsets, unexplained

R2 = (0.5, 1.5)  # parameters of the beta prior of R^2
LOGITS = np.linspace(-10.0, 25.0, 71)  # grid of logit(R^2)
NEGLIGIBLE = 1e-5  # grid points of less weight than this, relative to the largest, are left out
MAX_STEPS = 60
PRECISION = 1e-11  # of a quantile, in standard deviations


class Mixture(NamedTuple):
    """A Student t distribution per ratio of the grid, for one output."""

    ratios: np.ndarray  # (p,) noise / prior
    weights: np.ndarray  # (p,) posterior probabilities
    noise: np.ndarray  # (p,) scale of the noise's posterior
    coef: np.ndarray  # (k, p) posterior means of the weights along the axes
    dof: float


def mixture(along: Axes, output: int) -> Mixture:
    """The posterior of the ratio on the grid, for one output."""
    cross2, yy = along.cross[:, output] ** 2, along.yy[output]
    signal = max(along.eigenvalues.sum() / along.n, 1e-200)  # variance of the features' part of y, per unit of prior
    ratios = signal * np.exp(-LOGITS)
    left = unexplained(along.eigenvalues, cross2, yy, ratios)
    log_prior = -R2[0] * np.logaddexp(0.0, -LOGITS) - R2[1] * np.logaddexp(0.0, LOGITS)
    log_det = np.log1p(along.eigenvalues / ratios[:, None]).sum(1)
    log_weights = log_prior - 0.5 * (log_det + along.dof * np.log(left))
    weights = np.exp(log_weights - log_weights.max())
    kept = weights > NEGLIGIBLE
    coef = along.cross[:, output, None] / (along.eigenvalues[:, None] + ratios[kept])
    return Mixture(ratios[kept], weights[kept] / weights[kept].sum(), left[kept] / along.dof, coef, along.dof)


def quantiles(
    post: Posterior, along: Axes, z: np.ndarray, p: np.ndarray, group: np.ndarray | None = None
) -> np.ndarray:  # (n, o, quantiles)
    """Quantiles p of y at features z (n, k), with noise: (n, o, len(p)); `group` (n,) as in `bayes_linear.predict`.

    Variances `of_intercept` and `of_group` and the leverage are over the noise.
    """
    offsets, n = shared_offsets(post, group), len(z)
    rows = (z - post.feature_mean - offsets.features) @ along.basis  # (n, k)
    shift = np.broadcast_to(post.intercept + offsets.targets, (n, len(post.noise_variance)))
    intercept_factor = np.broadcast_to(offsets.intercept_factor, (n, 1))[:, 0]
    of_intercept = intercept_factor**2 * (post.intercept_variance / post.noise_variance)[:, None]  # (o, n)
    of_group = np.broadcast_to(offsets.variance, (n, 1))[:, 0]
    found = []
    for j in range(len(post.noise_variance)):
        mix = mixture(along, j)
        mean = rows @ mix.coef + shift[:, j, None]  # (n, p)
        leverage = rows**2 @ (1 / (along.eigenvalues[:, None] + mix.ratios))
        scale = np.sqrt(mix.noise * (1 + of_group[:, None] + of_intercept[j][:, None] + leverage))
        found.append(np.stack([_quantile(mix, mean, scale, q) for q in p], -1))
    return np.stack(found, 1)


def _quantile(mix: Mixture, mean: np.ndarray, scale: np.ndarray, p: float) -> np.ndarray:  # (n,)
    """The quantile (n,) at level p, by Newton's method with bisection between the quantiles of the components."""
    each = mean + scale * stdtrit(mix.dof, p)
    low, high, at = each.min(1), each.max(1), each @ mix.weights
    for _ in range(MAX_STEPS):
        t = (at[:, None] - mean) / scale
        excess = stdtr(mix.dof, t) @ mix.weights - p
        low, high = np.where(excess < 0, at, low), np.where(excess < 0, high, at)
        density = np.exp(-0.5 * (mix.dof + 1) * np.log1p(t**2 / mix.dof)) / scale @ mix.weights
        newton = at - excess / np.maximum(density / _normaliser(mix.dof), 1e-300)
        following = np.where((newton > low) & (newton < high), newton, 0.5 * (low + high))
        moved, at = np.abs(following - at), following
        if (moved <= PRECISION * scale.min(1)).all():
            break
    return at


def _normaliser(dof: float) -> float:
    """The integral of (1 + t^2 / dof)^(-(dof + 1) / 2)."""
    return float(np.sqrt(dof) * beta(0.5, 0.5 * dof))
