"""A linear learner at the optimum of all rows: Newton's method, or L-BFGS where second derivatives are too many to send.

One SUM of column sums at the start, then one SUM per round: the log-likelihood, its gradient and, for Newton steps, its second
derivatives. L-BFGS asks once for the second moments of the columns, by which its steps are preconditioned.

The loss is scikit-learn's: sum of log-losses + |coefficients|^2 / (2 C), intercepts free. Scores of the first class are held at 0,
and columns are centred, so that neither rounding nor the number of rounds depends on their origin.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.estimator import Info
from unpooled.federation import Federation
from unpooled.learners import newton
from unpooled.learners.penalties import Penalty, as_theta, penalty, with_one
from unpooled.learners.trainer import Trainer
from unpooled.maths.gaussian import pack_triangle, unpack_triangle
from unpooled.tree import message

CLOSE = 1e-6  # root mean square change of the scores by a step, below which the optimum is reached
NEAR = 1e-3  # the same, below which second derivatives are those of the optimum
MAX_HALVINGS = 40
POLISHING_STEPS = 15  # Newton steps of several learners, at most
MEMORY = 20  # pairs of steps and changes of the gradient that L-BFGS keeps
MAX_COLUMNS = 1500  # columns up to which L-BFGS is preconditioned by their second moments, beyond by variances
SUFFICIENT = 1e-4  # share of the predicted gain that a step of L-BFGS must bring


# ---- messages ----


@message("learners.ColumnSums")
class ColumnSums(NamedTuple):
    n: Float[Array, "", ">=0 rows"]
    x: Float[Array, "d"]  # sum of w x


@message("learners.Linear")
class Linear(NamedTuple):
    """A linear learner and the centre of the columns."""

    theta: Float[Array, "k p"]  # k is 1
    centre: Float[Array, "d"]


@message("learners.Slope")
class Slope(NamedTuple):
    n: Float[Array, "", ">=0 rows"]
    loglik: Float[Array, ""]
    gradient: Float[Array, "q"]


@message("learners.Curvature")
class Curvature(NamedTuple):
    n: Float[Array, "", ">=0 rows"]
    loglik: Float[Array, ""]
    gradient: Float[Array, "q"]
    curvature: Float[Array, "t"]  # packed triangle of (q, q)


@message("learners.Learners")
class Learners(NamedTuple):
    """Several linear learners and the centre of the columns."""

    theta: Float[Array, "k p"]
    centre: Float[Array, "d"]


@message("learners.PartCurvature")
class PartCurvature(NamedTuple):
    """The same as `Curvature` for each learner, over rows weighted by the clients' weights of it."""

    n: Float[Array, "k", ">=0 rows"]
    loglik: Float[Array, ""]
    gradient: Float[Array, "k q"]
    curvature: Float[Array, "k t"]


@message("learners.SecondMoments")
class SecondMoments(NamedTuple):
    xx: Float[Array, "t"]  # packed triangle of the sum of (x - centre, 1)(x - centre, 1)', or its diagonal


@message("learners.OptimumPath")
class Path(NamedTuple):
    """Where the search for the optimum stands. Points are free parameters of centred columns, (q,)."""

    trainer: dict
    centre: Array  # (d,)
    at: Array  # the point to be evaluated next
    base: Array  # the last point accepted
    objective: float  # there
    gradient: Array  # there
    steps: Array  # (m, q) of L-BFGS
    changes: Array  # (m, q) of the gradient by these steps
    scale: (
        Array  # (d + 1, d + 1) inverse of the preconditioner of L-BFGS; (d + 1,) its diagonal; (0,) with Newton steps
    )
    moved: float  # by the last step: root mean square change of the scores
    halvings: int
    rows: float
    inverse: Array  # (q, q) of the second derivatives near the optimum; (0, 0) before, and with L-BFGS
    round: int

    @property
    def theta(self) -> np.ndarray:
        """(1, p) the last point accepted, as the learner takes it."""
        return as_theta(self.base, self.centre)

    @property
    def reached(self) -> bool:
        """Whether the last step moved the scores by next to nothing."""
        return self.moved < CLOSE or self.halvings > MAX_HALVINGS


# ---- questions ----


@client("learners.column_sums", SUM, adds=True)
def column_sums(down: None, client: Client) -> ColumnSums:
    """Rows and sums of the columns."""
    x, w = (to_numpy(a).astype(np.float64, copy=False) for a in (client.x, client.w))
    return ColumnSums(w.sum(-1), (w[..., None, :] @ x)[..., 0, :])


