"""Clustering of the pooled rows with scikit-learn: a reference, not a federated method.

It reads the rows of clients in this process and sends nothing.
"""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

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
from unpooled.parameters import one_of

METHODS = ("gmm", "gmm-bic", "bayesian", "hdbscan")
SHAPES = ("spherical", "diag", "full")


class PooledClustering(Estimator):
    """Clustering of the pooled rows with scikit-learn, as a reference.

    It reads the rows of clients in this process and sends nothing.

    Parameters
    ----------
    method : {"gmm", "gmm-bic", "bayesian", "hdbscan"}, default="gmm"
        A Gaussian mixture of `n_components` (covariance type by BIC), one of 1 to `n_components` by BIC, a
        Dirichlet process mixture truncated at `n_components`, or HDBSCAN (noise is a cluster of its own).
    n_components : int, default=10
        Components, or components at most.
    covariance_types : tuple of str, default=("spherical", "diag", "full")
        Covariance types to choose from.
    n_init : int, default=3
        Starts per mixture.
    min_cluster_size : int, default=20
        Parameter of HDBSCAN.
    random_state : int, RandomState or None, default=None
        Seed of the starts.

    Attributes
    ----------
    labels_ : dict of str to ndarray of shape (n,)
        The cluster of each row, by client.
    n_components_ : int
        Clusters found.
    model_ : sklearn.mixture.GaussianMixture
        The fitted mixture ("gmm" and "gmm-bic").

    References
    ----------
    Pedregosa et al. (2011), Scikit-learn: machine learning in Python, JMLR 12.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import baselines
    >>> rng = np.random.default_rng(0)
    >>> sites = {name: rng.normal([[0, 0], [9, 9]] * 20) for name in ("north", "south")}
    >>> model = baselines.PooledClustering(n_components=2, random_state=0).fit(sites)
    >>> model.n_components_
    2
    """

    minima: ClassVar = {"n_components": 1, "n_init": 1, "min_cluster_size": 2}

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
        """Cluster the pooled rows.

        Parameters
        ----------
        data : dict, list, array, frame or Federation
            As `X` in every estimator's `fit`; all rows must be in this process.
        y, sample_weight : ignored
            For the same signature as other estimators.
        by : array-like, str or None, default=None
            The client of each row.

        Returns
        -------
        self
        """
        fed = as_federation(data, y, by=by)
        self._check_all(fed)
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
        """Refuse an unknown method, clients elsewhere and missing values."""
        one_of("method", self.method, METHODS)
        if not fed.here():
            raise BadParameter("PooledClustering needs all rows in this process: use a Local federation")
        check_complete(fed.here())

    def _labels(self, x: np.ndarray) -> np.ndarray:
        """The cluster (n,) of each pooled row x (n, d)."""
        if self.method == "hdbscan":
            return HDBSCAN(min_cluster_size=self.min_cluster_size, copy=True).fit_predict(x)
        if self.method == "bayesian":
            return self._bayesian(x).fit_predict(x)
        self.model_ = min(self._mixtures(x), key=lambda m: m.bic(x))
        return self.model_.predict(x)

    def _bayesian(self, x: np.ndarray) -> BayesianGaussianMixture:
        """A truncated Dirichlet process mixture, not fitted yet."""
        return BayesianGaussianMixture(
            n_components=min(self.n_components, len(x)),
            weight_concentration_prior=1e-2,
            reg_covar=1e-4,
            max_iter=300,
            random_state=self.random_state,
        )

    def _mixtures(self, x: np.ndarray):
        """One fitted mixture per covariance type; with "gmm-bic" per type and number of components.

        The number rises until BIC has failed to improve three times in a row.
        """
        for shape in self.covariance_types:
            if self.method == "gmm":
                yield self._mixture(x, self.n_components, shape)
                continue
            least = np.inf
            waited = 0
            for k in range(1, self.n_components + 1):
                model = self._mixture(x, k, shape)
                yield model
                waited = 0 if model.bic(x) < least else waited + 1
                least = min(least, model.bic(x))
                if waited == 3:
                    break

    def _mixture(self, x: np.ndarray, k: int, shape: str) -> GaussianMixture:
        """A mixture of k components fitted to x."""
        seed = self.random_state
        n_init = self.n_init
        return GaussianMixture(k, covariance_type=shape, n_init=n_init, reg_covar=1e-4, random_state=seed).fit(x)
