"""The learning rate found in the rounds themselves, and when to stop. Nothing is sent beyond the rounds.

A round reports the (held-out) log-likelihood of the models that it began with. The rate doubles every round while that rises; when it
falls, the run returns to the best models with a quarter of the rate. After PATIENCE rounds without a gain of `tol` the rate is
divided by four again, and the run stops when that did not help either. The best models are kept.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.learners.trainer import Trainer
from unpooled.tree import Tree, message

FIRST_RATE, LARGEST_RATE = 0.01, 4.0
PATIENCE = 4  # rounds without a gain
DROPS = 2  # times that the rate is divided before the run stops
FACTOR = 4.0


@message("learners.Search")
class Search(NamedTuple):
    """A run and its learning rate."""

    inner: Tree  # the state of the run
    best: Tree  # the state with the highest log-likelihood so far
    loglik: float  # of `best`
    rate: float  # of the next round
    rising: bool  # whether the rate still doubles
    quiet: int  # rounds without a gain
    drops: int
    stopped: bool


def begin(state: Any) -> Search:
    """A run before its first round."""
    return Search(with_rate(state, FIRST_RATE), state, -np.inf, FIRST_RATE, True, 0, 0, False)


def advance(search: Search, new: Any, loglik: float | None, tol: float) -> Search:
    """The search after a round that led to the state `new`, and reported `loglik` of the state it began with."""
    if loglik is None:  # a round that does not train, as in a warm-up
        return search._replace(inner=with_rate(new, search.rate))
    better = bool(np.isfinite(loglik)) and loglik > search.loglik
    gained = better and (not np.isfinite(search.loglik) or loglik - search.loglik > tol * abs(search.loglik))
    if better:
        search = search._replace(best=search.inner, loglik=float(loglik))
    if search.rising:
        return _rise(search, new, better)
    quiet = 0 if gained else search.quiet + 1
    if quiet < PATIENCE:
        return search._replace(inner=with_rate(new, search.rate), quiet=quiet)
    if search.drops >= DROPS:
        return search._replace(inner=new, quiet=quiet, stopped=True)
    return _back(search._replace(drops=search.drops + 1), search.rate / FACTOR)


def _rise(search: Search, new: Any, better: bool) -> Search:
    """Double the rate while rounds improve; go back at the first that does not."""
    if not better:
        return _back(search._replace(rising=False), search.rate / FACTOR)
    rate = min(2 * search.rate, LARGEST_RATE)
    return search._replace(inner=with_rate(new, rate), rate=rate, rising=rate < LARGEST_RATE)


def _back(search: Search, rate: float) -> Search:
    """The best state so far, with another rate."""
    return search._replace(inner=with_rate(search.best, rate), rate=rate, quiet=0)


def with_rate(state: Any, rate: float) -> Any:
    """The state of a run whose trainer has another rate."""
    trainer = state.trainer
    changed = trainer._replace(lr=rate) if isinstance(trainer, Trainer) else {**trainer, "lr": rate}
    return state._replace(trainer=changed)
