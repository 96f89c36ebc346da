"""What clients are asked about linear learners: log-likelihoods, gradients and second derivatives, each of them one SUM."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.learners.rows import Rows
from unpooled.learners.trainer import Trainer
from unpooled.maths import logistic
from unpooled.maths.gaussian import pack_triangle
from unpooled.tree import message

# ---- messages ----


@message("learners.ColumnSums")
class ColumnSums(NamedTuple):
    """Rows and sums of columns."""

    n: Float[Array, "", ">=0 rows"]
    x: Float[Array, "d"]  # sum of w x


@message("learners.Linear")
class Linear(NamedTuple):
    """A linear learner and the centre of the columns."""

    theta: Float[Array, "k p"]  # k is 1
    centre: Float[Array, "d"]


@message("learners.Slope")
class Slope(NamedTuple):
    """Log-likelihood and gradient."""

    n: Float[Array, "", ">=0 rows"]
    loglik: Float[Array, ""]
    gradient: Float[Array, "q"]


@message("learners.Curvature")
class Curvature(NamedTuple):
    """Log-likelihood, gradient and second derivatives."""

    n: Float[Array, "", ">=0 rows"]
    loglik: Float[Array, ""]
    gradient: Float[Array, "q"]
    curvature: Float[Array, "t"]  # packed triangle of (q, q)


@message("learners.Blocks")
class Blocks(NamedTuple):
    """Log-likelihood, gradient, and of the second derivatives the block of each class."""

    n: Float[Array, "", ">=0 rows"]
    loglik: Float[Array, ""]
    gradient: Float[Array, "q"]
    blocks: Float[Array, "classes t"]  # packed triangles of (d + 1, d + 1)


@message("learners.Learners")
class Learners(NamedTuple):
    """Several linear learners and the centre of the columns."""

    theta: Float[Array, "k p"]
    centre: Float[Array, "d"]


@message("learners.PartCurvature")
class PartCurvature(NamedTuple):
    """The same as `Curvature` for each learner, over rows weighted by the clients' weights of it."""

    n: Float[Array, "k", ">=0 rows"]
    loglik: Float[Array, "k"]
    gradient: Float[Array, "k q"]
    curvature: Float[Array, "k t"]


@message("learners.SecondMoments")
class SecondMoments(NamedTuple):
    """Second moments of the columns about a centre."""

    xx: Float[Array, "t"]  # packed triangle of the sum of (x - centre, 1)(x - centre, 1)', or its diagonal


# ---- questions ----


@client("learners.column_sums", SUM, adds=True, brief=True)
def column_sums(down: None, client: Client) -> ColumnSums:
    """Rows and sums of the columns."""
    x, w = (to_numpy(a).astype(np.float64, copy=False) for a in (client.x, client.w))
    return ColumnSums(w.sum(-1), (w[..., None, :] @ x)[..., 0, :])


@client("learners.curvature", SUM, adds=True, brief=True)
def curvature(down: Linear, client: Client, *, trainer: dict) -> Curvature:
    """Log-likelihood of a linear learner, its gradient and its second derivatives."""
    rows = rows_of(client, trainer)
    return Curvature(
        *_of_each(lambda *own: sums_of(Rows(*own), down.theta[0], down.centre, logistic.second_free), *rows)
    )


@client("learners.slope", SUM, adds=True, brief=True)
def slope(down: Linear, client: Client, *, trainer: dict) -> Slope:
    """Log-likelihood of a linear learner and its gradient."""
    rows = rows_of(client, trainer)
    return Slope(*_of_each(lambda *own: sums_of(Rows(*own), down.theta[0], down.centre), *rows))


@client("learners.block_slope", SUM, adds=True, brief=True)
def block_slope(down: Linear, client: Client, *, trainer: dict) -> Blocks:
    """Log-likelihood of a linear learner, its gradient, and the block of each class of its second derivatives."""
    rows = rows_of(client, trainer)
    return Blocks(
        *_of_each(lambda *own: sums_of(Rows(*own), down.theta[0], down.centre, logistic.second_within), *rows)
    )


@client("learners.part_curvature", SUM, brief=True)
def part_curvature(down: Learners, client: Client, *, trainer: dict, weights: str, ids: list) -> PartCurvature:
    """Log-likelihood of each linear learner, its gradient and second derivatives, by the client's weights of the learners."""
    share = shares_of(client.state, weights, ids, client.w.shape[:-1])  # (..., k)

    def of_one(x: np.ndarray, y: np.ndarray, w: np.ndarray, share: np.ndarray) -> list[np.ndarray]:
        parts = [
            sums_of(Rows(x, y, w * own), theta, down.centre, logistic.second_free)
            for own, theta in zip(share, down.theta)
        ]
        return [np.stack(part) for part in zip(*parts)]

    return PartCurvature(*_of_each(of_one, *rows_of(client, trainer), share))


def shares_of(state: dict, weights: str, ids: list, lead: tuple[int, ...]) -> np.ndarray:  # (..., k)
    """A client's weights of the learners at the places `ids`; equal ones if it has none."""
    own = to_numpy(state[weights])[..., ids] if weights in state else np.ones((*lead, len(ids)))
    return own / own.sum(-1, keepdims=True).clip(min=1e-300)


@client("learners.second_moments", SUM, adds=True, brief=True)
def second_moments(centre: ColumnSums, client: Client, *, whole: bool) -> SecondMoments:
    """Second moments of the columns about their mean; without `whole` their diagonal."""

    def of_one(x: np.ndarray, w: np.ndarray) -> list[np.ndarray]:
        blocks = logistic.blocks(x, centre.x)
        if whole:
            return [pack_triangle(sum(logistic.gram(w[place], z) for place, z in blocks))]
        return [np.append(sum(w[place] @ z**2 for place, z in blocks), w.sum())]

    return SecondMoments(*_of_each(of_one, to_numpy(client.x), to_numpy(client.w).astype(np.float64, copy=False)))


# ---- sums over rows ----


def rows_of(client: Client, trainer: dict) -> Rows:
    """The client's rows as arrays, with weights in float64."""
    rows = Trainer(**trainer)._replace(device=None).rows(client)
    return rows._replace(w=rows.w.astype(np.float64, copy=False))


def sums_of(
    rows: Rows, theta: np.ndarray, centre: np.ndarray, second: logistic.Second | None = None
) -> list[np.ndarray]:
    """[rows, log-likelihood, gradient (q,)] of a linear learner (p,) over the rows of one client.

    Last comes what `second` finds, given weights, probabilities and columns about the centre, as packed triangles.
    """
    coef = theta.reshape(-1, len(centre) + 1) + 0.0
    coef[:, -1] += coef[:, :-1] @ centre
    coef = coef[1:] - coef[:1] if len(coef) == 2 else coef
    n, loglik, gradient, *more = logistic.sums(*rows, coef, centre, second)
    return [n, loglik, logistic.free(gradient).ravel(), *map(pack_triangle, more)]


def _of_each(of_one: Callable[..., list[np.ndarray]], *arrays: np.ndarray) -> list[np.ndarray]:
    """What `of_one` finds for a client, or for each of several stacked ones; rows are the first of `arrays`."""
    if arrays[0].ndim == 2:
        return of_one(*arrays)
    return [np.stack(part) for part in zip(*(of_one(*one) for one in zip(*arrays)))]
