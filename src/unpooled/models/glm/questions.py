"""The questions of a GLM fit: SUMs over rows, of at most p + 1 scores and (p + 1)(p + 2) / 2 second moments.

Columns are centred by their means over all clients, so that numbers far from the origin lose no digits. Letters: p columns, q
coefficients with the intercept, t numbers of a packed triangle; eta is the linear predictor, mu the mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.errors import BadData
from unpooled.maths.gaussian import pack_triangle
from unpooled.models.glm import families
from unpooled.tree import message

BLOCK = 2048  # rows at a time, so that their design matrix stays in the processor's cache


@message("glm.Look")
class Look(NamedTuple):
    """A first look at the rows, those with missing values left out."""

    n: Float[Array, "", ">=0 rows"]  # sum of w
    missing: Float[Array, "", ">=0 rows"]  # rows left out
    outside: Float[Array, "", ">=0 rows"]  # rows whose y is outside the family's range
    x: Float[Array, "p"]  # sum of w x
    y: Float[Array, ""]  # sum of w y
    yy: Float[Array, ""]  # sum of w y^2
    offset: Float[Array, ""]  # sum of w offset


@message("glm.Point")
class Point(NamedTuple):
    """The parameters at which sums are evaluated."""

    mean: Float[Array, "p"]  # of the columns; zeros without an intercept
    coef: Float[Array, "q"]  # the intercept first, if there is one
    y_mean: Float[Array, ""]
    alpha: Float[Array, ""]  # of the negative binomial


@message("glm.Curvature")
class Curvature(NamedTuple):
    """The sums of a Newton step."""

    n: Float[Array, "", ">=0 rows"]  # sum of w over the rows of those who answered
    loss: Float[Array, ""]  # the deviance; -2 loglik where alpha is learned
    outside: Float[Array, "", ">=0 rows"]  # rows whose mean is outside the family's range
    score: Float[Array, "g"]  # sum of w z (d loglik / d eta); g = q, or q + 1 where alpha is learned
    hessian: Float[Array, "t"]  # sum of w h z z', h the curvature of a row; the lower triangle by rows


@message("glm.Final")
class Final(NamedTuple):
    """The sums for the summary of a fitted model."""

    step: Curvature
    expected: Float[Array, "s"]  # expected information, the lower triangle by rows
    deviance: Float[Array, ""]
    null_deviance: Float[Array, ""]  # where every mean is the mean of all y
    pearson: Float[Array, ""]  # sum of w (y - mu)^2 / V(mu)
    best: Float[Array, ""]  # see families.best_loglik


@message("glm.Meat")
class Meat(NamedTuple):
    """The middle of a sandwich covariance, the lower triangle by rows."""

    outer: Float[Array, "t"]


class Rows(NamedTuple):
    """A client's rows as a GLM sees them."""

    x: np.ndarray  # (..., n, p)
    y: np.ndarray  # (..., n)
    w: np.ndarray  # (..., n); 0 for padding and rows with missing values
    offset: np.ndarray  # (..., n)


class Design(NamedTuple):
    """Columns about their means, and before them a column of ones where there is an intercept; the ones are not stored."""

    z: np.ndarray  # (..., n, p)
    intercept: bool

    def eta(self, coef: np.ndarray) -> np.ndarray:
        """The linear predictor, (..., n)."""
        return self.z @ coef[1:] + coef[0] if self.intercept else self.z @ coef

    def along(self, a: np.ndarray) -> np.ndarray:
        """The sum of a times each column, (..., q)."""
        sums = (a[..., None, :] @ self.z)[..., 0, :]
        return np.concatenate([a.sum(-1)[..., None], sums], -1) if self.intercept else sums

    def gram(self, h: np.ndarray) -> np.ndarray:
        """The sum of h times the products of columns, (..., q, q)."""
        if h.min(initial=0.0) >= 0:
            scaled = self.z * np.sqrt(h)[..., None]
            inner = scaled.swapaxes(-1, -2) @ scaled  # BLAS computes half of it
        else:
            inner = self.z.swapaxes(-1, -2) @ (self.z * h[..., None])
        if not self.intercept:
            return inner
        first = self.along(h)  # (..., q), the sum of h before the rest
        rest = np.concatenate([first[..., 1:, None], inner], -1)
        return np.concatenate([first[..., None, :], rest], -2)


# ---- questions ----


