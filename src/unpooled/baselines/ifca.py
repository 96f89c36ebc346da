"""IFCA: k models, each client trains the one with the least loss on its rows; one SUM of models a round.

Costs k models down and k up, all but the chosen one of them zero.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, like, namespace, to_numpy
from unpooled.baselines.fedavg import certain
from unpooled.client import SUM, Ask, Client, client
from unpooled.errors import BadParameter
from unpooled.estimator import Info
from unpooled.federation import Federation
from unpooled.learners import Rows, Trainer, as_option
from unpooled.learners.estimator import LearnerEstimator
from unpooled.learners.mixing import average, mass
from unpooled.tree import message


@message("ifca.Models")
class Models(NamedTuple):
    theta: Float[Array, "k p"]


@message("ifca.Trained")
class Trained(NamedTuple):
    theta: Float[Array, "k p"]  # sum of rows x model, for the client's own cluster
    weight: Float[Array, "k", ">=0 rows"]  # rows by cluster
    loglik: Float[Array, ""]


@message("ifca.State")
class State(NamedTuple):
    trainer: dict
    theta: Array  # (k, p)
    weight: Array  # (k,) rows by cluster
    round: int


@client("ifca.least_loss_round", SUM)
def least_loss_round(down: Models, client: Client, *, trainer: dict) -> Trained:
    """The model with the least loss, after local epochs."""
    how = Trainer(**trainer)
    rows = how.rows(client)
    theta = how.with_own(down.theta, client, rows.x)
    loglik = mass(how.log_likelihood(theta, rows), rows.w)  # (..., k)
    choice = chosen(loglik)
    return train_chosen(how, down.theta, client, rows, choice, (loglik * choice).sum(-1))


def chosen(score: Array) -> Array:
    """(..., k) with a 1 at the first of the largest scores."""
    xp = namespace(score)
    return like(xp.argmax(score, axis=-1)[..., None] == like(np.arange(score.shape[-1]), score), score)


def train_chosen(how: Trainer, theta: Array, client: Client, rows: Rows, choice: Array, loglik: Array) -> Trained:
    """What a client of a hard clustering sends: its cluster's model after local epochs; it keeps which one that is."""
    client.state["cluster"] = to_numpy(choice)
    begin = (choice @ like(theta, rows.x))[..., None, :]  # (..., 1, p)
    sent = begin
    begin = how.with_own(begin, client, rows.x)
    new = how.keep_own(how.train(begin, client, rows, certain(rows)), client, sent)
    weight = choice * rows.w.sum(-1)[..., None]
    small = (to_numpy(a).astype(np.float64) for a in (weight, loglik))
    return Trained(weight[..., None] * new, *small)


class Clusters(LearnerEstimator):
    """What clusterings of clients share: k models, and weights of them at each client. A subclass gives `ask`.

    n_clusters : how many models. The other parameters: see `LearnerEstimator`.
    """

    kept: tuple[str, ...] = ("cluster", "norm")  # of a client's state, after the run

    def __init__(self, n_clusters: int = 3, **parameters: Any):
        super().__init__(**parameters)
        self.n_clusters = n_clusters

    def check(self, fed: Federation) -> None:
        super().check(fed)
        if self.n_clusters < 1:
            raise BadParameter(f"n_clusters={self.n_clusters!r} must be at least 1")

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        trainer = self.trainer(fed)
        return State(as_option(trainer), self.first(trainer, rng), np.ones(self.n_clusters), 0)

    def first(self, trainer: Trainer, rng: np.random.Generator) -> np.ndarray:
        """(k, p) the models before the first round."""
        return trainer.start(rng, self.n_clusters)

    def ask(self) -> Ask:
        """A client's round."""
        raise NotImplementedError("abstract")

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        how = self.at_round(state.trainer, state.round + 1)
        total = self.cohort(fed).sum(self.ask().using(trainer=how), Models(state.theta))
        theta = average(total.theta, like(total.weight, total.theta), state.theta)
        info = {"loglik": float(total.loglik / total.weight.sum())}
        return State(state.trainer, theta, total.weight, state.round + 1), info

    def finish(self, fed: Federation, state: State) -> None:
        self.describe(fed, state.trainer, state.theta, *self.kept)
        self.weights_ = to_numpy(state.weight) / to_numpy(state.weight).sum()
        self.concepts_ = {name: int(own["cluster"].argmax()) for name, own in self.clients_.items() if "cluster" in own}

    def models(self, client: str | None) -> tuple[np.ndarray, np.ndarray]:
        theta, _ = super().models(client)
        largest = np.eye(len(theta))[self.weights_.argmax()]
        return theta, self.private(client).get("cluster", largest)

    def adapt(self, X: Any, y: Any) -> Any:
        """A new client joins the cluster whose model has the least loss on its rows."""
        how = Trainer(**self.trainer_)
        rows = how.rows(Client("new", self._rows(X), np.asarray(y)))
        loglik = to_numpy(how.log_likelihood(self.theta_, rows)).sum(0)
        return self.with_own({"cluster": chosen(loglik)})


class IFCA(Clusters):
    """Iterative federated clustering (Ghosh et al. 2020). Parameters: see `Clusters`."""

    def ask(self) -> Ask:
        return least_loss_round
