"""Covariances of a candidate's Gaussians, packed by covariance type: shrunk to the pooled one and kept positive; sends nothing."""

from __future__ import annotations

import numpy as np

from unpooled.arrays import Array
from unpooled.maths import gaussian
from unpooled.models.open_mixture.constants import COV_FLOOR, MIN_SCALE, MIN_WITHIN, TINY


def shrink(covs: Array, n: Array, means: Array, shape: str, prior_rows: float, own_scale: bool) -> Array:
    """Average each covariance with the pooled one, which counts as `prior_rows` rows.

    With `own_scale` the pooled covariance is first scaled to each Gaussian's own mean variance: atoms differ in size more than in
    form. All variances are bounded below.
    """
    rows = n[:, None] if covs.ndim > 1 else n
    pooled = (covs * rows).sum(0) / max(n.sum(), TINY)
    mean_variance = max(abs(_mean_variance(pooled, means.shape[1], shape)), MIN_WITHIN * _variance_of_means(n, means))
    least = MIN_SCALE * mean_variance
    pooled = repair(pooled[None], shape, least)[0]
    scale = _relative_scale(covs, pooled, shape) if own_scale else 1.0
    averaged = (covs * rows + prior_rows * scale * pooled) / (rows + prior_rows)
    floor = COV_FLOOR * mean_variance * gaussian.diagonal(means, shape)
    return repair(averaged + floor, shape, least)


def _mean_variance(pooled: Array, d: int, shape: str) -> float:
    """The mean variance of the columns."""
    if shape != "full":
        return pooled.mean()
    return np.trace(gaussian.unpack_triangle(pooled)) / d


def _variance_of_means(n: Array, means: Array) -> float:
    """The mean variance of the columns between Gaussians."""
    weights = n / max(n.sum(), TINY)
    return float((weights[:, None] * (means - weights @ means) ** 2).sum(0).mean())


def least_variance(covs: np.ndarray, n: np.ndarray, means: np.ndarray) -> float:
    """The variance that is added to full covariances (k, d, d) in which rows do not vary."""
    within = float(n @ np.trace(covs, axis1=1, axis2=2)) / max(n.sum() * means.shape[1], TINY)
    return COV_FLOOR * max(within, MIN_WITHIN * _variance_of_means(n, means), TINY)


def repair(covs: Array, shape: str, least: float) -> Array:
    """Raise eigenvalues below `least` in covariances that are not positive definite, as compressed sums may give; keep the others."""
    if shape != "full":
        return np.where(covs > 0, covs, least)
    variance, axes = np.linalg.eigh(gaussian.unpack_triangle(covs))
    repaired = (axes * np.maximum(variance, least)[:, None]) @ axes.swapaxes(1, 2)
    return np.where(variance[:, :1] > 0, covs, gaussian.pack_triangle(repaired))


def _relative_scale(covs: Array, pooled: Array, shape: str) -> Array:
    """(k, 1), or (k,) if spherical: mean variance of each Gaussian where the pooled covariance is white, at least MIN_SCALE."""
    if shape != "full":
        ratio = covs / np.maximum(pooled, TINY)
        return np.maximum(ratio.mean(-1, keepdims=True) if covs.ndim > 1 else ratio, MIN_SCALE)
    whitening = np.linalg.inv(np.linalg.cholesky(with_floor(gaussian.unpack_triangle(pooled))))
    scale = np.einsum("ij,kjl,il->k", whitening, gaussian.unpack_triangle(covs), whitening) / len(whitening)
    return np.maximum(scale, MIN_SCALE)[:, None]


def with_floor(cov: np.ndarray) -> np.ndarray:
    """(d, d) the covariance plus a small multiple of the identity, so that constant columns do no harm."""
    mean_variance = np.trace(cov) / len(cov)
    return cov + (COV_FLOOR * mean_variance or COV_FLOOR) * np.eye(len(cov))
