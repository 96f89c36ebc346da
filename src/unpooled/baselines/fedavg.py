"""FedAvg: one model for all; a round is one SUM of models weighted by rows, after local epochs at each client.

Costs one model down and one up. FedProx and FedAvg+ stand on it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, namespace
from unpooled.client import SUM, Client, client
from unpooled.estimator import Info
from unpooled.federation import Federation
from unpooled.learners import Rows, Trainer, as_option
from unpooled.learners.estimator import LearnerEstimator
from unpooled.learners.mixing import average
from unpooled.tree import message


@message("fedavg.Model")
class Model(NamedTuple):
    theta: Float[Array, "k p"]  # k is 1


@message("fedavg.Trained")
class Trained(NamedTuple):
    theta: Float[Array, "k p"]  # sum of rows x model
    weight: Float[Array, "k", ">=0 rows"]  # rows
    loglik: Float[Array, ""]  # sum of log P(y | x) before training


@message("fedavg.State")
class State(NamedTuple):
    trainer: dict
    theta: Array  # (1, p)
    round: int


@client("fedavg.local_epochs", SUM)
def local_epochs(down: Model, client: Client, *, trainer: dict) -> Trained:
    how = Trainer(**trainer)
    rows = how.rows(client)
    begin = how.with_own(down.theta, client, rows.x)
    loglik = how.log_likelihood(begin, rows)[..., 0]  # (..., n)
    theta = how.keep_own(how.train(begin, client, rows, certain(rows)), client, down.theta)
    weight = rows.w.sum(-1)[..., None]
    return Trained(weight[..., None] * theta, weight, (rows.w * loglik).sum(-1))


def certain(rows: Rows) -> Array:
    """(..., n, 1) ones: the one model answers for every row."""
    return namespace(rows.w).ones_like(rows.w)[..., None]


class FedAvg(LearnerEstimator):
    """Federated averaging (McMahan et al. 2017). Parameters: see `LearnerEstimator`."""

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        trainer = self.trainer(fed)
        return State(as_option(trainer), trainer.start(rng, 1), 0)

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        how = self.at_round(state.trainer, state.round + 1, **self.changes())
        total = self.cohort(fed).sum(local_epochs.using(trainer=how), Model(state.theta))
        theta = average(total.theta, total.weight, state.theta)
        return State(state.trainer, theta, state.round + 1), {"loglik": float(total.loglik / total.weight[0])}

    def changes(self) -> dict[str, float]:
        """What a variant trains differently, by name of the trainer's field."""
        return {}

    def finish(self, fed: Federation, state: State) -> None:
        self.describe(fed, state.trainer, state.theta, "norm")
