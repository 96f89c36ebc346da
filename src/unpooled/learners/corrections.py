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
from scipy.linalg import lapack

STEPS, SEVERAL_STEPS = 2, 5  # per penalty, of two classes and of more
INTERCEPT_STEPS = 2  # for the intercepts alone
PSEUDO_ROWS = 0.5  # rows of each class that intercepts begin with
LONGEST = 10.0  # change of a score by a step
MOST_BEHIND = 80.0  # nats that a label is behind another class, at most
MOST = 0.9  # of a row's own share in its score
LITTLE = 1e-6  # of the mean second derivative, added to all of them against rounding


class Paths(NamedTuple):
    """Rows of several clients to be fitted, and how; the first penalty of a path is that of the intercepts alone."""

    columns: np.ndarray  # (clients, n, r + 1) features, the last one is 1; zeros where rows are padding
    y: np.ndarray  # (clients, n) codes
    w: np.ndarray  # (clients, n) row weights, 0 is padding
    offsets: np.ndarray  # (clients, paths, n, c)
    ridge: np.ndarray  # (stages, paths, r + 1) penalties in the order in which they are fitted
    part: int = 1  # second derivatives and losses are those of every `part`-th row


class Fitted(NamedTuple):
    """The corrections of every stage of every path."""

    maps: np.ndarray  # (clients, stages, paths, r + 1, c)
    losses: np.ndarray  # (clients, stages, paths, m) -log P(label) of every `part`-th row, had it not been fitted


class Rows(NamedTuple):
    """Rows as the steps take them: rows last, the only long axis, and one score where there are two classes."""

    columns: np.ndarray  # (clients, r, n)
    w: np.ndarray  # (clients, n)
    hit: np.ndarray  # (clients, c, n) 1 where a row has the class
    two: bool
    part: int = 1
    compared: Rows | None = None  # every `part`-th row, None for all

    def every(self, k: int) -> Rows | None:
        """Every k-th row, contiguous in memory; None for all."""
        if k == 1:
            return None
        columns, w, hit = (np.ascontiguousarray(a[..., ::k]) for a in (self.columns, self.w, self.hit))
        return Rows(columns, w, hit, self.two)

    @property
    def some(self) -> Rows:
        """Every `part`-th row."""
        return self if self.compared is None else self.compared

    @property
    def constant(self) -> Rows:
        """The same with the last column alone."""
        few = None if self.compared is None else self.compared.constant
        return self._replace(columns=self.columns[:, -1:], compared=few)

    def proba(self, scores: np.ndarray) -> np.ndarray:
        """Probabilities (clients, paths, c, n) of scores."""
        return _sigmoid(scores) if self.two else softmax(scores)

    def times(self, at: np.ndarray) -> np.ndarray:  # (clients, paths, c, n)
        """Scores of coefficients (clients, paths, c, r)."""
        flat = at.reshape(len(at), -1, at.shape[-1])
        return (flat @ self.columns).reshape(*at.shape[:3], -1)

    def gradient(self, p: np.ndarray) -> np.ndarray:  # (clients, paths, c, r)
        """The gradient of the log-likelihood at probabilities (clients, paths, c, n)."""
        error = (self.hit[:, None] - p) * self.w[:, None, None]
        return (error.reshape(len(p), -1, p.shape[-1]) @ np.swapaxes(self.columns, 1, 2)).reshape(*p.shape[:3], -1)

    def bend(self, p: np.ndarray, change: np.ndarray) -> np.ndarray:  # (clients, paths)
        """Minus the second derivative of the log-likelihood along a change of the scores."""
        if self.two:
            return np.asarray(((p - p * p) * change * change)[:, :, 0] @ self.w[:, :, None])[..., 0]
        mean = (p * change).sum(2, keepdims=True)
        second = p * change * (change - mean)
        return np.asarray((second.sum(2) @ self.w[:, :, None])[..., 0])

    def losses(self, scores: np.ndarray) -> np.ndarray:  # (clients, paths, n)
        """-log P(label) from scores (clients, paths, c, n)."""
        if self.two:
            behind = scores[:, :, 0] * (1 - 2 * self.hit)
            return np.log1p(np.exp(np.minimum(behind, MOST_BEHIND)))
        behind = scores - (scores * self.hit[:, None]).sum(2, keepdims=True)
        return np.log(np.exp(np.minimum(behind, MOST_BEHIND)).sum(2))


