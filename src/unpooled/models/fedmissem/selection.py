"""Which models FedMissEM tries, and which enter the next stage; sends nothing.

Three stages, each with all its candidates in the same rounds: family and penalty without factors; the penalty of sites and of dates
apart; factors, which are learned for sites and dates (low rank) or are a smooth curve per site. A model is fitted once per fold of
visits that are held back. Its loss on them is the squared error divided by a typical variance of the cell, the same for all models: it
compares families, and a few large cells do not decide. The log-linear model of site and date is the rank 0 of family "poisson".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.models.fedmissem import bilinear
from unpooled.models.fedmissem.bilinear import Factors, Penalties
from unpooled.models.fedmissem.questions import Held
from unpooled.tree import message

RANKS = (0, 1, 2, 3)
EFFECTS = (0.01, 0.1, 1.0, 10.0, 100.0)  # penalties of effects, in units of the scaled values
SITES = (0.3, 1.0, 3.0)  # around the best of them
DATES = (0.1, 1.0, 10.0)
FACTORS = (0.3, 1.0)  # times the penalty at which noise alone gives no factors; the second for a rank that is given
CURVES = (10.0, 100.0)  # penalties of the curves of sites
N_CURVES = 4  # most cosines of a site's curve
CLEARLY = 2.0  # standard errors by which another family must be better than the first
ALL_FOLDS = 2000  # with fewer visits than this every fold is held back in turn, else the first alone


@message("fedmissem.Model")
class Model(NamedTuple):
    """What is to be fitted."""

    family: str
    rank: int
    penalties: Penalties
    curves: bool = False  # whether factors of dates are smooth functions of the date, which stay as they are


@message("fedmissem.Candidate")
class Candidate(NamedTuple):
    """A model, fitted without the visits of one fold."""

    model: Model
    fold: int  # -1: none is held back
    factors: Factors
    best: Factors  # before the last step, to go back half the way if it was too long
    loss: float  # of best
    dispersion: float
    sites: np.ndarray  # (j, q, q) covariances of coefficients
    dates: np.ndarray  # (l, q, q)
    settled: bool


@message("fedmissem.Fitted")
class Fitted(NamedTuple):
    """A model, fitted to all visits, in the values' own unit."""

    model: Model
    factors: Factors


def fresh(model: Model, fold: int, factors: Factors) -> Candidate:
    """A candidate before its first step."""
    q = factors.left.shape[1] - 1
    sites = np.zeros((len(factors.left), q, q))
    dates = np.zeros((len(factors.right), q, q))
    return Candidate(model, fold, factors, factors, np.inf, 1.0, sites, dates, False)


def effect_models(families: tuple[str, ...], penalty: float | None) -> list[Model]:
    """Every family, with every penalty of effects or the given one."""
    penalties = EFFECTS if penalty is None else (penalty,)
    return [Model(family, 0, Penalties(p, p, p)) for family in families for p in penalties]


def apart_models(best: Model, penalty: float | None) -> list[Model]:
    """Other penalties of sites and of dates, around those of the best model; it comes first."""
    if penalty is not None:
        return [best]
    base = best.penalties.sites
    pairs = [(1.0, 1.0)] + [(s, d) for s in SITES for d in DATES if (s, d) != (1.0, 1.0)]
    return [best._replace(penalties=Penalties(s * base, d * base, base)) for s, d in pairs]


def rank_models(best: Model, ranks: tuple[int, ...], penalty: float | None, threshold: float) -> list[Model]:
    """The best model of effects for rank 0, and every other rank with a penalty of factors; a single rank with several."""
    if penalty is not None:
        penalties = [penalty]
    else:
        n_tried = 2 if len(ranks) == 1 else 1
        penalties = [factor * threshold for factor in FACTORS[:n_tried]]
    made = [best] if 0 in ranks else []
    for rank in ranks:
        if rank:
            made += [best._replace(rank=rank, penalties=best.penalties._replace(factors=p)) for p in penalties]
    return made


def curve_models(best: Model, n_dates: int) -> list[Model]:
    """The best model of effects with a smooth curve per site, with every penalty of curves."""
    rank = min(N_CURVES, n_dates // 2)
    made = [best._replace(rank=rank, penalties=best.penalties._replace(factors=p), curves=True) for p in CURVES]
    return made if rank else []


def noise_threshold(n_sites: int, n_dates: int, visits: float) -> float:
    """The penalty of factors below which noise alone has some: the largest singular value of as many normal residuals."""
    return float(np.sqrt(visits / (n_sites * n_dates)) * (np.sqrt(n_sites) + np.sqrt(n_dates)))


def widened(c: Candidate, model: Model, rng: np.random.Generator) -> Candidate:
    """A candidate for another model that starts at the effects of this one."""
    start = bilinear.with_curves(c.best, model.rank) if model.curves else bilinear.with_rank(c.best, model.rank, rng)
    return fresh(model, c.fold, start)._replace(dispersion=c.dispersion)


def best_model(held: Held, models: list[Model]) -> int:
    """The model with the smallest loss, one of the first family unless another family is clearly better."""
    losses = np.diag(to_numpy(held.errors))
    of_first = np.array([m.family == models[0].family for m in models])
    best = int(np.argmin(losses))
    first = int(np.argmin(np.where(of_first, losses, np.inf)))
    worse, error = compared(held, best)
    return best if worse[first] > CLEARLY * error[first] else first


def compared(held: Held, best: int) -> tuple[np.ndarray, np.ndarray]:
    """(how much larger each loss per visit is than one of them, the standard error of that difference)."""
    n = max(float(held.visits), 1e-300)
    products = to_numpy(held.losses)
    loss = np.diag(to_numpy(held.errors)) / n
    worse = loss - loss[best]
    square = (np.diag(products) - 2 * products[best] + products[best, best]) / n
    return worse, np.sqrt(np.maximum(square - worse**2, 0.0) / n)
