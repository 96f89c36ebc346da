"""The stages of a fit of FedMissEM at the server: candidates of a stage are judged by one SUM, and the best enter the next stage.

The stages are: family and penalty of effects; penalties of sites and of dates apart; rank and penalty of factors. Then one SUM judges the
models of all stages together, which gives their weights in an average, and those with a weight are fitted to all visits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.estimator import Info
from unpooled.federation import Federation
from unpooled.models.fedmissem import families, selection
from unpooled.models.fedmissem.averaging import average_weights, without_small
from unpooled.models.fedmissem.bilinear import Factors
from unpooled.models.fedmissem.questions import Averages, Fits, Held, judge
from unpooled.models.fedmissem.selection import RANKS, Candidate, Model
from unpooled.tree import message

EFFECTS, APART, RANK, FINAL = range(4)


@message("fedmissem.State")
class State(NamedTuple):
    """What a round carries on."""

    candidates: tuple[Candidate, ...]
    judged: tuple[Candidate, ...]  # of earlier stages, that may be part of the average
    weights: np.ndarray  # (candidates,) in the average, at the last stage
    stage: int
    losses: np.ndarray  # (models,) per visit held back
    round: int  # of the stage
    visits: float
    level: float  # mean of the values
    spread: float  # their standard deviation


def choose(model: Any, fed: Federation, state: State) -> tuple[State, Info]:
    """Judge models by visits held back, and enter the next stage."""
    if state.stage == RANK:
        return _averaged(model, fed, state)
    models, held = _judge(model, fed, state, state.candidates)
    best = models[selection.best_model(held, models)]
    kept = tuple(c for c in state.candidates if c.model == best)
    others = tuple(c for c in state.candidates if c.model != best and c.model.family == best.family)
    state = state._replace(candidates=kept, judged=state.judged + others)
    return next_stage(model, state, fed.journal.rng), {"held_loss": losses(held).min()}


def _averaged(model: Any, fed: Federation, state: State) -> tuple[State, Info]:
    """The last stage, with all models that have a weight in the average."""
    candidates = state.candidates + (state.judged if model.rank in (None, 0) else ())
    models, held = _judge(model, fed, state, candidates)
    weights = average_weights(to_numpy(held.errors), np.ones(len(models), bool))
    effects = np.array([m.rank == 0 for m in models])
    if effects.any() and weights[~effects].any():
        alone = average_weights(to_numpy(held.errors), effects)
        _, both = _judge(model, fed, state, candidates, np.stack([alone, weights]))
        weights = without_small(alone + supported(both) * (weights - alone))
    order = [i for i in np.argsort(-weights, kind="stable") if weights[i] > 0]
    first = {c.model: c for c in reversed(candidates)}
    kept = tuple(first[models[i]] for i in order)
    found = losses(held)
    return final(state._replace(candidates=kept, losses=found), weights[order]), {"held_loss": found.min()}


def supported(both: Held) -> float:
    """How far to go from the first average to the second: 0 if it is no better, else 1 less the part of the gain that may be chance."""
    worse, error = selection.compared(both, 0)
    gain = -worse[1]
    return max(0.0, 1 - (error[1] / gain) ** 2) if gain > 0 else 0.0


def _judge(
    model: Any, fed: Federation, state: State, asked: tuple[Candidate, ...], weights: np.ndarray | None = None
) -> tuple[list[Model], Held]:
    """(models, losses on visits held back of each of them or of averages): one SUM."""
    models = list(dict.fromkeys(c.model for c in asked))
    which = [models.index(c.model) for c in asked]
    ask = judge.using(n_folds=model.n_folds, trials=model.trials, models=which, **options(asked))
    weights = np.eye(len(models)) if weights is None else weights
    return models, fed.sum(ask, Averages(fits_of(state, asked, [c.best for c in asked]), weights))


def losses(held: Held) -> np.ndarray:  # (models,)
    """Losses per visit held back."""
    return np.diag(to_numpy(held.errors)) / max(float(held.visits), 1e-300)


def next_stage(model: Any, state: State, rng: np.random.Generator) -> State:
    """The candidates of the next stage, from those of the chosen model; a stage with a single model is left out."""
    best = state.candidates[0].model
    stage = state.stage + 1
    if stage == APART:
        models = selection.apart_models(best, model.penalty)
    else:
        models = _rank_models(model, state, best)
    single = len(models) == 1 and not state.judged
    state = state._replace(stage=stage, round=0)
    if single and stage == RANK:
        first = state.candidates[0]
        alone = first if first.model == models[0] else selection.widened(first, models[0], rng)
        return final(state._replace(candidates=(alone,)), np.ones(1))
    kept = state.candidates if best in models else ()
    fresh = [selection.widened(c, m, rng) for m in models if m != best for c in state.candidates]
    state = state._replace(candidates=(*kept, *fresh))
    return next_stage(model, state, rng) if stage == APART and len(models) == 1 else state


def final(state: State, weights: np.ndarray) -> State:
    """The stage of fits to all visits, which begin where those without a part of them ended."""
    begin = tuple(c._replace(fold=-1, factors=c.best, loss=np.inf, settled=False) for c in state.candidates)
    return state._replace(candidates=begin, judged=(), weights=weights, stage=FINAL, round=0)


def _rank_models(model: Any, state: State, best: Model) -> list[Model]:
    """Candidates of several ranks."""
    factors = state.candidates[0].factors
    n_sites = len(factors.left)
    n_dates = len(factors.right)
    full = min(n_sites, n_dates) - 1
    wanted, most = (RANKS, full // 2) if model.rank is None else ((model.rank,), full)
    ranks = tuple(rank for rank in wanted if rank <= most) or (full,)
    threshold = selection.noise_threshold(n_sites, n_dates, state.visits)
    models = selection.rank_models(best, ranks, model.penalty, threshold)
    if model.rank is None and model.penalty is None:
        models += selection.curve_models(best, n_dates)
    return models


def fits_of(state: State, candidates: tuple[Candidate, ...], factors: list[Factors]) -> Fits:
    """What clients need to know of the candidates."""
    units = np.array([families.units(c.model.family, state.level, state.spread) for c in candidates])
    return Fits(tuple(factors), units[:, 0], units[:, 1])


def options(candidates: tuple[Candidate, ...]) -> dict[str, list]:
    """Families and folds of the candidates, as options of a question."""
    return {"families": [c.model.family for c in candidates], "folds": [c.fold for c in candidates]}