class Stage(NamedTuple):
    """Where the paths stand."""

    at: np.ndarray  # (clients, paths, c, r) corrections
    scores: np.ndarray  # (clients, paths, c, n)
    p: np.ndarray  # (clients, paths, c, n) probabilities of these scores
    bent: np.ndarray  # (clients, paths, c, m) curvature of the loss of every `part`-th row in each score
    root: np.ndarray  # (clients, paths, c, r, r) R with R'R the inverse of the second derivatives within each class


def fit(problem: Paths, dtype: type = np.float32, steps: int | None = None) -> Fitted:
    """The corrections along every path, and the loss of each row without it; all clients at once."""
    two = problem.offsets.shape[-1] == 2  # then the difference of the two scores is all there is to fit
    ridge: np.ndarray = (0.5 * problem.ridge if two else problem.ridge).astype(dtype)
    rows, scores = _as_steps_take_them(problem, two, dtype)
    constant = rows.constant
    intercepts = ridge[0][:, -1:]
    first = _first_intercepts(constant, scores)
    stage = _next(constant, _at(constant, first, scores + first, intercepts), intercepts, INTERCEPT_STEPS)
    slopes: np.ndarray = np.zeros((*scores.shape[:3], ridge.shape[-1] - 1), dtype)
    single = _only_rows(rows)
    maps = [np.concatenate([slopes, stage.at], -1)]
    losses = [_left_out(constant, stage, scores, single)]
    stage = stage._replace(at=maps[0], root=_rough_root(rows, stage.bent, ridge[1]))
    for penalties in ridge[1:]:
        stage = _next(rows, stage, penalties, steps or (STEPS if two else SEVERAL_STEPS))
        maps.append(stage.at)
        losses.append(_left_out(rows, stage, scores, single))
    return Fitted(_of_all_classes(np.stack(maps, 1), two), np.stack(losses, 1))


def _as_steps_take_them(problem: Paths, two: bool, dtype: type) -> tuple[Rows, np.ndarray]:
    """(rows, scores (clients, paths, c, n) of the offsets)."""
    scores = np.swapaxes(problem.offsets, 2, 3)
    classes = np.arange(scores.shape[2])[:, None]
    if two:
        scores = scores[:, :, 1:] - scores[:, :, :1]
        classes = classes[1:]
    hit = (problem.y[:, None] == classes).astype(dtype)
    columns: np.ndarray = np.ascontiguousarray(np.swapaxes(problem.columns, 1, 2), dtype)
    rows = Rows(columns, problem.w.astype(dtype), hit, two, problem.part)
    return rows._replace(compared=rows.every(problem.part)), np.ascontiguousarray(scores, dtype)


def _of_all_classes(maps: np.ndarray, two: bool) -> np.ndarray:  # (..., r, c)
    """Coefficients (..., c, r) of all classes, where only the difference of two was fitted."""
    maps = np.concatenate([-0.5 * maps, 0.5 * maps], -2) if two else maps
    return np.swapaxes(maps, -1, -2)


# ---- a stage of the paths ----


def _first_intercepts(rows: Rows, scores: np.ndarray) -> np.ndarray:  # (clients, paths, c, 1)
    """Intercepts to begin with: log of the rows of each class by those that the scores (clients, paths, c, n) expect.

    From 0 the steps diverge where a client's labels are very unequal.
    """
    w = rows.w[:, :, None]
    expected = rows.proba(scores) @ w[:, None] + PSEUDO_ROWS  # (clients, paths, c, 1)
    counts = (rows.hit @ w + PSEUDO_ROWS)[:, None]
    ratio = np.log(counts / expected)
    if rows.two:
        both = (w.sum(1, keepdims=True) + 2 * PSEUDO_ROWS)[:, None]
        ratio = ratio - np.log((both - counts) / (both - expected))
    return np.asarray(ratio.astype(scores.dtype))


