"""The kind of learner and its training settings, as one value that is sent with a question. This module sends nothing.

At the server an algorithm makes a `Trainer` once and sends it as an option:
`question.using(trainer=as_option(trainer))`. At the client:

    trainer = Trainer(**trainer)
    rows = trainer.rows(client)                              # x, y as codes, w; on the trainer's device
    loglik = trainer.log_likelihood(theta, rows)             # (..., n, k): minus the cross-entropy of every learner
    r = softmax(log_pi[..., None, :] + loglik)               # any rule for the responsibilities
    new = trainer.train(theta, client, rows, r)              # (..., k, p) after the local epochs
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import cos, pi
from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, is_torch, like, namespace, to_numpy
from unpooled.client import Client
from unpooled.errors import BadParameter
from unpooled.learners import augment, registry
from unpooled.learners.dense import Logistic
from unpooled.learners.rows import Rows, held_out, rows
from unpooled.learners.sgd import Order, Step, minibatches, train, train_active
from unpooled.tree import message

SCHEDULES = ("constant", "cosine", "sqrt")
IDLE = 1e-4  # for `train(idle=)`: a model with a smaller share of a client's rows has negligible weight in the average


@message("learners.Trainer")
class Trainer(NamedTuple):
    """The kind of learner and how it is trained; every field is plain JSON.

    Parameters
    ----------
    learner : str
        A registered name, see `registry`.
    inputs : int
        Number of columns.
    labels : sequence
        The classes in order; a code is a position here.
    hidden : tuple of int, default=(64,)
        Widths of the hidden layers of an mlp.
    norm : {"group", "average", "local"}, default="group"
        What happens to BatchNorm: replaced by GroupNorm, averaged over clients, or kept by each client.
    epochs, batch_size : int, default=1 and 128
        Local epochs per round and rows per minibatch.
    lr, momentum, weight_decay, prox : float, default=0.1, 0, 0 and 0
        Of SGD; `prox` is FedProx's mu, a pull towards the models that the round began with.
    keep_momentum : bool, default=False
        Whether the velocity stays in the client's state from round to round, or starts at 0.
    device : str or None, default=None
        None is NumPy for linear and mlp and torch on the CPU for the rest; else any torch device.
    hold_out : bool, default=False
        Whether some of each client's rows are held out: they do not train, and losses are theirs; see `held_out`.
    augment : {"none", "crop-flip"}, default="none"
        What happens to the images of a minibatch, see `augment`.
    clip : float, default=0.0
        Largest norm of the gradient of a learner in a step; 0 is no bound.
    """

    learner: str
    inputs: int
    labels: Sequence = ()
    hidden: Sequence[int] = (64,)
    norm: str = "group"
    epochs: int = 1
    batch_size: int = 128
    lr: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    prox: float = 0.0
    keep_momentum: bool = False
    device: str | None = None
    hold_out: bool = False
    augment: str = "none"
    clip: float = 0.0

    # ---- the learner ----

    @property
    def net(self) -> Any:
        """The learner that these fields describe; made once and cached."""
        return registry.learner(self.learner, self.inputs, len(self.labels), tuple(self.hidden), self.norm)

    @property
    def _place(self) -> str | None:
        """The torch device, None for NumPy."""
        return self.device or ("cpu" if self.net.needs_torch else None)

    @property
    def _dtype(self) -> str | None:
        """The type of numbers, None to keep that of the rows."""
        return "float32" if self.net.needs_torch else None

    def start(self, rng: np.random.Generator, k: int) -> np.ndarray:
        """(k, p) parameters of k new learners, drawn at random."""
        return self.net.start(rng, k)

    # ---- at a client, or many stacked ----

    def rows(self, client: Client) -> Rows:
        """The client's rows with labels as codes, on the trainer's device; rows that are held out have weight 0."""
        found = rows(client, self.labels, self._place, self._dtype)
        if not self.hold_out:
            return found
        return found._replace(w=found.w * like(~held_out(client), found.w))

    def held(self, client: Client) -> np.ndarray:
        """(..., n) the weights of the rows that are held out, 0 for the others."""
        return to_numpy(client.w) * held_out(client)

    def judging_weights(self, client: Client, rows: Rows) -> Array:  # (..., n)
        """The weights of the rows that models are judged by: those that train; with `hold_out` those held out, if there are any.

        Both have the same sum.
        """
        if not self.hold_out:
            return rows.w
        held = like(self.held(client), rows.w)
        n = held.sum(-1)[..., None]
        scaled = held * (rows.w.sum(-1)[..., None] / n.clip(min=1e-12))
        return namespace(held).where(n > 0, scaled, rows.w)

    def reported(self, loglik: Array, client: Client, rows: Rows) -> Array:
        """(...,) the log-likelihood that a client reports, from that of each row (..., n); see `judging_weights`."""
        return (self.judging_weights(client, rows) * loglik).sum(-1)

    def placed(self, x: np.ndarray) -> Array:
        """Rows (n, d) on the trainer's device and in its dtype."""
        if self._place is None:
            return x
        import torch

        dtype = getattr(torch, self._dtype) if self._dtype else None
        return torch.as_tensor(x, device=self._place, dtype=dtype)

    def log_proba(self, theta: Array, x: Array) -> Array:
        """log P_k(class | x): (..., k, classes, n) of rows x (..., n, d) under theta (k, p) or (..., k, p)."""
        scores = self.net.logits(like(theta, x), x)
        xp = namespace(scores)
        scores = scores - xp.amax(scores, axis=-2, keepdims=True)
        return scores - xp.log(xp.exp(scores).sum(-2))[..., None, :]

    def log_likelihood(self, theta: Array, rows: Rows) -> Array:
        """log P_k(y_i | x_i): (..., n, k)."""
        if isinstance(self.net, Logistic):
            margins = self.net.margins(like(theta, rows.x), rows.x)
            sign = 2 * like(rows.y, margins) - 1
            signed = margins * sign[..., None, :]  # positive where the label's class has the higher score
            return namespace(signed).swapaxes(log_sigmoid(signed), -1, -2)
        log_p = self.log_proba(theta, rows.x)
        xp = namespace(log_p)
        chosen = xp.broadcast_to(rows.y[..., None, None, :], (*log_p.shape[:-2], 1, log_p.shape[-1]))
        picked = log_p.gather(-2, chosen) if is_torch(log_p) else np.take_along_axis(log_p, chosen, -2)
        return xp.moveaxis(picked[..., 0, :], -2, -1)

    def train(
        self, theta: Array, client: Client, rows: Rows, r: Array, scale: Array = None, idle: float = 0.0
    ) -> Array:
        """The learners (..., k, p) after the local epochs; row i has weight w_i r_ik for learner k, with r (..., n, k).

        With `idle` > 0, a learner whose share of a client's rows is at most `idle` is not trained there. `scale` preconditions
        linear learners, see `sgd.train`.
        """
        seen = replace(client, w=rows.w) if self.hold_out else client
        order = minibatches(seen, self.epochs, self.batch_size)
        step = Step(self.lr, self.momentum, self.weight_decay, self.prox, self.clip)
        moves = self.moves(seen, order)
        velocity = client.state.get("velocity") if self.keep_momentum else None
        if velocity is not None and velocity.shape[-2:] != theta.shape[-2:]:
            velocity = None  # the number of models has changed
        r = like(r, rows.x)
        if idle:
            theta, velocity = train_active(self.net, theta, rows, r, order, step, velocity, idle, moves)
        else:
            theta, velocity = train(self.net, theta, rows, r, order, step, velocity, scale, moves)
        if self.keep_momentum:
            client.state["velocity"] = velocity
        return theta

    def moves(self, client: Client, order: Order) -> np.ndarray | None:
        """Random crops and flips for the images of each minibatch (..., steps, b, 3), see `augment`; None without augmentation."""
        return None if self.augment == "none" else augment.draw(client, order.real)

    # ---- parameters that never leave a client: BatchNorm under norm="local" ----

    def with_own(self, theta: Array, client: Client, like_x: Array) -> Array:
        """`theta` with the client's own values of the parameters that never leave it, if it has any yet."""
        return self.merge(like(theta, like_x), client.state.get("norm"))

    def merge(self, theta: Array, own: Array | None) -> Array:
        """theta (k, p) or (..., k, p) with `own` (..., k, local) at the positions `net.local`."""
        if own is None:
            return theta
        xp = namespace(theta)
        theta = xp.broadcast_to(theta, (*own.shape[:-1], theta.shape[-1])) + 0
        theta[..., list(self.net.local)] = like(own, theta)
        return theta

    def keep_own(self, theta: Array, client: Client, sent: Array) -> Array:
        """Store the client's own values in its state; return `theta` with the values of `sent` in their place, fit to be sent."""
        if not self.net.local:
            return theta
        local = list(self.net.local)
        client.state["norm"] = theta[..., local]
        theta = theta + 0
        theta[..., local] = like(sent, theta)[..., local]
        return theta


def log_sigmoid(a: Array) -> Array:
    """log(1 / (1 + exp(-a))), without overflow."""
    xp = namespace(a)
    return a.clip(max=0) - xp.log1p(xp.exp(-abs(a)))


def learning_rate(lr: float, schedule: str, round: int, rounds: int) -> float:
    """The learning rate of a round (1, 2, ...): constant, cosine decay to 0, or lr / sqrt(round)."""
    if schedule == "cosine":
        return lr * (1 + cos(pi * (round - 1) / max(rounds, 1))) / 2
    return lr / round**0.5 if schedule == "sqrt" else lr


def check_device(device: str | None) -> None:
    """Refuse a torch device that is not available."""
    if device is None or device == "cpu":
        return
    import torch

    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise BadParameter(f"device={device!r} cannot be used here: {str(error).splitlines()[0]}") from error


def as_option(trainer: Trainer, **changes: Any) -> dict[str, Any]:
    """The trainer as plain JSON, for `question.using(trainer=...)`."""
    return trainer._replace(**changes)._asdict()
