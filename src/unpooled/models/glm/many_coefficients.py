"""The server's side of a classifier with many coefficients: L-BFGS, preconditioned by the second derivatives within each class.

Nothing is sent. Newton's steps need (m q)^2 / 2 second derivatives in every round, for m classes of q coefficients; these take m q^2 / 2
in a few rounds, and more rounds. Where rounds become too many, as with columns that are nearly collinear, Newton's steps go on from there.
The sum of the coefficients over the classes is 0 at the start and stays so, as at the optimum.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.maths import quasi_newton
from unpooled.maths.gaussian import unpack_triangle
from unpooled.models.glm.newton import solve_scaled
from unpooled.tree import message

FEW, MOST_FOR_NEWTON = 300, 3000  # coefficients up to which Newton's steps are taken at once, and after all
SLOW = 60  # rounds after which Newton's steps are taken, unless coefficients are too many
REFRESHED = (0, 3, 8, 16, 32)  # rounds after which the next one asks for second derivatives within classes
MOST_AGAIN = 640_000  # second derivatives, as m q^2, up to which they are asked for more than once
LITTLE = 1e-6  # of second derivatives, added to them against rounding in 32 bits


@message("glm.ManyCoefficients")
class Path(NamedTuple):
    """Where L-BFGS stands. Points are coefficients (m q), class after class."""

    at: np.ndarray  # (m q,) the point to be evaluated next
    base: np.ndarray  # (m q,) the last point accepted
    objective: float  # there
    gradient: np.ndarray  # (m q,) there, of minus the objective
    n: float  # rows of the clients that answered there
    halvings: int  # of the current step
    steps: np.ndarray  # (s, m q)
    changes: np.ndarray  # (s, m q) of the gradient by these steps
    inverse: np.ndarray  # (m, q, q) of the second derivatives within each class
    round: int
    refreshed: int  # how often `inverse` was replaced
    moved: float  # root mean square change of the linear predictors by the last step


class Evaluated(NamedTuple):
    """The clients' sums at a point."""

    score: np.ndarray  # (m, q)
    objective: float
    n: float  # rows of those who answered
    within: np.ndarray  # packed triangles of the second derivatives within each class, or (0,)


def takes_quasi_newton_steps(coef: np.ndarray) -> bool:
    """Whether coefficients (m, q) are of several classes, and many."""
    return len(coef) > 1 and coef.size > FEW


def is_slow(path: Path) -> bool:
    """Whether Newton's steps should go on in its place."""
    return path.round >= SLOW and path.at.size <= MOST_FOR_NEWTON


def begin(coef: np.ndarray) -> Path:
    """The path before its first step, from coefficients (m, q)."""
    at = coef.ravel()
    none = np.zeros((0, len(at)))
    inverse = np.zeros((*coef.shape, coef.shape[1]))
    return Path(at, at, float(np.inf), np.zeros_like(at), 0.0, 0, none, none, inverse, 0, 0, float(np.inf))


def asks_for_second_derivatives(path: Path) -> bool:
    """Whether the next round needs the second derivatives within classes."""
    rounds = REFRESHED if path.inverse.size <= MOST_AGAIN else REFRESHED[:1]
    return path.refreshed < len(rounds) and path.round >= rounds[path.refreshed]


def advance(path: Path, here: Evaluated, ridge: np.ndarray) -> Path:
    """The path after its next point was evaluated, under penalties (m q,): a new step from it, or a part of the last one.

    Where other clients answered than before, the two objectives cannot be compared, and the step is accepted.
    """
    same_rows = abs(here.n - path.n) <= 1e-9 * here.n
    path = path._replace(round=path.round + 1)
    if not np.isfinite(here.objective) or (same_rows and not _falls(path, here.objective)):
        at = path.base + _share(path, here.objective) * (path.at - path.base)
        return path._replace(at=at, halvings=path.halvings + 1)
    gradient = here.score.ravel() - ridge * path.at
    path = _with_curvature(path, gradient, here, ridge, same_rows)
    step = quasi_newton.next_step(gradient, path.steps, path.changes, lambda right: _preconditioned(path, right))
    moved = float(np.sqrt(max(step @ gradient, 0.0) / here.n))
    return path._replace(
        at=path.at + step,
        base=path.at,
        objective=here.objective,
        gradient=gradient,
        n=here.n,
        halvings=0,
        moved=moved,
    )


def _falls(path: Path, objective: float) -> bool:
    """Whether the objective fell by enough, or stands still up to rounding."""
    gain = quasi_newton.SUFFICIENT * float((path.at - path.base) @ path.gradient)
    return bool(objective <= path.objective - gain + 1e-11 * abs(path.objective))


def _share(path: Path, objective: float) -> float:
    """The fraction of a step that was too long at which the next point is evaluated."""
    slope = float((path.at - path.base) @ path.gradient)
    return quasi_newton.shortened(slope, objective - path.objective + slope)


def _with_curvature(path: Path, gradient: np.ndarray, here: Evaluated, ridge: np.ndarray, same_rows: bool) -> Path:
    """The path with what its last step says of the curvature, or with second derivatives in place of all that steps said."""
    none = path.steps[:0]
    if here.within.size:
        m, q = path.inverse.shape[:2]
        second = unpack_triangle(here.within.reshape(m, -1))
        inverse = np.stack([_inverse(own, held) for own, held in zip(second, ridge.reshape(m, q))])
        return path._replace(inverse=inverse, refreshed=path.refreshed + 1, steps=none, changes=none)
    if not same_rows:
        return path._replace(steps=none, changes=none)
    step = path.at - path.base
    steps, changes = quasi_newton.remembered(path.steps, path.changes, step, path.gradient - gradient)
    return path._replace(steps=steps, changes=changes)


def _inverse(second: np.ndarray, ridge: np.ndarray) -> np.ndarray:  # (q, q)
    """The inverse of the penalised second derivatives (q, q) within one class."""
    matrix = second + np.diag(ridge + LITTLE * np.diag(second))
    return solve_scaled(matrix, np.eye(len(matrix)))


def _preconditioned(path: Path, right: np.ndarray) -> np.ndarray:  # (m q,)
    """The solution within each class, moved so that its sum over the classes is 0."""
    found = (path.inverse @ right.reshape(*path.inverse.shape[:2], 1))[..., 0]
    return np.asarray((found - found.mean(0)).ravel())
