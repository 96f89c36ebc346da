"""Which mixtures are tried, and one step of EM for each: priors that hold components of few rows together. Nothing is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from unpooled.maths import gaussian
from unpooled.maths.mixture import Params, Stats
from unpooled.models.initialization import without
from unpooled.models.mixture import few_rows
from unpooled.models.mixture_imputer.leaps import leap
from unpooled.tree import message

SIZES = (2, 3, 5, 8, 12)
LOG_SIZES = (1, 3, 5)
PRIORS = (1.0, 10.0)  # times the number of columns: rows of uncorrelated columns that the prior is worth
# the same for one component: weak if columns hardly differ, strong if they hardly depend on others
SINGLE = (*PRIORS, 0.1, 0.01, 0.001, 30.0, 100.0)
WEAK = 0.03  # the same for several components, so that columns that nearly determine each other are seen to do so
WEAK_SIZES = (2, 3, 5)
POOLED = 4.0  # times the number of columns: rows with the covariance of all components that each component is given
ROWS_A_PARAMETER = 10  # a size with fewer has no covariances of its own
ROWS_A_COLUMN = 4  # a component with fewer for each column is not tried
LEAPT = 2  # mixtures in the path of a candidate that has just leapt
WORK = 2e9  # multiplications for one factorisation of every component in every pattern of gaps: more candidates are not tried


@message("mixture_imputer.Candidate")
class Candidate(NamedTuple):
    """One mixture that is tried, with its priors."""

    params: Params
    prior: float  # rows of uncorrelated columns
    pooled: float  # rows with the covariance of all components together, for each component
    loglik: float  # a row, at the params before the last update
    settled: bool
    logs: bool = False  # whether it is a mixture of logarithms of skewed columns
    # of one component: where the last step of EM began; after a leap, where that step led as well
    path: tuple[Params, ...] = ()


def is_anchor(c: Candidate) -> bool:
    """Whether it is a single Gaussian of the columns as they are: mixtures may not stray from these."""
    return len(c.params.weights) == 1 and not c.logs


class Kind(NamedTuple):
    """A candidate before it is fitted."""

    k: int
    prior: float
    pooled: float


def automatic(rows: float, e: int, prior: float | None = None) -> list[Kind]:
    """What is tried for a table of so many rows and embedded columns, within the work that a round may cost."""
    priors = [prior] if prior is not None else [p * e for p in PRIORS]
    kinds = [Kind(1, p, 0.0) for p in (priors if prior is not None else [p * e for p in SINGLE])]
    per_component = e * (e + 3) / 2 + 1
    for k in SIZES:
        if rows >= ROWS_A_COLUMN * k * (e + 1):
            kinds.append(Kind(k, priors[0], POOLED * e))
        if rows >= ROWS_A_PARAMETER * k * per_component:
            kinds.append(Kind(k, priors[0], 0.0))
    if prior is None:
        shared = [kind for kind in kinds if kind.pooled and kind.k in WEAK_SIZES]
        kinds += [kind._replace(prior=WEAK * e) for kind in shared]
    patterns = min(rows, 2.0**e)
    spent = np.cumsum([kind.k * patterns * e**3 for kind in kinds])
    return [kind for kind, work in zip(kinds, spent) if kind.k == 1 or work <= WORK]


def of_logarithms(kinds: list[Kind]) -> list[Kind]:
    """What is tried with logarithms of skewed columns: one of each size, with a covariance that components share in part."""
    first = {kind.k: kind for kind in reversed(kinds)}
    return [first[k] for k in LOG_SIZES if k in first]


def asked_for(sizes: Sequence[int], prior: float | None, e: int) -> list[Kind]:
    """What is tried for the sizes, and the prior if there is one, that the user gave."""
    priors = [prior] if prior is not None else [p * e for p in PRIORS]
    return [Kind(int(k), float(p), 0.0) for k in sizes for p in priors]


def moved(
    c: Candidate, stats: Stats, centre: np.ndarray, scale: np.ndarray, tol: float, least: float = 0.0
) -> Candidate:
    """The candidate after a round: a step of EM, and with one component a leap after every second one.

    A leap that makes the rows less likely, by more than the tolerance, is taken back. One component has settled when a leap gains
    little: steps of EM may gain little long before, see `leaps`. Components of fewer rows than `least` are left out instead of a step.
    """
    kept = few_rows.held([stats.n], least)
    if not kept.all():
        return c._replace(params=without(c.params, kept, "full"), loglik=-np.inf, settled=False)
    loglik = float(stats.loglik / stats.rows)
    leapt = len(c.path) == LEAPT
    if leapt and loglik < c.loglik - tol:
        return c._replace(params=c.path[-1], path=())
    params = map_step(c.params, stats, centre, scale, c.prior, c.pooled)
    gains_little = abs(loglik - c.loglik) < tol
    if len(c.params.weights) > 1:
        return c._replace(params=params, loglik=loglik, settled=gains_little)
    if len(c.path) == 1:
        return c._replace(params=leap(*c.path, c.params, params, scale), loglik=loglik, path=(c.params, params))
    return c._replace(params=params, loglik=loglik, path=(c.params,), settled=leapt and gains_little)


def map_step(
    params: Params, stats: Stats, centre: np.ndarray, scale: np.ndarray, prior: float, pooled: float = 0.0
) -> Params:
    """The next mixture under the prior: one row at the centre and `prior` rows of uncorrelated columns for each component.

    With `pooled`, those rows are given once to the covariance of all components together, and each component gets `pooled` rows of it.
    """
    k, d = params.means.shape
    away = centre - params.means
    n, x = stats.n + 1.0, stats.x + away
    xx = gaussian.unpack_triangle(stats.xx) + away[:, :, None] * away[:, None, :]
    scatter = xx - x[:, :, None] * (x / n[:, None])[:, None, :]
    flat = prior * np.diag((scale / k ** (1 / d)) ** 2)
    if pooled:
        common = (scatter.sum(0) + flat) / (n.sum() + prior)
        covs = (scatter + pooled * common) / (n + pooled)[:, None, None]
    else:
        covs = (scatter + flat) / (n + prior)[:, None, None]
    return Params(n / n.sum(), params.means + x / n[:, None], gaussian.pack_covs(covs, "full"))
