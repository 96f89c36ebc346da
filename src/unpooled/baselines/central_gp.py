"""The Gaussian process of the pooled rows: what a federated one is measured against. It needs all rows in one place.

`method="exact"` is scikit-learn's (n^3), `method="random features"` is FedBNR's model with a single client.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from unpooled.arrays import to_numpy
from unpooled.errors import BadParameter
from unpooled.federation import innermost
from unpooled.local import as_federation
from unpooled.maths.named import at_least, mapping, one_of
from unpooled.models.fedbnr import FedBNR


class CentralGP(RegressorMixin, BaseEstimator):
    """A Gaussian process on the pooled rows of all clients of this process.

    Parameters
    ----------
    method : "exact" (a length scale for each feature, learned) or "random features".
    learn_on : of the exact one: learn the kernel on so many random rows, then fit all; None: learn on all, n^3 a step.
    settings : dict, parameters of `GaussianProcessRegressor` or of `FedBNR`.
    """

    def __init__(
        self, method: str = "exact", *, learn_on: int | None = None, settings: Any = None, random_state: Any = None
    ):
        self.method = method
        self.learn_on = learn_on
        self.settings = settings
        self.random_state = random_state

    def fit(self, data: Any, y: Any = None, *, by: Any = None) -> CentralGP:
        one_of("method", self.method, ("exact", "random features"))
        mapping("settings", self.settings)
        if self.learn_on is not None:
            at_least("learn_on", self.learn_on, 2)
        clients = getattr(innermost(as_federation(data, y, by=by)), "clients", None)
        if clients is None:
            raise BadParameter("CentralGP needs all rows in this process: give arrays, not a federation over a network")
        x = np.concatenate([to_numpy(c.x) for c in clients]).astype(np.float64)
        y = np.concatenate([to_numpy(c.y) for c in clients]).astype(np.float64)
        self.model_ = self._model(x.shape[1])
        if self.method == "exact" and self.learn_on is not None and self.learn_on < len(y):
            some = np.random.default_rng(self.random_state).choice(len(y), self.learn_on, replace=False)
            learned = self.model_.fit(x[some], y[some])[-1]
            learned.set_params(kernel=learned.kernel_, optimizer=None)
        self.model_.fit(x, y)
        self.n_features_in_ = x.shape[1]
        return self

    def _model(self, d: int) -> Any:
        settings = self.settings or {}
        if self.method == "random features":
            return FedBNR("exact", random_state=self.random_state, **settings)
        kernel = ConstantKernel() * RBF(np.full(d, np.sqrt(d))) + WhiteKernel(0.1)
        options = {"kernel": kernel, "normalize_y": True, "random_state": self.random_state} | settings
        return make_pipeline(StandardScaler(), GaussianProcessRegressor(**options))

    def predict(self, X: Any, return_std: bool = False) -> Any:
        check_is_fitted(self, "model_")
        return self.model_.predict(X, return_std=return_std)
