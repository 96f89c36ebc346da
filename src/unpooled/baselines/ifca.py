"""IFCA: k models; each client trains the one with the least loss on its rows; one SUM of models per round.

Costs k models down and k up, all of them zero but the chosen one.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    """Down: the shared models as flat vectors."""

    theta: Float[Array, "k p"]


@message("ifca.Trained")
class Trained(NamedTuple):
    """Up: the chosen model after local epochs, times rows; 0 for the others."""

    theta: Float[Array, "k p"]  # sum of rows x model, for the client's own cluster
    weight: Float[Array, "k", ">=0 rows"]  # rows by cluster
    loglik: Float[Array, ""]


@message("ifca.State")
class State(NamedTuple):
    """The training options, the models, the rows of each cluster and the round."""

    trainer: dict
    theta: Array  # (k, p)
    weight: Array  # (k,) rows by cluster
    round: int


@client("ifca.least_loss_round", SUM)
def least_loss_round(down: Models, client: Client, *, trainer: dict) -> Trained:
    """The model with the least loss, after local epochs."""
    learner = Trainer(**trainer)
    rows = learner.rows(client)
    theta = learner.with_own(down.theta, client, rows.x)
    by_row = learner.log_likelihood(theta, rows)  # (..., n, k)
    choice = chosen(mass(by_row, rows.w))
    loglik = learner.reported((by_row * choice[..., None, :]).sum(-1), client, rows)
    return train_chosen(learner, down.theta, client, rows, choice, loglik)


def chosen(score: Array) -> Array:
    """One-hot (..., k): 1 at the (first) largest score."""
    xp = namespace(score)
    return like(xp.argmax(score, axis=-1)[..., None] == like(np.arange(score.shape[-1]), score), score)


def train_chosen(learner: Trainer, theta: Array, client: Client, rows: Rows, choice: Array, loglik: Array) -> Trained:
    """The answer of a client that chose one model: that model after local epochs; the client keeps its choice."""
    client.state["cluster"] = to_numpy(choice)
    sent = (choice @ like(theta, rows.x))[..., None, :]  # (..., 1, p)
    begin = learner.with_own(sent, client, rows.x)
    new = learner.keep_own(learner.train(begin, client, rows, certain(rows)), client, sent)
    weight = choice * rows.w.sum(-1)[..., None]
    small = (to_numpy(a).astype(np.float64) for a in (weight, loglik))
    return Trained(weight[..., None] * new, *small)


class Clusters(LearnerEstimator):
    """Base class of clusterings of clients: k shared models, and weights for them at each client.

    A subclass gives `ask`.

    Parameters
    ----------
    n_clusters : int, default=3
        Number of shared models.
    **parameters
        The parameters of `FedAvg`.
    """

    kept: tuple[str, ...] = ("cluster", "norm")  # entries of a client's state that are kept after the run
    version: Mapping[str, str] = {"weights": "cluster"}  # arguments of `personalise` and the state they are read from

    def __init__(self, n_clusters: int = 3, **parameters: Any):
        super().__init__(**parameters)
        self.n_clusters = n_clusters

    def check(self, fed: Federation) -> None:
        """Refuse a number of clusters below 1."""
        super().check(fed)
        if self.n_clusters < 1:
            raise BadParameter(f"n_clusters={self.n_clusters!r} must be at least 1")

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        """The models before the first round."""
        trainer = self.trainer(fed)
        return State(as_option(trainer), self.first(trainer, rng), np.ones(self.n_clusters), 0)

    def first(self, trainer: Trainer, rng: np.random.Generator) -> np.ndarray:
        """The models (k, p) before the first round: random ones."""
        return trainer.start(rng, self.n_clusters)

    def ask(self) -> Ask:
        """A client's round, as a question."""
        raise NotImplementedError("abstract")

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        """One SUM of the models that clients chose and trained."""
        trainer = self.at_round(state.trainer, state.round + 1)
        total = self.cohort(fed).sum(self.ask().using(trainer=trainer), Models(state.theta))
        theta = average(total.theta, like(total.weight, total.theta), state.theta)
        info = {"loglik": float(total.loglik / total.weight.sum())}
        return State(state.trainer, theta, total.weight, state.round + 1), info

    def finish(self, fed: Federation, state: State) -> None:
        """Set the models, their shares of rows, and each client's cluster."""
        theta = state.theta
        if "model" not in self.kept:  # the shared models are what clients use
            theta = self.polish(fed, theta, state.trainer, "cluster", range(len(theta)))
        self.describe(fed, state.trainer, theta, *self.kept)
        self.weights_ = to_numpy(state.weight) / to_numpy(state.weight).sum()
        self.concepts_ = {name: int(own["cluster"].argmax()) for name, own in self.clients_.items() if "cluster" in own}
        self.describe_parts(fed, "cluster")
        largest = np.eye(len(self.theta_))[self.weights_.argmax()]
        self.personalise(fed, largest, **self.version)

    def models(self, client: str | None) -> tuple[np.ndarray, np.ndarray]:
        """The models with the client's weights, or those of the largest cluster."""
        theta, _ = super().models(client)
        largest = np.eye(len(theta))[self.weights_.argmax()]
        return theta, self.private(client).get("cluster", largest)

    def part_weights(self, own: Mapping[str, np.ndarray]) -> np.ndarray:
        """A client's weights of the models; the shares of rows if it has none."""
        return own.get("cluster", self.weights_)

    def adapt(self, X: Any, y: Any = None) -> Any:
        """The model of a new client, by its labelled rows or by the inputs alone.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            The client's rows.
        y : array of shape (n_samples,) or None, default=None
            Their labels; None: the weights are chosen by the inputs alone.

        Returns
        -------
        Clusters
            A copy with the client's own weights.
        """
        if y is None:
            return self.adapt_to_inputs(X, "cluster")
        learner = Trainer(**self.trainer_)
        rows = learner.rows(Client("new", self._rows(X), np.asarray(y)))
        return self.with_own({"cluster": self.weights_for(learner, rows)})

    def weights_for(self, learner: Trainer, rows: Rows) -> np.ndarray:
        """A new client's weights (k,) of the models: 1 for the model with the least loss."""
        loglik = to_numpy(learner.log_likelihood(self.theta_, rows)).sum(0)
        return chosen(loglik)


class IFCA(Clusters):
    """Iterative federated clustering: each client trains the shared model with the least loss on its rows.

    Parameters
    ----------
    n_clusters : int, default=3
        Number of shared models.
    **parameters
        The parameters of `FedAvg`.

    Attributes
    ----------
    weights_ : ndarray of shape (n_clusters,)
        Share of all rows per cluster.
    concepts_ : dict of str to int
        The cluster of each client in this process.
    classes_, theta_, clients_, history_, n_iter_
        As in `FedAvg`.

    References
    ----------
    Ghosh, Chung, Yin and Ramchandran (2020), An efficient framework for clustered federated learning, NeurIPS.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import baselines
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(80, 2))
    >>> y = (x.sum(axis=1) > 0).astype(int)
    >>> sites = {"north": (x[:40], y[:40]), "south": (x[40:], y[40:])}
    >>> model = baselines.IFCA(2, lr=0.1, max_iter=20, batch_size=8, random_state=0).fit(sites)
    >>> bool(model.score(x, y) > 0.9)
    True
    """

    def ask(self) -> Ask:
        """A client's round."""
        return least_loss_round
