"""FeSEM: k shared models (centres); each client joins the one nearest to its own last model.

One SUM of models per round.

Costs k models down and k up, all of them zero but the chosen one. The client's own model stays at the client.
"""

from __future__ import annotations

import numpy as np

from unpooled.arrays import Array, like, to_numpy
from unpooled.baselines.ifca import Clusters, Models, Trained, chosen, train_chosen
from unpooled.client import SUM, Ask, Client, client
from unpooled.learners import Trainer


@client("fesem.nearest_round", SUM)
def nearest_round(down: Models, client: Client, *, trainer: dict) -> Trained:
    """The model of the nearest centre after local epochs; in the first round the centre is random."""
    learner = Trainer(**trainer)
    rows = learner.rows(client)
    centres = like(down.theta, rows.x)
    if "model" in client.state:
        choice = nearest(client, centres)
    else:
        choice = like(_random_choice(client, len(centres)), rows.x)
    own = (choice @ centres)[..., None, :]
    loglik = learner.reported(learner.log_likelihood(own, rows)[..., 0], client, rows)
    up = train_chosen(learner, centres, client, rows, choice, loglik)
    client.state["model"] = (up.theta.sum(-2) / rows.w.sum(-1)[..., None])[..., None, :]
    return up


def nearest(client: Client, centres: Array) -> Array:
    """One-hot (..., k): 1 at the centre nearest to the client's own model."""
    own = like(client.state["model"], centres)  # (..., 1, p)
    return chosen(-((own - centres) ** 2).sum(-1))


def _random_choice(client: Client, k: int) -> np.ndarray:
    """One-hot (..., k): a random centre for each client."""
    drawn = np.array([rng.integers(k) for rng in client.rngs])
    return np.eye(k)[drawn].reshape(*client.w.shape[:-1], k)


class FeSEM(Clusters):
    """Multi-center federated learning: each client joins the centre nearest to its own last model.

    All centres start from the same model: otherwise no client would ever move to another centre.

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
    Xie, Long, Shen, Zhou, Wang, Jiang and Zhang (2020), Multi-center federated learning.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import baselines
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(80, 2))
    >>> y = (x.sum(axis=1) > 0).astype(int)
    >>> sites = {"north": (x[:40], y[:40]), "south": (x[40:], y[40:])}
    >>> model = baselines.FeSEM(2, lr=0.1, max_iter=20, batch_size=8, random_state=0).fit(sites)
    >>> bool(model.score(x, y) > 0.9)
    True
    """

    def ask(self) -> Ask:
        """A client's round."""
        return nearest_round

    def first(self, trainer: Trainer, rng: np.random.Generator) -> np.ndarray:
        """The same random model k times, (k, p)."""
        return np.repeat(to_numpy(trainer.start(rng, 1)), self.n_clusters, axis=0)
