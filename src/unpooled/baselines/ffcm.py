"""Federated fuzzy c-means (Stallmann and Wilbik, 2022), both ways of aggregation.

"average": clients take fuzzy steps from the same centres and the server averages by fuzzy mass, one SUM a round (with one local
step this is the pooled algorithm). "cluster": clients run to the end alone and the server clusters their centres, one GATHER.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.baselines.centres import Centres, MovingCentres, State
from unpooled.client import GATHER, SUM, Client, client
from unpooled.errors import BadParameter
from unpooled.estimator import Info
from unpooled.federation import Federation
from unpooled.maths.distances import squared
from unpooled.maths.local_mixture import kmeans
from unpooled.tree import message

AGGREGATIONS = ("average", "cluster")
LOCAL_STEPS = 50  # of a client that runs to the end


@message("ffcm.Fuzzy")
class Fuzzy(NamedTuple):
    mass: Float[Array, "k", ">=0 rows"]
    x: Float[Array, "k d"]  # mass times centre


@client("ffcm.fuzzy_steps", SUM)
def fuzzy_steps(down: Centres, client: Client, *, fuzziness: float, steps: int) -> Fuzzy:
    centres = np.broadcast_to(down.centres, (*client.w.shape[:-1], *down.centres.shape))
    for _ in range(steps):
        member = memberships(client.x, centres, fuzziness) ** fuzziness * client.w[..., None]
        mass = member.sum(-2)
        x = np.swapaxes(member, -1, -2) @ client.x
        centres = x / np.maximum(mass, 1e-300)[..., None]
    return Fuzzy(mass, x)


fuzzy_clusters = client("ffcm.fuzzy_clusters", GATHER)(
    fuzzy_steps.answer
)  # the same of each client, for k-means of all


def memberships(x: Array, centres: Array, fuzziness: float) -> Array:
    """(..., n, k) of x (..., n, d) in centres (..., k, d): they fall with the distance to the power -2 / (m - 1)."""
    log_u = -np.log(np.maximum(squared(x, centres), 1e-12)) / (fuzziness - 1)
    u = np.exp(log_u - log_u.max(-1, keepdims=True))
    return u / u.sum(-1, keepdims=True)


class FFCM(MovingCentres):
    """Fuzzy c-means over clients; `n_clusters` must be known."""

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        aggregation: str = "average",
        fuzziness: float = 2.0,
        local_steps: int = 1,
        centers_init: Any = None,
        min_count: float = 5,
        max_iter: int = 50,
        tol: float = 1e-5,
        random_state: Any = None,
    ):
        self.n_clusters = n_clusters
        self.aggregation = aggregation
        self.fuzziness = fuzziness
        self.local_steps = local_steps
        self.centers_init = centers_init
        self.min_count = min_count
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        new = self._averaged(fed, state) if self.aggregation == "average" else self._clustered(fed, state)
        moved = float(np.abs(new - state.centres).max())
        return State(new, moved if self.aggregation == "average" else 0.0), {"moved": moved}

    def _averaged(self, fed: Federation, state: State) -> np.ndarray:
        question = fuzzy_steps.using(fuzziness=self.fuzziness, steps=self.local_steps)
        found = fed.sum(question, Centres(state.centres))
        return to_numpy(found.x / np.maximum(found.mass, 1e-300)[:, None])

    def _clustered(self, fed: Federation, state: State) -> np.ndarray:
        question = fuzzy_clusters.using(fuzziness=self.fuzziness, steps=LOCAL_STEPS)
        found = fed.gather(question, Centres(state.centres)).values()
        x = np.concatenate([f.x / np.maximum(f.mass, 1e-300)[:, None] for f in found])
        mass = np.concatenate([f.mass for f in found])
        labels = kmeans(x, mass, self.n_clusters, fed.journal.rng, n_init=10)
        member = np.eye(labels.max() + 1)[:, labels] * mass
        return member @ x / member.sum(1)[:, None]

    def check(self, fed: Federation) -> None:
        super().check(fed)
        if self.aggregation not in AGGREGATIONS:
            raise BadParameter(f"aggregation={self.aggregation!r} is not known: use one of {', '.join(AGGREGATIONS)}")
        if not self.fuzziness > 1:
            raise BadParameter(f"fuzziness={self.fuzziness!r} must be above 1")
