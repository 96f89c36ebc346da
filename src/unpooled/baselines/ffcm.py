"""Federated fuzzy c-means (Stallmann and Wilbik, 2022), with both of its aggregations.

"average": clients take fuzzy steps from the same centres and the server averages them by fuzzy mass, one SUM per round;
with one local step this is the pooled algorithm. "cluster": each client runs to convergence alone and the server
clusters the clients' centres, one GATHER.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.baselines.centres import Centres, MovingCentres, State
from unpooled.client import GATHER, SUM, Client, client
from unpooled.errors import BadParameter
from unpooled.estimator import Info
from unpooled.federation import Federation
from unpooled.maths.distances import squared
from unpooled.maths.local_mixture import kmeans
from unpooled.parameters import one_of
from unpooled.tree import message

AGGREGATIONS = ("average", "cluster")
LOCAL_STEPS = 50  # local steps with aggregation="cluster"


@message("ffcm.Fuzzy")
class Fuzzy(NamedTuple):
    """Up: the fuzzy mass of each cluster and its centre times that mass."""

    mass: Float[Array, "k", ">=0 rows"]
    x: Float[Array, "k d"]  # mass times centre


@client("ffcm.fuzzy_steps", SUM)
def fuzzy_steps(down: Centres, client: Client, *, fuzziness: float, steps: int) -> Fuzzy:
    """Fuzzy mass and weighted sum of rows of each cluster, after local steps from the current centres."""
    centres = np.broadcast_to(down.centres, (*client.w.shape[:-1], *down.centres.shape))
    for _ in range(steps):
        member = memberships(client.x, centres, fuzziness) ** fuzziness * client.w[..., None]
        mass = member.sum(-2)
        x = np.swapaxes(member, -1, -2) @ client.x
        centres = x / np.maximum(mass, 1e-300)[..., None]
    return Fuzzy(mass, x)


# the same answer, gathered for k-means over all clients
fuzzy_clusters = client("ffcm.fuzzy_clusters", GATHER)(fuzzy_steps.answer)


def memberships(x: Array, centres: Array, fuzziness: float) -> Array:
    """Memberships (..., n, k) of rows x (..., n, d) in centres (..., k, d).

    They are proportional to the distance to the power -2 / (m - 1).
    """
    log_u = -np.log(np.maximum(squared(x, centres), 1e-12)) / (fuzziness - 1)
    u = np.exp(log_u - log_u.max(-1, keepdims=True))
    return u / u.sum(-1, keepdims=True)


class FFCM(MovingCentres):
    """Federated fuzzy c-means.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    aggregation : {"average", "cluster"}, default="average"
        "average" adds fuzzy sums over clients in every round; "cluster" gathers each client's final centres once
        and clusters them.
    fuzziness : float, default=2.0
        Exponent m of the memberships, above 1.
    local_steps : int, default=1
        Fuzzy steps of a client per round ("average"); with 1 the result is that of the pooled rows.
    centers_init : array-like of shape (n_clusters, d) or None, default=None
        First centres; None clusters the clients' own k-means centres (one GATHER).
    min_count : float, default=5
        Clients send no local centre of fewer rows than this (only with `centers_init=None`).
    max_iter : int, default=50
        Rounds at most.
    tol : float, default=1e-5
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

    References
    ----------
    Stallmann and Wilbik (2022), Towards federated clustering: a federated fuzzy c-means algorithm (FFCM).

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import baselines
    >>> rng = np.random.default_rng(0)
    >>> sites = {name: rng.normal([[0, 0], [9, 9]] * 20) for name in ("north", "south")}
    >>> model = baselines.FFCM(2, random_state=0).fit(sites)
    >>> model.cluster_centers_.shape
    (2, 2)
    """

    minima: ClassVar = {"local_steps": 1}

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        aggregation: str = "average",
        fuzziness: float = 2.0,
        local_steps: int = 1,
        tol: float = 1e-5,
        **parameters: Any,
    ):
        super().__init__(n_clusters, tol=tol, **parameters)
        self.aggregation = aggregation
        self.fuzziness = fuzziness
        self.local_steps = local_steps

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        """One SUM ("average") or one GATHER ("cluster")."""
        new = self._averaged(fed, state) if self.aggregation == "average" else self._clustered(fed, state)
        moved = float(np.abs(new - state.centres).max())
        return State(new, moved if self.aggregation == "average" else 0.0), {"moved": moved}

    def _averaged(self, fed: Federation, state: State) -> np.ndarray:
        """The centres (k, d) averaged over clients by fuzzy mass."""
        question = fuzzy_steps.using(fuzziness=self.fuzziness, steps=self.local_steps)
        found = fed.sum(question, Centres(state.centres))
        return to_numpy(found.x / np.maximum(found.mass, 1e-300)[:, None])

    def _clustered(self, fed: Federation, state: State) -> np.ndarray:
        """The centres (k, d) of a weighted k-means over all clients' centres."""
        question = fuzzy_clusters.using(fuzziness=self.fuzziness, steps=LOCAL_STEPS)
        found = fed.gather(question, Centres(state.centres)).values()
        x = np.concatenate([f.x / np.maximum(f.mass, 1e-300)[:, None] for f in found])
        mass = np.concatenate([f.mass for f in found])
        labels = kmeans(x, mass, self.n_clusters, fed.journal.rng, n_init=10)
        member = np.eye(labels.max() + 1)[:, labels] * mass
        return member @ x / member.sum(1)[:, None]

    def check(self, fed: Federation) -> None:
        """Refuse an unknown aggregation and a fuzziness of 1 or less."""
        super().check(fed)
        one_of("aggregation", self.aggregation, AGGREGATIONS)
        if not self.fuzziness > 1:
            raise BadParameter(f"fuzziness={self.fuzziness!r} must be above 1")
