"""Gaussians as arrays: covariances of four shapes, packed for sending and unpacked; factors, parameter counts.

Sends nothing. There are two layouts. Packed, as sent: full (k, t), tied (t,), diag (k, d), spherical (k,), where t = d
(d + 1) / 2 is the lower triangle by rows. Natural, as in scikit-learn: full (k, d, d), tied (d, d), diag (k, d),
spherical (k,).
"""

from __future__ import annotations

from functools import cache
from math import isqrt
from typing import Any

import numpy as np

from unpooled.arrays import Array, is_torch, namespace, to_numpy

SHAPES = ("full", "tied", "diag", "spherical")
RELATIVE_FLOOR = 1e-6  # times the largest eigenvalue: least eigenvalue of covariances that rounding left indefinite


# ---- triangles ----


@cache
def _lower(d: int) -> np.ndarray:
    """Positions (t,) of the lower triangle, by rows, in a flattened (d, d) matrix."""
    i, j = np.tril_indices(d)
    return i * d + j


@cache
def _mirror(d: int) -> np.ndarray:
    """For each entry of a flattened symmetric (d, d) matrix, its position in the packed triangle."""
    i, j = np.indices((d, d)).reshape(2, -1)
    low = np.minimum(i, j)
    high = np.maximum(i, j)
    return high * (high + 1) // 2 + low


def _take(a: Array, index: np.ndarray) -> Array:
    """Entries `index` of the last axis."""
    return a[..., namespace(a).asarray(index, device=a.device)] if is_torch(a) else np.take(a, index, axis=-1)


def pack_triangle(m: Array) -> Array:
    """The lower triangles (..., t) of symmetric matrices (..., d, d)."""
    d = m.shape[-1]
    return _take(m.reshape(*m.shape[:-2], d * d), _lower(d))


def unpack_triangle(p: Array) -> Array:
    """The symmetric matrices (..., d, d) of lower triangles (..., t)."""
    d = (isqrt(8 * p.shape[-1] + 1) - 1) // 2
    return _take(p, _mirror(d)).reshape(*p.shape[:-1], d, d)


# ---- covariances of four shapes ----


def pack_covs(covs: Array, shape: str) -> Array:
    """Covariances from their natural layout to the packed one that travels.

    Parameters
    ----------
    covs : array
        Natural layout, as scikit-learn has it: (k, d, d) for "full", (d, d) for "tied", (k, d) for "diag", (k,) for
        "spherical".
    shape : {"full", "tied", "diag", "spherical"}
        The covariance type.

    Returns
    -------
    array
        Upper triangles (k, t) or (t,) for matrices, the variances themselves for the others.
    """
    return pack_triangle(covs) if shape in ("full", "tied") else covs


def unpack_covs(packed: Array, shape: str) -> Array:
    """Covariances from the packed layout to the natural one; the inverse of `pack_covs`."""
    return unpack_triangle(packed) if shape in ("full", "tied") else packed


def reshape_covs(covs: Array, shape: str) -> Array:
    """Full covariances (k, d, d) in the natural layout of another shape, averaged over entries that it makes equal."""
    if shape == "full":
        return covs
    if shape == "tied":
        return covs.mean(0)
    diagonal = namespace(covs).einsum("kii->ki", covs)
    return diagonal if shape == "diag" else diagonal.mean(-1)


def full_covs(params: Any, shape: str) -> Array:
    """The full covariance of each component: (k, d, d)."""
    if shape in ("full", "tied"):
        covs = unpack_triangle(params.covs)
        return covs if shape == "full" else covs[None] + 0 * params.means[:, :1, None]
    return variances(params, shape)[:, :, None] * eye(params.means.shape[1], params.means)


def variances(params: Any, shape: str) -> Array:
    """The variance of each column in each component, (k, d), for the shapes diag and spherical."""
    return params.covs if shape == "diag" else params.covs[:, None] + 0 * params.means


def mean_scatter(n: Array, x: Array, shape: str) -> Array:
    """x x' / n, packed: subtracted from `xx` when it is taken about new means; n (..., k), x (..., k, d)."""
    per_row = x / (n + TINY)[..., None]
    if shape in ("diag", "spherical"):
        return x * per_row if shape == "diag" else (x * per_row).mean(-1)
    outer = x[..., :, None] * per_row[..., None, :]
    return pack_triangle(outer if shape == "full" else outer.sum(-3))


