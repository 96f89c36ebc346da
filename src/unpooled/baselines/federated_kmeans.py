"""k-means over clients: one GATHER of local centres to start, then Lloyd's steps, one SUM of counts and sums each.

From the same start the rounds are the pooled algorithm's iterations exactly.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float
from unpooled.baselines.centres import Centres, MovingCentres, State
from unpooled.client import SUM, Client, client
from unpooled.estimator import Info
from unpooled.federation import Federation
from unpooled.maths.distances import nearest, squared
from unpooled.tree import message


@message("federated_kmeans.Assigned")
class Assigned(NamedTuple):
    n: Float[Array, "k", ">=0 rows"]
    x: Float[Array, "k d"]  # sum of (row - centre)
    inertia: Float[Array, ""]


@client("federated_kmeans.assign", SUM, adds=True)
def assign(down: Centres, client: Client) -> Assigned:
    x, w = client.x, client.w
    labels = nearest(x, down.centres)
    member = (labels[..., None] == np.arange(len(down.centres))) * w[..., None]  # (..., n, k)
    n = member.sum(-2)
    sums = np.swapaxes(member, -1, -2) @ x - n[..., None] * down.centres
    return Assigned(n, sums, (w * squared(x, down.centres).min(-1)).sum(-1))


class FederatedKMeans(MovingCentres):
    """Lloyd's algorithm; `n_clusters` must be known. `centers_init` replaces the start."""

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        centers_init: Any = None,
        min_count: float = 5,
        max_iter: int = 50,
        tol: float = 1e-6,
        random_state: Any = None,
    ):
        self.n_clusters = n_clusters
        self.centers_init = centers_init
        self.min_count = min_count
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        found = fed.sum(assign, Centres(state.centres))
        shift = found.x / np.maximum(found.n, 1e-300)[:, None]
        return State(state.centres + shift, float(np.abs(shift).max())), {"inertia": float(found.inertia)}

    def finish(self, fed: Federation, state: State) -> None:
        super().finish(fed, state)
        self.inertia_ = self.history_[-1]["inertia"]
