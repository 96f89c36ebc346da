"""FedSoft: k centres, each client's own model pulled towards its mixture of them; one SUM of models a round.

A client's importance u_s is the share of its rows that centre s explains best. Costs k models down and k up: the
client's one model, weighted by its importances.
"""

from __future__ import annotations

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
    importance: Array  # (..., k)
    loglik: Array  # (...)


def importances(how: Trainer, theta: Array, rows: Rows, least: float) -> Mixed:
    """The share of rows that each centre explains best, at least `least`, and the log-likelihood under the best."""
    loglik = how.log_likelihood(theta, rows)  # (..., n, k)
    best = chosen(loglik)
    return Mixed(shares(shares(mass(best, rows.w)).clip(min=least)), (rows.w * (best * loglik).sum(-1)).sum(-1))


@client("fedsoft.soft_round", SUM)
def soft_round(down: Models, client: Client, *, trainer: dict, least: float) -> Trained:
    """The client's model after local epochs that pull it to its mixture of centres, weighted by importance."""
    how = Trainer(**trainer)
    rows = how.rows(client)
    u, loglik = importances(how, how.with_own(down.theta, client, rows.x), rows, least)
    centre = (u @ like(down.theta, rows.x))[..., None, :]  # where sum_s u_s |theta - centre_s|^2 is least
    begin = how.with_own(centre, client, rows.x)
    new = how.keep_own(how.train(begin, client, rows, certain(rows)), client, centre)
    client.state["cluster"], client.state["model"] = to_numpy(u), new
    weight = u * rows.w.sum(-1)[..., None]
    small = (to_numpy(a).astype(np.float64) for a in (weight, loglik))
    return Trained(weight[..., None] * new, *small)


class FedSoft(Clusters):
    """Soft clustered federated learning with proximal local updating (Ruan and Joe-Wong 2022).

    n_clusters : how many centres.
    mu : strength of the pull towards the client's mixture of centres.
    least : the smallest importance of a centre at a client.
    The other parameters: see `LearnerEstimator`.
    """

    kept = ("cluster", "model", "norm")

    def __init__(self, n_clusters: int = 3, *, mu: float = 0.1, least: float = 1e-4, **parameters: Any):
        super().__init__(n_clusters, **parameters)
        self.mu = mu
        self.least = least

    def check(self, fed: Federation) -> None:
        super().check(fed)
        if self.mu < 0 or not 0 <= self.least < 1 / self.n_clusters:
            raise BadParameter(
                f"mu={self.mu!r} should be 0 or more and least={self.least!r} between 0 and 1 / n_clusters"
            )

    def at_round(self, trainer: dict, round: int, **changes: Any) -> dict:
        return super().at_round(trainer, round, prox=self.mu, **changes)

    def ask(self) -> Ask:
        return soft_round.using(least=self.least)

    def models(self, client: str | None) -> tuple[np.ndarray, np.ndarray]:
        own = self.private(client)
        return (own["model"], np.ones(1)) if "model" in own else super().models(client)

    def adapt(self, X: Any, y: Any) -> Any:
        """A new client mixes the centres by its importances."""
        how = Trainer(**self.trainer_)
        rows = how.rows(Client("new", self._rows(X), np.asarray(y)))
        return self.with_own({"cluster": to_numpy(importances(how, self.theta_, rows, self.least).importance)})