@client("learners.curvature", SUM, adds=True)
def curvature(down: Linear, client: Client, *, trainer: dict) -> Curvature:
    """Log-likelihood of a linear learner, its gradient and its second derivatives."""
    rows, log_p, loglik = _likelihood(down, client, trainer)
    one = with_one(rows.x - down.centre)  # (..., n, d + 1)
    p = np.exp(log_p[..., 0, 1:, :])  # (..., c - 1, n)
    return Curvature(
        rows.w.sum(-1), loglik, gradient_of(rows.y, rows.w, p, one), pack_triangle(second_of(rows.w, p, one))
    )


@client("learners.slope", SUM, adds=True)
def slope(down: Linear, client: Client, *, trainer: dict) -> Slope:
    """Log-likelihood of a linear learner and its gradient."""
    rows, log_p, loglik = _likelihood(down, client, trainer)
    one, p = with_one(rows.x - down.centre), np.exp(log_p[..., 0, 1:, :])
    return Slope(rows.w.sum(-1), loglik, gradient_of(rows.y, rows.w, p, one))


@client("learners.part_curvature", SUM)
def part_curvature(down: Learners, client: Client, *, trainer: dict, weights: str, ids: list) -> PartCurvature:
    """Log-likelihood of each linear learner, its gradient and second derivatives, by the client's weights of the learners."""
    share = shares_of(client.state, weights, ids, client.w.shape[:-1])  # (..., k)
    parts = []
    for k in range(len(ids)):
        rows, log_p, _ = _likelihood(Linear(down.theta[k : k + 1], down.centre), client, trainer)
        w = rows.w * share[..., k : k + 1]
        one, p = with_one(rows.x - down.centre), np.exp(log_p[..., 0, 1:, :])
        chosen = np.take_along_axis(log_p[..., 0, :, :], rows.y[..., None, :], -2)[..., 0, :]
        second = pack_triangle(second_of(w, p, one))
        parts.append((w.sum(-1), (w * chosen).sum(-1), gradient_of(rows.y, w, p, one), second))
    n, loglik, gradient, second = zip(*parts)
    return PartCurvature(np.stack(n, -1), sum(loglik), np.stack(gradient, -2), np.stack(second, -2))


def shares_of(state: dict, weights: str, ids: list, lead: tuple[int, ...]) -> np.ndarray:  # (..., k)
    """A client's weights of the learners at the places `ids`; equal ones if it has none."""
    own = to_numpy(state[weights])[..., ids] if weights in state else np.ones((*lead, len(ids)))
    return own / own.sum(-1, keepdims=True).clip(min=1e-300)


@client("learners.second_moments", SUM, adds=True)
def second_moments(centre: ColumnSums, client: Client, *, whole: bool) -> SecondMoments:
    """Second moments of the columns about their mean; without `whole` their diagonal."""
    x, w = (to_numpy(a).astype(np.float64, copy=False) for a in (client.x, client.w))
    one = with_one(x - centre.x)
    if not whole:
        return SecondMoments((w[..., None, :] @ one**2)[..., 0, :])
    return SecondMoments(pack_triangle(np.swapaxes(one * w[..., None], -1, -2) @ one))


def _likelihood(down: Linear, client: Client, trainer: dict) -> tuple[Any, np.ndarray, np.ndarray]:
    """(rows, log-probabilities (..., 1, c, n), log-likelihood (...,)), in float64."""
    learner = Trainer(**trainer)._replace(device=None)
    rows = learner.rows(client)
    rows = rows._replace(x=rows.x.astype(np.float64, copy=False), w=rows.w.astype(np.float64, copy=False))
    log_p = learner.log_proba(down.theta, rows.x)
    chosen = np.take_along_axis(log_p[..., 0, :, :], rows.y[..., None, :], -2)[..., 0, :]
    return rows, log_p, (rows.w * chosen).sum(-1)


def gradient_of(y: np.ndarray, w: np.ndarray, p: np.ndarray, one: np.ndarray) -> np.ndarray:  # (..., q)
    """The gradient of the log-likelihood: labels y (..., n), probabilities p (..., c - 1, n), columns and 1 (..., n, d + 1)."""
    hit = y[..., None, :] == np.arange(1, p.shape[-2] + 1)[:, None]  # (..., c - 1, n)
    gradient = ((hit - p) * w[..., None, :]) @ one
    return gradient.reshape(*gradient.shape[:-2], -1)


