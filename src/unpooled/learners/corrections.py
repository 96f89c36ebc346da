"""Linear corrections of given class scores along paths of decreasing penalties, and what each row has without itself. Nothing is sent.

A fit has scores = offset + columns D and minimises its log-loss + sum of penalties * D^2 / 2. With offsets of a shared model and a
strong penalty it stays that model, with a weak one it becomes a model of its own; with offsets of 0 it is ridge-penalised logistic
regression. Every penalty of a path begins with the corrections of the one before, and all paths are followed at once.

Steps are conjugate gradients, preconditioned by second derivatives within each class; of two classes only the difference of the scores is
fitted, so that these are all second derivatives. Their inverse at the end also gives the scores that each row would have had, had it not
been among the rows fitted (approximate leave-one-out, Rad and Maleki, 2020): one fit per penalty takes the place of one per fold.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

STEPS, SEVERAL_STEPS = 2, 5  # per penalty, of two classes and of more
INTERCEPT_STEPS = 2  # for the intercepts alone
PSEUDO_ROWS = 0.5  # rows of each class that intercepts begin with
LONGEST = 10.0  # change of a score by a step
MOST_BEHIND = 80.0  # nats that a label is behind another class, at most
MOST = 0.9  # of a row's own share in its score


class Paths(NamedTuple):
    """Rows to be fitted, and how; the first penalty of a path is that of the intercepts alone."""

    columns: np.ndarray  # (n, r + 1) features, the last one is 1
    y: np.ndarray  # (n,) codes
    w: np.ndarray  # (n,) row weights
    offsets: np.ndarray  # (paths, n, c)
    ridge: np.ndarray  # (stages, paths, r + 1) penalties in the order in which they are fitted


class Fitted(NamedTuple):
    """The corrections of every stage of every path."""

    maps: np.ndarray  # (stages, paths, r + 1, c)
    left_out: np.ndarray  # (stages, paths, n, c) scores of each row, had it not been fitted


class Rows(NamedTuple):
    """Rows as the steps take them: classes before rows, one score where there are two classes."""

    columns: np.ndarray  # (n, r)
    w: np.ndarray  # (n,)
    hit: np.ndarray  # (c, n) 1 where a row has the class
    two: bool

    def proba(self, scores: np.ndarray) -> np.ndarray:
        """Probabilities (paths, c, n) of scores."""
        return 0.5 + 0.5 * np.tanh(0.5 * scores) if self.two else softmax(scores)

    def times(self, at: np.ndarray) -> np.ndarray:  # (paths, c, n)
        """Scores of coefficients (paths, c, r)."""
        return (at.reshape(-1, at.shape[-1]) @ self.columns.T).reshape(*at.shape[:2], -1)

    def gradient(self, p: np.ndarray) -> np.ndarray:  # (paths, c, r)
        """The gradient of the log-likelihood at probabilities (paths, c, n)."""
        error = (self.hit - p) * self.w
        return (error.reshape(-1, p.shape[-1]) @ self.columns).reshape(*p.shape[:2], -1)

    def bend(self, p: np.ndarray, change: np.ndarray) -> np.ndarray:  # (paths,)
        """Minus the second derivative of the log-likelihood along a change of the scores."""
        mean = (p * change).sum(1, keepdims=True)  # of two classes, the change of the first one is 0
        second = p * change * (change - mean)
        return np.asarray(second.sum(1) @ self.w)


class Stage(NamedTuple):
    """Where the paths stand."""

    at: np.ndarray  # (paths, c, r) corrections
    scores: np.ndarray  # (paths, c, n)
    inverse: np.ndarray  # (paths, c, r, r) of the second derivatives within each class


def fit(problem: Paths, dtype: type = np.float32, steps: int | None = None) -> Fitted:
    """The corrections along every path, and the scores of each row without it."""
    two = problem.offsets.shape[-1] == 2  # then the difference of the two scores is all there is to fit
    ridge: np.ndarray = (0.5 * problem.ridge if two else problem.ridge).astype(dtype)
    rows, scores = _as_steps_take_them(problem, two, dtype)
    constant = rows._replace(columns=rows.columns[:, -1:])
    intercepts = ridge[0][:, -1:]
    first = _first_intercepts(constant, scores)
    moved = scores + first
    stage = _next(constant, Stage(first, moved, _inverse(constant, moved, intercepts)), intercepts, INTERCEPT_STEPS)
    slopes: np.ndarray = np.zeros((*scores.shape[:2], ridge.shape[-1] - 1), dtype)
    single = _only_rows(rows)
    maps, left_out = [np.concatenate([slopes, stage.at], -1)], [_without_each(constant, stage, scores, single)]
    stage = Stage(maps[0], stage.scores, _rough_inverse(rows, stage.scores, ridge[1]))
    for penalties in ridge[1:]:
        stage = _next(rows, stage, penalties, steps or (STEPS if two else SEVERAL_STEPS))
        maps.append(stage.at)
        left_out.append(_without_each(rows, stage, scores, single))
    return Fitted(_of_all_classes(maps, two), _of_all_classes(left_out, two))


def _as_steps_take_them(problem: Paths, two: bool, dtype: type) -> tuple[Rows, np.ndarray]:
    """(rows, scores (paths, c, n) of the offsets)."""
    scores = np.swapaxes(problem.offsets, 1, 2)
    classes = np.arange(scores.shape[1])[:, None]
    if two:
        scores, classes = scores[:, 1:] - scores[:, :1], classes[1:]
    hit = (problem.y == classes).astype(dtype)
    return Rows(problem.columns.astype(dtype), problem.w.astype(dtype), hit, two), scores.astype(dtype)


def _of_all_classes(found: list[np.ndarray], two: bool) -> np.ndarray:  # (stages, paths, ..., c)
    """Coefficients or scores (paths, c, ...) of all classes, where only the difference of two was fitted."""
    stacked = np.stack(found)
    stacked = np.concatenate([-0.5 * stacked, 0.5 * stacked], 2) if two else stacked
    return np.swapaxes(stacked, -1, -2)


# ---- a stage of the paths ----


def _first_intercepts(rows: Rows, scores: np.ndarray) -> np.ndarray:  # (paths, c, 1)
    """Intercepts to begin with: log of the rows of each class by those that the scores (paths, c, n) expect.

    From 0 the steps diverge where a client's labels are very unequal.
    """
    expected = rows.proba(scores) @ rows.w + PSEUDO_ROWS  # (paths, c)
    counts = rows.hit @ rows.w + PSEUDO_ROWS
    ratio = np.log(counts / expected)
    if rows.two:
        both = rows.w.sum() + 2 * PSEUDO_ROWS
        ratio = ratio - np.log((both - counts) / (both - expected))
    return np.asarray(ratio[..., None].astype(scores.dtype))


def _next(rows: Rows, stage: Stage, ridge: np.ndarray, steps: int) -> Stage:
    """The paths after some steps under penalties (paths, r)."""
    at, scores, penalty = stage.at, stage.scores, ridge[:, None]
    before = direction = np.zeros_like(at)
    gain = np.ones((len(at), 1, 1), at.dtype)
    for _ in range(steps):
        p = rows.proba(scores)
        gradient = rows.gradient(p) - penalty * at
        scaled = (stage.inverse @ gradient[..., None])[..., 0]
        conjugate = np.maximum(_total((gradient - before) * scaled) / gain, 0)  # Polak and Ribiere
        direction = scaled + conjugate * direction
        before, gain = gradient, np.maximum(_total(gradient * scaled), 1e-30)
        change = rows.times(direction)
        curved = rows.bend(p, change)[:, None, None] + _total(penalty * direction**2)
        length = _total(gradient * direction) / np.maximum(curved, 1e-30)
        length = np.minimum(length, LONGEST / np.maximum(np.abs(change).max((1, 2), keepdims=True), 1e-30))
        at, scores = at + length * direction, scores + length * change
    return Stage(at, scores, _inverse(rows, scores, ridge))


def _total(a: np.ndarray) -> np.ndarray:  # (paths, 1, 1)
    """Sums over all coefficients of each path."""
    return a.sum((1, 2), keepdims=True)


def _inverse(rows: Rows, scores: np.ndarray, ridge: np.ndarray) -> np.ndarray:  # (paths, c, r, r)
    """The inverse of the penalised second derivatives within each class."""
    weights = curvature(rows.proba(scores), rows.two) * rows.w
    wide = rows.columns.shape[1]
    second = np.stack([(rows.columns * own[:, None]).T @ rows.columns for own in weights.reshape(-1, len(rows.w))])
    second = second.reshape(*scores.shape[:2], wide, wide)
    diagonal = np.arange(wide)
    second[..., diagonal, diagonal] += ridge[:, None]
    return np.linalg.inv(second)


def _rough_inverse(rows: Rows, scores: np.ndarray, ridge: np.ndarray) -> np.ndarray:  # (paths, c, r, r)
    """The inverse of the diagonal of the penalised second derivatives."""
    weights = curvature(rows.proba(scores), rows.two) * rows.w
    second = (weights.reshape(-1, len(rows.w)) @ rows.columns**2).reshape(*scores.shape[:2], -1) + ridge[:, None]
    return np.eye(second.shape[-1], dtype=second.dtype) / second[..., None]


def _without_each(rows: Rows, stage: Stage, offsets: np.ndarray, single: np.ndarray) -> np.ndarray:  # (paths, c, n)
    """Scores of each row under the corrections of all other rows: one Newton step within each class.

    A class whose `single` row is left out is one that the client has not seen, see `_as_unseen`.
    """
    columns, wide = rows.columns, rows.columns.shape[1]
    blocks = stage.inverse.reshape(-1, wide, wide)
    leverage = np.stack([np.einsum("nr,nr->n", columns @ own, columns) for own in blocks]) * rows.w
    leverage = leverage.reshape(stage.scores.shape)
    p = rows.proba(stage.scores)
    own_share = np.minimum(curvature(p, rows.two) * leverage, MOST)
    left_out = stage.scores - leverage * (rows.hit - p) / (1 - own_share)
    for row in single:
        _as_unseen(left_out, rows, stage.scores, offsets, int(row))
    return left_out


def _only_rows(rows: Rows) -> np.ndarray:
    """The rows that are the only ones of their class."""
    hit = np.concatenate([1 - rows.hit, rows.hit]) if rows.two else rows.hit
    return hit[(hit * (rows.w > 0)).sum(1) == 1].argmax(1)


def _as_unseen(left_out: np.ndarray, rows: Rows, scores: np.ndarray, offsets: np.ndarray, row: int) -> None:
    """Write the scores of a row whose class has no other row: no slopes, and an intercept with which PSEUDO_ROWS rows are expected.

    That is about what the penalty of the intercepts makes of a class without rows.
    """
    if rows.two:
        sign = 2 * rows.hit[0, row] - 1
        offset, others, place = sign * offsets[:, 0], np.zeros((1, 1), scores.dtype), 0
    else:
        sign, place = 1.0, int(rows.hit[:, row].argmax())
        offset, others = offsets[:, place], _log_sum(np.delete(scores, place, 1))
    expected = _log_sum((offset - others + np.log(np.maximum(rows.w, 1e-30)))[..., None])  # (paths, 1)
    left_out[:, place, row] = sign * (offset[:, row] + np.log(PSEUDO_ROWS) - expected[:, 0])


def _log_sum(scores: np.ndarray) -> np.ndarray:
    """log of the sum of exp along axis 1."""
    top = scores.max(1)
    return np.asarray(top + np.log(np.exp(scores - top[:, None]).sum(1)))


# ---- probabilities ----


def curvature(p: np.ndarray, two: bool) -> np.ndarray:
    """The curvature of the log-loss of a row in the score of each class, from probabilities (..., c, n).

    It is p (1 - p) of one score. Scores of several classes move together: where m of them compete, changes that matter are
    curved m / (m - 1) times as much as that, and m = (sum of p (1 - p))^2 / sum of its squares.
    """
    own = p * (1 - p)
    if two:
        return own
    total = own.sum(-2, keepdims=True)
    share = (own**2).sum(-2, keepdims=True) / np.maximum(total**2, 1e-30)  # 1 / m
    return own / np.maximum(1 - share, 0.5)


def softmax(scores: np.ndarray) -> np.ndarray:
    """Probabilities along axis -2."""
    p = np.exp(scores - scores.max(-2, keepdims=True))
    return p / p.sum(-2, keepdims=True)


def label_losses(scores: np.ndarray, y: np.ndarray) -> np.ndarray:  # (..., n)
    """-log P(label) from scores (..., n, c) and codes (n,)."""
    label = scores[..., np.arange(len(y)), y][..., None]
    return np.log(np.exp(np.minimum(scores - label, MOST_BEHIND)).sum(-1))


def log_softmax(scores: np.ndarray) -> np.ndarray:
    """Log-probabilities along axis -1."""
    scores = scores - scores.max(-1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(-1, keepdims=True))
