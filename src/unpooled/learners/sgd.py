"""Local epochs of SGD for k weighted learners of many clients at once. Nothing is sent.

The order of rows comes from each client's own generator, so a client takes the same steps alone, stacked or on
another engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, is_torch, like, namespace, to_numpy
from unpooled.client import Client
from unpooled.learners.mixing import mass
from unpooled.tree import message


@message("learners.Step")
class Step(NamedTuple):
    """What an update is made of."""

    lr: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    prox: float = 0.0  # pull towards where the epochs began: FedProx's mu


@message("learners.Order")
class Order(NamedTuple):
    """Minibatches of one or several epochs, padded to the longest client."""

    rows: np.ndarray  # (..., steps, b) places of rows
    real: np.ndarray  # (..., steps, b) False is padding


def minibatches(client: Client, epochs: int, batch_size: int) -> Order:
    """Every row of positive weight once an epoch, in an order drawn from each client's generator."""
    w = to_numpy(client.w)
    plans = [_plan(row_w, rng, epochs, batch_size) for row_w, rng in zip(w.reshape(-1, w.shape[-1]), client.rngs)]
    steps, b = max(len(p) for p in plans), max(p.shape[1] for p in plans)
    rows = np.full((len(plans), steps, b), -1)
    for into, plan in zip(rows, plans):
        into[: plan.shape[0], : plan.shape[1]] = plan
    rows = rows.reshape(*w.shape[:-1], steps, b)
    return Order(np.maximum(rows, 0), rows >= 0)


def _plan(w: np.ndarray, rng: np.random.Generator, epochs: int, batch_size: int) -> np.ndarray:
    """(steps, b) places of rows, -1 where the last batch of an epoch is not full."""
    live = np.flatnonzero(w > 0)
    b = max(1, min(batch_size, len(live)))
    short = -len(live) % b
    shuffled = [np.append(rng.permutation(live), np.full(short, -1)).reshape(-1, b) for _ in range(epochs)]
    return np.concatenate(shuffled).astype(np.int64)


def batches(order: Order, *arrays: Array) -> Iterator[tuple[Array, ...]]:
    """For each step: which rows are real (..., b), and the chosen rows (..., b, *rest) of every array (..., n, *rest)."""
    lead, n = order.rows.shape[:-2], arrays[0].shape[len(order.rows.shape[:-2])]
    count = int(np.prod(lead, dtype=int))
    offset = (np.arange(count) * n).reshape(*lead, 1, 1)
    places = np.moveaxis(order.rows + offset, -2, 0).reshape(order.rows.shape[-2], -1)  # (steps, clients * b)
    real = np.ascontiguousarray(np.moveaxis(order.real, -2, 0))
    tables = [a.reshape(count * n, *a.shape[len(lead) + 1 :]) for a in arrays]
    places, real = (_beside(a, arrays[0]) for a in (places, real))
    for chosen, mask in zip(places, real):
        yield mask, *(_take(t, chosen).reshape(*mask.shape, *t.shape[1:]) for t in tables)


def _beside(a: np.ndarray, reference: Array) -> Array:
    return namespace(reference).as_tensor(a, device=reference.device) if is_torch(reference) else a


def _take(table: Array, places: Array) -> Array:
    return table.index_select(0, places) if is_torch(table) else table.take(places, axis=0, mode="clip")


def train(
    learner: Any,
    theta: Array,
    rows: Any,
    r: Array,
    order: Order,
    step: Step,
    velocity: Array = None,
    scale: Array = None,
) -> tuple[Array, Array]:
    """(theta, velocity) after the epochs, each (..., k, p).

    A step goes down the gradient of sum_i w_i r_ik CE_k(x_i, y_i) / sum_i w_i over its batch. `rows` has x (..., n,
    d), y and w (..., n); `r` (..., n, k) are the responsibilities, theta may be (k, p); `scale` (k, d + 1, d + 1)
    preconditions linear learners.
    """
    xp, live = namespace(rows.x), learner.trained
    theta = spread_over(theta, rows)
    began = theta + 0 if step.prox else theta
    velocity = xp.zeros_like(theta) if velocity is None else _spread(velocity, theta.shape, rows.x)
    every_client = order.real.any(-1).all()
    for real, x, y, w, r_b in batches(order, rows.x, rows.y, rows.w, r):
        w = w * real
        s = r_b * (w / w.sum(-1, keepdims=True).clip(min=1e-12))[..., None]
        g = learner.gradient(theta, x, y, s)[..., :live]
        t, v = theta[..., :live], velocity[..., :live]
        if step.weight_decay:
            g = g + step.weight_decay * t
        if step.prox:
            g = g + step.prox * (t - began[..., :live])
        if every_client:
            v *= step.momentum
            v += g
            t -= step.lr * (v if scale is None else _scaled(v, scale))
        else:  # a client out of rows stands still
            go = like(real.any(-1), t)[..., None, None]
            v += go * (g - (1 - step.momentum) * v)
            t -= step.lr * go * (v if scale is None else _scaled(v, scale))
    return theta, velocity


def train_busy(
    learner: Any, theta: Array, rows: Any, r: Array, order: Order, step: Step, velocity: Array, idle: float
) -> tuple[Array, Array]:
    """`train` for those models that answer for more than the part `idle` of a client's rows; the others stay as they
    were.
    """
    if rows.w.ndim == 1:
        one, order = type(rows)(*(a[None] for a in rows)), Order(*(a[None] for a in order))
        theta, velocity = train_busy(learner, theta, one, r[None], order, step, velocity, idle)
        return theta[0], velocity[0]
    busy = to_numpy(mass(r, rows.w) > idle * rows.w.sum(-1)[..., None])  # (..., k)
    if busy.all():
        return train(learner, theta, rows, r, order, step, velocity)
    theta = spread_over(theta, rows)
    velocity = namespace(theta).zeros_like(theta) if velocity is None else _spread(velocity, theta.shape, rows.x)
    if busy.any():
        *who, model = np.nonzero(busy)
        mine, part = type(rows)(*_at(who, *rows)), Order(*_at(who, *order))
        pairs = _at([*who, model], namespace(r).swapaxes(r, -1, -2), theta, velocity)
        weight, begin, moving = pairs[0][..., None], pairs[1][:, None], pairs[2][:, None]
        found = train(learner, begin, mine, weight, part, step, moving)
        places = tuple(_beside(a, theta) for a in (*who, model))
        theta[places], velocity[places] = (a[:, 0] for a in found)
    return theta, velocity


def _at(places: Sequence[np.ndarray], *arrays: Array) -> list[Array]:
    """Of each array what stands at these places of its first axes."""
    return [a[tuple(_beside(p, a) for p in places)] for a in arrays]


def spread_over(theta: Array, rows: Any) -> Array:
    """A copy of the models for every client: (k, p) or (..., k, p) to (..., k, p) beside the rows."""
    return _spread(theta, (*rows.w.shape[:-1], *theta.shape[-2:]), rows.x)


def _spread(a: Array, shape: tuple[int, ...], reference: Array) -> Array:
    """A copy of `a` for every client, beside the rows."""
    a = like(a, reference)
    return a.broadcast_to(shape).clone() if is_torch(a) else np.array(np.broadcast_to(a, shape))


def _scaled(v: Array, scale: Array) -> Array:
    """Each linear learner's step (classes, d + 1) times its own matrix."""
    wide = scale.shape[-1]
    return (v.reshape(*v.shape[:-1], -1, wide) @ scale).reshape(v.shape)
