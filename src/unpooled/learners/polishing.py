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
from unpooled.learners.penalties import Penalty, as_theta, penalty
from unpooled.maths.gaussian import unpack_triangle

STEPS = 25  # Newton steps, at most
SHORTER = 0.3  # of a step after which the loss was larger
NEAR = 1e-3  # root mean square change of the scores by a step, below which no more are taken
LONGEST = 2.0  # the same, above which a step is shortened


def polish(fed: Federation, theta: np.ndarray, trainer: dict, weights: str, ids: list, C: float | np.ndarray) -> tuple:
    """(learners (k, p) at the optimum of their rows, inverses of the second derivatives there as in `inverses_of`, centre (d,)).

    A step after which a learner's loss is larger is shortened; a learner that begins worse than none at all begins with zeros.
    """
    sums = fed.sum(column_sums, None)
    centre = to_numpy(sums.x) / float(sums.n)
    classes = len(trainer["labels"])
    pen = penalty(classes, trainer["inputs"], C)
    at = _free(to_numpy(theta).astype(np.float64), centre, classes)
    base = np.zeros_like(at)
    least = np.full(len(at), np.inf)
    ask = part_curvature.using(trainer=trainer, weights=weights, ids=ids)
    for step in range(STEPS):
        total = fed.sum(ask, Learners(_thetas(at, centre), centre))
        losses = np.array([0.5 * a @ pen.times(a) for a in at]) - to_numpy(total.loglik)
        if step == 0 and not (losses <= to_numpy(total.n) * np.log(classes)).all():
            at = np.where((losses <= to_numpy(total.n) * np.log(classes))[:, None], at, 0.0)
            continue
        second = _second(total, pen.matrix)
        forward, moved = _newton_steps(at, total, second, pen)
        better = losses <= least + 1e-11 * np.abs(losses)
        shorter = base + SHORTER * (at - base)
        base = np.where(better[:, None], at, base)
        at = np.where(better[:, None], forward, shorter)
        least = np.where(better, losses, least)
        if better.all() and moved < NEAR:
            break
    else:
        at = base
    return _thetas(at, centre), inverses_of(second, classes), centre


def _free(theta: np.ndarray, centre: np.ndarray, classes: int) -> np.ndarray:  # (k, q)
    """Free parameters of learners (k, p) about a centre."""
    scores = theta.reshape(len(theta), classes, -1)
    free = scores[:, 1:] - scores[:, :1]
    free[..., -1] += free[..., :-1] @ centre
    return free.reshape(len(theta), -1)


def _thetas(at: np.ndarray, centre: np.ndarray) -> np.ndarray:  # (k, p)
    """Learners from free parameters (k, q) about a centre."""
    return np.concatenate([as_theta(a, centre) for a in at])


def _newton_steps(at: np.ndarray, total: PartCurvature, second: np.ndarray, pen: Penalty) -> tuple[np.ndarray, float]:
    """(learners after a Newton step of LONGEST at most (k, q), the largest root mean square change of the scores by it)."""
    gradients = [to_numpy(g) - pen.times(a) for g, a in zip(total.gradient, at)]
    steps = np.stack([solve(s, g) for s, g in zip(second, gradients)])
    gains = [max(float(s @ g), 0.0) / max(float(n), 1.0) for s, g, n in zip(steps, gradients, total.n)]
    sizes = np.sqrt(gains)
    return at + steps / np.maximum(1.0, sizes / LONGEST)[:, None], float(sizes.max())


def second_derivatives(
    fed: Federation, theta: np.ndarray, trainer: dict, weights: str, ids: list, C: float
) -> tuple[np.ndarray, np.ndarray]:
    """(inverses of the second derivatives of learners as they are, see `inverses_of`, centre (d,)); two SUMs."""
    sums = fed.sum(column_sums, None)
    centre = to_numpy(sums.x) / float(sums.n)
    classes = len(trainer["labels"])
    ask = part_curvature.using(trainer=trainer, weights=weights, ids=ids)
    total = fed.sum(ask, Learners(to_numpy(theta).astype(np.float64), centre))
    second = _second(total, penalty(classes, trainer["inputs"], C).matrix)
    return inverses_of(second, classes), centre


def _second(total: PartCurvature, penalty: np.ndarray) -> np.ndarray:  # (k, q, q)
    """The penalised second derivatives; a little is added to the diagonal for learners without rows."""
    second = unpack_triangle(to_numpy(total.curvature)) + penalty
    little = 1e-9 * np.trace(second, axis1=-2, axis2=-1) / second.shape[-1]
    return second + little[:, None, None] * np.eye(second.shape[-1])
