"""pFedMe: personal models by Moreau envelopes around a shared one; one SUM of shared models per round.

On each minibatch a client takes `inner_steps` steps towards its personal model theta (loss + lam / 2 |theta - w|^2),
then moves its copy of the shared model by w -= eta lam (w - theta). The server moves to (1 - beta) w + beta (mean over
clients). Costs the same as FedAvg.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, like, namespace
from unpooled.baselines.fedavg import FedAvg, Model, State, certain
from unpooled.baselines.rollback import much_worse
from unpooled.client import SUM, Client, client
from unpooled.errors import BadParameter
from unpooled.estimator import Info
from unpooled.federation import Federation
from unpooled.learners import Trainer
from unpooled.learners.sgd import batches, clipped, minibatches, spread_over
from unpooled.tree import message


@message("pfedme.Envelope")
class Envelope(NamedTuple):
    """Up: the client's copy of the shared model, and numbers for the history."""

    theta: Float[Array, "k p"]  # sum of the clients' shared models
    clients: Float[Array, ""]
    loglik: Float[Array, ""]  # of the personal models, before training
    rows: Float[Array, "", ">=0 rows"]


@client("pfedme.moreau_round", SUM)
def moreau_round(
    down: Model, client: Client, *, trainer: dict, lam: float, eta: float, inner_steps: int, roll_back: bool
) -> Envelope:
    """The client's copy of the shared model after local epochs; the personal model stays at the client.

    With `roll_back` a personal model that became much worse is reset to the one before the round.
    """
    learner = Trainer(**trainer)
    rows = learner.rows(client)
    loglik = learner.log_likelihood(client.state.get("theta", down.theta), rows)[..., 0]
    w = spread_over(down.theta, rows)
    theta = w + 0
    order = minibatches(client, learner.epochs, learner.batch_size)
    for real, x, y, weight, r in batches(
        order, rows.x, rows.y, rows.w, certain(rows), moves=learner.moves(client, order)
    ):
        weight = weight * real
        s = r * (weight / weight.sum(-1)[..., None].clip(min=1e-12))[..., None]
        active = like(real.any(-1), theta)[..., None, None]  # clients without rows in this batch do not move
        for _ in range(inner_steps):
            theta = theta - active * learner.lr * (
                clipped(learner.net.gradient(theta, x, y, s), learner.clip) + lam * (theta - w)
            )
        w = w - active * eta * lam * (w - theta)
    if roll_back:
        before = like(client.state["theta"], theta) if "theta" in client.state else spread_over(down.theta, rows)
        theta = namespace(theta).where(much_worse(learner, client, rows, before, theta), before, theta)
    client.state["theta"] = theta
    n = rows.w.sum(-1)
    return Envelope(w, 0 * n + 1.0, learner.reported(loglik, client, rows), n)


class PFedMe(FedAvg):
    """Personalized federated learning with Moreau envelopes.

    `momentum` is not used.

    Parameters
    ----------
    lam : float, default=15.0
        Strength of the pull of a personal model towards the shared one.
    eta : float, default=0.01
        Learning rate of the shared model at a client.
    inner_steps : int, default=5
        Gradient steps of rate `lr` towards the personal model per minibatch.
    beta : float, default=1.0
        Step of the server towards the mean of the clients' models.
    **parameters
        The parameters of `FedAvg`.

    Attributes
    ----------
    classes_, theta_, clients_, history_, n_iter_
        As in `FedAvg`.

    References
    ----------
    Dinh, Tran and Nguyen (2020), Personalized federated learning with Moreau envelopes, NeurIPS.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import baselines
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(80, 2))
    >>> y = (x.sum(axis=1) > 0).astype(int)
    >>> sites = {"north": (x[:40], y[:40]), "south": (x[40:], y[40:])}
    >>> model = baselines.PFedMe(lr=0.1, max_iter=40, local_epochs=5, batch_size=10, random_state=0).fit(sites)
    >>> bool(model.score(x, y) > 0.9)
    True
    """

    minima: ClassVar = {"eta": 0, "beta": 0}

    def __init__(
        self, lam: float = 15.0, eta: float = 0.01, inner_steps: int = 5, beta: float = 1.0, **parameters: Any
    ):
        super().__init__(**parameters)
        self.lam = lam
        self.eta = eta
        self.inner_steps = inner_steps
        self.beta = beta

    def check(self, fed: Federation) -> None:
        """Refuse parameters out of range."""
        super().check(fed)
        if self.lam <= 0 or self.inner_steps < 1:
            raise BadParameter(f"lam={self.lam!r} must be above 0 and inner_steps={self.inner_steps!r} at least 1")

    @property
    def finds_optimum(self) -> bool:
        """False: personal models are trained by gradient steps."""
        return False

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        """One SUM of the clients' copies of the shared model."""
        options = {"lam": self.lam, "eta": self.eta, "inner_steps": self.inner_steps, "roll_back": self.lr == "auto"}
        ask = moreau_round.using(trainer=self.at_round(state.trainer, state.round + 1), **options)
        total = self.cohort(fed).sum(ask, Model(state.theta))
        mean = total.theta / total.clients
        theta = (1 - self.beta) * like(state.theta, mean) + self.beta * mean
        return State(state.trainer, theta, state.round + 1), {"loglik": float(total.loglik / total.rows)}

    def finish(self, fed: Federation, state: State) -> None:
        """Set the shared model and what clients keep."""
        self.describe(fed, state.trainer, state.theta, "theta")
        self.personalise(fed, theta="theta")

    def models(self, client: str | None) -> tuple[np.ndarray, np.ndarray]:
        """The client's personal model, or the shared one."""
        return self.private(client).get("theta", self.theta_), np.ones(1)
