"""Leave-one-out densities of a Gaussian mixture: that of each training row under the mixture fitted without it.

A mixture gives its own training rows a higher density than new ones, and the more so the more parameters it has. Removing
row i with responsibility r from a Gaussian of n rows changes its mean and covariance by a rank-one update, so the density
without the row needs no new fit; responsibilities are kept. Pure functions; nothing is sent.
"""

from __future__ import annotations

import numpy as np

from unpooled.learners.mixing import log_shares, responsibilities
from unpooled.maths import gaussian
from unpooled.maths.mixture import Params
from unpooled.models.fedgmm.weighted_e_step import log_densities

MIN_DETERMINANT = 1e-2  # lower bound of the ratio of determinants without and with the row
TINY = 1e-9


def log_density_without(
    params: Params, z: np.ndarray, w: np.ndarray, weights: np.ndarray, shape: str, counts: np.ndarray, rows: float
) -> np.ndarray:
    """log P(z_i) under the mixture fitted without row i, (n,).

    Parameters
    ----------
    params : Params
        The Gaussians; their weights are not used.
    z : ndarray of shape (n, d)
        Training rows; NaN is a missing value.
    w : ndarray of shape (n,)
        Row weights.
    weights : ndarray of shape (k,)
        Weights of the Gaussians.
    shape : str
        Covariance type.
    counts : ndarray of shape (k,)
        Training rows of each Gaussian, over all clients.
    rows : float
        Training rows of which `weights` are the shares.
    """
    log_n = log_densities(params, z, shape)  # (n, k)
    r, _ = responsibilities(log_n + log_shares(weights, log_n))
    r = r * w[:, None]
    left = np.maximum(rows - w, TINY)[:, None]
    weights_without = np.maximum(weights * rows - r, 0.0) / left if rows > 1 else np.broadcast_to(weights, r.shape)
    log_n = log_n + _change(params, z, log_n, r, counts, shape)
    return responsibilities(log_n + log_shares(weights_without, log_n))[1]


def _change(
    params: Params, z: np.ndarray, log_n: np.ndarray, r: np.ndarray, counts: np.ndarray, shape: str
) -> np.ndarray:
    """The change of log N_k(z_i), (n, k), when row i is removed from Gaussian k, where it counts r_ik."""
    left = np.maximum(counts - r, TINY)
    shift = counts / left  # the distance from the mean grows by this factor
    total = counts.sum() if shape == "tied" else counts  # rows of the covariance
    widening = total / np.maximum(total - r, TINY)
    removed = r * shift / total  # the covariance is widening * (cov - removed * (z - mean)(z - mean)')
    seen = ~np.isnan(z)
    if shape == "diag":
        distance = _distances_by_column(params, z)  # (n, k, d)
        factor = np.maximum(1 - removed[..., None] * distance, MIN_DETERMINANT)
        log_det = np.where(seen[:, None, :], np.log(widening)[..., None] + np.log(factor), 0.0).sum(-1)
        new = ((shift**2 / widening)[..., None] * distance / factor).sum(-1)
        old = distance.sum(-1)
        return -(log_det + new - old) / 2
    d = seen.sum(-1)[:, None]
    distance = _distances(params, z, log_n, d, shape)
    parts = d if shape == "spherical" else 1  # a spherical variance is the mean over the columns
    factor = np.maximum(1 - removed * distance / np.maximum(parts, 1), MIN_DETERMINANT)
    log_det = d * np.log(widening) + parts * np.log(factor)
    return -(log_det + shift**2 * distance / (widening * factor) - distance) / 2


def _distances(params: Params, z: np.ndarray, log_n: np.ndarray, d: np.ndarray, shape: str) -> np.ndarray:
    """Squared Mahalanobis distances (n, k) of the observed values, from the log densities under doubled covariances."""
    doubled = log_densities(params._replace(covs=2 * params.covs), z, shape)
    return np.maximum(2 * d * np.log(2) - 4 * (log_n - doubled), 0.0)


def _distances_by_column(params: Params, z: np.ndarray) -> np.ndarray:
    """(n, k, d) squared distances in standard deviations, 0 where a value is missing."""
    variances = gaussian.variances(params, "diag")
    return np.nan_to_num((z[:, None, :] - params.means) ** 2 / variances)
