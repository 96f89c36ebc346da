"""Whether FedEM has converged: only log-likelihoods of the same rows can be compared.

Where rounds are random (cohorts, compression, minibatches), all clients are asked for their log-likelihood every CHECK_EVERY rounds, 16
bytes each. Where it has stopped rising, a few exact EM steps over all clients follow (SUM `fedem.exact`, one per step): the fit has
converged if the last of them gains less than `tol` and the gains fall so fast that all further ones together are small too. On a plateau
single steps gain little, but they do not fall, and the fit goes on. The exact steps are kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unpooled import tree
from unpooled.choices import describe
from unpooled.estimator import Info
from unpooled.federation import Federation
from unpooled.models.fedem import server
from unpooled.models.fedem.client import Contribution, exact, log_likelihood
from unpooled.models.fedem.families import FAMILIES
from unpooled.models.fedem.server import Progress, State
from unpooled.tree import Tree

CHECK_EVERY = 10  # rounds
FALL = 1e-3  # per row: where the log-likelihood of all rows has fallen by more, the fit goes back; EM never lowers it, noise does
MOST_RETURNS = 6  # each doubles the batch
EXACT_STEPS = 5
NEGLIGIBLE = 1e-9  # gain per row that is rounding
REMAINING = 2.0  # times tol: what all further EM steps together may gain where a fit has converged


def checked(
    model: Any, fed: Federation, family: Any, is_random: bool, state: State, total: Contribution
) -> tuple[State, Info]:
    """The state with its log-likelihood of all rows, as far as it is known, and whether it has converged."""
    if not is_random:
        progress = _compared(model, state.progress, total, state.round, state.params)
        return state._replace(progress=progress._replace(best=progress.loglik, best_params=state.params)), {}
    if model.tol <= 0 or (state.round > 1 and state.round % CHECK_EVERY):
        return state, {}
    found = _log_likelihood(model, fed, state, state.params)
    progress = _compared(model, state.progress, found, state.round, state.params)
    complete = np.isclose(float(found.rows), state.rows, rtol=1e-9)
    near_best = progress.loglik > progress.best - model.tol
    may_stop = progress.converged and complete and near_best
    state = state._replace(progress=progress._replace(converged=False))
    if may_stop:
        state = _with_exact_steps(model, fed, family, state)
    return gone_back(model, family, state), {"common_loglik": state.progress.loglik}


def _with_exact_steps(model: Any, fed: Federation, family: Any, state: State) -> State:
    """The state after a few exact EM steps over all clients, and whether they say that it has converged: one SUM per step, one more."""
    logliks = []
    params = state.params
    stats = state.stats
    for _ in range(EXACT_STEPS + 1):
        found = _exact(model, fed, state._replace(params=params))
        if not np.isclose(float(found.rows), state.rows, rtol=1e-9):
            return state  # a client is missing
        logliks.append(float(found.loglik) / float(found.rows))
        reached = params, stats
        stats = tree.map(lambda s: s / float(found.rows), found.stats)  # noqa: B023
        params = family.maximize(stats, params)
    gains = np.diff(logliks)
    converged = bool(gains[-1] < model.tol and _still_to_gain(gains) < REMAINING * model.tol)
    progress = state.progress._replace(converged=converged)
    if logliks[-1] < progress.best:  # by less than tol: an earlier check was a little higher
        reached = progress.best_params, family.moments(progress.best_params)
    else:
        progress = progress._replace(best=logliks[-1], best_params=reached[0])
    return server.returned(state, *reached)._replace(progress=progress._replace(loglik=progress.best))


def _still_to_gain(gains: np.ndarray) -> float:
    """What all further steps gain together if gains go on to fall by the same factor (Aitken); infinite where they do not fall."""
    last = abs(gains[-1])
    before = abs(gains[-2])
    if last <= NEGLIGIBLE:
        return 0.0
    factor = max(last / max(before, 1e-300), (last / max(abs(gains[0]), 1e-300)) ** (1 / (len(gains) - 1)))
    return last * factor / (1 - factor) if factor < 1 else np.inf


def gone_back(model: Any, family: Any, state: State) -> State:
    """The same state, or one at the best parameters so far where noise has led away from them."""
    progress = state.progress
    if not _has_fallen(model, progress, state.round):
        return state
    params = progress.best_params
    progress = progress._replace(loglik=progress.best, converged=False, returns=progress.returns + 1)
    return server.returned(state, params, family.moments(params))._replace(progress=progress)


def _has_fallen(model: Any, progress: Progress, round: int) -> bool:
    """Whether the last log-likelihood of all rows is well below the best one."""
    fallen = progress.loglik < progress.best - max(FALL, 10 * model.tol)
    return bool(progress.round == round and fallen and progress.returns < MOST_RETURNS)


def _compared(model: Any, last: Progress, found: Any, round: int, params: Tree) -> Progress:
    """Converged if the log-likelihood per row of the same rows rose by less than `tol` per round."""
    rows = float(found.rows)
    loglik = float(found.loglik / found.rows)
    same_rows = np.isclose(rows, last.rows, rtol=1e-9)
    gain = (loglik - last.loglik) / (round - last.round)
    converged = bool(model.tol > 0 and same_rows and gain < model.tol)
    if loglik < last.best:
        return last._replace(loglik=loglik, rows=rows, round=round, converged=converged)
    return Progress(loglik, rows, round, converged, loglik, params, last.returns)


def _log_likelihood(model: Any, fed: Federation, state: State, params: Tree) -> Any:
    """One SUM: the exact log-likelihood of all rows."""
    question = log_likelihood.using(family=describe(model._family(), FAMILIES))
    return fed.sum(question, model._down(state)._replace(params=params, stats=None))


def _exact(model: Any, fed: Federation, state: State) -> Any:
    """One SUM: the exact statistics of all rows."""
    question = exact.using(family=describe(model._family(), FAMILIES))
    return fed.sum(question, model._down(state)._replace(stats=None))


def exact_info(model: Any, fed: Federation, is_random: bool, state: State, field: Tree) -> Info:
    """Squared norm of the exact mean field and exact log-likelihood, at the parameters that this round asked about."""
    if not is_random:
        return {"exact_field": server.squared_norm(field)}
    if not model.exact_every or state.round % model.exact_every:
        return {}
    total = _exact(model, fed, state)
    exact_field = tree.map(lambda t, s: t / float(total.rows) - s, total.stats, state.stats)
    return {
        "exact_field": server.squared_norm(exact_field),
        "exact_loglik": float(total.loglik / total.rows),
    }
