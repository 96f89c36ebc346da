"""The E-step and M-step of a mixed mixture: pure functions of arrays, NumPy, missing cells included.

The Gaussian block is computed by `maths.mixture`; what the other columns say of a row is added to its log densities there, and its
responsibilities come back for their sums.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np

from unpooled import tree
from unpooled.maths import gaussian, mixture
from unpooled.maths.kernel import Beside, log, responsibilities
from unpooled.models import initialization
from unpooled.models.mixed import counts, levels
from unpooled.models.mixed.columns import Columns
from unpooled.models.mixed.messages import Params, Prior, Stats
from unpooled.models.mixed.rows import Entries, Rows, Table, by_combination, by_entry, split

# ---- the E-step ----


def e_step(params: Params, table: Table, columns: Columns, shape: str, log_weights: np.ndarray | None = None) -> Stats:
    """Statistics of rows, as `rows.split` gives them; `log_weights` (k,) stand in for the mixture's own."""
    table_of_logs = _log_probabilities(params, table.entries)
    discrete = (_discrete_log_density(table_of_logs, rows, len(params.gaussian.weights)) for rows in table.pieces)
    return _stats(params.gaussian, table, columns, shape, log_weights, discrete)


def first_step(given: mixture.Params, table: Table, r: np.ndarray, columns: Columns, shape: str) -> Stats:
    """Statistics of rows under given responsibilities (n, k); `given` has alike components, about which moments are taken."""
    starts = np.cumsum([0] + [len(rows.w) for rows in table.pieces])
    discrete = (log(r[a:b]) for a, b in pairwise(starts))
    return _stats(given, table, columns, shape, None, discrete)


def _stats(
    params: mixture.Params,
    table: Table,
    columns: Columns,
    shape: str,
    log_weights: np.ndarray | None,
    discrete: Iterable[np.ndarray],
) -> Stats:
    """Statistics of a table; `discrete` are the log densities (n, k) of what is not Gaussian, piece by piece."""
    blocks, held = [], []
    for rows, own in zip(table.pieces, discrete):
        r = np.empty_like(own)
        block = _gaussian_stats(params, rows.gaussian, rows.w, shape, log_weights, Beside(own, r))
        blocks.append(block._replace(loglik=block.loglik + rows.w @ rows.log_jacobian))
        if rows.ones is not None:
            held.append(rows.ones.T @ r)
    sums = by_entry(table.entries, sum(held)) if held else np.zeros((0, len(params.weights)))
    return Stats(total(blocks), sums[: columns.t].T, *counts.stats(table.entries.counts, sums[columns.t :]))


def total(parts: list[Any]) -> Any:
    """The sum of statistics of several parts of the rows."""
    return reduce(tree.add, parts)


def _gaussian_stats(
    params: mixture.Params, x: np.ndarray, w: np.ndarray, shape: str, log_weights: np.ndarray | None, beside: Beside
) -> mixture.Stats:
    """Statistics of the Gaussian block, with log densities of the other columns added to its own."""
    if x.shape[1]:
        return mixture.e_step(params, x, w, shape, log_weights, beside)
    weights = log(params.weights) if log_weights is None else log_weights
    r, by_row = responsibilities((beside.log_density + weights).T[None], w)
    beside.r[:] = r[0].T
    k = len(params.weights)
    return mixture.Stats(r[0].sum(1), np.zeros((k, 0)), 0 * params.covs, by_row.sum(), w.sum())


# ---- what discrete columns and counts say ----


def _log_probabilities(params: Params, entries: Entries) -> np.ndarray:
    """Log probabilities of all combinations of levels and counts by component, (combinations, k)."""
    if not entries.groups:
        return np.zeros((0, len(params.gaussian.weights)))
    of_counts = counts.log_pmf(entries.counts, params.mean, params.dispersion)
    return by_combination(entries, np.concatenate([log(params.levels).T, of_counts]))


def _discrete_log_density(table_of_logs: np.ndarray, rows: Rows, k: int) -> np.ndarray:
    """Log densities of the levels and counts of rows by component, (n, k)."""
    return np.zeros((len(rows.w), k)) if rows.ones is None else rows.ones @ table_of_logs


def log_joint(params: Params, x: np.ndarray, columns: Columns, shape: str) -> np.ndarray:
    """log (weight times density) of the observed values, by component: x (n, d) to (n, k)."""
    table = split(x, np.ones(len(x)), columns)
    logs = _log_probabilities(params, table.entries)
    return np.concatenate([_log_joint(params.gaussian, logs, rows, shape) for rows in table.pieces])


def _log_joint(params: mixture.Params, table_of_logs: np.ndarray, rows: Rows, shape: str) -> np.ndarray:
    """`log_joint` of some rows."""
    discrete = _discrete_log_density(table_of_logs, rows, len(params.weights)) + rows.log_jacobian[:, None]
    if rows.gaussian.shape[1]:
        return mixture.log_joint(params, rows.gaussian, shape) + discrete
    return log(params.weights) + discrete


def log_density(params: Params, x: np.ndarray, columns: Columns, shape: str) -> np.ndarray:
    """log p of the observed values: x (n, d) to (n,)."""
    return responsibilities(log_joint(params, x, columns, shape).T[None], 1.0)[1][0]


# ---- the M-step ----


def m_step(
    params: Params, stats: Stats, prior: Prior, columns: Columns, shape: str, reg: float, smoothing: float
) -> Params:
    """The parameters that maximise the expected log-likelihood and the log prior.

    Parameters
    ----------
    params : Params
        The parameters that the statistics were taken at.
    stats : Stats
        Sums over all rows.
    prior : Prior
        Overall shares of levels and means of counts.
    columns : Columns
        Kinds of the columns and where they lie in the blocks.
    shape : {"full", "tied", "diag", "spherical"}
        Of the Gaussian block's covariances.
    reg : float
        Added to variances.
    smoothing : float
        Rows of the overall shares that are added to each component's levels.
    """
    block = _gaussian_m_step(params.gaussian, stats.gaussian, shape, reg)
    probs = levels.m_step(stats.levels, prior.levels, columns, smoothing)
    mean, dispersion = counts.m_step(stats.seen, stats.counts, stats.gammas, prior.mean, smoothing)
    return Params(block, probs, mean, dispersion)


def without(params: Params, kept: np.ndarray, shape: str) -> Params:
    """The mixture of the components that are kept: they hold the rows of the others too."""
    block, *discrete = params
    return Params(initialization.without(block, kept, shape), *(part[kept] for part in discrete))


def _gaussian_m_step(params: mixture.Params, stats: mixture.Stats, shape: str, reg: float) -> mixture.Params:
    """New parameters of the Gaussian block, covariances kept positive."""
    if not params.means.shape[1]:
        n = stats.n + gaussian.TINY
        return params._replace(weights=n / n.sum())
    found = mixture.m_step(params, stats, shape, reg)
    return found._replace(covs=gaussian.project_positive(found.covs, shape, reg))


def log_prior(params: Params, prior: Prior, smoothing: float) -> float:
    """Of the probabilities of levels and the means of counts, up to what no parameter changes."""
    of_levels = levels.log_prior(params.levels, prior.levels, smoothing)
    return of_levels + counts.log_prior(params.mean, params.dispersion, prior.mean, smoothing)


def n_parameters(k: int, columns: Columns, shape: str) -> int:
    """Free parameters of a mixture of k components, for BIC and AIC."""
    g = len(columns.gaussian)
    block = gaussian.n_parameters(k, g, shape) if g else k - 1
    return block + k * (levels.n_parameters(columns) + 2 * len(columns.counts))
