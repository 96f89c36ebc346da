"""k-FED (Dennis, Li and Smith, 2021): one GATHER of local centres, farthest-first choice among them, one step of Lloyd.

There is one round. Clients cluster by the method of Awasthi and Sheffet: k-means in the span of the leading singular
vectors, then means of the rows that are three times nearer to their own centre than to any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from unpooled.arrays import Array, Float, to_numpy
from unpooled.baselines.centres import CentreModel
from unpooled.client import GATHER, Client, client
from unpooled.estimator import Info, rows_of
from unpooled.federation import Federation
from unpooled.maths.distances import nearest, squared
from unpooled.maths.local_mixture import kmeans
from unpooled.tree import message


@message("kfed.LocalCentres")
class LocalCentres(NamedTuple):
    """Up: the client's own centres."""

    centre: Float[Array, "k d"]


@message("kfed.State")
class State(NamedTuple):
    """The global centres, each client's centres, and the global cluster of each of those."""

    centres: Array  # (k, d)
    local: dict[str, Array]  # client -> (k', d)
    place: dict[str, Array]  # client -> (k',) the global cluster of each local one


@client("kfed.local_clusters", GATHER, batched=False)
def local_clusters(nothing: None, client: Client, *, sizes: dict, default: int) -> LocalCentres:
    """The client's own centres: `sizes` gives their number by client, `default` for the others."""
    x = to_numpy(client.x).astype(float)
    w = to_numpy(client.w).astype(float)
    return LocalCentres(awasthi_sheffet(x[w > 0], sizes.get(client.name, default), client.rng))


def awasthi_sheffet(x: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """Centres (k, d) of rows x (n, d); fewer if there are fewer distinct rows."""
    _, _, axes = np.linalg.svd(x, full_matrices=False)
    flat = x @ axes[:k].T @ axes[:k]
    labels = kmeans(flat, np.ones(len(x)), k, rng, n_init=5)
    member = np.eye(labels.max() + 1)[labels]
    centre = member.T @ flat / member.sum(0)[:, None]
    distance = np.sqrt(squared(flat, centre))
    core = distance * 3 <= np.where(member > 0, np.inf, distance).min(1)[:, None]
    core = np.where(core.any(0), core, member > 0)  # a centre without such a row keeps all rows of its cluster
    return core.T @ x / core.sum(0)[:, None]


def max_min(points: np.ndarray, first: np.ndarray, k: int) -> np.ndarray:
    """Farthest-first traversal: starting with `first`, add the point farthest from all chosen ones, up to k: (k, d)."""
    chosen = list(first[:k])
    while len(chosen) < min(k, len(points)):
        far = squared(points, np.array(chosen)).min(1)
        chosen.append(points[int(np.argmax(far))])
    return np.array(chosen)


class KFed(CentreModel):
    """One-shot federated k-means.

    Each client clusters its rows alone; the server gathers all local centres once and groups them.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    n_local : int or mapping of str to int, default=3
        Clusters at a client; a mapping gives it by client name.
    random_state : int, RandomState or None, default=None
        Seed of local clustering.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_components_, d)
        Centers of the clusters.
    n_components_ : int
        Clusters found.
    labels_ : dict of str to ndarray of shape (n,)
        The cluster of each row, by client in this process.
    local_centers_ : dict of str to ndarray
        Centers that each client sent.
    place_ : dict of str to ndarray of int
        The global cluster of each local centre.

    References
    ----------
    Dennis, Li and Smith (2021), Heterogeneity for the win: one-shot federated clustering, ICML.
    Awasthi and Sheffet (2012), Improved spectral-norm bounds for clustering, APPROX.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import baselines
    >>> rng = np.random.default_rng(0)
    >>> sites = {name: rng.normal([[0, 0], [9, 9]] * 20) for name in ("north", "south")}
    >>> model = baselines.KFed(2, n_local=2, random_state=0).fit(sites)
    >>> model.cluster_centers_.shape
    (2, 2)
    """

    max_iter = 1

    minima: ClassVar = {"n_clusters": 1, "n_local": 1}

    def __init__(self, n_clusters: int = 8, *, n_local: int | Mapping[str, int] = 3, random_state: Any = None):
        self.n_clusters = n_clusters
        self.n_local = n_local
        self.random_state = random_state

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        """An empty state: nothing is known before the one round."""
        return State(np.zeros((0, 0)), {}, {})

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        """One GATHER of local centres, which are grouped around farthest-first points."""
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
        """Set the centres and the global cluster of each local one."""
        self.local_centers_ = state.local
        self.place_ = state.place
        self._set_centres(fed, state.centres)

    def predict(self, X: Any, client: str | None = None) -> np.ndarray:
        """The cluster of each row: by the own centres of `client` if it is given, else by the nearest global centre."""
        check_is_fitted(self, "cluster_centers_")
        if client is None or client not in self.local_centers_:
            return super().predict(X)
        return self.place_[client][nearest(rows_of(self, X), self.local_centers_[client])]
