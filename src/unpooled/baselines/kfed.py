"""k-FED (Dennis, Li and Smith, 2021): one GATHER of local centres, max-min choice among them, one step of Lloyd. One round.

Local clustering is that of Awasthi and Sheffet: k-means in the span of the leading singular vectors, then means of the rows that are
three times nearer to their own centre than to any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.baselines.centres import CentreModel
from unpooled.client import GATHER, Client, client
from unpooled.estimator import Info
from unpooled.federation import Federation
from unpooled.maths.distances import nearest, squared
from unpooled.maths.local_mixture import kmeans
from unpooled.tree import message


@message("kfed.LocalCentres")
class LocalCentres(NamedTuple):
    centre: Float[Array, "k d"]


@message("kfed.State")
class State(NamedTuple):
    centres: Array  # (k, d)
    local: dict[str, Array]  # client -> (k', d)
    place: dict[str, Array]  # client -> (k',) the global cluster of each local one


@client("kfed.local_clusters", GATHER, batched=False)
def local_clusters(nothing: None, client: Client, *, sizes: dict, default: int) -> LocalCentres:
    x, w = to_numpy(client.x).astype(float), to_numpy(client.w).astype(float)
    return LocalCentres(awasthi_sheffet(x[w > 0], sizes.get(client.name, default), client.rng))


def awasthi_sheffet(x: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """(k, d) centres; fewer where there are fewer distinct rows."""
    _, _, axes = np.linalg.svd(x, full_matrices=False)
    flat = x @ axes[:k].T @ axes[:k]
    labels = kmeans(flat, np.ones(len(x)), k, rng, n_init=5)
    member = np.eye(labels.max() + 1)[labels]
    centre = member.T @ flat / member.sum(0)[:, None]
    apart = np.sqrt(squared(flat, centre))
    sure = apart * 3 <= np.where(member > 0, np.inf, apart).min(1)[:, None]
    sure = np.where(sure.any(0), sure, member > 0)  # a centre without a sure row keeps its cluster
    return sure.T @ x / sure.sum(0)[:, None]


def max_min(points: np.ndarray, first: np.ndarray, k: int) -> np.ndarray:
    """(k, d) from the first ones on, always the point that is farthest from all chosen."""
    chosen = list(first[:k])
    while len(chosen) < min(k, len(points)):
        far = squared(points, np.array(chosen)).min(1)
        chosen.append(points[int(np.argmax(far))])
    return np.array(chosen)


class KFed(CentreModel):
    """One-shot federated k-means; `n_clusters` in all, `n_local` of them at a client (a number or a mapping from client)."""

    max_iter = 1

    def __init__(self, n_clusters: int = 8, *, n_local: int | Mapping[str, int] = 3, random_state: Any = None):
        self.n_clusters = n_clusters
        self.n_local = n_local
        self.random_state = random_state

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        return State(np.zeros((0, 0)), {}, {})

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        sizes = dict(self.n_local) if isinstance(self.n_local, Mapping) else {}
        default = self.n_local if isinstance(self.n_local, int) else self.n_clusters
        found = fed.gather(local_clusters.using(sizes=sizes, default=default), None)
        local = {name: to_numpy(found[name].centre) for name in sorted(found)}
        points = np.concatenate(list(local.values()))
        richest = max(local, key=lambda name: len(local[name]))
        begin = max_min(points, local[richest], self.n_clusters)
        label = nearest(points, begin)
        filled = np.unique(label)
        centres = np.stack([points[label == z].mean(0) for z in filled])
        place = {name: np.searchsorted(filled, nearest(c, begin)) for name, c in local.items()}
        return State(centres, local, place), {"centres": len(points)}

    def finish(self, fed: Federation, state: State) -> None:
        self.local_centers_, self.place_ = state.local, state.place
        self._set_centres(fed, state.centres)

    def predict(self, X: Any, client: str | None = None) -> np.ndarray:
        """By the client's own centres and where k-FED put them, else by the nearest global centre."""
        if client is None or client not in self.local_centers_:
            return super().predict(X)
        return self.place_[client][nearest(np.asarray(X, dtype=float), self.local_centers_[client])]
