"""FedSoft: k shared centres, and client models that are pulled towards mixtures of them; one SUM of models per round.

A client's importance u_s is the share of its rows that centre s explains best. Costs k models down and k up: the
client's one model, weighted by its importances.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, like, to_numpy
from unpooled.baselines.fedavg import certain
from unpooled.baselines.ifca import Clusters, Models, Trained, chosen
from unpooled.client import SUM, Ask, Client, client
from unpooled.errors import BadParameter
from unpooled.federation import Federation
from unpooled.learners import Rows, Trainer
from unpooled.learners.mixing import mass, shares
from unpooled.tree import message


@message("fedsoft.Mixed")
class Mixed(NamedTuple):
    """The importances of a client, and its log-likelihood."""

    importance: Array  # (..., k)
    loglik: Array  # (...)


def importances(learner: Trainer, theta: Array, rows: Rows, least: float) -> Mixed:
    """The share of rows that each centre explains best, at least `least`, and the log-likelihood.

    The log-likelihood of a row is that under its best centre.
    """
    loglik = learner.log_likelihood(theta, rows)  # (..., n, k)
    best = chosen(loglik)
    importance = shares(mass(best, rows.w)).clip(min=least)
    return Mixed(shares(importance), (rows.w * (best * loglik).sum(-1)).sum(-1))


@client("fedsoft.soft_round", SUM)
def soft_round(down: Models, client: Client, *, trainer: dict, least: float) -> Trained:
    """The client's model after proximal local epochs, weighted by importance."""
    learner = Trainer(**trainer)
    rows = learner.rows(client)
    u, loglik = importances(learner, learner.with_own(down.theta, client, rows.x), rows, least)
    centre = (u @ like(down.theta, rows.x))[..., None, :]  # the minimiser of sum_s u_s |theta - centre_s|^2
    begin = learner.with_own(centre, client, rows.x)
    new = learner.keep_own(learner.train(begin, client, rows, certain(rows)), client, centre)
    client.state["cluster"] = to_numpy(u)
    client.state["model"] = new
    weight = u * rows.w.sum(-1)[..., None]
    small = (to_numpy(a).astype(np.float64) for a in (weight, loglik))
    return Trained(weight[..., None] * new, *small)


class FedSoft(Clusters):
    """Soft clustered federated learning: each client's model is pulled towards its own mixture of shared centres.

    Parameters
    ----------
    n_clusters : int, default=3
        Number of centres.
    mu : float, default=0.1
        Strength of the pull towards the client's mixture of centres.
    least : float, default=1e-4
        Smallest weight of a centre at a client.
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
    Ruan and Joe-Wong (2022), FedSoft: soft clustered federated learning with proximal local updating, AAAI.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import baselines
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(80, 2))
    >>> y = (x.sum(axis=1) > 0).astype(int)
    >>> sites = {"north": (x[:40], y[:40]), "south": (x[40:], y[40:])}
    >>> model = baselines.FedSoft(2, lr=0.1, max_iter=20, batch_size=8, random_state=0).fit(sites)
    >>> bool(model.score(x, y) > 0.9)
    True
    """

    kept = ("cluster", "model", "norm")
    version: Mapping[str, str] = {"theta": "model"}

    def __init__(self, n_clusters: int = 3, *, mu: float = 0.1, least: float = 1e-4, **parameters: Any):
        super().__init__(n_clusters, **parameters)
        self.mu = mu
        self.least = least

    def check(self, fed: Federation) -> None:
        """Refuse a negative `mu` and a `least` out of range."""
        super().check(fed)
        if self.mu < 0 or not 0 <= self.least < 1 / self.n_clusters:
            raise BadParameter(
                f"mu={self.mu!r} should be 0 or more and least={self.least!r} between 0 and 1 / n_clusters"
            )

    def at_round(self, trainer: dict | Trainer, round: int, **changes: Any) -> dict:
        """The training options of a round, with the proximal term."""
        return super().at_round(trainer, round, prox=self.mu, **changes)

    def ask(self) -> Ask:
        """A client's round."""
        return soft_round.using(least=self.least)

    def models(self, client: str | None) -> tuple[np.ndarray, np.ndarray]:
        """The client's own model; the centres with the client's weights if it has none."""
        own = self.private(client)
        return (own["model"], np.ones(1)) if "model" in own else super().models(client)

    def weights_for(self, learner: Trainer, rows: Rows) -> np.ndarray:
        """A new client's weights (k,) of the centres: its importances."""
        return to_numpy(importances(learner, self.theta_, rows, self.least).importance)
