"""Which models FedMissEM tries, which enter the next stage and which may be averaged; sends nothing.

Three stages, each with all its candidates in the same rounds: family and penalty without factors; the penalty of sites and of dates
apart; rank and penalty of the factors. A model is fitted once per fold of visits that are held back, and judged on them: by
deviance within a family, by squared errors between families and among models that deviance does not tell apart. The log-linear model of
site and date is the rank 0 of family "poisson". Models of the chosen family are averaged, factors only if they beat effects by both
losses.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.models.fedmissem import bilinear
from unpooled.models.fedmissem.bilinear import FREE, Factors, Penalties
from unpooled.models.fedmissem.questions import Held, Losses
from unpooled.tree import message

RANKS = (0, 1, 2, 3)
EFFECTS = (0.01, 0.1, 1.0, 10.0, 100.0)  # penalties of effects, in units of the scaled values
SITES = (0.3, 1.0, 3.0)  # around the best of them
DATES = (FREE, 0.1, 1.0, 10.0)
FACTORS = (0.1, 0.3, 1.0)  # times the penalty at which noise alone gives no factors
CLEARLY = 2.0  # standard errors by which factors must be better than effects
ALIKE = 3.0  # standard errors within which deviance does not tell models apart
FAMILY = 1.0  # standard errors by which another family must be better
ALL_FOLDS = 2000  # with fewer visits than this every fold is held back in turn, else the first alone


@message("fedmissem.Model")
class Model(NamedTuple):
    """What is to be fitted."""

    family: str
    rank: int
    penalties: Penalties


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
    sites, dates = (np.zeros((len(side), q, q)) for side in factors)
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
    return [best._replace(penalties=Penalties(s * base, max(d * base, FREE), base)) for s, d in pairs]


def rank_models(best: Model, ranks: tuple[int, ...], penalty: float | None, threshold: float) -> list[Model]:
    """The best model of effects for rank 0, and every other rank with every penalty of factors."""
    penalties = [f * threshold for f in reversed(FACTORS)] if penalty is None else [penalty]
    made = [best] if 0 in ranks else []
    for rank in ranks:
        if rank:
            made += [best._replace(rank=rank, penalties=best.penalties._replace(factors=p)) for p in penalties]
    return made


def noise_threshold(n_sites: int, n_dates: int, visits: float) -> float:
    """The penalty of factors below which noise alone has some: the largest singular value of as many normal residuals."""
    return float(np.sqrt(visits / (n_sites * n_dates)) * (np.sqrt(n_sites) + np.sqrt(n_dates)))


def widened(c: Candidate, model: Model, rng: np.random.Generator) -> Candidate:
    """A candidate for another model that starts at the effects of this one."""
    return fresh(model, c.fold, bilinear.with_rank(c.best, model.rank, rng))._replace(dispersion=c.dispersion)


def best_family(held: Held, models: list[Model]) -> int:
    """Of the best models of each family, that of the first family unless another has clearly smaller errors.

    Squared errors compare families, whose deviances differ in kind. They have heavy tails for counts: a few large cells should not
    decide, so another family must be better by FAMILY standard errors.
    """
    names = list(dict.fromkeys(m.family for m in models))
    best = [best_model(held, models, name) for name in names]
    lowest = min(best, key=lambda i: held.squares.total[i])
    worse, error = compared(held.squares, float(held.visits), lowest)
    return best[0] if worse[best[0]] <= FAMILY * error[best[0]] else lowest


def best_model(held: Held, models: list[Model], family: str | None = None) -> int:
    """Of the models of one family, the one with the smallest squared error among those that deviance does not tell from the best."""
    among = [i for i, m in enumerate(models) if family in (None, m.family)]
    deviances, squares = to_numpy(held.deviances.total), to_numpy(held.squares.total)
    lowest = min(among, key=lambda i: deviances[i])
    worse, error = compared(held.deviances, float(held.visits), lowest)
    alike = [i for i in among if worse[i] <= ALIKE * error[i]]
    return min(alike, key=lambda i: squares[i])


def may_be_averaged(held: Held, models: list[Model], family: str) -> np.ndarray:  # (models,)
    """Which models may be averaged: those of the chosen family, factors only if they are better than its best effects.

    They must be so clearly by deviance, and by squared error too: factors that fit most cells better may be far off in the largest ones.
    """
    of_family = np.array([m.family == family for m in models])
    effects = of_family & np.array([m.rank == 0 for m in models])
    if not effects.any():
        return of_family
    deviances, squares = to_numpy(held.deviances.total), to_numpy(held.squares.total)
    best = int(np.argmin(np.where(effects, deviances, np.inf)))
    worse, error = compared(held.deviances, float(held.visits), best)
    better = (worse < -CLEARLY * error) & (squares <= squares[effects].min())
    return effects | (of_family & better)


def compared(losses: Losses, visits: float, best: int) -> tuple[np.ndarray, np.ndarray]:
    """(how much worse each model is than one of them per visit, the standard error of that difference)."""
    n, products = max(visits, 1e-300), to_numpy(losses.products)
    mean = to_numpy(losses.total) / n
    worse = mean - mean[best]
    square = (np.diag(products) - 2 * products[best] + products[best, best]) / n
    return worse, np.sqrt(np.maximum(square - worse**2, 0.0) / n)
