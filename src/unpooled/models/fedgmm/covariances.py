"""Covariances that rounding or too few rows have left without an inverse are repaired. Nothing is sent."""

from __future__ import annotations

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.maths import gaussian
from unpooled.maths.mixture import Params, Stats

MIN_VARIANCE = 1e-6  # smallest variance of a repaired covariance in any direction, relative to the variance of the data


def repaired(params: Params, shape: str, scale: np.ndarray) -> Params:
    """The mixture with eigenvalues raised in covariances that are not positive definite; others stay as they are.

    `scale` (d,) are the standard deviations of the columns over all clients, relative to which eigenvalues are bounded.
    """
    covs = to_numpy(params.covs)
    if shape in ("diag", "spherical"):
        least = MIN_VARIANCE * (scale**2 if shape == "diag" else (scale**2).mean())
        positive = covs > 0
        return params if positive.all() else params._replace(covs=np.where(positive, covs, least))
    full = gaussian.unpack_triangle(covs)  # (k, d, d), or (d, d) if tied
    stacked = full if shape == "full" else full[None]
    fixed = np.stack([c if _positive_definite(c) else _raised(c, scale) for c in stacked])
    if (fixed == stacked).all():
        return params
    return params._replace(covs=gaussian.pack_triangle(fixed if shape == "full" else fixed[0]))


def shrunk(params: Params, stats: Stats, shape: str, scale: np.ndarray) -> Params:
    """The mixture with the covariances that maximise the posterior under the prior of Fraley and Raftery (2007).

    The prior counts as d + 2 rows of Gaussians that would fill the space of the data evenly.
    """
    k, d = params.means.shape
    prior = np.tile(np.diag(scale**2) * k ** (-2 / d), (k, 1, 1))
    prior = to_numpy(gaussian.pack_covs(gaussian.reshape_covs(prior, shape), shape))
    covs = to_numpy(params.covs)
    n = to_numpy(stats.n)
    rows = n.sum() if shape == "tied" else n.reshape(-1, *[1] * (covs.ndim - 1))
    weight = (d + 2) / (rows + d + 2)
    return params._replace(covs=(1 - weight) * np.where(np.isfinite(covs), covs, prior) + weight * prior)


def _positive_definite(cov: np.ndarray) -> bool:
    """Whether a covariance has a Cholesky factor."""
    try:
        return bool(np.isfinite(np.linalg.cholesky(cov)).all())
    except np.linalg.LinAlgError:
        return False


def _raised(cov: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The covariance (d, d) with eigenvalues of at least MIN_VARIANCE where columns are standardised."""
    standardised = cov / np.outer(scale, scale)
    if not np.isfinite(standardised).all():
        return np.diag(scale**2)
    values, vectors = np.linalg.eigh(standardised)
    raised = (vectors * np.maximum(values, MIN_VARIANCE)) @ vectors.T
    return np.outer(scale, scale) * raised
