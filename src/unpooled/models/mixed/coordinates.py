"""A mixed mixture as a vector without constraints, and back: acceleration adds and subtracts such vectors. Nothing is sent.

Logarithms of weights, levels and means of counts; means in standard deviations of all rows; variances by the logarithms of
Cholesky factors. The dispersion of counts has a grid and stays as it is.
"""

from __future__ import annotations

import numpy as np

from unpooled.maths import gaussian, mixture
from unpooled.models.mixed.columns import Columns
from unpooled.models.mixed.messages import Params

LEAST = 1e-300


def to_vector(params: Params, scale: np.ndarray, shape: str) -> np.ndarray:
    """The parameters as one vector; `scale` (g,) are the standard deviations of the Gaussian block's columns."""
    block = params.gaussian
    parts = [_log(block.weights), block.means / scale if len(scale) else block.means, _log(params.levels)]
    return np.concatenate([a.ravel() for a in (*parts, _log(params.mean), _spread(block, scale, shape))])


def from_vector(v: np.ndarray, like: Params, scale: np.ndarray, columns: Columns, shape: str) -> Params:
    """The parameters of a vector; dispersions are those of `like`."""
    block = like.gaussian
    sizes = [block.weights.size, block.means.size, like.levels.size, like.mean.size]
    weights, means, levels, mean, spread = np.split(v, np.cumsum(sizes))
    probs = levels.reshape(like.levels.shape)
    probs = np.concatenate([_softmax(probs[:, part]) for part in columns.parts] or [probs], axis=1)
    means = means.reshape(block.means.shape) * (scale if len(scale) else 1.0)
    covs = _covs(spread, block, scale, shape)
    found = mixture.Params(_softmax(weights[None])[0], means, covs)
    return Params(found, probs, np.exp(mean.reshape(like.mean.shape)), like.dispersion)


def _log(a: np.ndarray) -> np.ndarray:
    """The logarithm, finite for 0."""
    return np.log(np.maximum(a, LEAST))


def _softmax(v: np.ndarray) -> np.ndarray:
    """Probabilities from logarithms, along the last axis."""
    raised = np.exp(v - v.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


def _spread(block: mixture.Params, scale: np.ndarray, shape: str) -> np.ndarray:
    """Covariances as a vector: logarithms of standard deviations, or of a factor's diagonal."""
    if not block.means.shape[1]:
        return np.zeros(0)
    if shape in ("diag", "spherical"):
        return _log(block.covs) / 2
    factors = np.linalg.cholesky(gaussian.unpack_triangle(block.covs)) / scale[:, None]
    diagonal = np.einsum("...ii->...i", factors)
    logs = factors + (np.log(diagonal) - diagonal)[..., None] * np.eye(len(scale))
    return gaussian.pack_triangle(logs)


def _covs(v: np.ndarray, block: mixture.Params, scale: np.ndarray, shape: str) -> np.ndarray:
    """The inverse of `_spread`."""
    if not block.means.shape[1]:
        return block.covs
    if shape in ("diag", "spherical"):
        return np.exp(2 * v).reshape(block.covs.shape)
    g = len(scale)
    lower = np.tril(gaussian.unpack_triangle(v.reshape(block.covs.shape)))
    diagonal = np.einsum("...ii->...i", lower)
    factors = lower + (np.exp(diagonal) - diagonal)[..., None] * np.eye(g)
    factors = factors * scale[:, None]
    return gaussian.pack_triangle(factors @ np.swapaxes(factors, -1, -2))
