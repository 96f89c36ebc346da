"""A Gaussian process on the pooled rows, for comparison. Sends nothing: it needs all rows in this process.

`method="exact"` costs n^3 per step; `method="random features"` is FedBNR with a single client.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data

from unpooled.arrays import to_numpy
from unpooled.data.federate import as_federation
from unpooled.errors import BadData, BadParameter
from unpooled.models.fedbnr import FedBNR, check_device
from unpooled.parameters import at_least, mapping, one_of

FIRST_NOISE = 0.1


class CentralGP(RegressorMixin, BaseEstimator):
    """A Gaussian process on the pooled rows of all clients of this process.

    Parameters
    ----------
    method : {"exact", "random features"}, default="exact"
        "exact" has a Gaussian kernel with a learned length scale per column; "random features" is `FedBNR` on the
        pooled rows.
    learn_on : int or None, default=None
        For "exact": number of random rows on which the kernel is learned; None: all.
    max_iter : int, default=100
        For "exact": L-BFGS steps; 0 keeps unit variance and length scales of sqrt(d).
    settings : dict or None, default=None
        For "random features": parameters of `FedBNR`.
    device : str, default="cpu"
        For "exact": torch device.
    random_state : int or None, default=None
        Seed of the rows learned on, or of `FedBNR`.

    Attributes
    ----------
    model_ : Process or FedBNR
        The fitted model.

    References
    ----------
    Rasmussen, Williams, Gaussian processes for machine learning, MIT Press 2006.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled.baselines import CentralGP
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(60, 2))
    >>> y = x[:, 0] + 0.1 * rng.normal(size=60)
    >>> model = CentralGP(max_iter=2).fit(x, y, by=np.arange(60) % 3)
    >>> model.predict(x).shape
    (60,)
    """

    def __init__(
        self,
        method: str = "exact",
        *,
        learn_on: int | None = None,
        max_iter: int = 100,
        settings: Any = None,
        device: str = "cpu",
        random_state: Any = None,
    ):
        self.method = method
        self.learn_on = learn_on
        self.max_iter = max_iter
        self.settings = settings
        self.device = device
        self.random_state = random_state

    def _check(self) -> None:
        """Refuse parameters out of range."""
        one_of("method", self.method, ("exact", "random features"))
        mapping("settings", self.settings)
        at_least("max_iter", self.max_iter, 0)
        if self.learn_on is not None:
            at_least("learn_on", self.learn_on, 2)
        if self.random_state is not None:
            at_least("random_state", self.random_state, 0)
        if self.device != "cpu":
            check_device(self.device)

    def fit(self, data: Any, y: Any = None, *, by: Any = None) -> CentralGP:
        """Fit to the pooled rows of all clients.

        Parameters
        ----------
        data : dict, list, array, frame or Federation
            As `X` in every estimator's `fit`; all rows must be in this process.
        y : dict, list, array, str or None, default=None
            Targets.
        by : array-like, str or None, default=None
            The client of each row.

        Returns
        -------
        self
        """
        self._check()
        clients = as_federation(data, y, by=by).here()
        if clients is None:
            raise BadParameter("CentralGP needs all rows in this process: give arrays, not a federation over a network")
        x = np.concatenate([to_numpy(c.x) for c in clients]).astype(np.float64)
        y = np.concatenate([to_numpy(c.y) for c in clients]).astype(np.float64)
        self.n_features_in_ = x.shape[1]
        if self.method == "random features":
            self.model_ = FedBNR("exact", random_state=self.random_state, **(self.settings or {})).fit(x, y)
            return self
        if y.ndim != 1 or not np.isfinite(x).all():
            raise BadData("the exact process needs one target and no missing values: fill them in first")
        return self._fit_exact(x, y)

    def _fit_exact(self, x: np.ndarray, y: np.ndarray) -> CentralGP:
        """Learn the kernel by L-BFGS, then fit the exact process to all rows x (n, d), y (n,)."""
        import torch

        from unpooled.baselines import exact_gp

        self.scaler_ = StandardScaler().fit(x)
        self.offset_ = y.mean()
        self.unit_ = y.std()
        rows = torch.as_tensor(self.scaler_.transform(x), device=self.device)
        targets = torch.as_tensor(((y - self.offset_) / self.unit_)[:, None], device=self.device)
        start = [np.full(x.shape[1], 0.5 * np.log(x.shape[1])), np.zeros(()), np.log(FIRST_NOISE)]
        shape = exact_gp.Shape(*(torch.as_tensor(p, dtype=rows.dtype, device=self.device) for p in start))
        some = np.arange(len(y))
        if self.learn_on is not None and self.learn_on < len(y):
            some = np.random.default_rng(self.random_state).choice(len(y), self.learn_on, replace=False)
        if self.max_iter > 0:
            shape = exact_gp.learn(shape, rows[some], targets[some], self.max_iter)
        self.model_ = exact_gp.fit(shape, rows, targets)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict the mean of y at each row.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows to predict.
        return_std : bool, default=False
            Whether to return the standard deviation of y, noise included, too.

        Returns
        -------
        mean : array of shape (n_samples,)
            Predictions.
        std : array of shape (n_samples,)
            Only with `return_std=True`.
        """
        check_is_fitted(self, "model_")
        if self.method == "random features":
            return self.model_.predict(X, return_std=return_std)
        import torch

        from unpooled.baselines import exact_gp

        X = validate_data(self, X, reset=False, dtype=np.float64)
        rows = torch.as_tensor(self.scaler_.transform(X), device=self.device)
        mean, variance = (to_numpy(a) for a in exact_gp.predict(self.model_, rows))
        mean = self.offset_ + self.unit_ * mean
        return (mean, self.unit_ * np.sqrt(variance)) if return_std else mean
