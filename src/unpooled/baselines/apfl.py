"""APFL: one model for all, one of its own for each client, and the mixture of both that serves the client; one SUM.

Costs one model down and one up; the own model and the mixing weight stay.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, like, to_numpy
from unpooled.baselines.fedavg import FedAvg, Model, State, Trained, certain
from unpooled.client import SUM, Client, client
from unpooled.errors import BadParameter
from unpooled.estimator import Info
from unpooled.federation import Federation
from unpooled.learners import Rows, Trainer
from unpooled.learners.mixing import average
from unpooled.learners.sgd import batches, minibatches
from unpooled.tree import message


@message("apfl.Personal")
class Personal(NamedTuple):
    """What a client carries through its local epochs, each with the velocity of its momentum."""

    shared: tuple[Array, Array]  # (..., 1, p)
    own: tuple[Array, Array]  # (..., 1, p)
    alpha: Array  # (..., 1, 1) how much of the mixture is its own


@client("apfl.personal_round", SUM)
def personal_round(down: Model, client: Client, *, trainer: dict, alpha: float, adaptive: bool) -> Trained:
    """The shared model after local epochs; the client's own moves with it and stays."""
    how = Trainer(**trainer)
    rows = how.rows(client)
    theta = like(down.theta, rows.x)
    loglik = how.log_likelihood(theta, rows)[..., 0]
    lead = (*rows.w.shape[:-1], 1)
    own = like(client.state.get("own", np.broadcast_to(to_numpy(down.theta), (*lead, theta.shape[-1]))), rows.x) + 0
    weight = like(client.state.get("alpha", np.full((*lead, 1), alpha)), rows.x)
    shared = theta + 0 * own
    found = descend(how, client, rows, Personal((shared, 0 * own), (own, 0 * own), weight), adaptive)
    client.state["own"], client.state["alpha"] = found.own[0], found.alpha
    n = rows.w.sum(-1)[..., None]
    return Trained(n[..., None] * found.shared[0], n, (rows.w * loglik).sum(-1))


def descend(how: Trainer, client: Client, rows: Rows, p: Personal, adaptive: bool) -> Personal:
    """The local epochs: the shared model down its own gradient, the own model down that of the mixture times alpha."""
    order = minibatches(client, how.epochs, how.batch_size)
    for real, x, y, w, one in batches(order, rows.x, rows.y, rows.w, certain(rows)):
        live = like(real.any(-1), w)[..., None, None]  # a client out of rows stands still
        w = w * real
        s = one * (w / w.sum(-1, keepdims=True).clip(min=1e-12))[..., None]
        mixed = p.alpha * p.own[0] + (1 - p.alpha) * p.shared[0]
        g_mixed = how.net.gradient(mixed, x, y, s)
        g_shared = how.net.gradient(p.shared[0], x, y, s)
        slope = ((p.own[0] - p.shared[0]) * g_mixed).sum(-1)[..., None]
        shared = _moved(how, p.shared, g_shared, live)
        own = _moved(how, p.own, p.alpha * g_mixed, live)
        alpha = (p.alpha - how.lr * live * slope).clip(0, 1) if adaptive else p.alpha
        p = Personal(shared, own, alpha)
    return p


def _moved(how: Trainer, before: tuple[Array, Array], g: Array, live: Array) -> tuple[Array, Array]:
    theta, velocity = before
    velocity = velocity + live * (g + how.weight_decay * theta - (1 - how.momentum) * velocity)
    return theta - how.lr * live * velocity, velocity


class APFL(FedAvg):
    """Adaptive personalized federated learning (Deng et al. 2020).

    alpha : the first weight of the own model. adaptive : whether each client moves it down its gradient.
    The other parameters: see `LearnerEstimator`.
    """

    def __init__(self, *, alpha: float = 0.5, adaptive: bool = True, **parameters: Any):
        super().__init__(**parameters)
        self.alpha = alpha
        self.adaptive = adaptive

    def check(self, fed: Federation) -> None:
        super().check(fed)
        if not 0 <= self.alpha <= 1:
            raise BadParameter(f"alpha={self.alpha!r} should be between 0 and 1")

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        how = self.at_round(state.trainer, state.round + 1)
        ask = personal_round.using(trainer=how, alpha=self.alpha, adaptive=self.adaptive)
        total = self.cohort(fed).sum(ask, Model(state.theta))
        theta = average(total.theta, total.weight, state.theta)
        return State(state.trainer, theta, state.round + 1), {"loglik": float(total.loglik / total.weight[0])}

    def finish(self, fed: Federation, state: State) -> None:
        self.describe(fed, state.trainer, state.theta, "own", "alpha")

    def models(self, client: str | None) -> tuple[np.ndarray, np.ndarray]:
        theta, weights = super().models(client)
        own = self.private(client)
        mixed = theta if "own" not in own else own["alpha"] * own["own"] + (1 - own["alpha"]) * theta
        return mixed, weights
