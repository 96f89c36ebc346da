"""Rows with missing values, exactly: marginal densities, conditional moments for the statistics, imputation.

Sends nothing.

Each pattern of missing values costs one factorisation (maths.patterns), each row about as much as a complete row. Loops
go over patterns and leading indices, never over rows. No more is sent than for complete rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, is_torch, namespace, to_numpy
from unpooled.maths import gaussian
from unpooled.maths.kernel import (
    Beside,
    cast,
    columns,
    double,
    floating,
    indices,
    log,
    responsibilities,
    room,
    zeros,
)
from unpooled.maths.patterns import AT_ONCE, Projection, Run, fits, halve, patterns, portions, projections, whitened
from unpooled.maths.shapes import Diagonal, Full, kernel_for
from unpooled.tree import message

# ---- inside the E-step ----


class Gapped(NamedTuple):
    """The rows with missing values, among the rows of all leading indices."""

    rows: Array  # (batch * n, d) all rows
    w: Array  # (batch * n,) their weights
    places: Array  # (m,) indices of the rows with missing values
    owner: Array  # (m,) leading index of each of them
    patterns: np.ndarray  # (p, d) which columns are missing
    ids: Array  # (m,) pattern of each


def add(
    sums: list[Array],
    kernel: Full,
    x: Array,
    w: Array,
    log_weights: Array,
    places: Array,
    beside: Beside | None = None,
) -> None:
    """Add the sums of rows with missing values to the totals `sums`, (n, x, xx, loglik) by leading index.

    The rows are those at flat indices `places` of x (batch, n, d), with weights w (batch, n).
    """
    batch, n, d = x.shape
    rows = x.reshape(-1, d)
    owner = places // n
    gapped = Gapped(rows, w.reshape(-1), places, owner, *patterns(rows, places))
    if fits(kernel, len(gapped.patterns)):
        projections(kernel, gapped.patterns)  # all at once; the portions below read the cache
    for start, stop in _owners(owner if batch > 1 else owner[:0], len(places), kernel, x):
        _add_range(sums, kernel, gapped, start, stop, log_weights, beside)


def _add_range(
    sums: list[Array],
    kernel: Full,
    gapped: Gapped,
    start: int,
    stop: int,
    log_weights: Array,
    beside: Beside | None,
) -> None:
    """Add the sums of the gapped rows start to stop, which are all those of some leading indices."""
    leads, own = namespace(gapped.rows).unique(gapped.owner[start:stop], return_inverse=True)
    total = kernel.empty(len(leads))
    loglik = sums[3][leads] * 0
    most = room(kernel.width, gapped.rows) if len(leads) == 1 else stop - start
    for which, runs in portions(gapped.ids[start:stop], kernel, most):
        here = gapped.places[start + which]
        made = projections(kernel, gapped.patterns[[run.pattern for run in runs]])
        y, log_joint = whitened(kernel, gapped.rows[here], runs, made)
        log_joint += log_weights[gapped.owner[start + which]].T
        if beside is not None:
            log_joint[0] += beside.log_density[here].T
        r, by_row = responsibilities(log_joint, gapped.w[here])
        if beside is not None:
            beside.r[here] = r[0].T
        if kernel.common:
            halve(y, r, runs, made)
        _credit(kernel, total, loglik, own[which], y, r, by_row)
        _spread(kernel, total[0], own[which], r[0], runs, made)
    for old, new in zip(sums, (*kernel.finish(total), loglik)):
        old[leads] += new


def _owners(owner: Array, n: int, kernel: Full, x: Array) -> Iterator[tuple[int, int]]:
    """Ranges of rows that are processed together: as many leading indices as fit into memory, at least one."""
    bounds = np.concatenate([[0], np.flatnonzero(np.diff(to_numpy(owner))) + 1, [n]])
    most_rows = max(room(kernel.width, x), AT_ONCE // kernel.width)
    most_leads = max(1, AT_ONCE // (kernel.width * (kernel.size[1] + 1)))
    i = 0
    last = len(bounds) - 1
    while i < last:
        fits = int(np.searchsorted(bounds, bounds[i] + most_rows, "right")) - 1
        j = min(max(i + 1, fits), i + most_leads)
        yield int(bounds[i]), int(bounds[j])
        i = j


def _credit(kernel: Full, total: list[Array], loglik: Array, own: Array, y: Array, r: Array, by_row: Array) -> None:
    """Add the moments and log-likelihoods of columns to the totals of the leading index that owns each."""
    if len(loglik) == 1:
        kernel.gather(total, y, r)
        loglik += by_row.sum(dtype=loglik.dtype)
        return
    loglik += _sums_by(by_row, own, len(loglik))[0]
    order = namespace(own).argsort(own)
    y, r = y[..., order], r[..., order]
    ends = np.cumsum(to_numpy(namespace(own).bincount(own, minlength=len(loglik)))).tolist()
    for i, (a, b) in enumerate(zip([0, *ends], ends)):
        kernel.gather([total[0][i : i + 1]], y[..., a:b], r[..., a:b])


def _spread(kernel: Full, total: Array, own: Array, r: Array, runs: list[Run], made: list[Projection]) -> None:
    """Add sum r Cov[y], the part of the second moment that the conditional means lack.

    Also adds the terms that were left out where components share their columns.
    """
    xp, k, p = namespace(r), len(r), len(runs)
    pattern = np.repeat(np.arange(p), [run.stop - run.start for run in runs])
    index = own * p + (xp.asarray(pattern, device=own.device) if is_torch(own) else pattern)
    mass = _sums_by(r, index, len(total) * p).reshape(k, -1, p)
    spread = xp.stack([one.spread for one in made], 1)  # (k or 1, p, d, d)
    d = spread.shape[-1]
    moment = mass @ spread.reshape(-1, p, d * d)
    total[..., 1:, 1:] += moment.reshape(k, -1, d, d).swapaxes(0, 1)
    if kernel.common:
        shift = double(xp.stack([one.shift for one in made], 1), total)  # (k, p, d)
        total[..., 1:, 0] -= (mass @ shift).swapaxes(0, 1)
        total[:, 0, 1:, 1:] += xp.einsum("klp,kpd,kpe->lde", mass, shift, shift)


def _sums_by(values: Array, index: Array, size: int) -> Array:
    """(k, n) summed by the index of each column: (k, size), float64."""
    xp = namespace(values)
    if xp is np:
        return np.stack([np.bincount(index, v, size) for v in values])
    out = xp.zeros((len(values), size), dtype=xp.float64, device=values.device)
    return out.index_add_(1, index, values.double())


def log_density(kernel: Full, x: Array) -> Array:
    """Log density (n, k) of the observed values of rows (n, d) under each component."""
    found, ids = patterns(x, indices(len(x), x))
    out = cast(zeros((len(x), kernel.size[0]), x), x)
    for which, runs in portions(ids, kernel, room(kernel.width, x)):
        made = projections(kernel, found[[run.pattern for run in runs]])
        out[which] = whitened(kernel, x[which], runs, made)[1][0].T
    return out


# ---- conditional distributions of missing values ----


@message("maths.missing.Given")
class Given(NamedTuple):
    """Rows with one pattern of missing values: the distribution of the missing columns u given the others."""

    rows: Array  # (m,), indices of rows in x
    missing: np.ndarray  # (u,)
    r: Array  # (m, k), probabilities of the components given the observed values
    means: Array  # (m, k, u)
    covs: Array  # (k, u, u), the same for all these rows


def conditional(params: Any, x: Array, shape: str) -> Iterator[Given]:
    """Conditional distributions of rows (n, d), by pattern; complete rows are left out."""
    xp, x = namespace(x), floating(x)
    kernel = kernel_for(params, shape, x, holes=True)
    places = xp.where(xp.isnan(x).any(1))[0]
    if not len(places):
        return
    found, ids = patterns(x, places)
    log_weights = cast(log(double(params.weights, x)), x)[:, None]
    for which, runs in portions(ids, kernel, room(kernel.width, x)):
        here = places[which]
        holes = [found[run.pattern] for run in runs]
        q, parts = (_dependent if kernel.by_pattern else _independent)(kernel, x[here], runs, np.array(holes))
        r, _ = responsibilities(q + log_weights, 1.0)
        for run, u, (means, covs) in zip(runs, holes, parts):
            part = slice(run.start, run.stop)
            yield Given(here[part], np.flatnonzero(u), r[0, :, part].T, means, covs)


def _dependent(kernel: Full, x: Array, runs: list[Run], found: np.ndarray) -> tuple[Array, list[tuple[Array, Array]]]:
    """Log densities (1, k, n), and (means, covs) of the missing values of each run, for dependent columns."""
    made = projections(kernel, found)
    parts = []
    y, q = whitened(kernel, x, runs, made)
    for run, p, holes in zip(runs, made, found):
        u = np.flatnonzero(holes)
        factor = kernel.factors[:, u]  # (k or 1, u, d)
        white = double(y[0, : len(p.maps), 1:, run.start : run.stop], y)
        if kernel.common:
            white = white - double(p.shift, y)[..., None]
        means = factor @ white + kernel.means[:, u, None]
        covs = factor @ p.spread @ factor.swapaxes(-1, -2) + zeros((kernel.size[0], 1, 1), y)
        parts.append((namespace(y).moveaxis(means, 2, 0), covs))
    return q, parts


def _independent(
    kernel: Diagonal, x: Array, runs: list[Run], found: np.ndarray
) -> tuple[Array, list[tuple[Array, Array]]]:
    """The same as `_dependent` for independent columns: the component's own means and variances."""
    q = kernel.log_density(kernel.features(columns(x[None], None, kernel.centre)))
    parts = []
    for run, holes in zip(runs, found):
        u = np.flatnonzero(holes)
        means = kernel.means[:, u][None] + zeros((run.stop - run.start, 1, 1), x)
        parts.append((means, kernel.variances[:, u, None] * gaussian.eye(len(u), kernel.means)))
    return q, parts


def impute(params: Any, x: Array, shape: str) -> Array:
    """Rows (n, d) with missing values replaced by their conditional means."""
    x = floating(x) + 0
    for g in conditional(params, x, shape):
        x[g.rows[:, None], g.missing] = cast((g.r[:, :, None] * g.means).sum(1), x)
    return x


def conditional_moments(params: Any, x: Array, shape: str) -> tuple[Array, Array]:
    """Mean (n, d) and covariance (n, d, d) of every row given its observed values; the covariance is 0 where nothing is
    missing.
    """
    x = floating(x)
    mean = double(x, x) + 0
    covariance = zeros((*x.shape, x.shape[-1]), x)
    for g in conditional(params, x, shape):
        r = double(g.r, x)
        middle = (r[:, :, None] * g.means).sum(1)
        off = g.means - middle[:, None]  # (m, k, u): the means differ by component, which adds to the covariance
        between = (r[:, :, None] * off).swapaxes(1, 2) @ off
        within = (r @ g.covs.reshape(g.covs.shape[0], -1)).reshape(between.shape)
        mean[g.rows[:, None], g.missing] = middle
        covariance[g.rows[:, None, None], g.missing[:, None], g.missing] = within + between
    return mean, covariance
