"""Adam and L-BFGS as values: a state of arrays goes in, the next comes out, so that a run can be resumed to the same bits.

`state.at` is the point to evaluate next. L-BFGS shortens its step when the value there is worse or not a number; only a
point that is kept needs a gradient (`wants_gradient`), which saves a round.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, namespace
from unpooled.tree import message

BETA_1, BETA_2 = 0.9, 0.99  # how much of its averages Adam keeps in a step
MEMORY = 20  # pairs L-BFGS remembers
SUFFICIENT = 1e-4  # share of the promised decrease a step must bring
SHORTER = 0.4
SHORTEST = 1e-6
LONGEST = 1.0  # change of any one number in a step: farther, a model of curvature is not to be believed


@message("maths.descent.Adam")
class Adam(NamedTuple):
    at: Array  # (p,)
    first: Array  # (p,)
    second: Array  # (p,)
    taken: int  # steps


def adam(start: Array) -> Adam:
    return Adam(start, 0 * start, 0 * start, 0)


def adam_step(
    state: Adam, gradient: Array, rate: float | Array, b1: float = BETA_1, b2: float = BETA_2, decay: float = 0.0
) -> Adam:
    """One step down; works on NumPy and torch, on one vector or a stack of them. `decay` shrinks the point apart from the gradient."""
    count = state.taken + 1
    first = b1 * state.first + (1 - b1) * gradient
    second = b2 * state.second + (1 - b2) * gradient * gradient
    scale = namespace(second).sqrt(second / (1 - b2**count)) + 1e-8
    return Adam((1 - rate * decay) * state.at - rate * (first / (1 - b1**count)) / scale, first, second, count)


def warm_cosine(count: int, total: int, warm: int = 10, floor: float = 0.03) -> float:
    """The share of the learning rate at step `count`: rises over `warm` steps, falls as a half cosine to `floor`."""
    fall = 0.5 * (1 + np.cos(np.pi * min(1.0, count / max(total, 1))))
    return float(min(1.0, (count + 1) / warm) * (floor + (1 - floor) * fall))


@message("maths.descent.LBFGS")
class LBFGS(NamedTuple):
    at: np.ndarray  # (p,) where to evaluate next
    base: np.ndarray  # (p,) the last point kept
    value: float  # there; infinite before the first
    gradient: np.ndarray  # (p,) there
    direction: np.ndarray  # (p,) from base
    length: float  # at = base + length * direction
    steps: np.ndarray  # (MEMORY, p), newest last; rows of 0 are unused
    turns: np.ndarray  # (MEMORY, p) changes of gradient over these steps


def lbfgs(start: np.ndarray) -> LBFGS:
    nothing, memory = np.zeros_like(start), np.zeros((MEMORY, len(start)))
    return LBFGS(start, start, np.inf, nothing, nothing, 1.0, memory, memory)


def wants_gradient(state: LBFGS, value: float) -> bool:
    """Whether the value at `state.at` is good enough to keep that point."""
    if not np.isfinite(value):
        return False
    promised = SUFFICIENT * state.length * float(state.gradient @ state.direction)
    return value <= state.value + promised


def shorten(state: LBFGS) -> LBFGS:
    """A step that failed: closer to the last point kept; far too short, the memory misleads and is dropped."""
    length = state.length * SHORTER
    if length < SHORTEST:
        blank = np.zeros_like(state.steps)
        direction = -state.gradient / max(float(np.linalg.norm(state.gradient)), 1e-300)
        state, length = state._replace(direction=direction, steps=blank, turns=blank), 0.1
    return state._replace(at=state.base + length * state.direction, length=length)


def keep(state: LBFGS, value: float, gradient: np.ndarray, first_length: float = 0.5) -> LBFGS:
    """The point evaluated is kept; the next lies along the quasi-Newton direction, or a short way down at first."""
    steps, turns = state.steps, state.turns
    if np.isfinite(state.value):
        s, t = state.at - state.base, gradient - state.gradient
        if s @ t > 1e-10 * np.linalg.norm(s) * np.linalg.norm(t):
            steps, turns = np.vstack([steps[1:], s]), np.vstack([turns[1:], t])
    direction = _two_loops(gradient, steps, turns)
    if not turns.any():
        direction = direction * (first_length / max(float(np.linalg.norm(gradient)), 1e-300))
    direction = direction * min(1.0, LONGEST / max(float(np.abs(direction).max(initial=0.0)), 1e-300))
    return LBFGS(state.at + direction, state.at, float(value), gradient, direction, 1.0, steps, turns)


def _two_loops(gradient: np.ndarray, steps: np.ndarray, turns: np.ndarray) -> np.ndarray:
    """- (approximate inverse Hessian) gradient."""
    used = [i for i in range(MEMORY) if turns[i].any()]
    q, alphas = gradient.copy(), {}
    for i in reversed(used):
        alphas[i] = (steps[i] @ q) / (steps[i] @ turns[i])
        q -= alphas[i] * turns[i]
    if used:
        last = used[-1]
        q *= (steps[last] @ turns[last]) / (turns[last] @ turns[last])
    for i in used:
        q += steps[i] * (alphas[i] - (turns[i] @ q) / (steps[i] @ turns[i]))
    return -q
