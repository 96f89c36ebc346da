"""A mixture of Gaussians, its E-step and its M-step: pure functions of arrays, NumPy or torch, with missing values.

`Params` goes down: k (1 + d) numbers and the covariances. `Stats` goes up: as many, about the current means, so that no
digit is lost however far the rows are from the origin. Sums of `Stats` over any split of the rows give the pooled
update.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from unpooled.arrays import Array, Float, namespace
from unpooled.maths import gaussian
from unpooled.maths.kernel import (
    Beside,
    cast,
    chunks,
    columns,
    double,
    floating,
    fold,
    has_nan,
    log,
    responsibilities,
    zeros,
)
from unpooled.maths.shapes import kernel_for
from unpooled.tree import message

WEIGHT_STEPS = 1000  # of EM on the weights alone, at most


@message("maths.mixture.Params")
class Params(NamedTuple):
    """The parameters of a Gaussian mixture."""

    weights: Float[Array, "k"]
    means: Float[Array, "k d"]
    covs: Float[Array, "*c"]  # packed by shape, see maths.gaussian


@message("maths.mixture.Stats")
class Stats(NamedTuple):
    """Sums over rows with responsibilities r, about the current means."""

    n: Float[Array, "k", ">=0 rows"]  # sum of r
    x: Float[Array, "k d"]  # sum of r (x - mean)
    xx: Float[Array, "*c"]  # sum of r (x - mean)(x - mean)', packed as covs are; tied: over k; spherical: mean over d
    loglik: Float[Array, ""]  # sum over rows of w log p(x)
    rows: Float[Array, "", ">=0 rows"]  # sum of w


# ---- the E-step ----


def e_step(
    params: Params, x: Array, w: Array, shape: str, log_weights: Array | None = None, beside: Beside | None = None
) -> Stats:
    """Statistics of rows x (..., n, d) with weights w (..., n); every leaf keeps the leading axes.

    NaN is a missing value; a row of weight 0 may hold anything. `log_weights` (..., k) replace the mixture's own.
    `beside` adds the log densities of other columns and receives the responsibilities; it is for rows (n, d) alone.
    Products run in the dtype of x, sums in float64. The computation uses one thread and lets others run.
    """
    xp = namespace(x)
    x = floating(x)
    lead = x.shape[:-2]
    n, d = x.shape[-2:]
    k = len(params.weights)
    log_weights = log(double(params.weights, x)) if log_weights is None else double(log_weights, x)
    log_weights = cast(xp.broadcast_to(log_weights, (*lead, k)), x).reshape(-1, k)
    stacks = len(log_weights)  # the leading axes as one
    w = cast(double(w, x), x).reshape(stacks, n)
    x = x.reshape(stacks, n, d)
    sums, holes = _complete(kernel_for(params, shape, x), x, w, log_weights, beside)
    if holes:
        from unpooled.maths import missing

        missing.add(sums, kernel_for(params, shape, x, holes=True), x, w, log_weights, xp.concatenate(holes), beside)
    rows = w.sum(-1, dtype=xp.float64)
    return Stats(*(a.reshape((*lead, *a.shape[1:])) for a in (*sums, rows)))


def _complete(
    kernel: Any, x: Array, w: Array, log_weights: Array, beside: Beside | None = None
) -> tuple[list[Array], list[Array]]:
    """((n, x, xx, loglik) by leading index over complete rows, flat indices of the rows with missing values)."""
    n = x.shape[1]
    parts = []
    holes = []
    for lead, pieces in chunks(len(x), n, kernel.width, x):
        b = lead.stop - lead.start
        total = kernel.empty(b)
        loglik = zeros((b,), x)
        for rows in pieces:
            z, v, absent = _load(kernel, x[lead, rows], w[lead, rows])
            if absent is not None:
                holes.append(lead.start * n + rows.start + namespace(x).where(absent.reshape(-1))[0])
            if absent is None or not bool(absent.all()):
                _add(kernel, total, loglik, z, v, log_weights[lead], None if beside is None else beside.part(rows))
        parts.append((*kernel.finish(total), loglik))
    return [namespace(x).concatenate(p) for p in zip(*parts)], holes


def _load(kernel: Any, x: Array, w: Array | None) -> tuple[Array, Array | None, Array | None]:
    """(columns, weights, which rows have missing values (b, n) or None).

    Rows with missing values become the centre with weight 0; `missing` adds them later.
    """
    xp = namespace(x)
    x = fold(x)
    w = None if w is None else fold(w)
    z = columns(x, w, kernel.centre)
    if not kernel.by_pattern or not has_nan(z):
        return z, w, None
    absent = xp.isnan(z).any(1)  # (b, n)
    z[:, 1:] = xp.where(absent[:, None], 0, z[:, 1:])
    return z, None if w is None else xp.where(absent, 0, w), absent


def _add(
    kernel: Any, total: list[Array], loglik: Array, z: Array, w: Array, log_weights: Array, beside: Beside | None
) -> None:
    """Add the moments and log-likelihood of one chunk of columns to `total` and `loglik`."""
    features = kernel.features(z)
    q = kernel.log_density(features)
    q += log_weights[:, :, None]
    if beside is not None:
        q[0] += beside.log_density.T
    r, by_row = responsibilities(q, w)
    if beside is not None:
        beside.r[:] = r[0].T
    kernel.gather(total, features, r)
    loglik += by_row.sum(dtype=loglik.dtype) if len(loglik) == 1 else by_row.sum(-1, dtype=loglik.dtype)


# ---- the M-step ----


def m_step(params: Params, stats: Stats, shape: str, reg: float) -> Params:
    """The parameters that maximise the expected log-likelihood.

    Parameters
    ----------
    params : Params
        The parameters that the statistics were taken at: means are about theirs, and a component without rows keeps its own.
    stats : Stats
        Sums over all rows.
    shape : {"full", "tied", "diag", "spherical"}
        Of the covariances.
    reg : float
        Added to the variances.

    Returns
    -------
    Params
    """
    n = stats.n + gaussian.TINY
    xx = stats.xx - gaussian.mean_scatter(stats.n, stats.x, shape)
    weight = n.sum() if shape == "tied" else n.reshape((-1,) + (1,) * (xx.ndim - 1))  # rows of each covariance
    covs = xx / weight + reg * gaussian.diagonal(params.means, shape)
    covs = namespace(xx).where(weight > gaussian.TINY, covs, params.covs)
    return Params(n / n.sum(), params.means + stats.x / n[:, None], covs)


def fit_weights(log_joint: Array, weights: Array, tol: float = 1e-9) -> Array:
    """The maximum likelihood weights (k,) given log densities (n, k) of the components, by EM."""
    for _ in range(WEIGHT_STEPS):
        r, _ = responsibilities((log_joint + log(weights)).T[None], 1.0)
        before = weights
        weights = r[0].mean(-1)
        if float(abs(weights - before).max()) <= tol:
            break
    return weights


# ---- densities ----


def log_joint(params: Params, x: Array, shape: str) -> Array:
    """Log of weight times density of the observed values under each component.

    Parameters
    ----------
    params : Params
        Weights, means and packed covariances.
    x : array of shape (..., n, d)
        Rows; NaN is a missing value.
    shape : {"full", "tied", "diag", "spherical"}
        Of the covariances.

    Returns
    -------
    array of shape (..., n, k)
    """
    xp, x = namespace(x), floating(x)
    rows = x.reshape(-1, x.shape[-1])
    kernel = kernel_for(params, shape, x)
    out = cast(zeros((len(rows), len(params.weights)), x), x)
    holes = []
    for _, pieces in chunks(1, len(rows), kernel.width, x):
        for piece in pieces:
            z, _, absent = _load(kernel, rows[None, piece], None)
            q = kernel.log_density(kernel.features(z))
            out[piece] = q.swapaxes(1, 2).reshape(-1, q.shape[1])
            if absent is not None:
                holes.append(piece.start + xp.where(absent.reshape(-1))[0])
    if holes:
        from unpooled.maths import missing

        places = xp.concatenate(holes)
        out[places] = missing.log_density(kernel_for(params, shape, x, holes=True), rows[places])
    out += cast(log(double(params.weights, x)), x)
    return out.reshape((*x.shape[:-1], -1))


def log_density(params: Params, x: Array, shape: str) -> Array:
    """log p of the observed values: x (..., n, d) to (..., n)."""
    joint = log_joint(params, x, shape)
    _, by_row = responsibilities(joint.reshape(-1, joint.shape[-1]).T[None], 1.0)
    return by_row[0].reshape(joint.shape[:-1])
