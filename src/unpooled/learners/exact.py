"""A linear learner at the optimum of all rows: Newton's method, or L-BFGS where second derivatives are many.

One SUM of column sums at the start, then one SUM per round: the log-likelihood, its gradient and, for Newton steps, its second
derivatives. L-BFGS asks once for the second moments of the columns, by which its first steps are preconditioned, and in the rounds of
REFRESHED for the second derivatives within each class, which take their place. Newton steps are lengthened far from the optimum (see
`maths.logistic`), and a last step after which next to nothing would be left is taken without another SUM.

The loss is scikit-learn's: sum of log-losses + |coefficients|^2 / (2 C), intercepts free. Scores of the first class are held at 0,
and columns are centred, so that neither rounding nor the number of rounds depends on their origin.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, to_numpy
from unpooled.estimator import Info
from unpooled.federation import Federation
from unpooled.learners import newton
from unpooled.learners.curvatures import (
    Blocks,
    ColumnSums,
    Linear,
    block_slope,
    column_sums,
    curvature,
    second_moments,
    slope,
)
from unpooled.learners.newton import solve
from unpooled.learners.penalties import Penalty, as_theta, penalty
from unpooled.maths import quasi_newton
from unpooled.maths.gaussian import unpack_triangle
from unpooled.maths.logistic import lengthened
from unpooled.tree import message

CLOSE = 1e-6  # root mean square change of the scores by a step, below which the optimum is reached
NEAR = 1e-3  # the same, below which second derivatives are those of the optimum
MAX_HALVINGS = 40
MAX_ROUNDS = 100  # of `fit`
FEW_PARAMETERS = 64  # up to which more than two classes take Newton steps
REFRESHED = (3, 8, 16, 32)  # rounds after which L-BFGS asks for second derivatives within classes
MAX_BLOCKS = 640_000  # numbers of these, at most
MAX_COLUMNS = 1500  # columns up to which L-BFGS is preconditioned by their second moments, beyond by variances


@message("learners.OptimumPath")
class Path(NamedTuple):
    """Where the search for the optimum stands. Points are free parameters of centred columns, (q,)."""

    trainer: dict
    C: float | Array  # inverse strength of the penalty, of all columns or one of each
    centre: Array  # (d,)
    at: Array  # the point to be evaluated next
    base: Array  # the last point accepted
    objective: float  # there
    gradient: Array  # there
    steps: Array  # (m, q) of L-BFGS
    changes: Array  # (m, q) of the gradient by these steps
    scale: Array  # preconditioner of L-BFGS: (1, d + 1, d + 1), (classes, d + 1, d + 1), or (d + 1,); (0,) with Newton steps
    refreshed: int  # how often `scale` was replaced
    moved: float  # by the last step: root mean square change of the scores
    reached: bool  # whether the next step would move them by next to nothing
    halvings: int
    rows: float
    inverse: Array  # (1, 1, q, q) of the second derivatives near the optimum; (0, 0, 0, 0) before, and with L-BFGS
    spread: Array  # (d,) deviations of the columns; (0,) before the first round
    round: int

    @property
    def theta(self) -> np.ndarray:
        """(1, p) the last point accepted, as the learner takes it."""
        return as_theta(self.base, self.centre)

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.trainer["labels"])

    @property
    def penalty(self) -> Penalty:
        """The ridge penalty."""
        return penalty(self.classes, self.trainer["inputs"], self.C)

    @property
    def has_blocks(self) -> bool:
        """Whether the second derivatives within classes are few enough to be sent."""
        return self.classes > 2 and self.classes * (len(self.centre) + 1) ** 2 <= MAX_BLOCKS


NO_INVERSE = np.zeros((0, 0, 0, 0))


def takes_newton_steps(inputs: int, classes: int) -> bool:
    """Whether the search takes Newton steps: there are two classes, or few parameters."""
    few = (classes - 1) * (inputs + 1) <= FEW_PARAMETERS
    return newton.fits(inputs, classes) and (classes == 2 or few)


def begin(fed: Federation, trainer: dict, C: float | np.ndarray) -> Path:
    """The path before its first point, all zeros; one SUM of the columns."""
    sums = fed.sum(column_sums, None)
    centre = to_numpy(sums.x) / float(sums.n)
    rows = float(sums.n)
    inputs = trainer["inputs"]
    classes = len(trainer["labels"])
    at = np.zeros((classes - 1) * (inputs + 1))
    exact = takes_newton_steps(inputs, classes)
    scale = spread = np.zeros(0)
    if not exact:
        scale, spread = _preconditioner(fed, centre, rows, penalty(classes, inputs, C))
    none = np.zeros((0, len(at)))
    begun = Path(
        trainer, C, centre, at, at, np.inf, at, none, none, scale, 0, np.inf, False, 0, rows, NO_INVERSE, spread, 0
    )
    return begun


def advance(fed: Federation, path: Path) -> tuple[Path, Info]:
    """The path after its next point was evaluated: one SUM."""
    pen = path.penalty
    total = _ask(fed, path)
    objective = -float(total.loglik) + 0.5 * float(path.at @ pen.times(path.at))
    gradient = to_numpy(total.gradient) - pen.times(path.at)  # of the objective, downhill
    info = {"loglik": float(total.loglik / total.n)}
    path = path._replace(round=path.round + 1)
    if not _accepted(path, objective):
        at = path.base + _shorter(path, objective) * (path.at - path.base)
        halvings = path.halvings + 1
        return path._replace(at=at, halvings=halvings, reached=halvings > MAX_HALVINGS), info
    path, step, moved = (_l_bfgs if path.scale.size else _newton)(path, gradient, total, pen)
    last = _left(path, moved) < CLOSE
    path = path._replace(base=path.at + last * step, at=path.at + step, objective=objective, gradient=gradient)
    return path._replace(moved=moved, reached=last, halvings=0), info | {"change": moved}


def _left(path: Path, moved: float) -> float:
    """About how much the scores will move after a step that moves them by `moved`, as steps become smaller.

    Newton's steps do so quadratically; of L-BFGS it is assumed that the next one is smaller by as much as this one.
    """
    if moved > NEAR:
        return moved
    ratio = min(moved / min(path.moved, 1.0), 1.0)
    return moved * (ratio if path.scale.size else ratio**2)


def fit(fed: Federation, trainer: dict, C: float | np.ndarray) -> Path:
    """The path at the optimum, after MAX_ROUNDS at most."""
    path = begin(fed, trainer, C)
    while not path.reached and path.round < MAX_ROUNDS:
        path, _ = advance(fed, path)
    return path


def restarted(path: Path, C: float) -> Path:
    """The path from its last point towards the optimum of another C."""
    none = path.steps[:0]
    path = path._replace(C=C, at=path.base, objective=np.inf, moved=np.inf, steps=none, changes=none)
    return path._replace(round=0, refreshed=0, halvings=0, reached=False, inverse=NO_INVERSE)


def at_optimum(fed: Federation, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """(inverse of the second derivatives at the optimum as in `left_out.inverses_of`, or none, centre); at most one SUM."""
    if path.inverse.size or not path.has_blocks:
        return path.inverse, path.centre
    total = fed.sum(block_slope.using(trainer=path.trainer), Linear(path.theta, path.centre))
    return _inverse_blocks(total, path.penalty)[None], path.centre


def _ask(fed: Federation, path: Path) -> Any:
    """What is needed at the next point."""
    due = path.refreshed < len(REFRESHED) and path.round >= REFRESHED[path.refreshed]
    ask = curvature if not path.scale.size else block_slope if due and path.has_blocks else slope
    return fed.sum(ask.using(trainer=path.trainer), Linear(as_theta(path.at, path.centre), path.centre))


def _newton(path: Path, gradient: np.ndarray, total: Any, pen: Penalty) -> tuple[Path, np.ndarray, float]:
    """(the path, its next step, root mean square change of the scores by a Newton step).

    Far from the optimum the step is longer than Newton's; near it the inverse of the second derivatives is kept.
    """
    second = unpack_triangle(to_numpy(total.curvature))
    if not path.spread.size:  # all probabilities are equal in the first round
        path = path._replace(spread=_deviations(np.diag(second)[: len(pen.columns)]))
    second += pen.matrix
    step = solve(second, gradient)
    moved = _size(step, gradient, path.rows)
    if moved < NEAR:
        return path._replace(inverse=solve(second, np.eye(len(second)))[None, None]), step, moved
    return path, lengthened(step, path.at - path.base, second) if path.halvings == 0 else step, moved


def _size(step: np.ndarray, gradient: np.ndarray, rows: float) -> float:
    """The root mean square change of the scores by a step."""
    return float(np.sqrt(max(step @ gradient, 0.0) / rows))


def _accepted(path: Path, objective: float) -> bool:
    """Whether the point is better than the last one, or as good up to rounding."""
    if not np.isfinite(path.objective):
        return bool(np.isfinite(objective))
    gain = quasi_newton.SUFFICIENT * float((path.at - path.base) @ path.gradient) if path.scale.size else 0.0
    return bool(objective <= path.objective - gain + 1e-11 * abs(path.objective))


def _shorter(path: Path, objective: float) -> float:
    """The fraction of a step that was too long at which the next point is evaluated."""
    slope = float((path.at - path.base) @ path.gradient)
    return quasi_newton.shortened(slope, objective - path.objective + slope)


# ---- L-BFGS ----


def _l_bfgs(path: Path, gradient: np.ndarray, total: Any, pen: Penalty) -> tuple[Path, np.ndarray, float]:
    """(the path with its last step remembered, its next step, root mean square change of the scores by it); a new preconditioner
    begins with an empty memory.
    """
    if isinstance(total, Blocks):
        none = path.steps[:0]
        scale = _inverse_blocks(total, pen)
        path = path._replace(scale=scale, refreshed=path.refreshed + 1, steps=none, changes=none)
    else:
        path = _remember(path, gradient)
    step = quasi_newton.next_step(gradient, path.steps, path.changes, lambda q: _preconditioned(path, q))
    return path, step, _size(step, gradient, path.rows)


def _preconditioner(
    fed: Federation, centre: np.ndarray, rows: float, pen: Penalty
) -> tuple[np.ndarray, np.ndarray]:  # and (d,)
    """(inverse (1, d + 1, d + 1) of a bound of the second derivatives of a class, or its diagonal (d + 1,), deviations of the columns);
    one SUM.

    The bound is half the second moments of the columns (Boehning, 1992).
    """
    whole = len(centre) <= MAX_COLUMNS
    total = to_numpy(fed.sum(second_moments.using(whole=whole), ColumnSums(np.asarray(rows), centre)).xx)
    if not whole:
        return 1 / (0.5 * total + pen.columns + 1e-8 * total.mean()), _deviations(total)
    second = unpack_triangle(total)
    little = 1e-8 * np.diag(second).mean()
    return np.linalg.inv(0.5 * second + np.diag(pen.columns + little))[None], _deviations(np.diag(second))


def _deviations(squares: np.ndarray) -> np.ndarray:  # (d,)
    """Deviations of columns from their sums of squares about the mean, the last one being that of a column of ones."""
    return np.sqrt(squares[:-1] / squares[-1])


def _inverse_blocks(total: Blocks, pen: Penalty) -> np.ndarray:  # (classes, d + 1, d + 1)
    """Inverses of the penalised second derivatives within each class."""
    second = unpack_triangle(to_numpy(total.blocks))
    little = 1e-6 * float(total.n)
    return np.linalg.inv(second + np.diag(pen.columns * (1 - 1 / len(second)) + little))


def _remember(path: Path, gradient: np.ndarray) -> Path:
    """The path with its last step among those that L-BFGS keeps."""
    if path.round == 1:
        return path
    steps, changes = quasi_newton.remembered(path.steps, path.changes, path.at - path.base, path.gradient - gradient)
    return path._replace(steps=steps, changes=changes)


def _preconditioned(path: Path, q: np.ndarray) -> np.ndarray:
    """q times the inverse of the second derivatives, as far as they are known."""
    by_class = q.reshape(path.classes - 1, -1)
    if path.scale.ndim == 3 and len(path.scale) > 1:
        of_all = np.concatenate([-by_class.sum(0, keepdims=True), by_class])
        across = (path.scale @ of_all[..., None])[..., 0]
        return (across[1:] - across[0]).ravel()
    across = by_class * path.scale if path.scale.ndim == 1 else by_class @ path.scale[0]
    return (across + across.sum(0)).ravel()  # the inverse of I - 11'/c is I + 11'
