"""`OpenMixture` where columns are mixed: mixed mixtures of many sizes side by side, with clients' own weights and with common ones.

Sends what `MixedMixture` sends before its first round (SUMs alone), then one SUM per round over all candidates (`mixed_questions`). The
candidates start from the same starts, one per number of clusters; the lowest BIC is the result. A cluster is a product: a Gaussian
for the numbers, probabilities of levels, negative binomials for counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.errors import BadData
from unpooled.estimator import Info
from unpooled.federation import Federation
from unpooled.models import mixed
from unpooled.models.mixture import collapsed
from unpooled.models.open_mixture.certainty import Evaluated
from unpooled.models.open_mixture.constants import CLUSTER_PENALTY, MIN_ROWS_PER_CLUSTER, SIZES_AT_A_TIME, STANDS_STILL
from unpooled.models.open_mixture.mixed_questions import MixedStats, mixed_stats
from unpooled.tree import message

SETTINGS = {"reg": 1e-6, "smoothing": 1.0}  # the defaults of `MixedMixture`


@message("open_mixture.MixedCandidate")
class MixedCandidate(NamedTuple):
    """A mixed mixture of one size, with weights that every client has of its own, or with common ones."""

    params: mixed.Params
    own: bool
    loglik: float = -np.inf  # of all rows, before the last update
    cost: float = np.inf  # BIC, with the penalty of the clients' own weights and that for multiple comparisons
    converged: bool = False

    @property
    def size(self) -> int:
        """The number of clusters."""
        return len(self.params.gaussian.weights)

    @property
    def id(self) -> str:
        """The name under which clients keep their weights of it."""
        return f"mixed-{self.size}-{'own' if self.own else 'common'}"


@message("open_mixture.MixedState")
class MixedState(NamedTuple):
    """A fit of mixed columns between two rounds."""

    candidates: tuple[MixedCandidate, ...]
    rows: float  # of all clients
    prior: mixed.Prior  # what all rows together say, which clusters are drawn to
    kinds: tuple[str, ...]
    levels: tuple[int, ...]
    shape: str  # covariance type of the numbers

    @property
    def columns(self) -> mixed.Columns:
        """The columns by kind."""
        return mixed.Columns(self.kinds, self.levels)

    @property
    def settings(self) -> mixed.Settings:
        """What an M-step has to know."""
        return mixed.Settings(self.shape, **SETTINGS)

    @property
    def best(self) -> MixedCandidate:
        """The candidate of least cost, the smaller one on a tie."""
        return min(self.candidates, key=lambda c: (c.cost, c.size))


def begin(fed: Federation, given: mixed.Columns, names: Sequence[str], shape: str, rng: Any) -> MixedState:
    """The first candidates: of 1, 2, ... clusters, each with own and with common weights."""
    seen = mixed.start.seen(fed, given, names)
    rows = float(seen.frame.rows)
    if rows < MIN_ROWS_PER_CLUSTER:
        raise BadData(f"{rows:.0f} rows of all clients together are too few for clusters: give more")
    state = MixedState((), rows, seen.prior, seen.columns.kinds, seen.columns.levels, shape)
    return _with_sizes(fed, state, seen, 1, rng)


def _with_sizes(fed: Federation, state: MixedState, seen: mixed.Seen, first: int, rng: Any) -> MixedState:
    """The state with candidates of the next sizes, as far as there are rows for them."""
    most = max(int(state.rows // MIN_ROWS_PER_CLUSTER), 1)
    sizes = [k for k in range(first, first + SIZES_AT_A_TIME) if k <= most]
    if not sizes:
        return state
    starts = mixed.start.starts(fed, seen, sizes, 1, state.settings, rng)
    new = tuple(MixedCandidate(params, own) for params in starts for own in (True, False))
    return state._replace(candidates=(*state.candidates, *new))


def step(fed: Federation, state: MixedState, names: Sequence[str]) -> tuple[MixedState, Info]:
    """One SUM over the candidates that still move, and their M-steps; more sizes if the largest one is the best."""
    moving = [c for c in state.candidates if not c.converged]
    ask = mixed_stats.using(
        columns=state.columns.option,
        shape=state.shape,
        ids=[c.id for c in moving],
        own=[c.own for c in moving],
    )
    answers = fed.sum(ask, tuple(c.params for c in moving))
    moved = {c.id: _moved(c, tree.map(to_numpy, answer), state) for c, answer in zip(moving, answers)}
    state = state._replace(candidates=tuple(moved.get(c.id, c) for c in state.candidates))
    best = state.best
    info = {"phase": "mixed", "candidates": len(moving), "n_components": best.size, "bic": best.cost}
    if done(state) and best.size == max(c.size for c in state.candidates):
        seen = mixed.start.seen(fed, state.columns, names)
        state = _with_sizes(fed, state, seen, best.size + 1, fed.journal.rng)
    return state, info


def _moved(c: MixedCandidate, answer: MixedStats, state: MixedState) -> MixedCandidate:
    """The candidate after one round: scored at the parameters that were sent, then moved by an M-step."""
    params = mixed.em.m_step(c.params, answer.stats, state.prior, state.columns, *state.settings)
    loglik = float(answer.stats.gaussian.loglik)
    still = loglik - c.loglik < STANDS_STILL * state.rows
    cost = np.inf if _has_collapsed(params, state) else _cost(c, answer, state)
    return c._replace(params=params, loglik=loglik, cost=cost, converged=bool(still))


def _has_collapsed(params: mixed.Params, state: MixedState) -> bool:
    """Whether a cluster has no variance in some direction of the numbers: its likelihood has no bound and means nothing."""
    block = params.gaussian
    return bool(block.means.shape[1]) and bool(collapsed(block, state.shape, state.settings.reg).any())


def _cost(c: MixedCandidate, answer: MixedStats, state: MixedState) -> float:
    """BIC, with the price of clients' own weights where they have them."""
    free = mixed.em.n_parameters(c.size, state.columns, state.shape)
    cost = -2 * float(answer.stats.gaussian.loglik) + free * np.log(state.rows)
    if not c.own:
        return cost
    common_weights = (c.size - 1) * np.log(state.rows)
    return cost - common_weights + float(answer.weight_penalty) + CLUSTER_PENALTY * c.size


def done(state: MixedState) -> bool:
    """Whether all candidates have converged."""
    return all(c.converged for c in state.candidates)


def evaluations(state: MixedState) -> dict[str, Evaluated]:
    """Candidate id -> its cost and number of clusters."""
    return {c.id: Evaluated(c.cost, c.size) for c in state.candidates}
