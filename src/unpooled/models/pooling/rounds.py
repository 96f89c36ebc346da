"""The rounds of `Pooling`: two looks, features, Newton's steps, how far sites lie apart, EM from several starts, each site left out.

Every step is one SUM. The stages are "newton", "apart", "starts", "em", "without" and "done".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.data.designed import refuse_rare_levels
from unpooled.federation import Federation, least_rows, refuse_few
from unpooled.maths.gaussian import unpack_triangle
from unpooled.models.column_names import names_of
from unpooled.models.pooling import checks, homogeneity, mixtures, path, questions, sites, starts, verdict
from unpooled.models.pooling.mixtures import PartialPooling, PartialSums
from unpooled.models.pooling.path import Path
from unpooled.models.pooling.questions import Apart, At, Centre, Look, Shared
from unpooled.models.pooling.rows import Frame
from unpooled.models.pooling.sites import Others
from unpooled.models.steady import Steady
from unpooled.tree import message

MOST_STEPS = 40  # of Newton's method


class Plan(NamedTuple):
    """The parameters that rounds depend on."""

    family: str
    cv: int  # folds; 0 for none
    sizes: list[int]  # numbers of components that are tried
    em_rounds: int
    by_site: bool

    def asks(self, question: Any) -> Any:
        """A question about versions without each fold."""
        return question.using(family=self.family, cv=self.cv)

    def scales(self, loss: np.ndarray, rows: np.ndarray, parameters: int = 0) -> np.ndarray:
        """(v,) the variance of the normal distribution, 1 for others."""
        if self.family != "normal":
            return np.ones_like(loss)
        return np.maximum(2 * loss / np.maximum(rows - parameters, 1.0), 1e-12)


@message("pooling.State")
class State(NamedTuple):
    """What has been found so far, by stage."""

    absent: int | None  # clients that did not answer: the others have to stay
    stage: str
    sites: float
    n: float
    frame: Frame
    tests: dict  # name -> kind -> (statistic, df, p-value)
    common: Path
    slopes: Path
    steps: int = 0  # of this stage
    rows: np.ndarray | None = None  # (v,) rows of each version
    apart: Apart | None = None
    partial: PartialPooling | None = None
    loglik: np.ndarray | None = None  # (v, 2 c + 1) of groups, own weights and personal coefficients
    without: Path | None = None


def numbers(total: Any) -> Any:
    """A total with NumPy arrays."""
    return tree.map(to_numpy, total)


# ---- the start ----


def begin(fed: Federation, plan: Plan, missing: str) -> State:
    """Two looks and the features of x and y: three SUMs."""
    fed = Steady(fed)
    counted = {"cv": plan.cv} if plan.cv and least_rows(fed) else {}
    first = numbers(fed.sum(questions.look.using(family=plan.family, **counted), None))
    checks.check_look(first, plan.family, missing, fed)
    refuse_rare_levels(fed, names_of(fed, len(first.x)), first.n, first.x)
    if plan.family == "binomial":
        refuse_few(fed, {"outcome 1": float(first.y), "outcome 0": float(first.n - first.y)})
    # what a model without a fold lacks of the model of all rows is the sum over the rows of that fold
    refuse_few(fed, {f"fold {i} of cv={plan.cv}": n for i, n in enumerate(first.folds.tolist(), start=1)})
    frame = _frame(fed, first)
    shift = numbers(fed.sum(questions.shift.using(family=plan.family), frame))
    checks.check_independent(shift, names_of(fed, len(first.x)))
    n = float(first.n)
    count = float(first.sites)
    tests = _told(verdict.shift_tests(shift, n, count))
    p = len(first.x)
    v = plan.cv + 1
    start = np.zeros((v, p + 1))
    start[:, 0] = _null_intercept(plan.family, float(first.y / first.n))
    return State(fed.absent, "newton", count, n, frame, tests, path.begin(start), path.begin(np.zeros((v, p))))


def _frame(fed: Federation, first: Look) -> Frame:
    """Means and standard deviations over all clients."""
    centre = Centre(first.x / first.n, first.y / first.n)
    second = numbers(fed.sum(questions.squares, centre))
    sd = np.sqrt(second.xx / first.n)
    y_sd = np.sqrt(second.yy / first.n)
    checks.check_varies(sd, centre.x, float(y_sd), float(centre.y), names_of(fed, len(sd)))
    return Frame(centre.x, sd, centre.y, y_sd)


def _null_intercept(family: str, mean: float) -> float:
    """The intercept of a model without slopes."""
    if family == "normal":
        return 0.0
    return float(np.log(mean / (1 - mean)) if family == "binomial" else np.log(mean))


def _told(tests: Mapping[str, Mapping[str, homogeneity.Result]]) -> dict:
    """Tests as a tree of numbers."""
    return {name: {kind: tuple(map(float, r)) for kind, r in kinds.items()} for name, kinds in tests.items()}


# ---- one SUM per step ----


def step(fed: Federation, plan: Plan, state: State) -> State:
    """The state after one more SUM."""
    stages = {"newton": _newton, "apart": _apart, "starts": _starts, "em": _em, "without": _without}
    return stages[state.stage](Steady(fed, state.absent), plan, state)


def _newton(fed: Federation, plan: Plan, state: State) -> State:
    """One Newton step of one model and of common slopes, without each fold and in all."""
    up = numbers(fed.sum(plan.asks(questions.newton), At(state.frame, state.common.at, state.slopes.at)))
    common = path.advance(state.common, *up.common[1:])
    slopes = path.advance(state.slopes, *up.slopes)
    state = state._replace(common=common, slopes=slopes, steps=state.steps + 1, rows=up.common.n)
    if max(common.moved, slopes.moved) < path.CONVERGED or state.steps >= MOST_STEPS:
        return state._replace(stage="apart", steps=0)
    return state


def _apart(fed: Federation, plan: Plan, state: State) -> State:
    """How far sites lie from one model: the tests of P(y | x), and where EM starts."""
    up = numbers(fed.sum(plan.asks(questions.apart), _shared(plan, state)))
    q = state.common.at.shape[1]
    losses = float(state.common.loss[-1]), float(state.slopes.loss[-1])
    found = verdict.concept_tests(plan.family, *losses, up, state.n, state.sites, q)
    state = state._replace(apart=up, tests={**state.tests, **_told(found)})
    if not plan.cv:
        return _after_em(plan, state)
    _, *components = _first_candidates(plan, state)
    all_rows = (tree.map(lambda a: np.array(a[-1:], order="C"), model) for model in components)
    return state._replace(stage="starts", partial=PartialPooling(state.frame, *all_rows), steps=0)


def _shared(plan: Plan, state: State) -> Shared:
    """The model of all sites, in every version."""
    assert state.rows is not None
    scale = plan.scales(state.common.loss, state.rows)
    return Shared(state.frame, state.common.at, state.common.hessian / state.rows[:, None], scale)


def _first_candidates(plan: Plan, state: State) -> PartialPooling:
    """Every start of EM, in every version."""
    shared = _shared(plan, state)
    up = state.apart
    assert up is not None
    information = unpack_triangle(np.asarray(shared.information))
    scatter = unpack_triangle(up.scatter) / np.asarray(state.rows)[:, None, None]
    about = (state.common.at, shared.scale, scatter, information, plan.sizes)
    moments = np.stack([up.precision, up.precision2, up.away, up.away2])
    personal = starts.begin_personal(state.common.at, shared.scale, moments, state.sites)
    return PartialPooling(state.frame, starts.begin(*about, 1.0), starts.begin(*about, 1.5), personal)


def _starts(fed: Federation, plan: Plan, state: State) -> State:
    """One round of EM from every start, of all rows; the last one tells with which the versions begin."""
    sizes = starts.repeated(plan.sizes)
    ask = mixtures.e_step.using(family=plan.family, cv=0, sizes=sizes)
    assert state.partial is not None
    up = numbers(fed.sum(ask, state.partial))
    if state.steps + 1 < min(starts.ROUNDS, plan.em_rounds):
        return state._replace(partial=_advanced(plan, state.partial, up, sizes), steps=state.steps + 1)
    partial = _first_candidates(plan, state)
    groups = starts.likeliest(partial.groups, up.groups.loglik[0], plan.sizes)
    weights = starts.likeliest(partial.weights, up.weights.loglik[0], plan.sizes)
    return state._replace(stage="em", partial=partial._replace(groups=groups, weights=weights), steps=0)


def _em(fed: Federation, plan: Plan, state: State) -> State:
    """One round of EM for groups, own weights and personal coefficients, all candidates and versions at once."""
    assert state.partial is not None
    assert state.rows is not None
    up = numbers(fed.sum(plan.asks(mixtures.e_step).using(sizes=plan.sizes), state.partial))
    loglik = np.column_stack([up.groups.loglik, up.weights.loglik, up.personal.loglik])
    change = np.inf if state.loglik is None else np.abs(loglik - state.loglik) / state.rows[:, None]
    partial = _advanced(plan, state.partial, up, plan.sizes)
    state = state._replace(partial=partial, loglik=loglik, steps=state.steps + 1)
    converged = np.max(change) < mixtures.TOLERANCE
    return _after_em(plan, state) if converged or state.steps >= plan.em_rounds else state


def _advanced(plan: Plan, partial: PartialPooling, up: PartialSums, sizes: list[int]) -> PartialPooling:
    """All partial-pooling candidates after an M-step."""
    return PartialPooling(
        partial.frame,
        mixtures.m_step(partial.groups, up.groups, plan.family, sizes),
        mixtures.m_step(partial.weights, up.weights, plan.family, sizes),
        mixtures.personal_m_step(partial.personal, up.personal, plan.family),
    )


def _after_em(plan: Plan, state: State) -> State:
    """The stage behind EM."""
    return state._replace(stage="without" if plan.by_site else "done", steps=0)


def _without(fed: Federation, plan: Plan, state: State) -> State:
    """One Newton step of the shared model without each site."""
    start = state.without or path.begin(np.tile(state.common.at[-1], (len(fed.names), 1)))
    ask = sites.without_each.using(family=plan.family, sites=fed.names)
    up = numbers(fed.sum(ask, Others(state.frame, start.at)))
    new = path.advance(start, *up[1:])
    steps = state.steps + 1
    ended = new.moved < path.CONVERGED or steps >= MOST_STEPS
    return state._replace(without=new, steps=steps, stage="done" if ended else "without")
