"""Predictive intervals of a Bayesian linear regression whose noise and prior variances are unknown. Sends nothing.

Given the ratio noise / prior, the noise has an inverse gamma posterior and a new target has a Student t distribution.
The ratio itself is integrated over a grid, so the predictive distribution is a mixture of t distributions. With many
rows it is the normal distribution at the most probable variances; with few rows it is wider.

The prior of R^2, the share of the variance of y that the features explain, is Beta(1/2, 3/2): R^2 may well be near 0, but
a perfect fit is not likely beforehand. With Beta(1/2, 1/2), few rows that happen to lie on a line make intervals that are
too narrow; with Beta(1/2, 1), they still are where y is a curve that few rows show as a line. The prior of log(noise) is flat.

With more features than rows, most directions of the features are unobserved. If y depended on all of them alike, a high R^2
would leave y as uncertain as a low one. In most tables the directions in which rows vary most tell most about y, so the mixture
is also over `TILTS`: the prior variance of a weight along an eigenvector of the Gram matrix is proportional to a power of the
eigenvalue. With many rows the powers hardly differ.

References
----------
Zhang, Naughton, Bondell, Reich, Bayesian regression using a prior on the model fit: the R2-D2 shrinkage prior, JASA
2022.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import beta, stdtr, stdtrit

from unpooled.maths.bayes_linear import Axes, Posterior, shared_offsets, unexplained

TILTS = (0, 1, 2, 4)  # powers of the eigenvalue, equally likely beforehand
R2 = (0.5, 1.5)  # parameters of the beta prior of R^2
LOGITS = np.linspace(-10.0, 25.0, 71)  # grid of logit(R^2)
NEGLIGIBLE = 1e-5  # grid points of less weight than this, relative to the largest, are left out
MAX_STEPS = 60
PRECISION = 1e-11  # of a quantile, in standard deviations


class Mixture(NamedTuple):
    """A Student t distribution per ratio of the grid and tilt of the prior, for one output."""

    weights: np.ndarray  # (p,) posterior probabilities
    noise: np.ndarray  # (p,) scale of the noise's posterior
    coef: np.ndarray  # (k, p) posterior means of the weights along the axes
    variance: np.ndarray  # (k, p) their posterior variances over the noise
    dof: float


def mixture(along: Axes, output: int, tilts: Sequence[float] = (0,)) -> Mixture:
    """The posterior of the ratio noise / prior on the grid and of the tilt of the prior, for one output."""
    parts = [_tilted(along, output, tilt) for tilt in tilts]
    log_weights, noise, variance = (np.concatenate(some, -1) for some in zip(*parts))
    weights = np.exp(log_weights - log_weights.max())
    kept = weights > NEGLIGIBLE
    coef = along.cross[:, output, None] * variance[:, kept]
    return Mixture(weights[kept] / weights[kept].sum(), noise[kept], coef, variance[:, kept], along.dof)


def _tilted(along: Axes, output: int, tilt: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(log weights (p,), scale of the noise (p,), variances of the weights over the noise (k, p)) on the grid of ratios."""
    prior = (along.eigenvalues / max(along.eigenvalues.max(initial=0.0), 1e-300)) ** tilt  # (k,) relative variances
    values = along.eigenvalues * prior
    signal = max(values.sum() / along.n, 1e-200)  # variance of the features' part of y, per unit of prior
    ratios = signal * np.exp(-LOGITS)
    left = unexplained(values, along.cross[:, output] ** 2 * prior, along.yy[output], ratios)
    log_prior = -R2[0] * np.logaddexp(0.0, -LOGITS) - R2[1] * np.logaddexp(0.0, LOGITS)
    log_det = np.log1p(values / ratios[:, None]).sum(1)
    log_weights = log_prior - 0.5 * (log_det + along.dof * np.log(left))
    return log_weights, left / along.dof, prior[:, None] / (values[:, None] + ratios)


def quantiles(
    post: Posterior,
    along: Axes,
    z: np.ndarray,
    p: np.ndarray,
    group: np.ndarray | None = None,
    tilts: Sequence[float] = (0,),
) -> np.ndarray:  # (n, o, quantiles)
    """Quantiles p of y at features z (n, k), with noise: (n, o, len(p)); `group` (n,) as in `bayes_linear.predict`.

    Variances `of_intercept` and `of_group` and the leverage are over the noise.
    """
    offsets = shared_offsets(post, group)
    n = len(z)
    rows = (z - post.feature_mean - offsets.features) @ along.basis  # (n, k)
    shift = np.broadcast_to(post.intercept + offsets.targets, (n, len(post.noise_variance)))
    intercept_factor = np.broadcast_to(offsets.intercept_factor, (n, 1))[:, 0]
    of_intercept = intercept_factor**2 * (post.intercept_variance / post.noise_variance)[:, None]  # (o, n)
    of_group = np.broadcast_to(offsets.variance, (n, 1))[:, 0]
    found = []
    for j in range(len(post.noise_variance)):
        mix = mixture(along, j, tilts)
        mean = rows @ mix.coef + shift[:, j, None]  # (n, p)
        leverage = rows**2 @ mix.variance
        scale = np.sqrt(mix.noise * (1 + of_group[:, None] + of_intercept[j][:, None] + leverage))
        found.append(np.stack([_quantile(mix, mean, scale, q) for q in p], -1))
    return np.stack(found, 1)


def _quantile(mix: Mixture, mean: np.ndarray, scale: np.ndarray, p: float) -> np.ndarray:  # (n,)
    """The quantile (n,) at level p, by Newton's method with bisection between the quantiles of the components."""
    each = mean + scale * stdtrit(mix.dof, p)
    low = each.min(1)
    high = each.max(1)
    found = each @ mix.weights
    left = np.arange(len(found))  # rows that have not converged
    for _ in range(MAX_STEPS):
        at, spread = found[left], scale[left]
        t = (at[:, None] - mean[left]) / spread
        excess = stdtr(mix.dof, t) @ mix.weights - p
        low[left] = np.where(excess < 0, at, low[left])
        high[left] = np.where(excess < 0, high[left], at)
        density = np.exp(-0.5 * (mix.dof + 1) * np.log1p(t**2 / mix.dof)) / spread @ mix.weights
        newton = at - excess / np.maximum(density / _normaliser(mix.dof), 1e-300)
        inside = (newton >= low[left]) & (newton <= high[left])
        found[left] = np.where(inside, newton, 0.5 * (low[left] + high[left]))
        left = left[np.abs(found[left] - at) > PRECISION * spread.min(1)]
        if not len(left):
            break
    return found


def _normaliser(dof: float) -> float:
    """The integral of (1 + t^2 / dof)^(-(dof + 1) / 2)."""
    return float(np.sqrt(dof) * beta(0.5, 0.5 * dof))
