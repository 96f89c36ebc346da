"""Local: every client trains alone and keeps its model; only two numbers a round leave it, for the report."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float
from unpooled.baselines.fedavg import FedAvg, Model, State, certain
from unpooled.client import SUM, Client, client
from unpooled.errors import BadParameter
from unpooled.estimator import Info
from unpooled.federation import Federation
from unpooled.learners import Trainer
from unpooled.tree import message


@message("local_only.Score")
class Score(NamedTuple):
    loglik: Float[Array, ""]  # sum of log P(y | x) before training
    rows: Float[Array, "", ">=0 rows"]


@client("local_only.train_alone", SUM)
def train_alone(down: Model, client: Client, *, trainer: dict) -> Score:
    """Local epochs on the client's own model, which begins as the one that was sent."""
    how = Trainer(**trainer)
    rows = how.rows(client)
    begin = client.state.get("theta", down.theta)
    loglik = how.log_likelihood(begin, rows)[..., 0]
    client.state["theta"] = how.train(begin, client, rows, certain(rows))
    return Score((rows.w * loglik).sum(-1), rows.w.sum(-1))


class LocalOnly(FedAvg):
    """No federation: a model for each client from its own rows. Parameters: see `LearnerEstimator`."""

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        how = self.at_round(state.trainer, state.round + 1)
        total = self.cohort(fed).sum(train_alone.using(trainer=how), Model(state.theta))
        return state._replace(round=state.round + 1), {"loglik": float(total.loglik / total.rows)}

    def finish(self, fed: Federation, state: State) -> None:
        self.describe(fed, state.trainer, state.theta, "theta")

    def models(self, client: str | None) -> tuple[np.ndarray, np.ndarray]:
        own = self.private(client)
        if "theta" not in own:
            raise BadParameter("clients that trained alone share no model: say whose with client=")
        return own["theta"], np.ones(1)
