"""The server's side of a Newton step: solve it with its penalty, accept or halve it, refuse problems without a solution.

Nothing is sent. A step minimises loss / 2 + n alpha ((1 - l1_ratio) / 2 |b|^2 + l1_ratio |b|_1), where the loss is a deviance,
b the q coefficients and n the number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh

from unpooled.errors import BadData
from unpooled.maths.logistic import lengthened
from unpooled.tree import message

DEPENDENT = 1e-10  # a column with a smaller share of variance not explained by the columns before it depends on them
UNINFORMED = 1e-2  # effective rows: a direction with fewer has no finite coefficient
SWEEPS = 10_000  # of coordinate descent, at most


class Penalty(NamedTuple):
    """A ridge and an absolute penalty for each coefficient, times the number of rows; 0 for the intercept."""

    ridge: np.ndarray  # (q,)
    absolute: np.ndarray  # (q,)

    def value(self, coef: np.ndarray) -> float:
        """The penalty at these coefficients."""
        return float(0.5 * (self.ridge * coef**2).sum() + (self.absolute * np.abs(coef)).sum())

    @property
    def any(self) -> bool:
        """Whether anything is penalised."""
        return bool(self.ridge.any() or self.absolute.any())


@message("glm.Path")
class Path(NamedTuple):
    """Where Newton's method stands."""

    at: np.ndarray  # (q,) the point to be evaluated next
    base: np.ndarray  # (q,) the last point accepted
    objective: float  # there
    n: float  # rows of the clients that answered there
    halvings: int  # of the current step
    first: np.ndarray  # (q, q) the curvature at the start
    last: np.ndarray  # (q, q) the curvature that the last step was taken with
    moved: float  # root mean square change of the linear predictor by the last step, in its own units


def begin(at: np.ndarray) -> Path:
    """The path of Newton's method before its first step."""
    none = np.zeros((len(at), len(at)))
    return Path(at, at, float(np.inf), 0.0, 0, none, none, float(np.inf))


# ---- steps ----


class Evaluated(NamedTuple):
    """The clients' sums at a point."""

    hessian: np.ndarray  # (q, q)
    score: np.ndarray  # (q,)
    objective: float
    n: float  # rows of those who answered
    unit: float  # sum over rows of the squared unit in which a change of the linear predictor is measured


def advance(path: Path, here: Evaluated, pen: Penalty, longer: bool = False) -> Path:
    """The path after its next point was evaluated: a new step from it, or half of the last one if it made things worse.

    Where other clients answered than before, the two objectives cannot be compared, and the step is accepted. `longer`: a step that
    repeats a part of the last one is made longer, see `maths.logistic`.
    """
    slack = 1e-11 * abs(path.objective) if np.isfinite(path.objective) else 0.0
    same_rows = abs(here.n - path.n) <= 1e-9 * here.n
    worse = same_rows and here.objective > path.objective + slack
    if worse or not np.isfinite(here.objective):
        return path._replace(at=0.5 * (path.at + path.base), halvings=path.halvings + 1)
    new = solve(here.hessian, here.score, path.at, pen)
    step = new - path.at
    moved = float(np.sqrt(max(step @ here.hessian @ step, 0.0) / here.unit))
    first = path.first if path.first.any() else here.hessian
    if longer and path.halvings == 0 and not pen.absolute.any():
        new = path.at + lengthened(step, path.at - path.base, here.hessian + np.diag(pen.ridge))
    return Path(new, path.at, float(here.objective), here.n, 0, first, here.hessian, moved)


def solve(hessian: np.ndarray, score: np.ndarray, coef: np.ndarray, pen: Penalty) -> np.ndarray:
    """The coefficients that minimise the quadratic model of the loss at `coef`, plus the penalty."""
    matrix = hessian + np.diag(pen.ridge)
    if not pen.absolute.any():
        return coef + solve_scaled(matrix, score - pen.ridge * coef)
    return _lasso(matrix, score + hessian @ coef, pen.absolute, coef)