def second_of(w: np.ndarray, p: np.ndarray, one: np.ndarray) -> np.ndarray:  # (..., q, q)
    """Minus the second derivatives: block (a, b) is the sum of w p_a ([a = b] - p_b) z z', most of it one product."""
    free, wide = p.shape[-2], one.shape[-1]
    if free == 1:
        weight = w * p[..., 0, :] * (1 - p[..., 0, :])
        return np.swapaxes(one * weight[..., None], -1, -2) @ one
    by_class = np.sqrt(w)[..., None] * np.swapaxes(p, -1, -2)  # (..., n, c - 1)
    all_classes = (by_class[..., None] * one[..., None, :]).reshape(*one.shape[:-1], free * wide)
    second = -np.swapaxes(all_classes, -1, -2) @ all_classes
    for a in range(free):
        own = slice(a * wide, (a + 1) * wide)
        second[..., own, own] += np.swapaxes(one * (w * p[..., a, :])[..., None], -1, -2) @ one
    return second


# ---- the server ----


def begin(fed: Federation, trainer: dict) -> Path:
    """The path before its first point, all zeros; one SUM of the columns."""
    sums = fed.sum(column_sums, None)
    centre = to_numpy(sums.x) / float(sums.n)
    inputs, classes = trainer["inputs"], len(trainer["labels"])
    at = np.zeros((classes - 1) * (inputs + 1))
    scale = np.zeros(0) if newton.fits(inputs, classes) else _preconditioner(fed, centre, float(sums.n))
    none = np.zeros((0, len(at)))
    return Path(trainer, centre, at, at, np.inf, at, none, none, scale, np.inf, 0, float(sums.n), np.zeros((0, 0)), 0)


def advance(fed: Federation, path: Path, C: float) -> tuple[Path, Info]:
    """The path after its next point was evaluated: one SUM."""
    ask = slope if path.scale.size else curvature
    down = Linear(as_theta(path.at, path.centre), path.centre)
    total = fed.sum(ask.using(trainer=path.trainer), down)
    pen = penalty(len(path.trainer["labels"]), path.trainer["inputs"], C)
    objective = -float(total.loglik) + 0.5 * float(path.at @ pen.times(path.at))
    gradient = to_numpy(total.gradient) - pen.times(path.at)  # of the objective, downhill
    info = {"loglik": float(total.loglik / total.n)}
    path = path._replace(round=path.round + 1)
    if not _accepted(path, objective):
        at = path.base + _shorter(path, objective) * (path.at - path.base)
        return path._replace(at=at, halvings=path.halvings + 1), info
    if path.scale.size:
        path = _remember(path, gradient)
        step = _quasi_newton(path, gradient, pen)
    else:
        second = unpack_triangle(to_numpy(total.curvature))
        step = solve(second + pen.matrix, gradient)
        if np.sqrt(max(step @ gradient, 0.0) / path.rows) < NEAR:
            path = path._replace(inverse=solve(second + pen.matrix, np.eye(len(second))))
    moved = float(np.sqrt(max(step @ gradient, 0.0) / path.rows))
    path = path._replace(base=path.at, at=path.at + step, objective=objective, gradient=gradient, moved=moved)
    return path._replace(halvings=0), info | {"change": moved}


def _accepted(path: Path, objective: float) -> bool:
    """Whether the point is better than the last one, or as good up to rounding."""
    if not np.isfinite(path.objective):
        return bool(np.isfinite(objective))
    gain = SUFFICIENT * float((path.at - path.base) @ path.gradient) if path.scale.size else 0.0
    return bool(objective <= path.objective - gain + 1e-11 * abs(path.objective))


def _shorter(path: Path, objective: float) -> float:
    """The fraction of a step that was too long at which a parabola through what is known has its minimum; between 0.1 and 0.5."""
    slope = float((path.at - path.base) @ path.gradient)
    rise = objective - path.objective + slope
    return float(np.clip(0.5 * slope / rise, 0.1, 0.5)) if np.isfinite(rise) and rise > 0 else 0.1