def _next(rows: Rows, stage: Stage, ridge: np.ndarray, steps: int) -> Stage:
    """The paths after some steps under penalties (paths, r)."""
    at = stage.at
    scores = stage.scores
    p = stage.p
    penalty = ridge[:, None]
    before = direction = np.zeros_like(at)
    gain = np.ones((*at.shape[:2], 1, 1), at.dtype)
    for step in range(steps):
        p = rows.proba(scores) if step else p
        gradient = rows.gradient(p) - penalty * at
        scaled = (np.swapaxes(stage.root, -1, -2) @ (stage.root @ gradient[..., None]))[..., 0]
        conjugate = np.maximum(_dot(gradient - before, scaled) / gain, 0) if step else 0.0  # Polak and Ribiere
        direction = scaled + conjugate * direction
        before = gradient
        gain = np.maximum(_dot(gradient, scaled), 1e-30)
        change = rows.times(direction)
        curved = rows.bend(p, change)[..., None, None] + _dot(penalty * direction, direction)
        length = _dot(gradient, direction) / np.maximum(curved, 1e-30)
        length = np.minimum(length, LONGEST / np.maximum(np.abs(change).max((2, 3), keepdims=True), 1e-30))
        at = at + length * direction
        scores = scores + length * change
    return _at(rows, at, scores, ridge)


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:  # (clients, paths, 1, 1)
    """Products summed over all coefficients of each path."""
    return np.asarray(np.einsum("kpcr,kpcr->kp", a, b))[..., None, None]


def _at(rows: Rows, at: np.ndarray, scores: np.ndarray, ridge: np.ndarray) -> Stage:
    """The paths at some corrections, with second derivatives under penalties (paths, r)."""
    p = rows.proba(scores)
    bent = curvature(p[..., :: rows.part], rows.two)
    return Stage(at, scores, p, bent, _root(rows, bent, ridge))


def _root(rows: Rows, bent: np.ndarray, ridge: np.ndarray) -> np.ndarray:  # (clients, paths, c, r, r)
    """The inverse of the Cholesky factor of the penalised second derivatives within each class."""
    some, weights = _curved(rows, bent)
    wide = rows.columns.shape[1]
    weights = np.sqrt(weights)
    second = np.empty((*bent.shape[:3], wide, wide), bent.dtype)
    scaled = np.empty_like(some.columns)
    for path, c in np.ndindex(bent.shape[1:3]):
        np.multiply(some.columns, weights[:, path, c, None], out=scaled)
        second[:, path, c] = scaled @ np.swapaxes(scaled, 1, 2)
    diagonal = np.arange(wide)
    second[..., diagonal, diagonal] += ridge[:, None] + LITTLE * second[..., diagonal, diagonal].mean(-1, keepdims=True)
    return inverse_roots(second)


def _curved(rows: Rows, bent: np.ndarray) -> tuple[Rows, np.ndarray]:  # (clients, paths, c, m)
    """(every `part`-th row, its weight times the curvature of its loss in each score), made to count as much as all rows."""
    some = rows.some
    weights = bent * some.w[:, None, None]
    if rows.part > 1:
        weights *= (rows.w.sum(1) / some.w.sum(1))[:, None, None, None]
    return some, weights


def inverse_roots(matrices: np.ndarray) -> np.ndarray:
    """The inverses of the Cholesky factors of positive definite matrices (..., r, r)."""
    wide = matrices.shape[-1]
    if wide == 1:
        return 1 / np.sqrt(matrices)
    single = matrices.dtype == np.float32
    factor, invert = (lapack.spotrf, lapack.strtri) if single else (lapack.dpotrf, lapack.dtrtri)
    found = np.empty_like(matrices)
    for own, matrix in zip(found.reshape(-1, wide, wide), matrices.reshape(-1, wide, wide)):
        lower, failed = factor(matrix, lower=1, clean=1)
        own[:] = _eigen_root(matrix) if failed else invert(lower, lower=1, overwrite_c=1)[0]
    return found


