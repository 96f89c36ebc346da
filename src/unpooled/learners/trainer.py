"""How learners are trained, as one value that travels with a question; and all that a client does with it. Nothing
is sent.

At the server an algorithm makes a `Trainer` once and sends it as an option:
`question.using(trainer=asdict(trainer))`. At the client:

    trainer = Trainer(**trainer)
    rows = trainer.rows(client)                              # x, y as codes, w; on the trainer's device
    loglik = trainer.log_likelihood(theta, rows)             # (..., n, k): minus the cross-entropy of every learner
    r = softmax(log_pi[..., None, :] + loglik)               # any rule of responsibility
    new = trainer.train(theta, client, rows, r)              # (..., k, p) after the local epochs
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from math import cos, pi
from typing import Any

import numpy as np

from unpooled.arrays import Array, is_torch, like, namespace
from unpooled.client import Client
from unpooled.errors import BadParameter
from unpooled.learners import registry
from unpooled.learners.dense import Logistic
from unpooled.learners.rows import Rows, rows
from unpooled.learners.sgd import Step, minibatches, train, train_busy

SCHEDULES = ("constant", "cosine", "sqrt")
IDLE = 1e-4  # for `train(idle=)`, where models are averaged by rows: one that answers for less counts as little in the average


@dataclass(frozen=True)
class Trainer:
    """A make of learner and how it is trained; every field is plain JSON."""

    learner: str  # a registered name
    inputs: int
    labels: list = field(default_factory=list)  # the classes, in order: a code is a place here
    hidden: tuple[int, ...] = (64,)  # of an mlp
    norm: str = "group"  # BatchNorm: replaced ("group"), averaged ("average") or kept by each client ("local")
    epochs: int = 1
    batch_size: int = 128
    lr: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    prox: float = 0.0
    keep_momentum: bool = False  # False: velocity starts at 0 in every round; True: it stays in the client's state
    device: str | None = None  # None: NumPy for linear and mlp, torch on the CPU for the rest; else any torch device

    # ---- the learner ----

    @property
    def net(self) -> Any:
        return registry.learner(self.learner, self.inputs, len(self.labels), tuple(self.hidden), self.norm)

    @property
    def _place(self) -> str | None:
        return self.device or ("cpu" if self.net.needs_torch else None)

    @property
    def _dtype(self) -> str | None:
        return "float32" if self.net.needs_torch else None

    def start(self, rng: np.random.Generator, k: int) -> np.ndarray:
        """(k, p) parameters of k fresh learners."""
        return self.net.start(rng, k)

    # ---- at a client, or many stacked ----

    def rows(self, client: Client) -> Rows:
        return rows(client, self.labels, self._place, self._dtype)

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
            right = margins * (2 * like(rows.y, margins) - 1)[..., None, :]  # in favour of the class that was seen
            return namespace(right).swapaxes(log_sigmoid(right), -1, -2)
        log_p = self.log_proba(theta, rows.x)
        xp = namespace(log_p)
        chosen = xp.broadcast_to(rows.y[..., None, None, :], (*log_p.shape[:-2], 1, log_p.shape[-1]))
        picked = log_p.gather(-2, chosen) if is_torch(log_p) else np.take_along_axis(log_p, chosen, -2)
        return xp.moveaxis(picked[..., 0, :], -2, -1)

    def train(
        self, theta: Array, client: Client, rows: Rows, r: Array, scale: Array = None, idle: float = 0.0
    ) -> Array:
        """The learners (..., k, p) after the local epochs, row i counting r_ik (..., n, k) times its weight for learner k.

        Where a learner's part of a client's rows is no more than `idle` > 0 it is not trained: so little would change.
        """
        order = minibatches(client, self.epochs, self.batch_size)
        step = Step(self.lr, self.momentum, self.weight_decay, self.prox)
        velocity = client.state.get("velocity") if self.keep_momentum else None
        if velocity is not None and velocity.shape[-2:] != theta.shape[-2:]:
            velocity = None  # models were added or removed
        r = like(r, rows.x)
        if idle:
            theta, velocity = train_busy(self.net, theta, rows, r, order, step, velocity, idle)
        else:
            theta, velocity = train(self.net, theta, rows, r, order, step, velocity, scale)
        if self.keep_momentum:
            client.state["velocity"] = velocity
        return theta

    # ---- parameters that stay with a client: BatchNorm under norm="local" ----

    def with_own(self, theta: Array, client: Client, like_x: Array) -> Array:
        """`theta` with the client's own values where it has kept some."""
        return self.merge(like(theta, like_x), client.state.get("norm"))

    def merge(self, theta: Array, own: Array | None) -> Array:
        """theta (k, p) or (..., k, p) with `own` (..., k, stays) in its places."""
        if own is None:
            return theta
        xp = namespace(theta)
        theta = xp.broadcast_to(theta, (*own.shape[:-1], theta.shape[-1])) + 0
        theta[..., list(self.net.stays)] = like(own, theta)
        return theta

    def keep_own(self, theta: Array, client: Client, sent: Array) -> Array:
        """Puts the client's own values into its state and gives `theta` with those of `sent` instead: what may leave."""
        if not self.net.stays:
            return theta
        places = list(self.net.stays)
        client.state["norm"] = theta[..., places]
        theta = theta + 0
        theta[..., places] = like(sent, theta)[..., places]
        return theta


def log_sigmoid(a: Array) -> Array:
    """log(1 / (1 + exp(-a))), whatever the size of a."""
    xp = namespace(a)
    return a.clip(max=0) - xp.log1p(xp.exp(-abs(a)))


def learning_rate(lr: float, schedule: str, round: int, rounds: int) -> float:
    """The rate of a round (1, 2, ...): constant, cosine down to 0, or divided by the square root of the round."""
    if schedule == "cosine":
        return lr * (1 + cos(pi * (round - 1) / max(rounds, 1))) / 2
    return lr / round**0.5 if schedule == "sqrt" else lr


def check_device(device: str | None) -> None:
    """Refuse a device that is not there."""
    if device is None or device == "cpu":
        return
    import torch

    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise BadParameter(f"device={device!r} cannot be used here: {str(error).splitlines()[0]}") from error


def as_option(trainer: Trainer, **changes: Any) -> dict[str, Any]:
    """The trainer as plain JSON, for `question.using(trainer=...)`."""
    return asdict(replace(trainer, **changes))