def solve_scaled(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """matrix^-1 right for a symmetric matrix that is positive definite, or is made so; columns may have any units."""
    scale = np.sqrt(np.maximum(np.diag(matrix), np.finfo(float).tiny))
    shaped = right / (scale if right.ndim == 1 else scale[:, None])
    unit = matrix / np.outer(scale, scale)
    try:
        found = cho_solve(cho_factor(unit, lower=True), shaped)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(unit)
        found = vectors @ ((vectors.T @ shaped).T / np.maximum(np.abs(values), 1e-8)).T
    return found / (scale if right.ndim == 1 else scale[:, None])


def _lasso(matrix: np.ndarray, linear: np.ndarray, absolute: np.ndarray, coef: np.ndarray) -> np.ndarray:
    """argmin of b' matrix b / 2 - linear' b + absolute' |b|, by coordinate descent, then exactly on its active set."""
    b = coef.copy()
    diagonal = np.maximum(np.diag(matrix), np.finfo(float).tiny)
    residual = linear - matrix @ b
    for _ in range(SWEEPS):
        before = b.copy()
        for j in range(len(b)):
            pull = residual[j] + diagonal[j] * b[j]
            new = np.sign(pull) * max(abs(pull) - absolute[j], 0.0) / diagonal[j]
            if new != b[j]:
                residual -= matrix[:, j] * (new - b[j])
                b[j] = new
        if np.abs((b - before) * np.sqrt(diagonal)).max() <= 1e-12 * np.abs(b * np.sqrt(diagonal)).max():
            break
    return _on_active_set(matrix, linear, absolute, b)


def _on_active_set(matrix: np.ndarray, linear: np.ndarray, absolute: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The exact minimum if it has the signs of `b`, else `b`."""
    active = (b != 0) | (absolute == 0)
    exact = np.zeros_like(b)
    right = linear[active] - absolute[active] * np.sign(b[active])
    exact[active] = solve_scaled(matrix[np.ix_(active, active)], right)
    return exact if (np.sign(exact) == np.sign(b)).all() else b


# ---- problems without a solution ----


def check_independent(gram: np.ndarray, names: Sequence[str], small: np.ndarray, remedy: str) -> None:
    """Refuse columns of which one is a combination of the others, by name.

    `gram` (q, q) is their weighted second moment about their means, `small` (q,) the largest diagonal that rounding errors alone can
    cause, `remedy` what can be done other than leaving a column out.
    """
    flat = np.flatnonzero(np.diag(gram) <= small)
    if len(flat):
        others = ["intercept"] if names[0] == "intercept" else []
        raise BadData(f"{_dependent(names[int(flat[0])], others)}: leave it out, or {remedy}")
    scale = np.sqrt(np.diag(gram))
    unit = gram / np.outer(scale, scale)
    for j in range(1, len(unit)):
        weights = solve_scaled(unit[:j, :j], unit[:j, j])
        if unit[j, j] - unit[:j, j] @ weights < DEPENDENT:
            others = [names[i] for i in range(j) if abs(weights[i]) > 1e-5]
            raise BadData(f"{_dependent(names[j], others)}: leave it out, or {remedy}")


def rounding(gram: np.ndarray, mean: np.ndarray, intercept: bool) -> np.ndarray:
    """(q,) the second moment about its mean that a constant column may have by rounding errors."""
    weight = float(gram[0, 0]) if intercept else 0.0
    column = weight * (1e-13 * mean) ** 2
    return np.concatenate([[0.0], column]) if intercept else column


def _dependent(name: str, others: list[str]) -> str:
    """The sentence that says which columns determine a column."""
    if not others:
        return f"column {name!r} is 0 in every row"
    if others == ["intercept"]:
        return f"column {name!r} is constant over all clients, as the intercept is"
    shown = ", ".join(repr(o) for o in others[:4]) + (", ..." if len(others) > 4 else "")
    return f"column {name!r} is a combination of {shown}"


def check_informed(hessian: np.ndarray, first: np.ndarray, n: float, names: Sequence[str], remedy: str) -> None:
    """Refuse a fit in which a coefficient grows without bound, as under separation: hardly a row carries information on it.

    The curvature is compared with the curvature at the start (`first`), in the direction in which it fell most.
    """
    try:
        values, vectors = eigh(hessian, first)
    except np.linalg.LinAlgError:
        return
    if n * values[0] > UNINFORMED:
        return
    weight = np.abs(vectors[:, 0]) * np.sqrt(np.diag(first))
    weight[[name == "intercept" for name in names]] = 0.0
    name = names[int(np.argmax(weight))]
    raise BadData(
        f"column {name!r} separates the outcomes, alone or with others, and its coefficient has no finite value: "
        f"leave it out, or {remedy}"
    )
