"""AFCL (Zhang et al., AAAI 2025): seeds compete and cooperate until superfluous ones coincide.

It finds the number of clusters.

One GATHER per round of each client's moves of rows towards their seeds. **The moves reveal the rows**: a move divided
by the known rate, plus the seed, is the row. `batch` averages this many rows before they leave, as the authors' code
can.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, Int, to_numpy
from unpooled.baselines.centres import CentreModel, first_centres
from unpooled.client import GATHER, Client, client
from unpooled.estimator import Info
from unpooled.federation import Federation
from unpooled.maths.distances import nearest
from unpooled.tree import message


@message("afcl.Seeds")
class Seeds(NamedTuple):
    """Down: the seeds and the learning rate."""

    seeds: Float[Array, "k d"]
    rate: Float[Array, ""]


@message("afcl.Moves")
class Moves(NamedTuple):
    """Up: for each row or batch of rows, its seed and its move."""

    seed: Int[Array, "m"]
    move: Float[Array, "m d"]  # rate times (row - seed)


@message("afcl.State")
class State(NamedTuple):
    """The seeds, how often each client took part, and the largest move of the last round."""

    seeds: Array  # (k, d)
    asked: dict[str, float]  # client -> rounds it took part in
    moved: float


@client("afcl.moves", GATHER, batched=False, in_process=True)
def moves(down: Seeds, client: Client, *, batch: int) -> Moves:
    """Each row's move towards the seed it belongs to, averaged over `batch` rows of the same seed."""
    x = to_numpy(client.x)[to_numpy(client.w) > 0]
    label = nearest(x, down.seeds)
    order = np.argsort(label + client.rng.uniform(0, 0.5, len(x)))  # by seed, at random within one
    x, label = x[order], label[order]
    place = np.arange(len(x)) - np.searchsorted(label, label)  # within the rows of its seed
    _, first, group = np.unique(label * (len(x) + 1) + place // batch, return_index=True, return_inverse=True)
    n = np.bincount(group)
    rows = np.stack([np.bincount(group, column) for column in x.T], axis=1) / n[:, None]
    seed = label[first]
    return Moves(seed, down.rate * (rows - down.seeds[seed]))


def interact(seeds: np.ndarray, objects: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """The seeds (k, d) after each object (n, d), in turn, has moved its winning seed towards itself.

    Seeds nearer to the winner than the object move with it. The winner has the least distance times number of earlier
    wins. The loop is sequential by definition.
    """
    seeds, wins = np.array(seeds), np.ones(len(seeds))
    for x, rate in zip(objects, rates):
        distance = ((x - seeds) ** 2).sum(1)
        winner = int(np.argmin(wins * distance))
        wins[winner] += 1
        together = ((seeds - seeds[winner]) ** 2).sum(1) <= distance[winner]
        seeds[together] += rate * (x - seeds[together])
    return seeds


def distinct(seeds: np.ndarray, tolerance: float) -> np.ndarray:
    """The first seed of each group of seeds (k, d) that agree in every column within `tolerance`."""
    kept: list[np.ndarray] = []
    for seed in seeds:
        if not any((np.abs(seed - other) < tolerance).all() for other in kept):
            kept.append(seed)
    return np.array(kept)


class AFCL(CentreModel):
    """Asynchronous federated clustering by competing and cooperating seeds; the number of clusters is found.

    With `batch=1` the messages reveal the rows: a move divided by the rate, plus the seed, is a row.

    Parameters
    ----------
    n_seeds : int, default=20
        Seeds at the start; at least the number of clusters.
    rate : float, default=0.001
        Learning rate of the seeds.
    fraction : float, default=1.0
        Share of the clients asked per round.
    batch : int, default=1
        Rows averaged before they leave a client.
    merge : float, default=0.05
        Seeds nearer than this in every column, in standard deviations, are one cluster.
    min_count : float, default=5
        Clients send no local centre of fewer rows than this, for the start.
    max_iter : int, default=50
        Rounds at most.
    tol : float, default=1e-4
        Stop when no coordinate of a seed moves by more than this, in standard deviations.
    random_state : int, RandomState or None, default=None
        Seed of the start.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_components_, d)
        Centers of the clusters.
    n_components_ : int
        Clusters found.
    labels_ : dict of str to ndarray of shape (n,)
        The cluster of each row, by client in this process.

    References
    ----------
    Zhang, Zhang, Lu, Li and Cheung (2025), Asynchronous federated clustering with unknown number of clusters, AAAI.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import baselines
    >>> rng = np.random.default_rng(0)
    >>> sites = {name: rng.normal([[0, 0], [9, 9]] * 20) for name in ("north", "south")}
    >>> model = baselines.AFCL(4, max_iter=20, random_state=0).fit(sites)
    >>> model.cluster_centers_.shape[1]
    2
    """

    n_clusters = 1

    minima: ClassVar = {"rate": 0, "batch": 1, "merge": 0, "n_seeds": 1}

    def __init__(
        self,
        n_seeds: int = 20,
        *,
        rate: float = 0.001,
        fraction: float = 1.0,
        batch: int = 1,
        merge: float = 0.05,
        min_count: float = 5,
        max_iter: int = 50,
        tol: float = 1e-4,
        random_state: Any = None,
    ):
        self.n_seeds = n_seeds
        self.rate = rate
        self.fraction = fraction
        self.batch = batch
        self.merge = merge
        self.min_count = min_count
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        """Seeds from clustered local centres: one GATHER."""
        seeds, self.scale_ = first_centres(fed, self.n_seeds, self.min_count, rng)
        return State(seeds, {}, np.inf)

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        """One GATHER of moves from the sampled clients, then one pass over all objects in random order."""
        cohort = fed if self.fraction == 1.0 else fed.sample(self.fraction, fed.journal.rng)
        found = cohort.gather(moves.using(batch=self.batch), Seeds(state.seeds, np.asarray(float(self.rate))))
        asked = state.asked | {name: state.asked.get(name, 0.0) + 1 for name in found}
        objects, rates = self._objects(state.seeds, found, asked)
        order = fed.journal.rng.permutation(len(objects))
        seeds = interact(state.seeds, objects[order], rates[order])
        moved = float(np.abs((seeds - state.seeds) / self.scale_).max())
        return State(seeds, asked, moved), {"moved": moved, "objects": len(order)}

    def _objects(
        self, seeds: np.ndarray, found: Mapping[str, Moves], asked: Mapping[str, float]
    ) -> tuple[np.ndarray, np.ndarray]:
        """(rows (n, d) that the moves reveal, learning rate (n,) of each): smaller for clients that were asked more often."""
        total = sum(asked.values())
        objects = []
        rates = []
        for name, answer in found.items():
            objects.append(to_numpy(answer.move) / self.rate + seeds[answer.seed])
            rates.append(np.full(len(answer.seed), self.rate / (1 + asked[name] / total)))
        return np.concatenate(objects), np.concatenate(rates)

    def done(self, state: State, history: list[Info]) -> bool:
        """Whether no seed moved by more than `tol`."""
        return state.moved <= self.tol

    def finish(self, fed: Federation, state: State) -> None:
        """Merge seeds that coincide and set the cluster centres."""
        self._set_centres(fed, distinct(state.seeds / self.scale_, self.merge) * self.scale_)
