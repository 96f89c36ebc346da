"""k-means with differential privacy: rough cells, k-means on them at the server, then a few noisy Lloyd steps.

Two looks at cells of M (d + 2) numbers, then `LOOKS` looks of k (d + 2) numbers, all by one question. Columns are standardised, so that
distances do not depend on their units.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.cluster import KMeans
from sklearn.utils.validation import check_is_fitted

from unpooled.arrays import Array
from unpooled.estimator import Estimator, Info, rows_of
from unpooled.federation import Federation
from unpooled.layers.private import look, private_layer
from unpooled.models.private.cells import COUNT, FIRST, Cells, Centres, cell_sums, nearest_seen
from unpooled.models.private.frame import Frame, column_moments, half_widths, look_at_columns
from unpooled.models.private.start import FIRST_SHARE, SECOND_SHARE, cell_radius, drawn, find_cells
from unpooled.parameters import at_least
from unpooled.privacy.clipping import from_unit, in_ball
from unpooled.tree import message

FRAME_SHARE = 0.1  # of the budget
LOOKS = 4
STARTS = 20


@message("private.KMeansState")
class State(NamedTuple):
    """Centres between two looks, and the remaining budget."""

    frame: Frame
    rows: float
    centres: Array  # (k, d) in the units of the frame
    radius: float
    mu2: float  # of each remaining look
    looks_left: int
    epsilon: float


class PrivateKMeans(Estimator):
    """Cluster centres found with differential privacy; fitted to `Private(fed, epsilon=, delta=, bounds=)`.

    Parameters
    ----------
    n_clusters : int, default 8
    random_state : int or None, default None
        For the public cells and the server's starts; the noise comes from the layer.

    Attributes
    ----------
    cluster_centers_ : array (k, d)
    scale_ : array (d,)
        The standard deviation by which each column is divided before distances are taken.
    n_rows_ : float
        The number of rows, with noise.
    epsilon_ : float
        What all looks so far cost, this fit's included.

    Examples
    --------
    >>> import numpy as np
    >>> import unpooled as up
    >>> from unpooled.layers.private import Private
    >>> from unpooled.models.private import PrivateKMeans
    >>> rng = np.random.default_rng(0)
    >>> x = np.concatenate([rng.normal(c, 1, size=(4000, 2)) for c in (-6, 0, 6)])
    >>> private = Private(up.federate({"a": x}), epsilon=1, delta=1e-5, bounds=[[-15, 15]] * 2, secret=b"s" * 32)
    >>> centres = PrivateKMeans(3, random_state=0).fit(private).cluster_centers_
    >>> np.sort(centres[:, 0]).round().tolist()
    [-6.0, 0.0, 6.0]
    """

    max_iter = LOOKS

    def __init__(self, n_clusters: int = 8, *, random_state: Any = None):
        self.n_clusters = n_clusters
        self.random_state = random_state

    def check(self, fed: Federation) -> None:
        """Refuse a federation without a privacy budget, and fewer than one cluster."""
        private_layer(fed)
        at_least("n_clusters", self.n_clusters, 1)

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        """Look at the columns and at cells, cluster the cells at the server, and plan the looks that remain."""
        private = private_layer(fed)
        budget = private.mu2_for_fit
        k = int(self.n_clusters)
        columns, cost = look_at_columns(fed, column_moments, private.bounds, FRAME_SHARE * budget)
        cells = find_cells(fed, columns, k, budget, rng)
        centres = cluster_cells(cells, k, rng)
        radius = cell_radius(centres, drawn(cells, rng))
        rest = budget * (1 - FIRST_SHARE - SECOND_SHARE) - cost
        return State(columns.frame, columns.rows, centres, radius, rest / LOOKS, LOOKS, 0.0)

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        """One noisy Lloyd step: move each centre by the part of its shift that noise does not explain."""
        sums, sigma = look(fed, cell_sums, Centres(state.frame, state.centres, np.asarray(state.radius)), state.mu2)
        n = np.maximum(sums.n / COUNT, 2 * sigma / COUNT)
        shift = in_ball(sums.first / FIRST / n[:, None])
        noise = (sigma / FIRST / n) ** 2
        moved = np.maximum((shift**2).mean(1) - noise, 0.0)
        share = moved / np.maximum(moved + noise, 1e-300)  # what noise does not explain
        centres = state.centres + state.radius * share[:, None] * shift
        epsilon = private_layer(fed).accountant.spent.epsilon
        return state._replace(centres=centres, looks_left=state.looks_left - 1, epsilon=epsilon), {"epsilon": epsilon}

    def done(self, state: State, history: list[Info]) -> bool:
        """Whether all looks are spent."""
        return state.looks_left <= 0

    def finish(self, fed: Federation, state: State) -> None:
        """Set the centres in the data's units."""
        frame = state.frame
        self.cluster_centers_ = from_unit(frame.mean + frame.scale * state.centres, frame.bounds)
        self.scale_ = half_widths(frame.bounds) * frame.scale
        self.n_features_in_ = len(frame.mean)
        self.n_rows_ = state.rows
        self.epsilon_ = state.epsilon

    def predict(self, X: Any) -> np.ndarray:
        """The nearest centre of each row, by the values that are there."""
        check_is_fitted(self, "cluster_centers_")
        x = rows_of(self, X, ensure_all_finite="allow-nan", dtype=np.float64)
        return nearest_seen(x / self.scale_, self.cluster_centers_ / self.scale_)


def cluster_cells(cells: Cells, k: int, rng: np.random.Generator) -> np.ndarray:
    """k-means on the cells, each as heavy as it has rows."""
    seed = int(rng.integers(2**31 - 1))
    found = KMeans(k, n_init=STARTS, random_state=seed).fit(cells.mean, sample_weight=np.maximum(cells.n, 0))
    return found.cluster_centers_