def _eigen_root(matrix: np.ndarray) -> np.ndarray:
    """R with R'R the inverse of a matrix that is not positive definite by rounding errors."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors / np.sqrt(np.maximum(values, LITTLE * values.max()))).T)


def _rough_root(rows: Rows, bent: np.ndarray, ridge: np.ndarray) -> np.ndarray:  # (clients, paths, c, r, r)
    """The same of the diagonal of the penalised second derivatives."""
    some, weights = _curved(rows, bent)
    squares = weights.reshape(len(bent), -1, weights.shape[-1]) @ np.swapaxes(some.columns**2, 1, 2)
    second = squares.reshape(*bent.shape[:3], -1) + ridge[:, None]
    return np.eye(second.shape[-1], dtype=second.dtype) / np.sqrt(second)[..., None]


def _left_out(rows: Rows, stage: Stage, offsets: np.ndarray, single: np.ndarray) -> np.ndarray:  # (clients, paths, m)
    """-log P(label) of every `part`-th row under the corrections of all other rows."""
    k, some = rows.part, rows.some
    here = stage._replace(scores=stage.scores[..., ::k], p=stage.p[..., ::k])
    return some.losses(_without_each(some, here, offsets[..., ::k], single if k == 1 else single[:0]))


def _without_each(rows: Rows, stage: Stage, offsets: np.ndarray, single: np.ndarray) -> np.ndarray:
    """Scores (clients, paths, c, n) of each row under the corrections of all other rows: one Newton step within each class.

    A class whose `single` row is left out is one that the client has not seen, see `_as_unseen`.
    """
    leverage = np.empty_like(stage.scores)
    along = np.empty_like(rows.columns)
    for path, c in np.ndindex(leverage.shape[1:3]):
        np.matmul(stage.root[:, path, c], rows.columns, out=along)
        leverage[:, path, c] = np.einsum("brn,brn->bn", along, along)
    leverage *= rows.w[:, None, None]
    own_share = np.minimum(stage.bent * leverage, MOST)
    left_out = stage.scores - leverage * (rows.hit[:, None] - stage.p) / (1 - own_share)
    for who, row in single:
        own = rows._replace(columns=rows.columns[who], w=rows.w[who], hit=rows.hit[who])
        _as_unseen(left_out[who], own, stage.scores[who], offsets[who], row)
    return left_out


def _only_rows(rows: Rows) -> np.ndarray:  # (rows, 2)
    """(client, row) of the rows that are the only ones of their class."""
    live = rows.w > 0
    of_class = np.concatenate([1 - rows.hit, rows.hit], 1) if rows.two else rows.hit
    who, which = np.nonzero((of_class @ live[..., None].astype(of_class.dtype))[..., 0] == 1)
    return np.column_stack([who, (of_class[who, which] * live[who]).argmax(-1)])


def _as_unseen(left_out: np.ndarray, rows: Rows, scores: np.ndarray, offsets: np.ndarray, row: int) -> None:
    """Write the scores of a client's row whose class has no other row: no slopes, and an intercept with which PSEUDO_ROWS rows are
    expected. Arrays have no axis of clients.

    That is about what the penalty of the intercepts makes of a class without rows.
    """
    if rows.two:
        sign = 2 * rows.hit[0, row] - 1
        offset = sign * offsets[:, 0]
        others = np.zeros((1, 1), scores.dtype)
        place = 0
    else:
        sign = 1.0
        place = int(rows.hit[:, row].argmax())
        offset = offsets[:, place]
        others = _log_sum(np.delete(scores, place, 1))
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


def _sigmoid(scores: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-score)), as tanh, which never overflows."""
    p = 0.5 * scores
    np.tanh(p, out=p)
    p *= 0.5
    p += 0.5
    return p


def softmax(scores: np.ndarray) -> np.ndarray:
    """Probabilities along axis -2."""
    p = scores - scores.max(-2, keepdims=True)
    np.exp(p, out=p)
    p /= p.sum(-2, keepdims=True)
    return p


def label_losses(scores: np.ndarray, y: np.ndarray) -> np.ndarray:  # (..., n)
    """-log P(label) from scores (..., n, c) and codes (..., n)."""
    label = np.take_along_axis(scores, np.broadcast_to(y, scores.shape[:-1])[..., None], -1)[..., 0]
    total = np.zeros_like(label)
    for a in range(scores.shape[-1]):  # a sum over a short last axis takes long
        total += np.exp(np.minimum(scores[..., a] - label, MOST_BEHIND))
    return np.asarray(np.log(total))


def log_softmax(scores: np.ndarray) -> np.ndarray:
    """Log-probabilities along axis -1."""
    scores = scores - scores.max(-1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(-1, keepdims=True))
