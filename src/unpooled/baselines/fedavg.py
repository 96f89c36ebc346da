"""FedAvg: one model for all; a round is one SUM of models weighted by rows, after local epochs at each client.

Costs one model down and one up. FedProx and FedAvg+ build on it.
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
    learner = Trainer(**trainer)
    rows = learner.rows(client)
    begin = learner.with_own(down.theta, client, rows.x)
    loglik = learner.log_likelihood(begin, rows)[..., 0]  # (..., n)
    theta = learner.keep_own(learner.train(begin, client, rows, certain(rows)), client, down.theta)
    weight = rows.w.sum(-1)[..., None]
    return Trained(weight[..., None] * theta, weight, (rows.w * loglik).sum(-1))


def certain(rows: Rows) -> Array:
    """(..., n, 1) ones: the responsibilities of a single model."""
    return namespace(rows.w).ones_like(rows.w)[..., None]


class FedAvg(LearnerEstimator):
    """Federated averaging: one classifier for all clients.

    Each round a client trains the shared model on its own rows; the server averages the models, weighted by rows.

    Parameters
    ----------
    learner : str or callable, default="linear"
        The classifier: "linear", "mlp", "cnn", "resnet18", "mobilenet_v2", or a function (n_inputs, n_classes) that returns
        a torch module over flat rows.
    hidden : sequence of int, default=(64,)
        Widths of the hidden layers of "mlp".
    norm : {"group", "average", "local"}, default="group"
        What becomes of BatchNorm: replaced by GroupNorm, averaged over clients, or kept by each client.
    local_epochs : int, default=1
        Epochs of SGD at a client per round.
    batch_size : int, default=128
        Rows per minibatch.
    lr : float, default=0.1
        Learning rate.
    momentum : float, default=0.9
        Momentum of SGD, in [0, 1).
    weight_decay : float, default=0.0
        L2 penalty of SGD.
    schedule : {"constant", "cosine", "sqrt"}, default="constant"
        Learning rate over rounds: constant, cosine to 0 at `max_iter`, or lr / sqrt(round).
    keep_momentum : bool, default=False
        Whether a client keeps its velocity from round to round.
    max_iter : int, default=100
        Rounds at most.
    tol : float, default=0.0
        Stop when the log-likelihood per row changes by less than this; 0 runs all rounds.
    classes : sequence or None, default=None
        All classes, including those that no client has seen; any other label is refused. None: the classes that clients hold.
    fraction : float, default=1.0
        Share of the clients asked per round.
    random_state : int, RandomState or None, default=None
        Seed of the first model and of the minibatches.
    device : str or None, default=None
        A torch device such as "cuda"; None is NumPy for "linear" and "mlp", torch on the CPU for the rest.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes, sorted.
    theta_ : ndarray of shape (n_models, n_parameters)
        The shared models as flat vectors.
    clients_ : dict of str to dict
        What each client in this process keeps: its personal results, by name.
    history_ : list of dict
        One row per round: seconds, clients, bytes and `loglik`, the log-likelihood per row before the round.
    n_iter_ : int
        Rounds that were run.

    References
    ----------
    McMahan, Moore, Ramage, Hampson and Aguera y Arcas (2017), Communication-efficient learning of deep networks from
    decentralized data, AISTATS.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import baselines
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(80, 2))
    >>> y = (x.sum(axis=1) > 0).astype(int)
    >>> sites = {"north": (x[:40], y[:40]), "south": (x[40:], y[40:])}
    >>> model = baselines.FedAvg(max_iter=20, batch_size=8, random_state=0).fit(sites)
    >>> bool(model.score(x, y) > 0.9)
    True
    """

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        trainer = self.trainer(fed)
        return State(as_option(trainer), trainer.start(rng, 1), 0)

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        trainer = self.at_round(state.trainer, state.round + 1, **self.changes())
        total = self.cohort(fed).sum(local_epochs.using(trainer=trainer), Model(state.theta))
        theta = average(total.theta, total.weight, state.theta)
        return State(state.trainer, theta, state.round + 1), {"loglik": float(total.loglik / total.weight[0])}

    def changes(self) -> dict[str, float]:
        """Fields of the trainer that a variant changes."""
        return {}

    def finish(self, fed: Federation, state: State) -> None:
        self.describe(fed, state.trainer, state.theta, "norm")
