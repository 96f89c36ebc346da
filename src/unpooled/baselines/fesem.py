"""FeSEM: k centres; each client joins the one nearest to its own last model; one SUM of models a round.

Costs k models down and k up, all but the chosen one of them zero. The client's own model stays with it.
"""

from __future__ import annotations

import numpy as np

from unpooled.arrays import Array, like, to_numpy
from unpooled.baselines.ifca import Clusters, Models, Trained, chosen, train_chosen
from unpooled.client import SUM, Ask, Client, client
from unpooled.learners import Trainer
from unpooled.learners.mixing import mass


@client("fesem.nearest_round", SUM)
def nearest_round(down: Models, client: Client, *, trainer: dict) -> Trained:
    """The nearest centre's model, after local epochs; before the first round the centre is drawn."""
    how = Trainer(**trainer)
    rows = how.rows(client)
    centres = like(down.theta, rows.x)
    choice = like(_first(client, len(centres)), rows.x) if "model" not in client.state else nearest(client, centres)
    own = (choice @ centres)[..., None, :]
    loglik = mass(how.log_likelihood(own, rows), rows.w)[..., 0]
    up = train_chosen(how, centres, client, rows, choice, loglik)
    client.state["model"] = (up.theta.sum(-2) / rows.w.sum(-1)[..., None])[..., None, :]
    return up


def nearest(client: Client, centres: Array) -> Array:
    """(..., k) with a 1 at the centre nearest to the client's own model."""
    own = like(client.state["model"], centres)  # (..., 1, p)
    return chosen(-((own - centres) ** 2).sum(-1))


def _first(client: Client, k: int) -> np.ndarray:
    drawn = np.array([rng.integers(k) for rng in client.rngs])
    return np.eye(k)[drawn].reshape(*client.w.shape[:-1], k)


class FeSEM(Clusters):
    """Multi-centre federated learning (Xie et al. 2020). Parameters: see `Clusters`.

    All centres start from one model: from different ones no client would ever be nearer to another's centre.
    """

    def ask(self) -> Ask:
        return nearest_round

    def first(self, trainer: Trainer, rng: np.random.Generator) -> np.ndarray:
        return np.repeat(to_numpy(trainer.start(rng, 1)), self.n_clusters, axis=0)
