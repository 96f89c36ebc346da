"""Several linear learners at the optimum of their rows, with the clients' weights of them as they are.

A SUM of the columns, and one SUM per Newton step.
"""

from __future__ import annotations

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.federation import Federation
from unpooled.learners.curvatures import Learners, PartCurvature, column_sums, part_curvature
from unpooled.learners.left_out import inverses_of
from unpooled.learners.newton import solve
from unpooled.learners.penalties import as_theta, penalty
from unpooled.maths.gaussian import unpack_triangle

STEPS = 15  # Newton steps, at most
NEAR = 1e-3  # root mean square change of the scores by a step, below which no more are taken
LONGEST = 2.0  # the same, above which a step is shortened


def polish(fed: Federation, theta: np.ndarray, trainer: dict, weights: str, ids: list, C: float) -> tuple:
    """(learners (k, p) at the optimum of their rows, inverses of the second derivatives there as in `inverses_of`, centre (d,))."""
    sums = fed.sum(column_sums, None)
    centre, k = to_numpy(sums.x) / float(sums.n), len(theta)
    inputs, classes = trainer["inputs"], len(trainer["labels"])
    scores = to_numpy(theta).astype(np.float64).reshape(k, classes, inputs + 1)
    free = scores[:, 1:] - scores[:, :1]
    free[..., -1] += free[..., :-1] @ centre
    at = free.reshape(k, -1)
    pen = penalty(classes, inputs, C)
    ask = part_curvature.using(trainer=trainer, weights=weights, ids=ids)
    for _ in range(STEPS):
        total = fed.sum(ask, Learners(np.concatenate([as_theta(a, centre) for a in at]), centre))
        second = _second(total, pen.matrix)
        gradients = [to_numpy(g) - pen.times(a) for g, a in zip(total.gradient, at)]
        steps = [solve(s, g) for s, g in zip(second, gradients)]
        gains = [max(float(s @ g), 0.0) / max(float(n), 1.0) for s, g, n in zip(steps, gradients, total.n)]
        sizes = np.sqrt(gains)
        at = at + np.stack([s / max(1.0, size / LONGEST) for s, size in zip(steps, sizes)])
        if max(sizes) < NEAR:
            break
    return np.concatenate([as_theta(a, centre) for a in at]), inverses_of(second, classes), centre


def second_derivatives(
    fed: Federation, theta: np.ndarray, trainer: dict, weights: str, ids: list, C: float
) -> tuple[np.ndarray, np.ndarray]:
    """(inverses of the second derivatives of learners as they are, see `inverses_of`, centre (d,)); two SUMs."""
    sums = fed.sum(column_sums, None)
    centre, classes = to_numpy(sums.x) / float(sums.n), len(trainer["labels"])
    ask = part_curvature.using(trainer=trainer, weights=weights, ids=ids)
    total = fed.sum(ask, Learners(to_numpy(theta).astype(np.float64), centre))
    second = _second(total, penalty(classes, trainer["inputs"], C).matrix)
    return inverses_of(second, classes), centre


def _second(total: PartCurvature, penalty: np.ndarray) -> np.ndarray:  # (k, q, q)
    """The penalised second derivatives; a little is added to the diagonal for learners without rows."""
    second = unpack_triangle(to_numpy(total.curvature)) + penalty
    little = 1e-9 * np.trace(second, axis1=-2, axis2=-1) / second.shape[-1]
    return second + little[:, None, None] * np.eye(second.shape[-1])