TINY = 10 * float(np.finfo(np.float64).eps)  # keeps an empty component from dividing by zero, as scikit-learn does


# ---- factors ----


def cholesky(covs: Array) -> Array:
    """Lower Cholesky factors of (k, d, d); the error names a component that is not positive definite."""
    xp = namespace(covs)
    try:
        factors = xp.linalg.cholesky(covs)
    except (np.linalg.LinAlgError, RuntimeError) as error:
        if "LinAlgError" not in type(error).__name__:  # torch's is a RuntimeError, as is a failing device
            raise
        raise _indefinite(np.linalg.eigvalsh(to_numpy(covs))[:, 0]) from error
    if not bool(xp.isfinite(factors).all()):
        raise _indefinite(to_numpy(factors).sum((-1, -2)))
    return factors


def positive(variances: Array) -> Array:
    """The variances (k, d); the error names a component with a non-positive variance."""
    if not bool((variances > 0).all()):
        raise _indefinite(to_numpy(variances).min(-1))
    return variances


def _indefinite(worst: np.ndarray) -> ValueError:
    """The error for the component with the smallest (or a NaN) value in `worst` (k,)."""
    k = int(np.argmin(np.where(np.isfinite(worst), worst, -np.inf)))
    return ValueError(
        f"the covariance of component {k} is not positive definite: raise reg_covar or lower n_components"
    )


def inverse_triangle(lower: Array) -> Array:
    """Inverses of lower triangular matrices (k, d, d)."""
    xp = namespace(lower)
    return xp.tril(xp.linalg.inv(lower))


def precisions_cholesky(covs: Array, shape: str) -> Array:
    """Factors of the precisions, from covariances, both in the natural layout.

    `(x - mean) @ factor` has the identity as covariance.
    """
    if shape in ("diag", "spherical"):
        return covs**-0.5
    stacked = covs if shape == "full" else covs[None]
    factors = inverse_triangle(cholesky(stacked)).swapaxes(-1, -2)
    return factors if shape == "full" else factors[0]


def precisions(factors: Array, shape: str) -> Array:
    """Precisions from their factors, as given by `precisions_cholesky`."""
    return factors**2 if shape in ("diag", "spherical") else factors @ factors.swapaxes(-1, -2)


def n_parameters(k: int, d: int, shape: str) -> int:
    """The number of free parameters of a mixture, for BIC and AIC."""
    t = d * (d + 1) // 2
    return {"full": k * t, "tied": t, "diag": k * d, "spherical": k}[shape] + k * d + k - 1


def eye(d: int, like: Array) -> Array:
    """The identity (d, d), as the same kind of array as `like`."""
    xp = namespace(like)
    return xp.eye(d, dtype=like.dtype, device=like.device) if is_torch(like) else np.eye(d)


def diagonal(means: Array, shape: str) -> Array:
    """1 where a packed covariance holds a variance, 0 elsewhere."""
    d = means.shape[1]
    return pack_triangle(eye(d, means)) if shape in ("full", "tied") else 1.0


def project_positive(packed: Array, shape: str, floor: float) -> Array:
    """The packed covariances, changed only if one is not positive definite: then eigenvalues are raised to a floor.

    The floor is `floor`, or RELATIVE_FLOOR times the largest eigenvalue if that is more. Exact statistics never need
    it; rounded ones (see `Compressed`) may leave a narrow component with a negative eigenvalue.
    """
    if is_torch(packed):
        return packed
    covs = unpack_covs(packed, shape)
    if shape in ("diag", "spherical"):
        return packed if (covs > 0).all() else pack_covs(np.maximum(covs, floor), shape)
    try:
        np.linalg.cholesky(covs)
        return packed
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(covs)
        least = np.maximum(floor, RELATIVE_FLOOR * values[..., -1:])
        mended = (vectors * np.maximum(values, least)[..., None, :]) @ np.swapaxes(vectors, -1, -2)
        return pack_covs(0.5 * (mended + np.swapaxes(mended, -1, -2)), shape)
