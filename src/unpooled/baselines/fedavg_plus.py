"""FedAvg+: FedAvg, then each client tunes the shared model on its own rows and keeps the result. Costs what FedAvg costs."""

from __future__ import annotations

from typing import Any

import numpy as np

from unpooled.baselines.fedavg import FedAvg, Model, State, certain
from unpooled.client import TELL, Client, client
from unpooled.federation import Federation
from unpooled.learners import Trainer


@client("fedavg_plus.tune", TELL)
def tune(down: Model, client: Client, *, trainer: dict) -> None:
    """Local epochs from the shared model; the client keeps what comes out."""
    how = Trainer(**trainer)
    rows = how.rows(client)
    client.state["theta"] = how.train(how.with_own(down.theta, client, rows.x), client, rows, certain(rows))


class FedAvgPlus(FedAvg):
    """FedAvg with local tuning at the end (Jiang et al. 2019).

    tune_epochs : local epochs of the tuning. The other parameters: see `LearnerEstimator`.
    """

    def __init__(self, tune_epochs: int = 1, **parameters: Any):
        super().__init__(**parameters)
        self.tune_epochs = tune_epochs

    def finish(self, fed: Federation, state: State) -> None:
        fed.tell(tune.using(trainer=self._tuning(state.trainer)), Model(state.theta))
        self.describe(fed, state.trainer, state.theta, "theta")

    def models(self, client: str | None) -> tuple[np.ndarray, np.ndarray]:
        return self.private(client).get("theta", self.theta_), np.ones(1)

    def adapt(self, X: Any, y: Any) -> FedAvgPlus:
        """The personal model of a client never seen: the shared one, tuned on its rows."""
        new = Client("new", self._rows(X), np.asarray(y))
        tune.answer(Model(self.theta_), new, trainer=self._tuning(self.trainer_))
        return self.with_own({"theta": np.asarray(new.state["theta"])})

    def _tuning(self, trainer: dict) -> dict:
        return self.at_round(trainer, max(self.max_iter, 1), epochs=self.tune_epochs, keep_momentum=False)
