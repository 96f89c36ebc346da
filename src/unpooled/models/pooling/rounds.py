"""The rounds of `Pooling`: two looks, features, Newton's steps, how far sites lie apart, EM from several starts, each site left out.

Every step is one SUM. The stages are "newton", "apart", "starts", "em", "without" and "done".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.federation import Federation
from unpooled.maths import equal_laws
from unpooled.maths.gaussian import unpack_triangle
from unpooled.models.column_names import names_of
from unpooled.models.pooling import checks, mixtures, path, questions, sites, starts, verdict
from unpooled.models.pooling.mixtures import Ladder, LadderSums
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
    sizes: list[int]  # numbers of laws that are tried
    em_rounds: int
    by_site: bool

    def asks(self, question: Any) -> Any:
        """A question about versions without each fold."""
        return question.using(family=self.family, cv=self.cv)

    def scales(self, loss: np.ndarray, rows: np.ndarray, parameters: int = 0) -> np.ndarray:
        """(v,) the variance of the normal law, 1 for others."""
        if self.family != "normal":
            return np.ones_like(loss)
        return np.maximum(2 * loss / np.maximum(rows - parameters, 1.0), 1e-12)


@message("pooling.State")
class State(NamedTuple):
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
    ladder: Ladder | None = None
    loglik: np.ndarray | None = None  # (v, 2 c + 1) of groups, own weights and personal coefficients
    without: Path | None = None


def numbers(total: Any) -> Any:
    """A total with NumPy arrays."""
    return tree.map(to_numpy, total)


# ---- the start ----


def begin(fed: Federation, plan: Plan, missing: str) -> State:
    """Two looks and the features of x and y: three SUMs."""
    fed = Steady(fed)
    first = numbers(fed.sum(questions.look.using(family=plan.family), None))
    checks.check_look(first, plan.family, missing)
    frame = _frame(fed, first)
    shift = numbers(fed.sum(questions.shift.using(family=plan.family), frame))
    checks.check_independent(shift, names_of(fed, len(first.x)))
    n, count = float(first.n), float(first.sites)
    tests = _told(verdict.shift_tests(shift, n, count))
    p, v = len(first.x), plan.cv + 1
    start = np.zeros((v, p + 1))
    start[:, 0] = _null_intercept(plan.family, float(first.y / first.n))
    return State(fed.absent, "newton", count, n, frame, tests, path.begin(start), path.begin(np.zeros((v, p))))


def _frame(fed: Federation, first: Look) -> Frame:
    """Means and standard deviations over all clients."""
    centre = Centre(first.x / first.n, first.y / first.n)
    second = numbers(fed.sum(questions.squares, centre))
    sd, y_sd = np.sqrt(second.xx / first.n), np.sqrt(second.yy / first.n)
    checks.check_varies(sd, centre.x, float(y_sd), float(centre.y), names_of(fed, len(sd)))
    return Frame(centre.x, sd, centre.y, y_sd)


def _null_intercept(family: str, mean: float) -> float:
    if family == "normal":
        return 0.0
    return float(np.log(mean / (1 - mean)) if family == "binomial" else np.log(mean))


def _told(tests: Mapping[str, Mapping[str, equal_laws.Result]]) -> dict:
    """Tests as a tree of numbers."""
    return {name: {kind: tuple(map(float, r)) for kind, r in kinds.items()} for name, kinds in tests.items()}


# ---- one SUM a step ----


def step(fed: Federation, plan: Plan, state: State) -> State:
    """The state after one more SUM."""
    stages = {"newton": _newton, "apart": _apart, "starts": _starts, "em": _em, "without": _without}
    return stages[state.stage](Steady(fed, state.absent), plan, state)


def _newton(fed: Federation, plan: Plan, state: State) -> State:
    """One Newton step of one law and of common slopes, without each fold and in all."""
    up = numbers(fed.sum(plan.asks(questions.newton), At(state.frame, state.common.at, state.slopes.at)))
    common = path.advance(state.common, *up.common[1:])
    slopes = path.advance(state.slopes, *up.slopes)
    state = state._replace(common=common, slopes=slopes, steps=state.steps + 1, rows=up.common.n)
    if max(common.moved, slopes.moved) < path.RESTED or state.steps >= MOST_STEPS:
        return state._replace(stage="apart", steps=0)
    return state


def _apart(fed: Federation, plan: Plan, state: State) -> State:
    """How far sites lie from one law: the tests of P(y | x), and where EM starts."""
    up = numbers(fed.sum(plan.asks(questions.apart), _shared(plan, state)))
    q = state.common.at.shape[1]
    losses = float(state.common.loss[-1]), float(state.slopes.loss[-1])
    found = verdict.concept_tests(plan.family, *losses, up, state.n, state.sites, q)
    state = state._replace(apart=up, tests={**state.tests, **_told(found)})
    if not plan.cv:
        return _after_em(plan, state)
    _, *laws = _first_ladder(plan, state)
    all_rows = (tree.map(lambda a: np.array(a[-1:], order="C"), law) for law in laws)
    return state._replace(stage="starts", ladder=Ladder(state.frame, *all_rows), steps=0)


def _shared(plan: Plan, state: State) -> Shared:
    """The law of all sites, in every version."""
    assert state.rows is not None
    scale = plan.scales(state.common.loss, state.rows)
    return Shared(state.frame, state.common.at, state.common.hessian / state.rows[:, None], scale)


def _first_ladder(plan: Plan, state: State) -> Ladder:
    """Every start of EM, in every version."""
    shared, up = _shared(plan, state), state.apart
    assert up is not None
    information = unpack_triangle(np.asarray(shared.information))
    scatter = unpack_triangle(up.scatter) / np.asarray(state.rows)[:, None, None]
    about = (state.common.at, shared.scale, scatter, information, plan.sizes)
    moments = np.stack([up.precision, up.precision2, up.away, up.away2])
    personal = starts.begin_personal(state.common.at, shared.scale, moments, state.sites)
    return Ladder(state.frame, starts.begin(*about, 1.0), starts.begin(*about, 1.5), personal)


def _starts(fed: Federation, plan: Plan, state: State) -> State:
    """One round of EM from every start, of all rows; the last one tells with which the versions begin."""
    sizes = starts.repeated(plan.sizes)
    ask = mixtures.e_step.using(family=plan.family, cv=0, sizes=sizes)
    assert state.ladder is not None
    up = numbers(fed.sum(ask, state.ladder))
    if state.steps + 1 < min(starts.ROUNDS, plan.em_rounds):
        return state._replace(ladder=_advanced(plan, state.ladder, up, sizes), steps=state.steps + 1)
    ladder = _first_ladder(plan, state)
    groups = starts.likeliest(ladder.groups, up.groups.loglik[0], plan.sizes)
    weights = starts.likeliest(ladder.weights, up.weights.loglik[0], plan.sizes)
    return state._replace(stage="em", ladder=ladder._replace(groups=groups, weights=weights), steps=0)


def _em(fed: Federation, plan: Plan, state: State) -> State:
    """One round of EM for groups, own weights and personal coefficients, all candidates and versions at once."""
    assert state.ladder is not None
    assert state.rows is not None
    up = numbers(fed.sum(plan.asks(mixtures.e_step).using(sizes=plan.sizes), state.ladder))
    loglik = np.column_stack([up.groups.loglik, up.weights.loglik, up.personal.loglik])
    change = np.inf if state.loglik is None else np.abs(loglik - state.loglik) / state.rows[:, None]
    ladder = _advanced(plan, state.ladder, up, plan.sizes)
    state = state._replace(ladder=ladder, loglik=loglik, steps=state.steps + 1)
    rested = np.max(change) < mixtures.RESTS
    return _after_em(plan, state) if rested or state.steps >= plan.em_rounds else state


def _advanced(plan: Plan, ladder: Ladder, up: LadderSums, sizes: list[int]) -> Ladder:
    """The ladder after an M-step."""
    return Ladder(
        ladder.frame,
        mixtures.m_step(ladder.groups, up.groups, plan.family, sizes),
        mixtures.m_step(ladder.weights, up.weights, plan.family, sizes),
        mixtures.personal_m_step(ladder.personal, up.personal, plan.family),
    )


def _after_em(plan: Plan, state: State) -> State:
    return state._replace(stage="without" if plan.by_site else "done", steps=0)


def _without(fed: Federation, plan: Plan, state: State) -> State:
    """One Newton step of the shared law without each site."""
    start = state.without or path.begin(np.tile(state.common.at[-1], (len(fed.names), 1)))
    ask = sites.without_each.using(family=plan.family, sites=fed.names)
    up = numbers(fed.sum(ask, Others(state.frame, start.at)))
    new = path.advance(start, *up[1:])
    rested = new.moved < path.RESTED or state.steps + 1 >= MOST_STEPS
    return state._replace(without=new, steps=state.steps + 1, stage="done" if rested else "without")
