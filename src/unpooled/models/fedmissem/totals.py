"""Totals over sites by date with their standard errors, from the sums over visited cells (`fedmissem.seen`). Sends nothing."""

from __future__ import annotations

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.models.fedmissem.questions import Seen, Width, cell_moments

ROUNDING = 1e-10  # relative


def totals(width: Width, visited: Seen, dispersion: float, family: str, trials: int) -> tuple[np.ndarray, np.ndarray]:
    """By date, of scaled values: what was seen plus the means of what was not, and the standard error."""
    n_sites, n_dates = len(width.factors.left), len(width.factors.right)
    sums = [np.zeros(n_dates), np.zeros(n_dates), np.zeros(n_dates), np.zeros_like(to_numpy(visited.pull))]
    for date in range(n_dates):  # one column of the table at a time
        here = cell_moments(width, np.arange(n_sites), np.full(n_sites, date), family, trials)
        for total, part in zip(sums, here):
            total[date] = part.sum(axis=0)
    mean, noise, through, pull = sums
    unseen_noise = np.maximum(_rest(noise, to_numpy(visited.noise)), 0.0)
    unseen_through = np.maximum(_rest(through, to_numpy(visited.sites)), 0.0)
    unseen_pull = _rest(pull, to_numpy(visited.pull))
    by_date = np.einsum("lp,lpq,lq->l", unseen_pull, width.dates, unseen_pull)
    total = mean + to_numpy(visited.value) - to_numpy(visited.mean)
    return total, np.sqrt(dispersion * unseen_noise + unseen_through + np.maximum(by_date, 0.0))


def _rest(whole: np.ndarray, part: np.ndarray) -> np.ndarray:
    """What is left of sums; 0 where nothing but rounding is, so that a date that was seen in full has no error."""
    rest = whole - part
    return np.where(np.abs(rest) > ROUNDING * np.abs(whole), rest, 0.0)


def average_totals(
    weights: np.ndarray, found: list[tuple[np.ndarray, np.ndarray]]
) -> tuple[np.ndarray, np.ndarray]:  # (l,), (l,)
    """(totals, standard errors) of an average of models; where models differ, the total is less certain."""
    each, errors = (np.stack(part) for part in zip(*found))
    total = weights @ each
    return total, np.sqrt(weights @ (errors**2 + (each - total) ** 2))
