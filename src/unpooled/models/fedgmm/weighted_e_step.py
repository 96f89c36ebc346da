"""The E-step of a Gaussian mixture with log weights per row, as when labels speak for components too. Nothing is sent.

Row i has log weights a_ik in place of log w_k: r_ik = softmax_k(a_ik + log N_k(x_i)). Pure functions of NumPy or torch
arrays. Complete rows on a CPU take one pass, others two.
"""

from __future__ import annotations

from typing import NamedTuple

from unpooled.arrays import Array, is_torch, like, namespace
from unpooled.maths import mixture
from unpooled.maths.kernel import chunks, columns, has_nan, responsibilities
from unpooled.maths.mixture import Params, Stats
from unpooled.maths.shapes import kernel_for
from unpooled.models.fedgmm.row_cache import CachedColumns
from unpooled.tree import message


@message("fedgmm.WeightedEStep")
class WeightedEStep(NamedTuple):
    """Statistics, responsibilities and log densities of one E-step."""

    stats: Stats  # of rows weighted by w r; its loglik is the sum of w log p
    r: Array  # (..., k, n)
    log_p: Array  # (..., n)


def e_step(
    params: Params, x: Array, w: Array, log_weights: Array, shape: str, cached: CachedColumns | None = None
) -> WeightedEStep:
    """Rows x (..., n, d) with weights w (..., n) and log weights (..., k, n); leading axes stay. NaN is a missing value.

    `cached` are the same rows as columns, see `row_cache`.
    """
    if is_torch(x) or (cached is None and has_nan(x)):
        return _in_two_passes(params, x, w, log_weights, shape)
    xp = namespace(x)
    lead = x.shape[:-2]
    k, n = log_weights.shape[-2:]
    w = like(w, x).reshape(-1, n)
    x = x.reshape(-1, n, x.shape[-1])
    log_weights = log_weights.reshape(-1, k, n)
    r = xp.empty(log_weights.shape, x.dtype)
    log_p = xp.empty(w.shape, x.dtype)
    sums = []
    kernel = kernel_for(params, shape, x, centre=cached.centre if cached else None)
    for own, pieces in chunks(len(x), n, kernel.width, x):
        total = kernel.empty(own.stop - own.start)
        for rows in pieces:
            z = cached.z[own, :, rows] if cached else columns(x[own, rows], None, kernel.centre)
            features = kernel.features(z)
            log_joint = kernel.log_density(features)
            log_joint += log_weights[own, :, rows]
            r[own, :, rows], log_p[own, rows] = responsibilities(log_joint, 1.0)
            kernel.gather(total, features, r[own, :, rows] * w[own, None, rows])
        sums.append(kernel.finish(total))
    moments = [xp.concatenate(part) for part in zip(*sums)]
    stats = Stats(*(a.reshape((*lead, *a.shape[1:])) for a in (*moments, (w * log_p).sum(-1), w.sum(-1))))
    return WeightedEStep(stats, r.reshape((*lead, k, n)), log_p.reshape((*lead, n)))


def _in_two_passes(params: Params, x: Array, w: Array, log_weights: Array, shape: str) -> WeightedEStep:
    """Responsibilities from log densities first, then moments under them."""
    xp = namespace(x)
    log_joint = xp.swapaxes(log_densities(params, x, shape), -1, -2) + log_weights
    k, n = log_joint.shape[-2:]
    r, log_p = responsibilities(log_joint.reshape(-1, k, n), 1.0)
    r = r.reshape(log_joint.shape)
    log_p = log_p.reshape((*log_joint.shape[:-2], n))
    w = like(w, x)
    stats = moments(params, x, xp.swapaxes(r * w[..., None, :], -1, -2), shape)
    return WeightedEStep(stats._replace(loglik=(w * log_p).sum(-1), rows=w.sum(-1)), r, log_p)


def log_densities(params: Params, x: Array, shape: str) -> Array:
    """log N_k of the observed values: x (..., n, d) to (..., n, k)."""
    unweighted = params._replace(weights=namespace(params.weights).ones_like(params.weights))
    return like(mixture.log_joint(unweighted, x, shape), x)


def moments(params: Params, x: Array, r: Array, shape: str) -> Stats:
    """Statistics about the current means under given responsibilities r (..., n, k), missing values included.

    Component k alone is a mixture of one component, whose E-step over rows weighted by r_k has these statistics.
    """
    single = [mixture.e_step(_component(params, k, shape), x, r[..., k], shape) for k in range(len(params.means))]
    xp = namespace(x)
    n = xp.concatenate([s.n for s in single], axis=-1)
    first = xp.concatenate([s.x for s in single], axis=-2)
    if shape == "tied":
        xx = sum(s.xx for s in single)
    else:
        xx = xp.concatenate([s.xx for s in single], axis=-1 if shape == "spherical" else -2)
    return Stats(n, first, xx, sum(s.loglik for s in single), n.sum(-1))


def _component(params: Params, k: int, shape: str) -> Params:
    """Component k as a mixture of one component."""
    one = slice(k, k + 1)
    weights = namespace(params.weights).ones_like(params.weights[one])
    return Params(weights, params.means[one], params.covs if shape == "tied" else params.covs[one])
