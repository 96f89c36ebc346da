"""Totals over sites by date with their standard errors, from the sums over visited cells (`fedmissem.seen`). Sends nothing."""

from __future__ import annotations

import numpy as np

from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.models.fedmissem import families
from unpooled.models.fedmissem.bilinear import average_theta
from unpooled.models.fedmissem.questions import Moments, Seen, Width, Widths, as_moments, cell_moments

ROUNDING = 1e-10  # relative


def totals(
    widths: Widths, visited: Seen, dispersion: float, family: str, trials: int
) -> tuple[np.ndarray, np.ndarray]:  # (l,), (l,)
    """By date, of scaled values: what was seen plus the means of what was not, and the standard error.

    Where models differ, the total is less certain.
    """
    visited = tree.map(to_numpy, visited)
    mean = _means_by_date(widths, family, trials)
    total = visited.value + mean - visited.mean
    variance = np.zeros_like(total)
    for weight, width, own in zip(widths.weights, widths.models, visited.models):
        whole = _whole_table(width, family, trials)
        away = visited.value + whole.mean - own.mean - total
        variance += weight * (_variance(width, whole, own, dispersion) + away**2)
    return total, np.sqrt(variance)


def _means_by_date(widths: Widths, family: str, trials: int) -> np.ndarray:  # (l,)
    """Means of the average, summed over all sites; one column of the table at a time."""
    factors = [m.factors for m in widths.models]
    n_sites = len(factors[0].left)
    n_dates = len(factors[0].right)
    site = np.arange(n_sites)
    theta = (average_theta(widths.weights, factors, site, np.full(n_sites, date)) for date in range(n_dates))
    return np.array([families.mean(column, family, trials).sum() for column in theta])


def _whole_table(width: Width, family: str, trials: int) -> Moments:
    """The moments of one model, summed over all sites; one column of the table at a time."""
    n_sites = len(width.factors.left)
    n_dates = len(width.factors.right)
    site = np.arange(n_sites)
    columns = [cell_moments(width, site, np.full(n_sites, d), family, trials).sum(axis=0) for d in range(n_dates)]
    return as_moments(np.stack(columns))


def _variance(width: Width, whole: Moments, visited: Moments, dispersion: float) -> np.ndarray:  # (l,)
    """The variance of a model's totals: noise of cells that were not seen, and their means through uncertain coefficients."""
    noise = np.maximum(_rest(whole.noise, visited.noise), 0.0)
    through = np.maximum(_rest(whole.sites, visited.sites), 0.0)
    pull = _rest(whole.pull, visited.pull)
    by_date = np.einsum("lp,lpq,lq->l", pull, width.dates, pull)
    return dispersion * noise + through + np.maximum(by_date, 0.0)


def _rest(whole: np.ndarray, part: np.ndarray) -> np.ndarray:
    """What is left of sums; 0 where nothing but rounding is, so that a date that was seen in full has no error."""
    rest = whole - part
    return np.where(np.abs(rest) > ROUNDING * np.abs(whole), rest, 0.0)
