"""Clustered FL of Sattler et al.: FedAvg within clusters of clients, which split where the clients' updates disagree.

A round is one GATHER of updates per cluster, one model per client (not a SUM, since the cosine of every pair is
needed). A cluster splits in two when the norm of its mean update is below eps1 while the largest norm of a client's
update is above eps2. Single linkage gives the split whose largest cosine across the two parts is smallest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from unpooled.arrays import Array, to_numpy
from unpooled.baselines.fedavg import Model, Trained, local_epochs
from unpooled.client import GATHER, Client, client
from unpooled.estimator import Info
from unpooled.federation import Federation
from unpooled.learners import as_option
from unpooled.learners.estimator import LearnerEstimator
from unpooled.tree import message


@message("clustered.State")
class State(NamedTuple):
    """The model of each cluster and the clients in it."""

    trainer: dict
    theta: Array  # (clusters, p)
    members: tuple[tuple[str, ...], ...]
    round: int


@client("clustered.local_update", GATHER)
def local_update(down: Model, client: Client, *, trainer: dict) -> Trained:
    """The model after local epochs as NumPy arrays: the server reads every client's answer."""
    return Trained(*map(to_numpy, local_epochs.using(trainer=trainer)(down, client)))


class ClusteredFL(LearnerEstimator):
    """Clustered federated learning: FedAvg within clusters of clients that split where updates disagree.

    Without `client=`, predictions are those of the largest cluster. Updates are gathered: the server sees each
    client's.

    Parameters
    ----------
    eps1 : float, default=0.4
        A cluster may split when the norm of its mean update is below this.
    eps2 : float, default=1.6
        It splits only when the largest norm of a client's update is above this.
    max_clusters : int or None, default=None
        Clusters at most; None for no limit.
    **parameters
        The parameters of `FedAvg`.

    Attributes
    ----------
    cluster_of_ : dict of str to int
        The cluster of each client.
    classes_, theta_, clients_, history_, n_iter_
        As in `FedAvg`.

    References
    ----------
    Sattler, Mueller and Samek (2020), Clustered federated learning: model-agnostic distributed multitask optimization
    under
    privacy constraints, IEEE TNNLS.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import baselines
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(80, 2))
    >>> y = (x.sum(axis=1) > 0).astype(int)
    >>> sites = {"north": (x[:40], y[:40]), "south": (x[40:], y[40:])}
    >>> model = baselines.ClusteredFL(lr=0.1, max_iter=20, batch_size=8, random_state=0).fit(sites)
    >>> bool(model.score(x, y) > 0.9)
    True
    """

    equal_units_ = True  # clusters keep their own models: no learner of all rows takes their place

    minima: ClassVar = {"eps1": 0, "eps2": 0, "max_clusters": 1}

    def __init__(self, eps1: float = 0.4, eps2: float = 1.6, max_clusters: int | None = None, **parameters: Any):
        super().__init__(**parameters)
        self.eps1 = eps1
        self.eps2 = eps2
        self.max_clusters = max_clusters

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        """One cluster of all clients."""
        trainer = self.trainer(fed)
        return State(as_option(trainer), trainer.start(rng, 1), (tuple(fed.names),), 0)

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        """One GATHER of updates per cluster; clusters whose updates disagree are split."""
        ask = local_update.using(trainer=self.at_round(state.trainer, state.round + 1))
        asked = set(self.cohort(fed).names)
        logliks = 0.0
        rows = 0.0
        clusters = len(state.members)
        thetas: list[np.ndarray] = []
        members: list[tuple[str, ...]] = []
        for theta, names in zip(to_numpy(state.theta), state.members):
            here = [n for n in names if n in asked]
            part = fed if len(here) == len(fed.names) else fed.only(here)  # `fed` has cached its stacked rows
            answers = part.gather(ask, Model(theta[None])) if here else {}
            logliks += sum(float(a.loglik) for a in answers.values())
            rows += sum(float(a.weight[0]) for a in answers.values())
            room = self.max_clusters is None or clusters < self.max_clusters
            after = self._after(theta, names, answers, room and len(here) == len(names))
            clusters += len(after) - 1
            members += [who for who, _ in after]
            thetas += [model for _, model in after]
        info = {"loglik": logliks / max(rows, 1.0), "clusters": len(members)}
        return State(state.trainer, np.stack(thetas), tuple(members), state.round + 1), info

    def _after(
        self, theta: np.ndarray, names: tuple[str, ...], answers: Mapping[str, Trained], may_split: bool
    ) -> list:
        """The cluster after a round, or its two parts, as a list of (names, model)."""
        if not answers:
            return [(names, theta)]
        updates = np.stack([to_numpy(a.theta)[0] for a in answers.values()])  # (n, p), in the dtype they were sent in
        weight = np.array([float(a.weight[0]) for a in answers.values()], dtype=updates.dtype)
        updates /= weight[:, None]
        updates -= theta.astype(updates.dtype)
        parts = [list(answers)]
        if may_split and len(answers) > 1 and disagrees(updates, weight, self.eps1, self.eps2):
            side = bipartition(updates)
            parts = [[n for n, s in zip(answers, side) if s == which] for which in (0, 1)]
        place = {name: i for i, name in enumerate(answers)}
        out = []
        for part in parts:
            rows = [place[n] for n in part]
            out.append((tuple(part), theta + weight[rows] @ updates[rows] / weight[rows].sum()))
        return out if len(out) > 1 else [(names, out[0][1])]

    def finish(self, fed: Federation, state: State) -> None:
        """Set the models and each client's cluster."""
        self.describe(fed, state.trainer, state.theta)
        self.cluster_of_ = {name: i for i, names in enumerate(state.members) for name in names}
        self.clients_ = {name: {"cluster": np.asarray(i)} for name, i in self.cluster_of_.items()}
        self.largest_ = int(np.argmax([len(names) for names in state.members]))
        self._personalise_clusters(fed, state)

    def _personalise_clusters(self, fed: Federation, state: State) -> None:
        """Each client chooses between the model of its cluster, corrections of it and models of its own."""
        theta = self.theta_
        for i, names in enumerate(state.members):
            self.theta_ = theta[i : i + 1]
            self.personalise(fed if len(names) == len(fed.names) else fed.only(names))
        self.theta_ = theta

    def _bases(self, x: np.ndarray, own: dict) -> np.ndarray:
        """Log-probabilities (1, n, classes) of the model of the client's cluster."""
        return self._log_base(x, own)[None]

    def models(self, client: str | None) -> tuple[np.ndarray, np.ndarray]:
        """The model of the client's cluster, or of the largest cluster."""
        i = int(self.private(client).get("cluster", self.largest_))
        return self.theta_[i : i + 1], np.ones(1)


def disagrees(updates: np.ndarray, weight: np.ndarray, eps1: float, eps2: float) -> bool:
    """Whether the mean of updates (n, p) is short although one of them is long."""
    mean_norm = np.linalg.norm(weight @ updates / weight.sum())
    return bool(mean_norm < eps1 and np.linalg.norm(updates, axis=1).max() > eps2)


def bipartition(updates: np.ndarray) -> np.ndarray:
    """The part (n,) of each client, 0 or 1, such that the largest cosine across the parts is smallest."""
    unit = updates / np.maximum(np.linalg.norm(updates, axis=1, keepdims=True), 1e-12)
    distance = np.maximum(1 - unit @ unit.T, 0.0)
    np.fill_diagonal(distance, 0.0)
    return fcluster(linkage(squareform(distance, checks=False), "single"), 2, "maxclust") - 1
