"""What clients are asked about linear learners: log-likelihoods, gradients and second derivatives, each of them one SUM."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.learners.penalties import with_one
from unpooled.learners.trainer import Trainer
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


@client("learners.column_sums", SUM, adds=True)
def column_sums(down: None, client: Client) -> ColumnSums:
    """Rows and sums of the columns."""
    x, w = (to_numpy(a).astype(np.float64, copy=False) for a in (client.x, client.w))
    return ColumnSums(w.sum(-1), (w[..., None, :] @ x)[..., 0, :])


@client("learners.curvature", SUM, adds=True)
def curvature(down: Linear, client: Client, *, trainer: dict) -> Curvature:
    """Log-likelihood of a linear learner, its gradient and its second derivatives."""
    rows, log_p, loglik = likelihood(down, client, trainer)
    one = with_one(rows.x - down.centre)  # (..., n, d + 1)
    p = np.exp(log_p[..., 0, 1:, :])  # (..., c - 1, n)
    return Curvature(
        rows.w.sum(-1), loglik, gradient_of(rows.y, rows.w, p, one), pack_triangle(second_of(rows.w, p, one))
    )


@client("learners.slope", SUM, adds=True)
def slope(down: Linear, client: Client, *, trainer: dict) -> Slope:
    """Log-likelihood of a linear learner and its gradient."""
    rows, log_p, loglik = likelihood(down, client, trainer)
    one, p = with_one(rows.x - down.centre), np.exp(log_p[..., 0, 1:, :])
    return Slope(rows.w.sum(-1), loglik, gradient_of(rows.y, rows.w, p, one))


@client("learners.block_slope", SUM, adds=True)
def block_slope(down: Linear, client: Client, *, trainer: dict) -> Blocks:
    """Log-likelihood of a linear learner, its gradient, and the block of each class of its second derivatives."""
    rows, log_p, loglik = likelihood(down, client, trainer)
    one, p = with_one(rows.x - down.centre), np.exp(log_p[..., 0, :, :])
    gradient = gradient_of(rows.y, rows.w, p[..., 1:, :], one)
    return Blocks(rows.w.sum(-1), loglik, gradient, pack_triangle(blocks_of(rows.w, p, one)))


@client("learners.part_curvature", SUM)
def part_curvature(down: Learners, client: Client, *, trainer: dict, weights: str, ids: list) -> PartCurvature:
    """Log-likelihood of each linear learner, its gradient and second derivatives, by the client's weights of the learners."""
    share = shares_of(client.state, weights, ids, client.w.shape[:-1])  # (..., k)
    parts = []
    for k in range(len(ids)):
        rows, log_p, _ = likelihood(Linear(down.theta[k : k + 1], down.centre), client, trainer)
        w = rows.w * share[..., k : k + 1]
        one, p = with_one(rows.x - down.centre), np.exp(log_p[..., 0, 1:, :])
        chosen = np.take_along_axis(log_p[..., 0, :, :], rows.y[..., None, :], -2)[..., 0, :]
        second = pack_triangle(second_of(w, p, one))
        parts.append((w.sum(-1), (w * chosen).sum(-1), gradient_of(rows.y, w, p, one), second))
    n, loglik, gradient, second = zip(*parts)
    return PartCurvature(np.stack(n, -1), np.stack(loglik, -1), np.stack(gradient, -2), np.stack(second, -2))


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


def likelihood(down: Linear, client: Client, trainer: dict) -> tuple[Any, np.ndarray, np.ndarray]:
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


def blocks_of(w: np.ndarray, p: np.ndarray, one: np.ndarray) -> np.ndarray:  # (..., c, d + 1, d + 1)
    """Minus the second derivatives in the parameters of each class: the sum of w p_a (1 - p_a) z z'; p is (..., c, n).

    In 32 bits: they precondition steps and tell a row's share in its own scores.
    """
    roots = np.sqrt(w[..., None, :] * p * (1 - p)).astype(np.float32)
    rows = one.astype(np.float32)
    scaled = (rows * own[..., None] for own in np.moveaxis(roots, -2, 0))
    return np.stack([np.swapaxes(a, -1, -2) @ a for a in scaled], -3).astype(np.float64)
