"""Base classes of the clustering baselines, which assign each row to the nearest of `cluster_centers_`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from unpooled.arrays import Array, Float, to_numpy
from unpooled.data.checks import check_complete
from unpooled.errors import BadParameter
from unpooled.estimator import Estimator, Info, rows_of
from unpooled.federation import Federation
from unpooled.maths.distances import nearest
from unpooled.models import initialization as start
from unpooled.tree import message


class CentreModel(Estimator):
    """Base class of clusterings by centres; a subclass calls `_set_centres` in `finish`."""

    n_clusters: int

    def check(self, fed: Federation) -> None:
        """Refuse a number of clusters below 1, and missing values."""
        if self.n_clusters < 1:
            raise BadParameter(f"n_clusters={self.n_clusters!r} must be at least 1")
        check_complete(fed.here())

    def _set_centres(self, fed: Federation, centres: Array) -> None:
        """Set the learned attributes from centres (k, d), and label the rows of clients in this process."""
        self.cluster_centers_ = to_numpy(centres)
        self.n_components_, self.n_features_in_ = (int(s) for s in self.cluster_centers_.shape)
        here = fed.here()
        self.labels_ = {c.name: self.predict(c.x, client=c.name) for c in here}

    def predict(self, X: Any, client: str | None = None) -> np.ndarray:
        """The index of the nearest centre of each row, (n,); `client` is not used."""
        check_is_fitted(self, "cluster_centers_")
        return nearest(rows_of(self, X), self.cluster_centers_)


# ---- iterative algorithms ----


def first_centres(fed: Federation, k: int, min_count: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(k centres of the clients' own k-means centres (k, d), standard deviations of the columns (d,)); one GATHER."""
    frame = start.frame(fed)
    local = start.centres(fed, frame, k, min_count)
    centres = start.cluster_centres(local, k, rng).x  # (k, d) standardised
    return frame.mean + frame.scale * centres, frame.scale


@message("centres.Centres")
class Centres(NamedTuple):
    """Down: the current centres."""

    centres: Float[Array, "k d"]


@message("centres.State")
class State(NamedTuple):
    """The centres and the largest move of a coordinate in the last round."""

    centres: Array  # (k, d)
    moved: float


class MovingCentres(CentreModel):
    """Base class of iterations that move centres; stops when no coordinate moves by more than `tol`."""

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

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        """The given centres, or clustered local centres of the clients (one GATHER)."""
        if self.centers_init is not None:
            return State(np.asarray(self.centers_init, dtype=float), np.inf)
        centres, _ = first_centres(fed, self.n_clusters, self.min_count, rng)
        return State(centres, np.inf)

    def done(self, state: State, history: list[Info]) -> bool:
        """Whether no coordinate moved by more than `tol`."""
        return state.moved <= self.tol

    def finish(self, fed: Federation, state: State) -> None:
        """Set the cluster centres."""
        self._set_centres(fed, state.centres)
