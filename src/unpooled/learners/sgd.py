"""Local epochs of SGD for k weighted learners of many clients at once. Nothing is sent.

The order of rows is drawn from each client's own generator, so a client takes the same steps alone, stacked with others
or on another engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, is_torch, like, namespace, to_numpy
from unpooled.client import Client
from unpooled.learners import augment
from unpooled.learners.mixing import mass
from unpooled.tree import message


@message("learners.Step")
class Step(NamedTuple):
    """The hyperparameters of an SGD step."""

    lr: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    prox: float = 0.0  # FedProx's mu: a pull towards the parameters before the first step
    clip: float = 0.0  # largest norm of the gradient of a model; 0 is no bound


@message("learners.Order")
class Order(NamedTuple):
    """Minibatches of one or several epochs, padded to the longest client."""

    rows: np.ndarray  # (..., steps, b) row indices
    real: np.ndarray  # (..., steps, b) False is padding


def minibatches(client: Client, epochs: int, batch_size: int) -> Order:
    """Every row of positive weight once per epoch, in an order drawn from each client's generator."""
    w = to_numpy(client.w)
    drawn = [_shuffled(row_w, rng, epochs, batch_size) for row_w, rng in zip(w.reshape(-1, w.shape[-1]), client.rngs)]
    steps = max(len(o) for o in drawn)
    b = max(o.shape[1] for o in drawn)
    rows = np.full((len(drawn), steps, b), -1)
    for padded, own in zip(rows, drawn):
        padded[: own.shape[0], : own.shape[1]] = own
    rows = rows.reshape(*w.shape[:-1], steps, b)
    return Order(np.maximum(rows, 0), rows >= 0)


def _shuffled(w: np.ndarray, rng: np.random.Generator, epochs: int, batch_size: int) -> np.ndarray:
    """(steps, b) row indices of one client, -1 where the last batch of an epoch is not full."""
    live = np.flatnonzero(w > 0)
    b = max(1, min(batch_size, len(live)))
    short = -len(live) % b
    shuffled = [np.append(rng.permutation(live), np.full(short, -1)).reshape(-1, b) for _ in range(epochs)]
    return np.concatenate(shuffled).astype(np.int64)


def batches(order: Order, *arrays: Array, moves: np.ndarray | None = None) -> Iterator[tuple[Array, ...]]:
    """For each step: which rows are real (..., b), and the chosen rows (..., b, *rest) of every array (..., n, *rest).

    With `moves` (..., steps, b, 3) the first array holds images, which are moved and mirrored by them (see `augment`).
    """
    lead = order.rows.shape[:-2]
    n = arrays[0].shape[len(order.rows.shape[:-2])]
    count = int(np.prod(lead, dtype=int))
    offset = (np.arange(count) * n).reshape(*lead, 1, 1)
    index = np.moveaxis(order.rows + offset, -2, 0).reshape(order.rows.shape[-2], -1)  # (steps, clients * b)
    real = np.ascontiguousarray(np.moveaxis(order.real, -2, 0))
    tables = [a.reshape(count * n, *a.shape[len(lead) + 1 :]) for a in arrays]
    index, real = (_beside(a, arrays[0]) for a in (index, real))
    by_step = None if moves is None else _beside(np.moveaxis(moves, -3, 0), arrays[0])
    for step, (chosen, mask) in enumerate(zip(index, real)):
        first, *rest = (_take(t, chosen).reshape(*mask.shape, *t.shape[1:]) for t in tables)
        yield mask, first if by_step is None else augment.moved(first, by_step[step]), *rest


def _beside(a: np.ndarray, reference: Array) -> Array:
    """`a` on the device of `reference`."""
    return namespace(reference).as_tensor(a, device=reference.device) if is_torch(reference) else a


def _take(table: Array, index: Array) -> Array:
    """Rows of a table by index."""
    return table.index_select(0, index) if is_torch(table) else table.take(index, axis=0, mode="clip")


