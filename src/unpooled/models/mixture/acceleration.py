"""One path of accelerated EM: it predicts from a few rounds where several rounds of EM would lead. One SUM of `Stats` per round.

One round gives, besides EM's next mixture, the gradient of the likelihood. In the coordinates of `whitening` EM is the
gradient's unit step, so its slow directions are those of small curvature; a limited-memory BFGS model learns them, and a
step goes as far as `reach` rounds of EM would under that model (reach = 1: EM; without bound: Newton). The reach doubles
while the likelihood gains what the model predicted, and shrinks otherwise. A step that lowers the likelihood is taken back.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import like, to_numpy
from unpooled.maths.mixture import Params, Stats, m_step
from unpooled.models.mixture import whitening as whitened
from unpooled.tree import message

MEMORY = 10  # pairs of a step and the change of gradient along it; older ones are from too far away
FLAT = 1e-3  # smaller curvatures, and negative ones, are taken to be this; that of the complete data is 1
# the largest change in a round: of a log weight, a log standard deviation, or a mean in standard deviations
FURTHEST = 0.5
EXACT = 0.2  # relative error of the predicted gain below which the reach doubles
ROUGH = 0.5  # and above which it halves
NOISE = 1e-13  # rounding of a likelihood per row


@message("mixture.Point")
class Point(NamedTuple):
    """A mixture, and what one round of sums says about it."""

    params: Params
    em_step: Params  # the mixture after one more EM step
    loglik: float  # per row
    gradient: np.ndarray  # (p,), whitened
    shares: np.ndarray  # (g,) of the rows, by covariance
    precisions: np.ndarray  # (g,) tr S^-1
    regular: bool  # whether no component is empty and every number is finite


@message("mixture.Accelerator")
class Accelerator(NamedTuple):
    """The state of a path between two rounds."""

    point: Point | None  # the last accepted; None before the first answer
    gain: float  # per row, between the last accepted and the one before
    plain: bool  # whether this is still plain EM, until `depart`
    asked_em: bool  # whether the mixture asked about is an EM step, or the start
    step: np.ndarray  # (p,) from the point to the mixture asked about, where the model chose it
    predicted: float  # what the step gains under the model
    steps: np.ndarray  # (m, p), oldest first
    falls: np.ndarray  # (m, p): how much the gradient fell along each of the steps
    reach: float  # how many rounds of EM a step stands for
    refused: int  # steps in a row that lowered the likelihood


@message("mixture.Info")
class Info(NamedTuple):
    """What one step of a path found."""

    accepted: bool
    loglik: float  # per row, of the best accepted; it never falls
    gain: float  # per row: what plain EM would gain in its next round, at most; while it is plain EM, what the last round gained
    best: Params  # one EM step from the best accepted: at least as likely
    reach: float


def start(params: Params, shape: str) -> Accelerator:
    """The memory before the first round, which asks about `params`."""
    none = np.zeros((0, len(whitened.around(_numpy(params), shape).scale)))
    return Accelerator(None, np.inf, True, True, none.sum(0), 0.0, none, none, 4.0, 0)


def advance(
    state: Accelerator, params: Params, stats: Stats, shape: str, reg: float
) -> tuple[Accelerator, Params, Info]:
    """The memory, the mixture to ask about next, and where the fit stands, given the answer about `params`."""
    found = _evaluate(_numpy(params), Stats(*map(to_numpy, stats)), shape, reg)
    gain = _gain(state.point, found, reg)
    accepted = state.asked_em or (found.regular and gain >= -NOISE * (1 + abs(found.loglik)))
    state = _learn(state, found)
    state = _accept(state, found, gain) if accepted else _refuse(state)
    point = state.point
    assert point is not None  # the first answer is accepted, whatever it is
    state, asked = _ask(state, point, shape)
    gain = state.gain if state.plain or not point.regular else float(point.gradient @ point.gradient)
    best = _like(params, point.em_step)
    return state, _like(params, asked), Info(accepted, point.loglik, gain, best, state.reach)


def _like(clients: Params, params: Params) -> Params:
    """The parameters as arrays of the same kind as the clients'."""
    return Params(*(like(a, b) for a, b in zip(params, clients)))


def depart(state: Accelerator, asked: Params, shape: str) -> tuple[Accelerator, Params]:
    """Leave plain EM where it stands: the memory, and what to ask about instead of `asked`."""
    assert state.point is not None  # it has been answered at least once
    state, instead = _ask(state._replace(plain=False), state.point, shape)
    return state, Params(*(like(a, b) for a, b in zip(instead, asked)))


# ---- one round's answer ----


