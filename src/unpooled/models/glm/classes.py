"""What clients are asked while a classifier is fitted: counts by class, then scores and curvature of the log-loss. SUMs only.

Two classes have one linear predictor (of the second), more have one each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from unpooled import tree
from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.data.checks import without_labels
from unpooled.errors import BadData
from unpooled.federation import Federation
from unpooled.learners.labels import codes_of, distinct
from unpooled.maths import logistic
from unpooled.maths.gaussian import pack_triangle
from unpooled.models.glm.questions import remembered
from unpooled.tree import message

NONE = np.zeros(0)  # no curvature
# what is asked of second derivatives: nothing, those within each class, or all
SECOND = {"none": None, "within": logistic.second_within, "whole": logistic.second_free}
MOST_CODES = 64  # labels that are whole numbers from 0 to one less are found by counting


@message("glm.ClassCounts")
class Counts(NamedTuple):
    """Rows of each class, and the sums of their columns."""

    n: Float[Array, "k", ">=0 rows"]  # sum of w
    missing: Float[Array, "", ">=0 rows"]  # rows left out
    x: Float[Array, "p"]  # sum of w x


@message("glm.ClassCodeCounts")
class CodeCounts(NamedTuple):
    """Rows by label, where labels are small whole numbers."""

    n: Float[Array, "c", ">=0 rows"]  # rows labelled 0, 1, 2, ...
    others: Float[Array, "", ">=0 rows"]  # rows labelled otherwise


@message("glm.ClassPoint")
class Point(NamedTuple):
    """Where sums are taken."""

    mean: Float[Array, "p"]  # of the columns; zeros without an intercept
    coef: Float[Array, "m q"]  # a row for each linear predictor, the intercept first, if there is one
    weight: Float[Array, "k"]  # of each class


@message("glm.ClassCurvature")
class Curvature(NamedTuple):
    """Loss, score and second derivative of the log-loss at a point."""

    n: Float[Array, "", ">=0 rows"]  # sum of w, those of classes included
    loss: Float[Array, ""]  # sum of -2 w log P(y | x)
    score: Float[Array, "m q"]
    # the lower triangle of the (m q, m q) matrix by rows, or those of its (q, q) blocks on the diagonal one after another, or none
    hessian: Float[Array, "t"]


@client("glm.code_counts", SUM, adds=True, brief=True)
def code_counts(nothing: None, client: Client) -> CodeCounts:
    """How many rows are labelled 0, 1, 2 and so on, and how many otherwise."""
    y = to_numpy(client.y)
    w = to_numpy(client.w).astype(np.float64, copy=False)
    if y.dtype.kind not in "fiub":
        return CodeCounts(np.zeros((*w.shape[:-1], MOST_CODES)), (w > 0).sum(-1).astype(np.float64))
    hits = y[..., None] == np.arange(MOST_CODES)
    rows = (w > 0)[..., None] & hits
    others = (w > 0) & ~hits.any(-1)
    return CodeCounts(rows.sum(-2).astype(np.float64), others.sum(-1).astype(np.float64))


@client("glm.class_counts", SUM, adds=True, brief=True)
def counts(nothing: None, client: Client, *, classes: list) -> Counts:
    """How many complete rows each class has, and the sums of their columns."""
    x, y, w, missing = _complete(client, classes)
    members = np.stack([(w * (y == code)).sum(-1) for code in range(len(classes))], -1)
    return Counts(members, missing, (w[..., None, :] @ x)[..., 0, :])


@client("glm.class_curvature", SUM, adds=True, brief=True)
def curvature(point: Point, client: Client, *, classes: list, intercept: bool, second: str = "whole") -> Curvature:
    """Score and curvature of the log-loss at a point, and the loss there; `second` is one of `SECOND`."""
    x, y, w, _ = _complete(client, classes)
    w = w * to_numpy(point.weight)[y]
    if x.ndim == 2:
        return _sums(point, x, y, w, intercept, second)
    each = (_sums(point, *rows, intercept, second) for rows in zip(x, y, w))
    return tree.map(lambda *parts: np.stack(parts), *each)


def _complete(client: Client, classes: Sequence) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(x, class of each row, w, rows with missing values, which have weight 0)."""
    if client.y is None:
        text = 'give y=, (X, y) pairs, or label = "COLUMN" under [data] of a config file'
        raise BadData(f"client {client.name!r} has no labels: {text}")
    x, w = (to_numpy(a).astype(np.float64, copy=False) for a in (client.x, client.w))
    gone = remembered(client, "glm.gone", lambda: np.isnan(x.sum(-1)))
    missing = np.asarray((gone & (w > 0)).sum(-1), dtype=np.float64)
    y = codes_of(client, classes)
    if gone.any():
        x = np.where(gone[..., None], 0.0, x)
        w = np.where(gone, 0.0, w)
    return x, y, w, missing


