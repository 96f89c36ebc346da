"""What a mixed mixture says of missing cells given the others of their row: moments of numbers, probabilities of levels. Sends nothing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.maths import missing
from unpooled.maths.mixture import Params as Gaussian
from unpooled.models.mixed import counts, em
from unpooled.models.mixed.columns import Columns
from unpooled.models.mixed.messages import Params
from unpooled.models.mixed.rows import gaussian_block


class ByComponent(NamedTuple):
    """Rows of one pattern of missing numbers: moments by component of all columns of the Gaussian block."""

    rows: np.ndarray  # (m,)
    means: np.ndarray  # (m, k, g); the value itself where it is there
    covs: np.ndarray  # (k, g, g); 0 where a value is there


def responsibilities(params: Params, x: np.ndarray, columns: Columns, shape: str) -> np.ndarray:
    """Probabilities of the components given what is there of each row, (n, k)."""
    joint = em.log_joint(params, x, columns, shape)
    r = np.exp(joint - joint.max(1, keepdims=True))
    return r / r.sum(1, keepdims=True)


def gaussian_moments(params: Gaussian, z: np.ndarray, shape: str) -> list[ByComponent]:
    """Moments of the missing values of the Gaussian block (n, g), by pattern; complete rows are left out."""
    k, g = params.means.shape
    if not g:
        return []
    found = []
    for given in missing.conditional(params, z, shape):
        u = given.missing
        means = np.repeat(z[given.rows][:, None], k, axis=1)
        means[:, :, u] = given.means
        covs = np.zeros((k, g, g))
        covs[:, u[:, None], u] = given.covs
        found.append(ByComponent(given.rows, means, covs))
    return found


def filled(params: Params, x: np.ndarray, columns: Columns, shape: str) -> np.ndarray:
    """Rows (n, d) with missing numbers and counts at their means, missing levels at the most likely ones."""
    x = np.array(x, dtype=np.float64)
    r = responsibilities(params, x, columns, shape)
    out = x.copy()
    _fill_gaussian(out, params.gaussian, r, columns, shape)
    for i, j in enumerate(columns.counts):
        gaps = np.isnan(x[:, j])
        out[gaps, j] = r[gaps] @ params.mean[:, i]
    for j, part in zip(columns.discrete, columns.parts):
        gaps = np.isnan(x[:, j])
        out[gaps, j] = (r[gaps] @ params.levels[:, part]).argmax(1)
    return out


def _fill_gaussian(out: np.ndarray, params: Gaussian, r: np.ndarray, columns: Columns, shape: str) -> None:
    """Fill missing numbers with their conditional means."""
    z, _ = gaussian_block(out, columns)
    for some in gaussian_moments(params, z, shape):
        natural, _ = lognormal(some.means, some.covs, columns.is_log)
        mean = (r[some.rows][:, :, None] * natural).sum(1)
        gaps = np.isnan(z[some.rows[0]])
        out[some.rows[:, None], columns.gaussian[gaps]] = mean[:, gaps]


def probabilities(params: Params, x: np.ndarray, columns: Columns, shape: str) -> dict[int, np.ndarray]:
    """Probabilities (n, levels) of every discrete column given what is there of each row, by the column's index."""
    r = responsibilities(params, x, columns, shape)
    return {int(j): r @ params.levels[:, part] for j, part in zip(columns.discrete, columns.parts)}


def lognormal(means: np.ndarray, covs: np.ndarray, is_log: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Moments (m, k, g) and (m, k, g, g) in the columns' own units, from those with logarithms taken where `is_log`."""
    variances = np.einsum("kgg->kg", covs)
    natural = np.where(is_log, np.exp(np.where(is_log, means + variances / 2, 0.0)), means)
    factor = np.where(is_log, natural, 1.0)
    both = is_log[:, None] & is_log
    covariance = np.where(both, np.expm1(np.where(both, covs, 0.0)), covs)
    return natural, covariance * factor[..., :, None] * factor[..., None, :]


def moments(
    params: Params, x: np.ndarray, columns: Columns, shape: str, wanted: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean (n, u) and covariance (n, u, u) of the columns `wanted`, none of them discrete, given what is there of each row."""
    r = responsibilities(params, x, columns, shape)
    n = len(x)
    k = r.shape[1]
    u = len(wanted)
    means = np.zeros((n, k, u))
    covs = np.zeros((n, k, u, u))
    _by_gaussian(means, covs, params.gaussian, x, columns, shape, wanted)
    for a, j in enumerate(wanted):
        if j in columns.counts:
            i = int(np.flatnonzero(columns.counts == j)[0])
            means[:, :, a] = params.mean[:, i]
            covs[:, :, a, a] = counts.variance(params.mean[:, i], params.dispersion[:, i])
    mean = (r[:, :, None] * means).sum(1)
    off = means - mean[:, None]
    covariance = (r[:, :, None, None] * covs).sum(1) + (r[:, :, None] * off).swapaxes(1, 2) @ off
    return mean, covariance


def _by_gaussian(
    means: np.ndarray,
    covs: np.ndarray,
    params: Gaussian,
    x: np.ndarray,
    columns: Columns,
    shape: str,
    wanted: np.ndarray,
) -> None:
    """Conditional means and covariances of the numbers, averaged over components."""
    z, _ = gaussian_block(x, columns)
    to = np.array([a for a, j in enumerate(wanted) if j in columns.gaussian], dtype=int)  # places in the result
    at = np.array([int(np.flatnonzero(columns.gaussian == wanted[a])[0]) for a in to], dtype=int)  # in the Gaussian
    components = np.arange(means.shape[1])
    for some in gaussian_moments(params, z, shape):
        natural, spread = lognormal(some.means, some.covs, columns.is_log)
        means[some.rows[:, None, None], components[:, None], to] = natural[:, :, at]
        by_row = np.broadcast_to(spread, (len(some.rows), *spread.shape[-3:]))
        covs[np.ix_(some.rows, components, to, to)] = by_row[:, :, at[:, None], at]
