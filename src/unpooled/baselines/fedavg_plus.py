"""FedAvg+: FedAvg, then each client fine-tunes the shared model and keeps the result; the messages are FedAvg's."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from unpooled.baselines.fedavg import FedAvg, Model, State, certain
from unpooled.client import TELL, Client, client
from unpooled.federation import Federation
from unpooled.learners import Trainer


@client("fedavg_plus.tune", TELL)
def tune(down: Model, client: Client, *, trainer: dict) -> None:
    """Train the shared model on the client's rows; the client keeps the result."""
    learner = Trainer(**trainer)
    rows = learner.rows(client)
    client.state["theta"] = learner.train(learner.with_own(down.theta, client, rows.x), client, rows, certain(rows))


class FedAvgPlus(FedAvg):
    """Federated averaging, then fine-tuning: each client trains the shared model on its own rows and keeps the result.

    Parameters
    ----------
    tune_epochs : int, default=1
        Local epochs of the fine-tuning.
    **parameters
        The parameters of `FedAvg`.

    Attributes
    ----------
    classes_, theta_, clients_, history_, n_iter_
        As in `FedAvg`.

    References
    ----------
    Jiang, Konecny, Rush and Kannan (2019), Improving federated learning personalization via model agnostic meta
    learning.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import baselines
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(80, 2))
    >>> y = (x.sum(axis=1) > 0).astype(int)
    >>> sites = {"north": (x[:40], y[:40]), "south": (x[40:], y[40:])}
    >>> model = baselines.FedAvgPlus(random_state=0).fit(sites)
    >>> bool(model.score(x, y) > 0.9)
    True
    """

    minima: ClassVar = {"tune_epochs": 1}

    def __init__(self, tune_epochs: int = 1, **parameters: Any):
        super().__init__(**parameters)
        self.tune_epochs = tune_epochs

    def finish(self, fed: Federation, state: State) -> None:
        """One TELL: each client fine-tunes the shared model and keeps the result."""
        fed.tell(tune.using(trainer=self._tuning(state.trainer)), Model(state.theta))
        self.describe(fed, state.trainer, state.theta, "theta")
        self.keep_optimum(fed, state)
        self.personalise(fed, theta="theta")

    def models(self, client: str | None) -> tuple[np.ndarray, np.ndarray]:
        """The client's fine-tuned model, or the shared one."""
        return self.private(client).get("theta", self.theta_), np.ones(1)

    def adapt(self, X: Any, y: Any) -> FedAvgPlus:
        """The personal model of a new client: the shared model, fine-tuned on its rows.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            The client's rows.
        y : array of shape (n_samples,)
            Their labels.

        Returns
        -------
        FedAvgPlus
            A copy with the client's own model.
        """
        new = Client("new", self._rows(X), np.asarray(y))
        tune.answer(Model(self.theta_), new, trainer=self._tuning(self.trainer_))
        return self.with_own({"theta": np.asarray(new.state["theta"])})

    def _tuning(self, trainer: dict) -> dict:
        """The training options of the fine-tuning."""
        return self.at_round(trainer, max(self.max_iter, 1), epochs=self.tune_epochs, keep_momentum=False)