def _sums(point: Point, x: np.ndarray, y: np.ndarray, w: np.ndarray, intercept: bool, second: str) -> Curvature:
    """The sums over the rows of a client; `y` are the places of their classes."""
    given = to_numpy(point.coef)
    coef = np.roll(given, -1, 1) if intercept else np.column_stack([given, np.zeros(len(given))])
    n, loglik, score, *found = logistic.sums(x, y, w, coef, to_numpy(point.mean), SECOND[second])
    order = np.arange(coef.shape[1])
    order = np.roll(order, 1) if intercept else order[:-1]  # the intercept first, or none
    hessian = NONE
    if second == "whole":
        place = np.add.outer(np.arange(0, coef.size, coef.shape[1]), order).ravel()
        hessian = pack_triangle(_of_all_classes(found[0], len(coef))[np.ix_(place, place)])
    elif second == "within":
        hessian = pack_triangle(found[0][:, order[:, None], order]).ravel()
    return Curvature(n, -2 * loglik, score[:, order], hessian)


def _of_all_classes(free: np.ndarray, classes: int) -> np.ndarray:
    """Second derivatives in the coefficients of all classes: those of the first are minus the sum of those of the others."""
    if classes == 1:  # one score of two classes
        return free
    rest = free.reshape(classes - 1, -1, classes - 1, len(free) // (classes - 1))
    beside = np.concatenate([-rest.sum(0, keepdims=True), rest])
    whole = np.concatenate([-beside.sum(2, keepdims=True), beside], 2)
    return whole.reshape(whole.shape[0] * whole.shape[1], -1)


def log_probabilities(eta: np.ndarray) -> np.ndarray:
    """(..., k) logarithms of the classes' probabilities from linear predictors (..., m)."""
    if eta.shape[-1] == 1:
        return np.concatenate([-np.logaddexp(0, eta), -np.logaddexp(0, -eta)], -1)
    top = eta.max(-1, keepdims=True)
    return eta - top - np.log(np.exp(eta - top).sum(-1, keepdims=True))


# ---- which classes there are ----


def found(fed: Federation, given: Sequence | None) -> list:
    """The classes in order: those given, those of the clients in this process, or those that a SUM of counts finds."""
    if given is not None:
        labels: list[Any] = np.unique(np.asarray(given)).tolist()
    elif clients := fed.here():
        labels = _in_process(clients)
    else:
        labels = _counted(fed)
    if len(labels) < 2:
        raise BadData(f"all labels are {labels[0]!r}: a classifier needs at least two classes")
    return labels


def _in_process(clients: Sequence[Client]) -> list:
    """The classes that clients in this process have; measurements are refused."""
    for c in clients:
        if c.y is None:
            raise without_labels(c.name, "labels")
    labels = np.unique(np.concatenate([distinct(to_numpy(c.y)) for c in clients])).tolist()
    broken = [label for label in labels if isinstance(label, float) and not label.is_integer()]
    if broken:
        raise BadData(
            f"labels such as {broken[0]!r} are measurements (Unknown label type: continuous), not classes: use GLM or LinearRegression"
        )
    return labels


def _counted(fed: Federation) -> list[int]:
    """The classes found by one SUM, where labels are whole numbers."""
    total = fed.sum(code_counts, None)
    if total.others > 0:
        raise BadData(
            f"some labels are not whole numbers from 0 to {MOST_CODES - 1}: name them all, as in classes=['no', 'yes']"
        )
    return np.flatnonzero(to_numpy(total.n) > 0).tolist()
