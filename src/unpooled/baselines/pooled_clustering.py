"""What could be had if the rows were in one place: scikit-learn on all rows together. A reference, not a federated method.

It reads the rows of clients in this process and sends nothing, because there is nobody to send to.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.cluster import HDBSCAN
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

from unpooled.arrays import to_numpy
from unpooled.data.checks import check_complete
from unpooled.data.federate import as_federation
from unpooled.errors import BadParameter
from unpooled.estimator import Estimator
from unpooled.federation import Federation

METHODS = ("gmm", "gmm-bic", "bayesian", "hdbscan")
SHAPES = ("spherical", "diag", "full")


class PooledClustering(Estimator):
    """Central references.

    method : "gmm" (told `n_components`; the shape by BIC), "gmm-bic" (1 to `n_components`, and the shape, by BIC), "bayesian" (a Dirichlet
    process truncated at `n_components`), "hdbscan" (`min_cluster_size`; noise is a cluster of its own).
    """

    def __init__(
        self,
        method: str = "gmm",
        *,
        n_components: int = 10,
        covariance_types: tuple[str, ...] = SHAPES,
        n_init: int = 3,
        min_cluster_size: int = 20,
        random_state: Any = None,
    ):
        self.method = method
        self.n_components = n_components
        self.covariance_types = covariance_types
        self.n_init = n_init
        self.min_cluster_size = min_cluster_size
        self.random_state = random_state

    def fit(self, data: Any, y: Any = None, *, by: Any = None, sample_weight: Any = None) -> PooledClustering:
        fed = as_federation(data, y, by=by)
        self.check(fed)
        clients = fed.here()
        x = np.concatenate([to_numpy(c.x) for c in clients])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            labels = self._labels(x)
        ends = np.cumsum([len(c.w) for c in clients])
        self.labels_ = dict(zip((c.name for c in clients), np.split(labels, ends[:-1])))
        self.n_components_ = len(np.unique(labels))
        return self

    def check(self, fed: Federation) -> None:
        if self.method not in METHODS:
            raise BadParameter(f"method={self.method!r} is not known: use one of {', '.join(METHODS)}")
        if not fed.here():
            raise BadParameter("PooledClustering needs all rows in this process: it is what a federation cannot do")
        check_complete(fed.here())

    def _labels(self, x: np.ndarray) -> np.ndarray:
        if self.method == "hdbscan":
            return HDBSCAN(min_cluster_size=self.min_cluster_size, copy=True).fit_predict(x)
        if self.method == "bayesian":
            return self._bayesian(x).fit_predict(x)
        self.model_ = min(self._mixtures(x), key=lambda m: m.bic(x))
        return self.model_.predict(x)

    def _bayesian(self, x: np.ndarray) -> BayesianGaussianMixture:
        return BayesianGaussianMixture(
            n_components=min(self.n_components, len(x)),
            weight_concentration_prior=1e-2,
            reg_covar=1e-4,
            max_iter=300,
            random_state=self.random_state,
        )

    def _mixtures(self, x: np.ndarray):
        """One for each shape, or for each shape and number until BIC has not improved three times in a row."""
        for shape in self.covariance_types:
            if self.method == "gmm":
                yield self._mixture(x, self.n_components, shape)
                continue
            least, waited = np.inf, 0
            for k in range(1, self.n_components + 1):
                model = self._mixture(x, k, shape)
                yield model
                waited = 0 if model.bic(x) < least else waited + 1
                least = min(least, model.bic(x))
                if waited == 3:
                    break

    def _mixture(self, x: np.ndarray, k: int, shape: str) -> GaussianMixture:
        seed, n_init = self.random_state, self.n_init
        return GaussianMixture(k, covariance_type=shape, n_init=n_init, reg_covar=1e-4, random_state=seed).fit(x)
