"""APFL: one shared model, one personal model per client, and a mixture of both; one SUM of models per round.

Costs one model down and one up; the personal model and its mixing weight stay at the client.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, like, namespace, to_numpy
from unpooled.baselines.fedavg import FedAvg, Model, State, Trained, certain
from unpooled.baselines.rollback import much_worse
from unpooled.client import SUM, Client, client
from unpooled.errors import BadParameter
from unpooled.estimator import Info
from unpooled.federation import Federation
from unpooled.learners import Rows, Trainer
from unpooled.learners.mixing import average
from unpooled.learners.sgd import batches, clipped, minibatches
from unpooled.tree import message


@message("apfl.Personal")
class Personal(NamedTuple):
    """A client's two models during local epochs, each as (parameters, velocity), and the mixing weight."""

    shared: tuple[Array, Array]  # (..., 1, p)
    own: tuple[Array, Array]  # (..., 1, p)
    alpha: Array  # (..., 1, 1) weight of the personal model in the mixture


@client("apfl.personal_round", SUM)
def personal_round(
    down: Model, client: Client, *, trainer: dict, alpha: float, adaptive: bool, roll_back: bool
) -> Trained:
    """The shared model after local epochs; the personal model is trained too and stays at the client.

    With `roll_back` a personal model that became much worse is reset to the one before the round.
    """
    learner = Trainer(**trainer)
    rows = learner.rows(client)
    theta = like(down.theta, rows.x)
    loglik = learner.log_likelihood(theta, rows)[..., 0]
    lead = (*rows.w.shape[:-1], 1)
    own = like(client.state.get("own", np.broadcast_to(to_numpy(down.theta), (*lead, theta.shape[-1]))), rows.x) + 0
    weight = like(client.state.get("alpha", np.full((*lead, 1), alpha)), rows.x)
    shared = theta + 0 * own
    found = descend(learner, client, rows, Personal((shared, 0 * own), (own, 0 * own), weight), adaptive)
    trained = found.own[0]
    share = found.alpha
    if roll_back:
        before = weight * own + (1 - weight) * shared
        after = share * trained + (1 - share) * shared
        worse = much_worse(learner, client, rows, before, after)
        xp = namespace(own)
        trained = xp.where(worse, own, trained)
        share = xp.where(worse, weight, share)
    client.state["own"] = trained
    client.state["alpha"] = share
    n = rows.w.sum(-1)[..., None]
    return Trained(n[..., None] * found.shared[0], n, learner.reported(loglik, client, rows))


def descend(learner: Trainer, client: Client, rows: Rows, models: Personal, adaptive: bool) -> Personal:
    """The models after the local epochs.

    On each minibatch the shared model takes a gradient step of its own loss, the personal model one of the mixture's
    loss.
    """
    order = minibatches(client, learner.epochs, learner.batch_size)
    moves = learner.moves(client, order)
    for real, x, y, w, one in batches(order, rows.x, rows.y, rows.w, certain(rows), moves=moves):
        active = like(real.any(-1), w)[..., None, None]  # clients without rows in this batch do not move
        w = w * real
        s = one * (w / w.sum(-1, keepdims=True).clip(min=1e-12))[..., None]
        mixed = models.alpha * models.own[0] + (1 - models.alpha) * models.shared[0]
        g_mixed = clipped(learner.net.gradient(mixed, x, y, s), learner.clip)
        g_shared = clipped(learner.net.gradient(models.shared[0], x, y, s), learner.clip)
        slope = ((models.own[0] - models.shared[0]) * g_mixed).sum(-1)[..., None]
        shared = _moved(learner, models.shared, g_shared, active)
        own = _moved(learner, models.own, models.alpha * g_mixed, active)
        alpha = (models.alpha - learner.lr * active * slope).clip(0, 1) if adaptive else models.alpha
        models = Personal(shared, own, alpha)
    return models


def _moved(learner: Trainer, before: tuple[Array, Array], g: Array, active: Array) -> tuple[Array, Array]:
    """(parameters, velocity) after one step of SGD with momentum; `active` is 0 for clients that stand still."""
    theta, velocity = before
    velocity = velocity + active * (g + learner.weight_decay * theta - (1 - learner.momentum) * velocity)
    return theta - learner.lr * active * velocity, velocity


class APFL(FedAvg):
    """Adaptive personalized federated learning: each client mixes the shared model with one of its own.

    Parameters
    ----------
    alpha : float, default=0.5
        First weight of a client's own model in its mixture.
    adaptive : bool, default=True
        Whether each client learns its weight by gradient descent.
    **parameters
        The parameters of `FedAvg`.

    Attributes
    ----------
    classes_, theta_, clients_, history_, n_iter_
        As in `FedAvg`.

    References
    ----------
    Deng, Kamani and Mahdavi (2020), Adaptive personalized federated learning.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import baselines
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(80, 2))
    >>> y = (x.sum(axis=1) > 0).astype(int)
    >>> sites = {"north": (x[:40], y[:40]), "south": (x[40:], y[40:])}
    >>> model = baselines.APFL(lr=0.1, max_iter=20, batch_size=8, random_state=0).fit(sites)
    >>> bool(model.score(x, y) > 0.9)
    True
    """

    def __init__(self, *, alpha: float = 0.5, adaptive: bool = True, **parameters: Any):
        super().__init__(**parameters)
        self.alpha = alpha
        self.adaptive = adaptive

    def check(self, fed: Federation) -> None:
        """Refuse a mixing weight outside [0, 1]."""
        super().check(fed)
        if not 0 <= self.alpha <= 1:
            raise BadParameter(f"alpha={self.alpha!r} should be between 0 and 1")

    @property
    def finds_optimum(self) -> bool:
        """False: the mixture has no closed-form optimum."""
        return False

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        """One SUM of the shared models after local epochs."""
        trainer = self.at_round(state.trainer, state.round + 1)
        options = {"alpha": self.alpha, "adaptive": self.adaptive, "roll_back": self.lr == "auto"}
        ask = personal_round.using(trainer=trainer, **options)
        total = self.cohort(fed).sum(ask, Model(state.theta))
        theta = average(total.theta, total.weight, state.theta)
        return State(state.trainer, theta, state.round + 1), {"loglik": float(total.loglik / total.weight[0])}

    def finish(self, fed: Federation, state: State) -> None:
        """Set the shared model and what clients keep."""
        self.describe(fed, state.trainer, state.theta, "own", "alpha")
        self.personalise(fed, theta="own", alpha="alpha")

    def models(self, client: str | None) -> tuple[np.ndarray, np.ndarray]:
        """The client's mixture of its own and the shared model; the shared model without a client."""
        theta, weights = super().models(client)
        own = self.private(client)
        mixed = theta if "own" not in own else own["alpha"] * own["own"] + (1 - own["alpha"]) * theta
        return mixed, weights
