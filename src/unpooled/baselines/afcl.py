"""AFCL (Zhang et al., AAAI 2025): seeds that compete and cooperate until superfluous ones coincide; K is not given.

A GATHER a round of each client's row-by-row moves towards its seeds. **The moves give the rows away**: a move divided by the known
rate, plus the seed, is the row. `batch` averages so many rows before they leave, which the authors' code offers too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, Int, to_numpy
from unpooled.baselines.centres import CentreModel
from unpooled.client import GATHER, Client, client
from unpooled.estimator import Info
from unpooled.federation import Federation
from unpooled.maths.distances import nearest
from unpooled.models import initialization as start
from unpooled.tree import message


@message("afcl.Seeds")
class Seeds(NamedTuple):
    seeds: Float[Array, "k d"]
    rate: Float[Array, ""]


@message("afcl.Moves")
class Moves(NamedTuple):
    seed: Int[Array, "m"]
    move: Float[Array, "m d"]  # rate times (row - seed)


@message("afcl.State")
class State(NamedTuple):
    seeds: Array  # (k, d)
    asked: dict[str, float]  # client -> rounds it took part in
    moved: float


@client("afcl.moves", GATHER, batched=False)
def moves(down: Seeds, client: Client, *, batch: int) -> Moves:
    """Each row's move towards the seed it belongs to, averaged over `batch` rows of the same seed."""
    x = to_numpy(client.x)[to_numpy(client.w) > 0]
    label = nearest(x, down.seeds)
    order = np.argsort(label + client.rng.uniform(0, 0.5, len(x)))  # by seed, at random within one
    x, label = x[order], label[order]
    first = np.searchsorted(label, label)
    group = np.unique(label * (len(x) + 1) + (np.arange(len(x)) - first) // batch, return_inverse=True)[1]
    n = np.bincount(group)
    rows = np.stack([np.bincount(group, column) for column in x.T], axis=1) / n[:, None]
    seed = label[np.unique(group, return_index=True)[1]]
    return Moves(seed, down.rate * (rows - down.seeds[seed]))


def interact(seeds: np.ndarray, objects: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """Every object draws its winner, and the seeds nearer to the winner than itself, a little towards itself; in turn.

    The winner is the nearest by distance times how often a seed has won. This is sequential by nature.
    """
    seeds, wins = np.array(seeds), np.ones(len(seeds))
    for x, rate in zip(objects, rates):
        apart = ((x - seeds) ** 2).sum(1)
        winner = int(np.argmin(wins * apart))
        wins[winner] += 1
        together = ((seeds - seeds[winner]) ** 2).sum(1) <= apart[winner]
        seeds[together] += rate * (x - seeds[together])
    return seeds


def distinct(seeds: np.ndarray, tolerance: float) -> np.ndarray:
    """(k, d) the first of each group of seeds that coincide in every column."""
    kept: list[np.ndarray] = []
    for seed in seeds:
        if not any((np.abs(seed - other) < tolerance).all() for other in kept):
            kept.append(seed)
    return np.array(kept)


class AFCL(CentreModel):
    """Competitive and cooperative seeds; `n_seeds` must be at least the number of clusters (the authors draw K to 2 K)."""

    n_clusters = 1

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
        frame = start.frame(fed)
        found = start.centres(fed, frame, self.n_seeds, self.min_count)
        seeds = frame.mean + frame.scale * start.cluster_centres(found, self.n_seeds, rng).x
        self.scale_ = frame.scale
        return State(seeds, {}, np.inf)

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        cohort = fed if self.fraction == 1.0 else fed.sample(self.fraction, fed.journal.rng)
        found = cohort.gather(moves.using(batch=self.batch), Seeds(state.seeds, np.asarray(self.rate)))
        asked = state.asked | {name: state.asked.get(name, 0.0) + 1 for name in found}
        total = sum(asked.values())
        objects = [to_numpy(m.move) / self.rate + state.seeds[m.seed] for m in found.values()]
        rates = [np.full(len(m.seed), self.rate / (1 + asked[name] / total)) for name, m in found.items()]
        order = fed.journal.rng.permutation(sum(len(o) for o in objects))
        seeds = interact(state.seeds, np.concatenate(objects)[order], np.concatenate(rates)[order])
        moved = float(np.abs((seeds - state.seeds) / self.scale_).max())
        return State(seeds, asked, moved), {"moved": moved, "objects": len(order)}

    def done(self, state: State, history: list[Info]) -> bool:
        return state.moved <= self.tol

    def finish(self, fed: Federation, state: State) -> None:
        self._set_centres(fed, distinct(state.seeds / self.scale_, self.merge) * self.scale_)
