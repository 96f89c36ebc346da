"""Clustered FL of Sattler et al.: FedAvg within clusters of clients, which split where updates disagree.

A round is one GATHER of updates for each cluster (not a SUM: the cosine between any two is needed), one model a client.
A cluster splits in two when its mean update is short (below eps1: at rest together) but the longest is not (above
eps2: not at rest alone). The two parts are those whose closest pair across is least alike, which single linkage finds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

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
    trainer: dict
    theta: Array  # (clusters, p)
    members: tuple[tuple[str, ...], ...]
    round: int


@client("clustered.local_update", GATHER)
def local_update(down: Model, client: Client, *, trainer: dict) -> Trained:
    """A model after local epochs, brought from the device at once: the server will look at every client's."""
    return Trained(*map(to_numpy, local_epochs.using(trainer=trainer)(down, client)))


class ClusteredFL(LearnerEstimator):
    """Clustered federated learning (Sattler et al. 2020).

    eps1, eps2 : lengths of the mean update and of the longest one between which a cluster splits.
    max_clusters : no more clusters than this, or None.
    The other parameters: see `LearnerEstimator`. Without client=, predictions are those of the largest cluster.
    """

    def __init__(self, eps1: float = 0.4, eps2: float = 1.6, max_clusters: int | None = None, **parameters: Any):
        super().__init__(**parameters)
        self.eps1 = eps1
        self.eps2 = eps2
        self.max_clusters = max_clusters

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        trainer = self.trainer(fed)
        return State(as_option(trainer), trainer.start(rng, 1), (tuple(fed.names),), 0)

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        ask = local_update.using(trainer=self.at_round(state.trainer, state.round + 1))
        asked, logliks, rows, clusters = set(self.cohort(fed).names), 0.0, 0.0, len(state.members)
        thetas: list[np.ndarray] = []
        members: list[tuple[str, ...]] = []
        for theta, names in zip(to_numpy(state.theta), state.members):
            here = [n for n in names if n in asked]
            part = fed if len(here) == len(fed.names) else fed.only(here)  # `fed` has stacked its rows already
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
        """The cluster after a round, or its two parts: (names, model) each."""
        if not answers:
            return [(names, theta)]
        updates = np.stack([to_numpy(a.theta)[0] for a in answers.values()])  # (n, p), as precise as they were sent
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
        self.describe(fed, state.trainer, state.theta)
        self.cluster_of_ = {name: i for i, names in enumerate(state.members) for name in names}
        self.clients_ = {name: {"cluster": np.asarray(i)} for name, i in self.cluster_of_.items()}
        self.largest_ = int(np.argmax([len(names) for names in state.members]))

    def models(self, client: str | None) -> tuple[np.ndarray, np.ndarray]:
        i = int(self.private(client).get("cluster", self.largest_))
        return self.theta_[i : i + 1], np.ones(1)


def disagrees(updates: np.ndarray, weight: np.ndarray, eps1: float, eps2: float) -> bool:
    """Whether clients (n, p) are at rest together but not alone."""
    together = np.linalg.norm(weight @ updates / weight.sum())
    return bool(together < eps1 and np.linalg.norm(updates, axis=1).max() > eps2)


def bipartition(updates: np.ndarray) -> np.ndarray:
    """The side (n,) of each client, 0 or 1, such that the largest cosine across is as small as can be."""
    unit = updates / np.maximum(np.linalg.norm(updates, axis=1, keepdims=True), 1e-12)
    apart = np.maximum(1 - unit @ unit.T, 0.0)
    np.fill_diagonal(apart, 0.0)
    return fcluster(linkage(squareform(apart, checks=False), "single"), 2, "maxclust") - 1