def _evaluate(params: Params, stats: Stats, shape: str, reg: float) -> Point:
    """Likelihood, gradient and EM step at the parameters that were asked about."""
    frame = whitened.around(params, shape)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # an empty component has no scale
        gradient = whitened.gradient(frame, stats, reg)
    held = min(float(np.min(stats.n)), float(np.min(params.weights) * stats.rows))
    regular = bool(held >= 1 and np.isfinite(gradient).all() and np.isfinite(stats.loglik))
    shares = whitened.shares(stats, shape)
    precisions = whitened.precision_traces(frame)
    loglik = float(stats.loglik / stats.rows)
    return Point(params, m_step(params, stats, shape, reg), loglik, gradient, shares, precisions, regular)


def _gain(before: Point | None, after: Point, reg: float) -> float:
    """Per row, of the likelihood times the prior whose weight in each covariance is its share of the rows before.

    Adding reg to the variances follows no fixed objective, since those shares move; but the M-step maximises the
    expected likelihood times exactly this prior, so that by EM's own argument an EM step never loses here.
    """
    if before is None:
        return np.inf
    return after.loglik - before.loglik - reg / 2 * float(before.shares @ (after.precisions - before.precisions))


def _learn(state: Accelerator, found: Point) -> Accelerator:
    """Remember how the gradient changed along the step, whether it is accepted or not."""
    point, step = state.point, state.step
    if state.asked_em or point is None or not found.regular:
        return state
    fall = point.gradient - found.gradient
    curvature = fall @ step / (step @ step)
    fall = fall + max(0.0, FLAT - curvature) * step
    steps = np.vstack([state.steps, step])[-MEMORY:]
    falls = np.vstack([state.falls, fall])[-MEMORY:]
    return state._replace(steps=steps, falls=falls)


def _accept(state: Accelerator, found: Point, gain: float) -> Accelerator:
    """Take the point, and widen or narrow the reach by how well its gain was predicted."""
    reach = state.reach
    if len(state.steps) > 1 and not state.asked_em:  # the model knew something before this step
        error = abs(gain / state.predicted - 1)
        if error < EXACT:
            reach = 2 * reach
        elif error > ROUGH:
            reach = max(reach / 2, 1.0)
    seen = np.inf if state.point is None else abs(found.loglik - state.point.loglik)
    return state._replace(point=found, gain=seen, reach=reach, refused=0)


def _refuse(state: Accelerator) -> Accelerator:
    """Keep the best point and narrow the reach."""
    return state._replace(reach=max(state.reach / 4, 1.0), refused=state.refused + 1)


# ---- the next mixture to ask about ----


def _ask(state: Accelerator, point: Point, shape: str) -> tuple[Accelerator, Params]:
    """The mixture to ask about next: an EM step, or a longer one by the curvature seen so far."""
    stuck = state.refused > 1 or not point.regular or point.gradient @ point.gradient <= NOISE**2
    if state.plain or stuck:  # plain EM, which can be trusted, and a fresh memory
        none = state.steps[:0]
        return state._replace(asked_em=True, steps=none, falls=none, refused=0), point.em_step
    frame = whitened.around(point.params, shape)
    gradient = point.gradient
    curvatures, directions = _model(state.steps, state.falls)
    step, reach = _longest_step(frame, gradient, curvatures, directions, state.reach)
    fall = step + directions @ ((curvatures - 1) * (step @ directions))
    predicted = float(gradient @ step - step @ fall / 2)
    return state._replace(asked_em=False, step=step, reach=reach, predicted=predicted), whitened.move(frame, step)


def _longest_step(
    frame: whitened.Frame, gradient: np.ndarray, curvatures: np.ndarray, directions: np.ndarray, reach: float
) -> tuple[np.ndarray, float]:
    """(step, reach): as far as `reach` rounds of EM lead under the model, or as many as change no parameter too much."""
    along = gradient @ directions
    while True:
        step = gradient + directions @ ((_factors(curvatures, reach) - 1) * along)
        size = whitened.largest(frame, step)
        if size <= FURTHEST or reach == 1:
            return step * min(1.0, FURTHEST / size), reach
        reach = max(0.7 * reach, 1.0)


def _model(steps: np.ndarray, falls: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Curvatures (r,) and their directions (p, r) of the likelihood; it is 1, as EM takes it, in all other directions."""
    basis, inside = np.linalg.qr(np.vstack([steps, falls]).T)  # BFGS changes the identity in their span only
    curvature = np.eye(inside.shape[0])
    for s, y in zip(inside.T[: len(steps)], inside.T[len(steps) :]):
        before = curvature @ s
        curvature += np.outer(y, y) / (s @ y) - np.outer(before, before) / (s @ before)
    values, turn = np.linalg.eigh(curvature)
    return np.maximum(values, 1e-9), basis @ turn


def _factors(curvatures: np.ndarray, reach: float) -> np.ndarray:
    """How many times its first step EM goes in `reach` rounds, by curvature: 1 + (1 - c) + (1 - c)^2 + ..."""
    return (1 - np.maximum(1 - curvatures, 0) ** reach) / curvatures


def _numpy(params: Params) -> Params:
    """The parameters as NumPy arrays."""
    return Params(*map(to_numpy, params))
