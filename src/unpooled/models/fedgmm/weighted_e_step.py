"""The E-step of a Gaussian mixture whose rows bring weights of their own, as when labels speak for components too.

Row i has log weights a_ik in the place of log w_k: r_ik = softmax_k(a_ik + log N_k(x_i)). Pure functions of arrays, NumPy or torch;
complete rows on a CPU take one pass, others two.
"""

from __future__ import annotations

from typing import NamedTuple

from unpooled.arrays import Array, is_torch, like, namespace
from unpooled.maths import mixture
from unpooled.maths.kernel import chunks, columns, has_nan, responsibilities
from unpooled.maths.mixture import Params, Stats
from unpooled.maths.shapes import kernel_for
from unpooled.models.fedgmm.row_cache import Standing
from unpooled.tree import message


@message("fedgmm.Coupled")
class Coupled(NamedTuple):
    stats: Stats  # of rows weighted by w r; its loglik is sum of w log p
    r: Array  # (..., k, n)
    log_p: Array  # (..., n)


def e_step(params: Params, x: Array, w: Array, log_rows: Array, shape: str, kept: Standing | None = None) -> Coupled:
    """Rows x (..., n, d) with weights w (..., n) and log weights (..., k, n); leading axes stay. NaN is a missing value.

    `kept` are the same rows as columns, where a pass before this one left them.
    """
    if is_torch(x) or (kept is None and has_nan(x)):
        return _in_two_passes(params, x, w, log_rows, shape)
    xp, lead, (k, n) = namespace(x), x.shape[:-2], log_rows.shape[-2:]
    x, w, log_rows = x.reshape(-1, n, x.shape[-1]), like(w, x).reshape(-1, n), log_rows.reshape(-1, k, n)
    r, log_p, sums = xp.empty(log_rows.shape, x.dtype), xp.empty(w.shape, x.dtype), []
    kernel = kernel_for(params, shape, x, centre=kept.centre if kept else None)
    for own, pieces in chunks(len(x), n, kernel.width, x):
        total = kernel.empty(own.stop - own.start)
        for rows in pieces:
            z = kept.z[own, :, rows] if kept else columns(x[own, rows], None, kernel.centre)
            features = kernel.features(z)
            q = kernel.log_density(features)
            q += log_rows[own, :, rows]
            r[own, :, rows], log_p[own, rows] = responsibilities(q, 1.0)
            kernel.gather(total, features, r[own, :, rows] * w[own, None, rows])
        sums.append(kernel.finish(total))
    found = [xp.concatenate(part) for part in zip(*sums)]
    stats = Stats(*(a.reshape((*lead, *a.shape[1:])) for a in (*found, (w * log_p).sum(-1), w.sum(-1))))
    return Coupled(stats, r.reshape((*lead, k, n)), log_p.reshape((*lead, n)))


def _in_two_passes(params: Params, x: Array, w: Array, log_rows: Array, shape: str) -> Coupled:
    """Log densities first, then moments under the responsibilities that follow."""
    xp = namespace(x)
    pairs = xp.swapaxes(log_densities(params, x, shape), -1, -2) + log_rows
    k, n = pairs.shape[-2:]
    r, log_p = responsibilities(pairs.reshape(-1, k, n), 1.0)
    r, log_p, w = r.reshape(pairs.shape), log_p.reshape((*pairs.shape[:-2], n)), like(w, x)
    stats = moments(params, x, xp.swapaxes(r * w[..., None, :], -1, -2), shape)
    return Coupled(stats._replace(loglik=(w * log_p).sum(-1), rows=w.sum(-1)), r, log_p)


def log_densities(params: Params, x: Array, shape: str) -> Array:
    """log N_k of the values that are there: x (..., n, d) to (..., n, k)."""
    flat = params._replace(weights=namespace(params.weights).ones_like(params.weights))
    return like(mixture.log_joint(flat, x, shape), x)


def moments(params: Params, x: Array, r: Array, shape: str) -> Stats:
    """Statistics about the current means under given responsibilities r (..., n, k), missing values included.

    Each Gaussian alone is a mixture of one, whose E-step over rows weighted by r_k is what is wanted.
    """
    alone = [mixture.e_step(_only(params, k, shape), x, r[..., k], shape) for k in range(len(params.means))]
    xp = namespace(x)
    n, first = (xp.concatenate([getattr(s, name) for s in alone], axis=axis) for name, axis in (("n", -1), ("x", -2)))
    axis = {"full": -2, "diag": -2, "spherical": -1}.get(shape)
    xx = sum(s.xx for s in alone) if axis is None else xp.concatenate([s.xx for s in alone], axis=axis)
    return Stats(n, first, xx, sum(s.loglik for s in alone), n.sum(-1))


def _only(params: Params, k: int, shape: str) -> Params:
    """Component k as a mixture of one."""
    one = slice(k, k + 1)
    weights = namespace(params.weights).ones_like(params.weights[one])
    return Params(weights, params.means[one], params.covs if shape == "tied" else params.covs[one])
