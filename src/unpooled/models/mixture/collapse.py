"""Components that have collapsed: in some direction they have no variance of their own where all rows together have some.

The likelihood of a mixture is unbounded where a component shrinks onto few rows, or onto a plane that repeated values make; only
`reg_covar` then holds its variance up. Such a component wins any comparison of likelihoods, BIC included, and says nothing.
Everything is read off the fitted mixture: nothing is sent.
"""

from __future__ import annotations

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.maths import gaussian
from unpooled.maths.mixture import Params

SHARE = (
    1e-6  # of the variance of all rows in the same direction: a component with less, and less than `reg`, has collapsed
)
MANY = 3  # rows for each column, of a component that is not thin by chance
ROUNDING = 1e-11  # of the variance of all rows: repeated values leave less
FLAT = 1e-9  # of the variance of standardised columns: a direction with less is flat for all rows, and is not looked at


def collapsed(params: Params, shape: str, reg: float, rows: float | None = None) -> np.ndarray:
    """Which components have collapsed, (k,) bool; `reg` is what was added to their variances.

    Where the number of all rows is given, a component of many rows has not: a variance that is small, and not rounding alone, is then
    how these rows are.
    """
    weights, means = to_numpy(params.weights), to_numpy(params.means)
    covs = to_numpy(gaussian.full_covs(params, shape)) - reg * np.eye(means.shape[1])
    about = means - weights @ means
    whole = np.einsum("k,kij->ij", weights, covs) + (weights[:, None] * about).T @ about
    white = _whitening(whole)
    if not white.shape[1]:
        return np.zeros(len(weights), bool)
    values, vectors = np.linalg.eigh(white.T @ covs @ white)
    least, towards = values[:, 0], vectors[:, :, 0] @ white.T
    thin = (least < SHARE) & (least < reg * (towards**2).sum(-1))
    if rows is None:
        return thin
    many = rows * weights >= MANY * (means.shape[1] + 1)
    return thin & ~(many & (least > ROUNDING))


def _whitening(cov: np.ndarray) -> np.ndarray:
    """A map (d, r) to coordinates in which the covariance is the identity, without the directions that are flat."""
    variances = np.diag(cov)
    varies = variances > FLAT * variances.max(initial=0.0)
    scale = np.where(varies, np.sqrt(np.where(varies, variances, 1.0)), np.inf)
    values, vectors = np.linalg.eigh(cov / np.outer(scale, scale))
    kept = values > FLAT
    return vectors[:, kept] / np.sqrt(values[kept]) / scale[:, None]
