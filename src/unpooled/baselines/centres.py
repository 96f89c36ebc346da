"""What clustering baselines share: rows go to the nearest of `cluster_centers_`; labels of clients that are in this process."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from unpooled.arrays import Array, to_numpy
from unpooled.client import Client
from unpooled.errors import BadParameter
from unpooled.estimator import Estimator
from unpooled.federation import Federation, innermost
from unpooled.maths.distances import nearest


class CentreModel(Estimator):
    """A clustering by centres; subclasses end `finish` with `_set_centres`."""

    n_clusters: int

    def check(self, fed: Federation) -> None:
        if self.n_clusters < 1:
            raise BadParameter(f"n_clusters={self.n_clusters!r} must be at least 1")

    def _set_centres(self, fed: Federation, centres: Array) -> None:
        self.cluster_centers_ = to_numpy(centres)
        self.n_components_, self.n_features_in_ = (int(s) for s in self.cluster_centers_.shape)
        here: list[Client] = getattr(innermost(fed), "clients", [])
        self.labels_ = {c.name: self.predict(c.x, client=c.name) for c in here}

    def predict(self, X: Any, client: str | None = None) -> np.ndarray:
        """The nearest centre of each row, whoever holds it."""
        check_is_fitted(self, "cluster_centers_")
        return nearest(validate_data(self, X, reset=False), self.cluster_centers_)