def train(
    learner: Any,
    theta: Array,
    rows: Any,
    r: Array,
    order: Order,
    step: Step,
    velocity: Array = None,
    scale: Array = None,
    moves: np.ndarray | None = None,
) -> tuple[Array, Array]:
    """(theta, velocity) after the epochs, each (..., k, p).

    A step goes down the gradient of sum_i w_i r_ik CE_k(x_i, y_i) / sum_i w_i over its batch. `rows` has x (..., n,
    d), y and w (..., n); `r` (..., n, k) are the responsibilities, theta may be (k, p); `scale` (k, d + 1, d + 1)
    preconditions linear learners; `moves` (..., steps, b, 3) augment images.
    """
    xp = namespace(rows.x)
    live = learner.trained
    theta = spread_over(theta, rows)
    initial = theta + 0 if step.prox else theta
    velocity = xp.zeros_like(theta) if velocity is None else _spread(velocity, theta.shape, rows.x)
    every_client = order.real.any(-1).all()
    for real, x, y, w, r_b in batches(order, rows.x, rows.y, rows.w, r, moves=moves):
        w = w * real
        s = r_b * (w / w.sum(-1, keepdims=True).clip(min=1e-12))[..., None]
        g = clipped(learner.gradient(theta, x, y, s)[..., :live], step.clip)
        t = theta[..., :live]
        v = velocity[..., :live]
        if step.weight_decay:
            g = g + step.weight_decay * t
        if step.prox:
            g = g + step.prox * (t - initial[..., :live])
        if every_client:
            v *= step.momentum
            v += g
            t -= step.lr * (v if scale is None else _scaled(v, scale))
        else:  # a client without rows in this step stays as it is
            moves = like(real.any(-1), t)[..., None, None]
            v += moves * (g - (1 - step.momentum) * v)
            t -= step.lr * moves * (v if scale is None else _scaled(v, scale))
    return theta, velocity


def clipped(g: Array, most: float) -> Array:
    """Gradients (..., k, p), each scaled to a norm of at most `most`; 0 leaves them as they are."""
    if not most:
        return g
    norm = (g * g).sum(-1)[..., None] ** 0.5
    return g * (most / norm.clip(min=most))


def train_active(
    learner: Any,
    theta: Array,
    rows: Any,
    r: Array,
    order: Order,
    step: Step,
    velocity: Array,
    idle: float,
    moves: np.ndarray | None = None,
) -> tuple[Array, Array]:
    """`train` for the models with more than a share `idle` of a client's rows; the others are returned unchanged.

    Parameters are those of `train`; with many models most responsibilities are near 0, and their steps are saved.
    """
    if rows.w.ndim == 1:
        one = type(rows)(*(a[None] for a in rows))
        order = Order(*(a[None] for a in order))
        moves = None if moves is None else moves[None]
        theta, velocity = train_active(learner, theta, one, r[None], order, step, velocity, idle, moves)
        return theta[0], velocity[0]
    active = to_numpy(mass(r, rows.w) > idle * rows.w.sum(-1)[..., None])  # (..., k)
    if active.all():
        return train(learner, theta, rows, r, order, step, velocity, moves=moves)
    theta = spread_over(theta, rows)
    velocity = namespace(theta).zeros_like(theta) if velocity is None else _spread(velocity, theta.shape, rows.x)
    if active.any():
        *clients, model = np.nonzero(active)  # one entry per pair of client and active model
        pair_rows = type(rows)(*_at(clients, *rows))
        pair_order = Order(*_at(clients, *order))
        pair_r, pair_theta, pair_velocity = _at([*clients, model], namespace(r).swapaxes(r, -1, -2), theta, velocity)
        trained = train(
            learner,
            pair_theta[:, None],
            pair_rows,
            pair_r[..., None],
            pair_order,
            step,
            pair_velocity[:, None],
            moves=None if moves is None else _at(clients, moves)[0],
        )
        index = tuple(_beside(a, theta) for a in (*clients, model))
        theta[index], velocity[index] = (a[:, 0] for a in trained)
    return theta, velocity


def _at(index: Sequence[np.ndarray], *arrays: Array) -> list[Array]:
    """Each array indexed along its first axes."""
    return [a[tuple(_beside(i, a) for i in index)] for a in arrays]


def spread_over(theta: Array, rows: Any) -> Array:
    """A copy of the models per client: (k, p) or (..., k, p) to (..., k, p), on the device of the rows."""
    return _spread(theta, (*rows.w.shape[:-1], *theta.shape[-2:]), rows.x)


def _spread(a: Array, shape: tuple[int, ...], reference: Array) -> Array:
    """A copy of `a` broadcast to `shape`, on the device of `reference`."""
    a = like(a, reference)
    return a.broadcast_to(shape).clone() if is_torch(a) else np.array(np.broadcast_to(a, shape))


def _scaled(v: Array, scale: Array) -> Array:
    """Each linear learner's update (classes, d + 1) times its preconditioner (d + 1, d + 1)."""
    wide = scale.shape[-1]
    return (v.reshape(*v.shape[:-1], -1, wide) @ scale).reshape(v.shape)