@client("glm.look", SUM, adds=True, brief=True)
def look(nothing: None, client: Client, *, family: str, offset: int) -> Look:
    """How many rows are complete, their sums by column, and how many targets are outside the family's range."""
    rows, missing = _complete(client, offset)
    w = rows.w
    outside = (w > 0) & ~families.FAMILIES[family].inside(rows.y)
    wx = np.einsum("...n,...np->...p", w, rows.x)
    wy = w * rows.y
    shift = (w * rows.offset).sum(-1)
    return Look(w.sum(-1), missing, _count(outside), wx, wy.sum(-1), (wy * rows.y).sum(-1), shift)


@client("glm.start", SUM, adds=True, brief=True)
def start(point: Point, client: Client, *, family: str, link: str, offset: int, intercept: bool) -> Curvature:
    """The least squares problem of a first scoring step, and the deviance with every coefficient 0 but the intercept."""
    parts = []
    for z, y, w, shift in _blocks(point, client, offset, intercept):
        mu = families.starting_means(family, link, y, float(point.y_mean))
        response, curvature = families.working_response(family, link, y, mu, float(point.alpha))
        null = families.terms(family, link, z.eta(point.coef) + shift, y, float(point.alpha))
        wh = w * curvature
        score = z.along(wh * (response - shift))
        parts.append(Curvature(w.sum(-1), (w * null.deviance).sum(-1), _outside(w, null), score, z.gram(wh)))
    return _packed(_total(parts))


@client("glm.newton", SUM, adds=True, brief=True)
def newton(
    point: Point, client: Client, *, family: str, link: str, offset: int, intercept: bool, learn_alpha: bool
) -> Curvature:
    """Score and curvature of the log-likelihood at a point, and the deviance there.

    Parameters
    ----------
    point : Point
        Means that columns are centred by, coefficients, the mean target and the negative binomial's alpha.
    client : Client
        Whose rows are summed over.
    family, link : str
        Of the model.
    offset : int
        The column that is an offset, -1 for none.
    intercept : bool
        Whether the first coefficient is an intercept.
    learn_alpha : bool
        Whether score and curvature of log alpha come last.
    """
    blocks = _blocks(point, client, offset, intercept)
    return _packed(_total([_curvature(point, block, family, link, learn_alpha) for block in blocks]))


@client("glm.final", SUM, adds=True, brief=True)
def final(
    point: Point, client: Client, *, family: str, link: str, offset: int, intercept: bool, learn_alpha: bool
) -> Final:
    """Score, curvature and information at the fitted point, its deviance and its squared residuals."""
    parts = []
    alpha = float(point.alpha)
    for block in _blocks(point, client, offset, intercept):
        z, y, w, shift = block
        eta = z.eta(point.coef) + shift
        rows = families.terms(family, link, eta, y, alpha)
        null = families.FAMILIES[family].deviance(y, np.full_like(y, point.y_mean), alpha)
        squares = families.pearson(family, link, eta, y, alpha)
        best = families.best_loglik(family, y, alpha)
        step = _curvature(point, block, family, link, learn_alpha)
        expected = z.gram(w * rows.expected)
        sums = ((w * a).sum(-1) for a in (rows.deviance, null, squares, best))
        parts.append(Final(step, expected, *sums))
    total = _total(parts)
    return total._replace(step=_packed(total.step), expected=pack_triangle(total.expected))


@client("glm.site_meat", SUM, brief=True)
def site_meat(point: Point, client: Client, *, family: str, link: str, offset: int, intercept: bool) -> Meat:
    """The outer product of the client's score, for standard errors robust by site."""
    total: Any = sum(_scores(point, client, family, link, offset, intercept, squared=False))
    return Meat(pack_triangle(total[..., :, None] * total[..., None, :]))


@client("glm.row_meat", SUM, adds=True, brief=True)
def row_meat(point: Point, client: Client, *, family: str, link: str, offset: int, intercept: bool) -> Meat:
    """The sum over rows of the outer product of their scores, for standard errors robust to a wrong variance."""
    return Meat(pack_triangle(sum(_scores(point, client, family, link, offset, intercept, squared=True))))


# ---- rows ----


def _complete(client: Client, offset: int) -> tuple[Rows, np.ndarray]:
    """(rows, how many have missing values); the latter get weight 0, x = 0 and y = 1, so that no NaN enters a sum."""
    if client.y is None:
        raise BadData(f"client {client.name!r} has no targets: give y")
    x, y, w = (to_numpy(a).astype(np.float64, copy=False) for a in (client.x, client.y, client.w))
    empty, missing = remembered(client, "glm.empty", lambda: _empty(x, y, w))
    if empty.any():
        x = np.where(empty[..., None], 0.0, x)
        y = np.where(empty, 1.0, y)
        w = np.where(empty, 0.0, w)
    if offset < 0:
        return Rows(x, y, w, np.zeros_like(y)), missing
    if offset >= x.shape[-1]:
        raise BadData(f"offset={offset} is no column of {x.shape[-1]}: columns are counted from 0")
    return Rows(np.delete(x, offset, -1), y, w, x[..., offset]), missing


