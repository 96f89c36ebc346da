"""FedEM of Marfoq et al.: shared learners with weights that each client keeps; one SUM of weighted models per round.

A client's labels follow a mixture of k learners: r = softmax(log pi + log P_k(y | x)), pi = mean of r (kept by the
client), and each learner is trained for local epochs weighted by r. Costs k models down and k models up.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.errors import BadParameter
from unpooled.estimator import Info
from unpooled.federation import Federation
from unpooled.learners import IDLE, Trainer, as_option
from unpooled.learners.estimator import LearnerEstimator
from unpooled.learners.mixing import average, log_shares, mass, responsibilities, shares
from unpooled.maths.mixture import fit_weights
from unpooled.parameters import one_of
from unpooled.tree import message

WEIGHTINGS = ("mass", "clients")


@message("fedem_learners.Learners")
class Learners(NamedTuple):
    """Down: the shared learners as flat vectors."""

    theta: Float[Array, "k p"]


@message("fedem_learners.Trained")
class Trained(NamedTuple):
    """Up: the learners after local epochs, times their weights."""

    theta: Float[Array, "k p"]  # sum of weight x model
    weight: Float[Array, "k", ">=0 rows"]
    mass: Float[Array, "k", ">=0 rows"]  # rows by responsibility of each learner
    loglik: Float[Array, ""]


@message("fedem_learners.State")
class State(NamedTuple):
    """The training options, the learners, their shares of all rows and the round."""

    trainer: dict
    theta: Array  # (k, p)
    shares: Array  # (k,) of all rows
    round: int


@client("fedem_learners.local_round", SUM)
def local_round(down: Learners, client: Client, *, trainer: dict, weighting: str) -> Trained:
    """The learners after local epochs weighted by responsibilities; the client keeps its mixture weights."""
    learner = Trainer(**trainer)
    rows = learner.rows(client)
    theta = learner.with_own(down.theta, client, rows.x)
    k = theta.shape[-2]
    pi = client.state.get("pi", np.full((*rows.w.shape[:-1], k), 1 / k))
    r, norm = responsibilities(learner.log_likelihood(theta, rows) + log_shares(pi, rows.x)[..., None, :])
    n = mass(r, rows.w)
    client.state["pi"] = shares(n)
    idle = IDLE if weighting == "mass" else 0.0
    theta = learner.keep_own(learner.train(theta, client, rows, r, idle=idle), client, down.theta)
    weight = n if weighting == "mass" else 0 * n + rows.w.sum(-1)[..., None]
    return Trained(weight[..., None] * theta, weight, n, learner.reported(norm, client, rows))


class FedEM(LearnerEstimator):
    """Federated multi-task learning under a mixture of learners.

    Parameters
    ----------
    n_learners : int, default=3
        Classifiers that the clients share; each client has its own weights for them.
    weighting : {"mass", "clients"}, default="mass"
        Learners are averaged by the sum of their responsibilities ("mass", as in the paper) or by all rows of a client
        ("clients", as in the authors' code).
    **parameters
        The parameters of `FedAvg`.

    Attributes
    ----------
    weights_ : ndarray of shape (n_learners,)
        Share of all rows of each learner, by responsibility.
    classes_, theta_, clients_, history_, n_iter_
        As in `FedAvg`.

    References
    ----------
    Marfoq, Neglia, Bellet, Kameni and Vidal (2021), Federated multi-task learning under a mixture of distributions,
    NeurIPS.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import baselines
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(80, 2))
    >>> y = (x.sum(axis=1) > 0).astype(int)
    >>> sites = {"north": (x[:40], y[:40]), "south": (x[40:], y[40:])}
    >>> model = baselines.FedEM(lr=0.1, max_iter=20, batch_size=8, random_state=0).fit(sites)
    >>> bool(model.score(x, y) > 0.9)
    True
    """

    def __init__(self, n_learners: int = 3, *, weighting: str = "mass", **parameters: Any):
        super().__init__(**parameters)
        self.n_learners = n_learners
        self.weighting = weighting

    def check(self, fed: Federation) -> None:
        """Refuse an unknown weighting or too few learners."""
        super().check(fed)
        one_of("weighting", self.weighting, WEIGHTINGS)
        if self.n_learners < 1:
            raise BadParameter(f"n_learners={self.n_learners!r} must be at least 1")

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        """Random learners with equal shares."""
        trainer = self.trainer(fed)
        k = self.n_learners
        return State(as_option(trainer), trainer.start(rng, k), np.full(k, 1 / k), 0)

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        """One SUM of the weighted learners."""
        trainer = self.at_round(state.trainer, state.round + 1)
        question = local_round.using(trainer=trainer, weighting=self.weighting)
        total = self.cohort(fed).sum(question, Learners(state.theta))
        theta = average(total.theta, total.weight, state.theta)
        rows = total.mass.sum()
        return State(state.trainer, theta, total.mass / rows, state.round + 1), {"loglik": float(total.loglik / rows)}

    def finish(self, fed: Federation, state: State) -> None:
        """Set the learners, their shares, and what clients keep."""
        self.describe(fed, state.trainer, state.theta, "pi", "norm")
        self.weights_ = to_numpy(state.shares)
        self.describe_parts(fed, "pi")
        self.personalise(fed, self.weights_, weights="pi")

    def models(self, client: str | None) -> tuple[np.ndarray, np.ndarray]:
        """The learners, with the client's own weights or the shares over all rows."""
        theta, _ = super().models(client)
        return theta, self.private(client).get("pi", self.weights_)

    def adapt(self, X: Any, y: Any = None) -> FedEM:
        """The personal model of a new client: EM on its weights with the learners fixed.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            The client's rows.
        y : array of shape (n_samples,) or None, default=None
            Their labels; None: the weights are chosen by the inputs alone.

        Returns
        -------
        FedEM
            A copy with the client's own weights.
        """
        if y is None:
            return self.adapt_to_inputs(X, "pi")
        learner = Trainer(**self.trainer_)
        rows = learner.rows(Client("new", self._rows(X), np.asarray(y)))
        log_p = to_numpy(learner.log_likelihood(self.theta_, rows)).astype(np.float64)
        return self.with_own({"pi": fit_weights(log_p, self.weights_)})
