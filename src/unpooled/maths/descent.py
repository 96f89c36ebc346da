"""Adam and L-BFGS as pure functions from state to state, so that a run can be resumed to the same bits. Sends nothing.

`state.at` is the point to evaluate next. L-BFGS shortens its step when the value there is worse or NaN. Only an
accepted point needs a gradient (`wants_gradient`), which saves a round.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, namespace
from unpooled.tree import message

BETA_1 = 0.9  # decay rates of Adam's moment estimates
BETA_2 = 0.99
WARM_STEPS = 10  # over which the learning rate rises
LAST_RATE = 0.03  # share of the learning rate at the end
MEMORY = 20  # pairs that L-BFGS keeps
SUFFICIENT = 1e-4  # Armijo condition: fraction of the predicted decrease that a step must reach
SHORTER = 0.4  # factor of a rejected step's length
SHORTEST = 1e-6  # when a step gets shorter, the curvature pairs are dropped
LONGEST = 1.0  # largest change of a parameter in a step: the quadratic model is local


@message("maths.descent.Adam")
class Adam(NamedTuple):
    """State of Adam."""

    at: Array  # (p,)
    first: Array  # (p,) mean of gradients
    second: Array  # (p,) mean of squared gradients
    taken: int  # steps


def adam(start: Array) -> Adam:
    """Adam's state before the first step."""
    return Adam(start, 0 * start, 0 * start, 0)


def adam_step(state: Adam, gradient: Array, rate: float | Array, decay: float = 0.0) -> Adam:
    """One step of Adam with decoupled weight decay, for NumPy or torch, for one vector or a stack.

    Parameters
    ----------
    state : Adam
        Where the iteration is, and its running moments.
    gradient : array of the shape of the state's vector
        Of the loss.
    rate : float or array
        The learning rate.
    decay : float, default=0.0
        Weight decay, times the rate.
    """
    count = state.taken + 1
    first = BETA_1 * state.first + (1 - BETA_1) * gradient
    second = BETA_2 * state.second + (1 - BETA_2) * gradient * gradient
    mean = first / (1 - BETA_1**count)
    scale = namespace(second).sqrt(second / (1 - BETA_2**count)) + 1e-8
    at = (1 - rate * decay) * state.at - rate * mean / scale
    return Adam(at, first, second, count)


def warm_cosine(count: int, total: int) -> float:
    """Factor of the learning rate at step `count` of `total`.

    It rises linearly over WARM_STEPS and falls along half a cosine to LAST_RATE.
    """
    fall = 0.5 * (1 + np.cos(np.pi * min(1.0, count / max(total, 1))))
    rise = min(1.0, (count + 1) / WARM_STEPS)
    return float(rise * (LAST_RATE + (1 - LAST_RATE) * fall))


@message("maths.descent.LBFGS")
class LBFGS(NamedTuple):
    """State of L-BFGS."""

    at: np.ndarray  # (p,) where to evaluate next
    base: np.ndarray  # (p,) the last accepted point
    value: float  # at base; infinite before the first evaluation
    gradient: np.ndarray  # (p,) there
    direction: np.ndarray  # (p,) from base
    length: float  # at = base + length * direction
    steps: np.ndarray  # (MEMORY, p), newest last; rows of 0 are unused
    turns: np.ndarray  # (MEMORY, p) changes of the gradient over these steps


def lbfgs(start: np.ndarray) -> LBFGS:
    """The state before the first evaluation."""
    nothing = np.zeros_like(start)
    memory = np.zeros((MEMORY, len(start)))
    return LBFGS(start, start, np.inf, nothing, nothing, 1.0, memory, memory)


def wants_gradient(state: LBFGS, value: float) -> bool:
    """Whether the value at `state.at` is low enough to accept that point."""
    if not np.isfinite(value):
        return False
    promised = SUFFICIENT * state.length * float(state.gradient @ state.direction)
    return value <= state.value + promised


def shorten(state: LBFGS) -> LBFGS:
    """A shorter step from the last accepted point; when it gets too short, the curvature pairs are dropped."""
    length = state.length * SHORTER
    if length < SHORTEST:
        blank = np.zeros_like(state.steps)
        direction = -state.gradient / max(float(np.linalg.norm(state.gradient)), 1e-300)
        state = state._replace(direction=direction, steps=blank, turns=blank)
        length = 0.1
    return state._replace(at=state.base + length * state.direction, length=length)


def keep(state: LBFGS, value: float, gradient: np.ndarray, first_length: float = 0.5) -> LBFGS:
    """Accept the evaluated point; the next lies along the quasi-Newton direction, or down the gradient at first."""
    steps, turns = state.steps, state.turns
    if np.isfinite(state.value):
        s = state.at - state.base
        t = gradient - state.gradient
        if s @ t > 1e-10 * np.linalg.norm(s) * np.linalg.norm(t):
            steps = np.vstack([steps[1:], s])
            turns = np.vstack([turns[1:], t])
    direction = _two_loops(gradient, steps, turns)
    if not turns.any():
        direction = direction * (first_length / max(float(np.linalg.norm(gradient)), 1e-300))
    direction = direction * min(1.0, LONGEST / max(float(np.abs(direction).max(initial=0.0)), 1e-300))
    return LBFGS(state.at + direction, state.at, float(value), gradient, direction, 1.0, steps, turns)


def _two_loops(gradient: np.ndarray, steps: np.ndarray, turns: np.ndarray) -> np.ndarray:
    """The quasi-Newton direction (p,), - (approximate inverse Hessian) gradient, by the two-loop recursion."""
    used = [i for i in range(MEMORY) if turns[i].any()]
    q = gradient.copy()
    alphas = {}
    for i in reversed(used):
        alphas[i] = (steps[i] @ q) / (steps[i] @ turns[i])
        q -= alphas[i] * turns[i]
    if used:
        last = used[-1]
        q *= (steps[last] @ turns[last]) / (turns[last] @ turns[last])
    for i in used:
        q += steps[i] * (alphas[i] - (turns[i] @ q) / (steps[i] @ turns[i]))
    return -q