def _empty(x: np.ndarray, y: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(which rows are not to be fitted, how many of them have missing values)."""
    gone = np.isnan(x.sum(-1)) | np.isnan(y)
    return gone | (w == 0), _count(gone & (w > 0))


def remembered(client: Client, key: str, find: Callable[[], Any]) -> Any:
    """The result of `find`, which depends on the client's rows alone and is computed once."""
    if key not in client.memo:
        client.memo[key] = find()
    return client.memo[key]


def _blocks(point: Point, client: Client, offset: int, intercept: bool) -> Iterator[tuple]:
    """(design, y, w, offset) of BLOCK rows at a time; rows of weight 0 are at the columns' means."""
    rows, _ = _complete(client, offset)
    step = BLOCK if rows.x.ndim == 2 else max(rows.x.shape[-2], 1)
    for i in range(0, max(rows.x.shape[-2], 1), step):
        some = (..., slice(i, i + step))
        w = rows.w[some]
        yield _design(point, rows.x[..., i : i + step, :], w, intercept), rows.y[some], w, rows.offset[some]


def _design(point: Point, x: np.ndarray, w: np.ndarray, intercept: bool) -> Design:
    """Centred columns; rows of weight 0 are 0."""
    z = x - point.mean
    if w.min(initial=1.0) == 0:
        z *= (w > 0)[..., None]
    return Design(z, intercept)


# ---- sums over rows ----


def _curvature(point: Point, block: tuple, family: str, link: str, learn_alpha: bool) -> Curvature:
    """The sums over one block of rows, with those of alpha where it is estimated."""
    z, y, w, shift = block
    eta = z.eta(point.coef) + shift
    rows = families.terms(family, link, eta, y, float(point.alpha))
    outside = _outside(w, rows)
    score = z.along(w * rows.score)
    if not learn_alpha:
        return Curvature(w.sum(-1), (w * rows.deviance).sum(-1), outside, score, z.gram(w * rows.observed))
    with np.errstate(all="ignore"):  # rows that overflow are counted as outside
        more = families.alpha_terms(link, eta, y, float(point.alpha))
    score = np.concatenate([score, (w * more.score).sum(-1)[..., None]], -1)
    mixed = z.along(w * more.mixed)
    bordered = _bordered(z.gram(w * rows.observed), mixed, (w * more.curvature).sum(-1))
    return Curvature(w.sum(-1), -2 * (w * more.loglik).sum(-1), outside, score, bordered)


def _bordered(inner: np.ndarray, side: np.ndarray, corner: np.ndarray) -> np.ndarray:
    """The symmetric matrix with one more row and column."""
    top = np.concatenate([inner, side[..., :, None]], -1)
    bottom = np.concatenate([side, corner[..., None]], -1)
    return np.concatenate([top, bottom[..., None, :]], -2)


def _scores(
    point: Point, client: Client, family: str, link: str, offset: int, intercept: bool, squared: bool
) -> Iterator[np.ndarray]:
    """The sum of scores of each block, or of their outer products if `squared`."""
    for z, y, w, shift in _blocks(point, client, offset, intercept):
        eta = z.eta(point.coef) + shift
        score = families.terms(family, link, eta, y, float(point.alpha)).score
        yield z.gram(w * score**2) if squared else z.along(w * score)


def _outside(w: np.ndarray, rows: families.Terms) -> np.ndarray:
    """How many rows have a mean outside the family's range."""
    return np.zeros(w.shape[:-1]) if rows.outside is None else _count((w > 0) & rows.outside)


def _count(which: np.ndarray) -> np.ndarray:
    """How many rows, as a float that can be added up."""
    return np.asarray(which.sum(-1), dtype=np.float64)


def _total(parts: Sequence) -> Any:
    """The sum of the same message over blocks."""
    if not isinstance(parts[0], tuple):
        return sum(parts[1:], start=parts[0])
    return type(parts[0])(*(_total(part) for part in zip(*parts)))


def _packed(sums: Curvature) -> Curvature:
    """The sums with the second derivative as a triangle."""
    return sums._replace(hessian=pack_triangle(sums.hessian))