def solve(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """matrix^-1 right for a symmetric matrix; directions without curvature are left where they are."""
    scale = np.sqrt(np.maximum(np.diag(matrix), np.finfo(float).tiny))
    unit = matrix / np.outer(scale, scale)
    try:
        return (cho_solve(cho_factor(unit, lower=True), (right.T / scale).T).T / scale).T
    except np.linalg.LinAlgError:
        return (np.linalg.lstsq(unit, (right.T / scale).T, rcond=1e-10)[0].T / scale).T


# ---- several learners, with the clients' weights of them as they are ----


def polish(fed: Federation, theta: np.ndarray, trainer: dict, weights: str, ids: list, C: float) -> tuple:
    """(learners (k, p) at the optimum of their rows, inverses of the second derivatives there (k, q, q), centre (d,)).

    A SUM of the columns, and one SUM per Newton step.
    """
    sums = fed.sum(column_sums, None)
    centre, k = to_numpy(sums.x) / float(sums.n), len(theta)
    inputs, classes = trainer["inputs"], len(trainer["labels"])
    pen = penalty(classes, inputs, C)
    scores = to_numpy(theta).astype(np.float64).reshape(k, classes, inputs + 1)
    free = scores[:, 1:] - scores[:, :1]
    free[..., -1] += free[..., :-1] @ centre
    at = free.reshape(k, -1)
    ask = part_curvature.using(trainer=trainer, weights=weights, ids=ids)
    for _ in range(POLISHING_STEPS):
        total = fed.sum(ask, Learners(np.concatenate([as_theta(a, centre) for a in at]), centre))
        steps, inverses = zip(*(_polished(a, g, s, pen) for a, g, s in zip(at, total.gradient, total.curvature)))
        sizes = [
            np.sqrt(max(float(s @ np.linalg.solve(i, s)), 0.0) / max(float(n), 1.0))
            for s, i, n in zip(steps, inverses, total.n)
        ]
        at = at + np.stack([s / max(1.0, size / 2) for s, size in zip(steps, sizes)])
        if max(sizes) < NEAR:
            break
    return np.concatenate([as_theta(a, centre) for a in at]), np.stack(inverses), centre


def second_derivatives(
    fed: Federation, theta: np.ndarray, trainer: dict, weights: str, ids: list, C: float
) -> tuple[np.ndarray, np.ndarray]:
    """(inverses of the second derivatives of learners as they are (k, q, q), centre (d,)); two SUMs."""
    sums = fed.sum(column_sums, None)
    centre = to_numpy(sums.x) / float(sums.n)
    ask = part_curvature.using(trainer=trainer, weights=weights, ids=ids)
    total = fed.sum(ask, Learners(to_numpy(theta).astype(np.float64), centre))
    pen = penalty(len(trainer["labels"]), trainer["inputs"], C)
    at = np.zeros(total.gradient.shape[1])
    return np.stack([_polished(at, g, s, pen)[1] for g, s in zip(total.gradient, total.curvature)]), centre


def _polished(at: np.ndarray, gradient: Array, curved: Array, pen: Penalty) -> tuple[np.ndarray, np.ndarray]:
    """(Newton step, inverse of the penalised second derivatives)."""
    matrix = unpack_triangle(to_numpy(curved)) + pen.matrix
    inverse = solve(matrix + 1e-9 * np.trace(matrix) / len(matrix) * np.eye(len(matrix)), np.eye(len(matrix)))
    return inverse @ (to_numpy(gradient) - pen.times(at)), inverse


# ---- L-BFGS ----


def _preconditioner(fed: Federation, centre: np.ndarray, rows: float) -> np.ndarray:
    """(d + 1, d + 1) second moments of the columns, or their diagonal; one SUM."""
    whole = len(centre) <= MAX_COLUMNS
    total = to_numpy(fed.sum(second_moments.using(whole=whole), ColumnSums(np.asarray(rows), centre)).xx)
    return unpack_triangle(total) if whole else total


def _remember(path: Path, gradient: np.ndarray) -> Path:
    """The path with its last step among those that L-BFGS keeps."""
    if path.round == 1:
        return path
    step, change = path.at - path.base, path.gradient - gradient
    if step @ change <= 1e-12 * np.sqrt((step @ step) * (change @ change)):
        return path
    steps, changes = np.vstack([path.steps, step]), np.vstack([path.changes, change])
    return path._replace(steps=steps[-MEMORY:], changes=changes[-MEMORY:])


def _quasi_newton(path: Path, gradient: np.ndarray, pen: Penalty) -> np.ndarray:
    """The step of L-BFGS; the two loops of Nocedal (1980) around the preconditioner."""
    q, kept = gradient.copy(), []
    for s, y in zip(path.steps[::-1], path.changes[::-1]):
        rho = 1 / (s @ y)
        alpha = rho * (s @ q)
        q -= alpha * y
        kept.append((rho, alpha, s, y))
    r = _preconditioned(path, q, pen)
    for rho, alpha, s, y in kept[::-1]:
        r += (alpha - rho * (y @ r)) * s
    return r


def _preconditioned(path: Path, q: np.ndarray, pen: Penalty) -> np.ndarray:
    """q times the inverse of a bound of the second derivatives: (I - 11'/c) / 2 (x) second moments (Boehning, 1992)."""
    classes = len(path.trainer["labels"])
    by_class = q.reshape(classes - 1, -1)
    ridge = pen.columns + 1e-8 * (np.diag(path.scale) if path.scale.ndim == 2 else path.scale).mean()
    if path.scale.ndim == 2:
        across = np.linalg.solve(0.5 * path.scale + np.diag(ridge), by_class.T).T
    else:
        across = by_class / (0.5 * path.scale + ridge)
    return (across + across.sum(0)).ravel()  # the inverse of I - 11'/c is I + 11'
