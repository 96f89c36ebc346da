"""The E-step and M-step of a mixed mixture: pure functions of arrays, NumPy, missing cells included.

The Gaussian block is computed by `maths.mixture`; what the other columns say of a row is added to its log densities there, and its
responsibilities come back for their sums.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unpooled import tree
from unpooled.maths import gaussian, mixture
from unpooled.maths.kernel import Beside, log, responsibilities
from unpooled.models.mixed import counts, levels
from unpooled.models.mixed.columns import Columns
from unpooled.models.mixed.messages import Params, Prior, Stats
from unpooled.models.mixed.rows import Rows, Values, looked_up, split, summed

# ---- the E-step ----

Blocks = Sequence[tuple[Rows, np.ndarray]]  # rows and their weights, in blocks


def e_step(
    params: Params, blocks: Blocks, columns: Columns, shape: str, log_weights: np.ndarray | None = None
) -> Stats:
    """Statistics of rows, as `rows.blocks` gives them; `log_weights` (k,) stand in for the mixture's own."""
    log_levels = log(params.levels).T
    parts = []
    for rows, w in blocks:
        said = _said(params, log_levels, rows)
        parts.append(_block(params.gaussian, rows, w, columns, shape, log_weights, said))
    return total(parts)


def first_step(given: mixture.Params, blocks: Blocks, r: np.ndarray, columns: Columns, shape: str) -> Stats:
    """Statistics of rows under given responsibilities (n, k); `given` has alike components, about which moments are taken."""
    parts, start = [], 0
    for rows, w in blocks:
        said = log(r[start : start + len(w)])
        parts.append(_block(given, rows, w, columns, shape, None, said))
        start += len(w)
    return total(parts)


def total(parts: list[Stats]) -> Stats:
    """The sum of statistics of several parts of the rows."""
    found = parts[0]
    for other in parts[1:]:
        found = tree.add(found, other)
    return found


def _block(
    params: mixture.Params,
    rows: Rows,
    w: np.ndarray,
    columns: Columns,
    shape: str,
    log_weights: np.ndarray | None,
    said: np.ndarray,
) -> Stats:
    """Statistics of one block of rows; `said` gets their log densities."""
    r = np.empty_like(said)
    block = _gaussian_stats(params, rows.gaussian, w, shape, log_weights, Beside(said, r))
    block = block._replace(loglik=block.loglik + w @ rows.log_jacobian)
    entries = rows.counts[-1].part.stop if rows.counts else columns.t
    held = np.zeros((0, r.shape[1])) if rows.ones is None else summed(rows, r, entries)  # (entries, k)
    return Stats(block, held[: columns.t].T, *_count_stats(rows.counts, held))


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


def _count_stats(columns: list[Values], held: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sums of r, of r times the count, and of r times the gamma terms: (k, m), (k, m), (k, m, a)."""
    k = held.shape[1]
    if not columns:
        return np.zeros((k, 0)), np.zeros((k, 0)), np.zeros((k, 0, len(counts.GRID)))
    seen = np.stack([held[c.part].sum(0) for c in columns], 1)
    sums = np.stack([c.values @ held[c.part] for c in columns], 1)
    gammas = np.stack([held[c.part].T @ c.gammas for c in columns], 1)
    return seen, sums, gammas


# ---- what discrete columns and counts say ----


def _said(params: Params, log_levels: np.ndarray, rows: Rows) -> np.ndarray:
    """Log densities of the levels and counts of rows by component, (n, k)."""
    if rows.ones is None:
        return np.zeros((len(rows.gaussian), len(params.gaussian.weights)))
    pairs = zip(rows.counts, params.mean.T, params.dispersion.T)
    tables = [counts.log_pmf(c.values, mean, spread) for c, mean, spread in pairs]
    return looked_up(rows, np.concatenate([log_levels, *tables]))


def log_joint(params: Params, x: np.ndarray, columns: Columns, shape: str) -> np.ndarray:
    """log (weight times density) of the observed values, by component: x (n, d) to (n, k)."""
    rows = split(x, columns)
    said = _said(params, log(params.levels).T, rows) + rows.log_jacobian[:, None]
    if rows.gaussian.shape[1]:
        return mixture.log_joint(params.gaussian, rows.gaussian, shape) + said
    return log(params.gaussian.weights) + said


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
