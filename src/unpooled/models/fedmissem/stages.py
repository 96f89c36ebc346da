"""The stages of a fit of FedMissEM at the server: candidates of a stage are judged by one SUM, and the best enter the next stage.

The stages are: family and penalty of effects; penalties of sites and of dates apart; rank and penalty of factors; the fit to all visits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.estimator import Info
from unpooled.federation import Federation
from unpooled.models.fedmissem import families, selection
from unpooled.models.fedmissem.bilinear import Factors
from unpooled.models.fedmissem.questions import Fits, Held, judge
from unpooled.models.fedmissem.selection import RANKS, Candidate, Model
from unpooled.tree import message

EFFECTS, APART, RANK, FINAL = range(4)


@message("fedmissem.State")
class State(NamedTuple):
    """What a round carries on."""

    candidates: tuple[Candidate, ...]
    stage: int
    errors: np.ndarray  # (models,) root mean squared errors of the last choice
    round: int  # of the stage
    visits: float
    level: float  # mean of the values
    spread: float  # their standard deviation


def choose(model: Any, fed: Federation, state: State) -> tuple[State, Info]:
    """Judge the models of a stage by visits held back, and enter the next stage with the best."""
    models = list(dict.fromkeys(c.model for c in state.candidates))
    which = [models.index(c.model) for c in state.candidates]
    asked = list(state.candidates)
    ask = judge.using(n_folds=model.n_folds, trials=model.trials, models=which, **options(asked))
    held = fed.sum(ask, fits_of(state, asked, [c.best for c in asked]))
    errors = np.sqrt(to_numpy(held.squares.total) / max(float(held.visits), 1e-300))
    chosen = models[_best(held, models, state.stage)]
    kept = tuple(c for c in state.candidates if c.model == chosen)
    state = _next_stage(model, state._replace(candidates=kept, errors=errors), fed.journal.rng)
    return state, {"held_error": float(errors.min())}


def _best(held: Held, models: list[Model], stage: int) -> int:
    if stage == EFFECTS:
        return selection.best_family(held, models)
    return selection.simplest(held) if stage == RANK else selection.best_model(held, list(range(len(models))))


def _next_stage(model: Any, state: State, rng: np.random.Generator) -> State:
    """The candidates of the next stage, from those of the chosen model."""
    best, stage = state.candidates[0].model, state.stage + 1
    if stage == APART:
        models = selection.apart_models(best, model.penalty)
    elif stage == RANK:
        models = _rank_models(model, state, best)
    else:
        first = state.candidates[0]
        last = first._replace(fold=-1, factors=first.best, loss=np.inf, settled=False)
        return state._replace(candidates=(last,), stage=FINAL, round=0)
    candidates = tuple(selection.widened(c, m, rng) for m in models for c in state.candidates)
    return skip(model, state._replace(candidates=candidates, stage=stage, round=0), rng)


def _rank_models(model: Any, state: State, best: Model) -> list[Model]:
    n_sites, n_dates = (len(side) for side in state.candidates[0].factors)
    wanted = RANKS if model.rank is None else (model.rank,)
    most = min(n_sites, n_dates) - 1
    ranks = tuple(r for r in wanted if r <= (most // 2 if model.rank is None else most)) or (most,)
    threshold = selection.noise_threshold(n_sites, n_dates, state.visits)
    return selection.rank_models(best, ranks, model.penalty, threshold)


def skip(model: Any, state: State, rng: np.random.Generator | None = None) -> State:
    """Leave out a stage with a single model."""
    if len({c.model for c in state.candidates}) > 1:
        return state
    return _next_stage(model, state, rng or np.random.default_rng(0))


def fits_of(state: State, candidates: list[Candidate], factors: list[Factors]) -> Fits:
    """What clients need to know of the candidates."""
    units = np.array([families.units(c.model.family, state.level, state.spread) for c in candidates])
    return Fits(tuple(factors), units[:, 0], units[:, 1])


def options(candidates: list[Candidate]) -> dict[str, list]:
    return {"families": [c.model.family for c in candidates], "folds": [c.fold for c in candidates]}
