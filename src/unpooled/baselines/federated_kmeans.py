"""k-means over clients: one GATHER of local centres to start, then Lloyd's steps, one SUM of counts and sums each.

From the same start the rounds are the pooled algorithm's iterations exactly.
"""

from __future__ import annotations

from typing import NamedTuple

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
    """Up: rows, sums of deviations and squared distances per cluster."""

    n: Float[Array, "k", ">=0 rows"]
    x: Float[Array, "k d"]  # sum of (row - centre)
    inertia: Float[Array, ""]


@client("federated_kmeans.assign", SUM, adds=True)
def assign(down: Centres, client: Client) -> Assigned:
    """Rows per nearest centre, the sums of their deviations from it, and the inertia."""
    x = client.x
    w = client.w
    labels = nearest(x, down.centres)
    member = (labels[..., None] == np.arange(len(down.centres))) * w[..., None]  # (..., n, k)
    n = member.sum(-2)
    sums = np.swapaxes(member, -1, -2) @ x - n[..., None] * down.centres
    inertia = (w * squared(x, down.centres).min(-1)).sum(-1)
    return Assigned(n, sums, inertia)


class FederatedKMeans(MovingCentres):
    """K-means by Lloyd's algorithm over all clients; from the same start equal to k-means on the pooled rows.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    centers_init : array-like of shape (n_clusters, d) or None, default=None
        First centres; None clusters the clients' own k-means centres (one GATHER).
    min_count : float, default=5
        Clients send no local centre of fewer rows than this (only with `centers_init=None`).
    max_iter : int, default=50
        Rounds at most.
    tol : float, default=1e-6
        Stop when no coordinate of a centre moves by more than this.
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
    inertia_ : float
        Sum of squared distances of rows to their centres in the last round.

    References
    ----------
    Lloyd (1982), Least squares quantization in PCM, IEEE Transactions on Information Theory 28.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import baselines
    >>> rng = np.random.default_rng(0)
    >>> sites = {name: rng.normal([[0, 0], [9, 9]] * 20) for name in ("north", "south")}
    >>> model = baselines.FederatedKMeans(2, random_state=0).fit(sites)
    >>> model.cluster_centers_.shape
    (2, 2)
    """

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        """One step of Lloyd's algorithm: one SUM; a centre without rows stays."""
        found = fed.sum(assign, Centres(state.centres))
        shift = found.x / np.maximum(found.n, 1e-300)[:, None]
        return State(state.centres + shift, float(np.abs(shift).max())), {"inertia": float(found.inertia)}

    def finish(self, fed: Federation, state: State) -> None:
        """Set the centres and the inertia."""
        super().finish(fed, state)
        self.inertia_ = self.history_[-1]["inertia"]
