"""What every fitted mixture can do with new rows, in this process: predict, score, sample, condition, fill in. Sends nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from unpooled.arrays import Array, is_torch, namespace, to_numpy
from unpooled.errors import BadParameter, suggest
from unpooled.estimator import rows_of
from unpooled.maths import gaussian, mixture
from unpooled.maths.mixture import Params
from unpooled.tree import message

KEPT = ("n_iter_", "history_", "converged_", "columns_", "feature_names_in_")  # by the mixture of a single client


@message("mixture.Conditional")
class Conditional(NamedTuple):
    """The distribution of some columns given others, as a mixture and by its moments."""

    mean: Array  # (n, u)
    covariance: Array  # (n, u, u)


class MixtureFace:
    """Needs `covariance_type`, `weights_`, `means_`, `covariances_`; `client_weights_` where clients have weights of their own."""

    covariance_type: str
    weights_: Array
    means_: Array
    covariances_: Array
    n_features_in_: int

    def params(self, client: str | None = None) -> Params:
        """The mixture as one value, under a client's own weights if one is named."""
        check_is_fitted(self, "means_")
        weights = self.weights_ if client is None else self._weights_of(client)
        return Params(weights, self.means_, gaussian.pack_covs(self.covariances_, self.covariance_type))

    def predict(self, X: Any, client: str | None = None) -> Array:
        """The most probable component of each row."""
        return self._log_joint(X, client).argmax(-1)

    def predict_proba(self, X: Any, client: str | None = None) -> Array:
        """The probability of each component for each row; missing values are integrated out."""
        log_joint = self._log_joint(X, client)
        xp = namespace(log_joint)
        r = xp.exp(log_joint - (log_joint.amax(-1, keepdim=True) if xp is not np else log_joint.max(-1, keepdims=True)))
        return r / r.sum(-1)[:, None]

    def score_samples(self, X: Any, client: str | None = None) -> Array:
        """log p(x) of each row, over the values that are there."""
        return mixture.log_density(self.params(client), self._rows(X), self.covariance_type)

    def score(self, X: Any, y: Any = None, client: str | None = None) -> float:
        """Mean log p(x)."""
        return float(self.score_samples(X, client).mean())

    def bic(self, X: Any) -> float:
        """The Bayesian information criterion on the rows X; smaller is better."""
        return -2 * self.score(X) * len(X) + self._n_parameters() * np.log(len(X))

    def aic(self, X: Any) -> float:
        """The Akaike information criterion on the rows X; smaller is better."""
        return -2 * self.score(X) * len(X) + 2 * self._n_parameters()

    def sample(
        self, n_samples: int = 1, client: str | None = None, random_state: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows drawn from the mixture, and the component each came from."""
        params = self.params(client)
        if n_samples < 1:
            raise BadParameter(f"Invalid value for 'n_samples': {n_samples!r} must be at least 1")
        given = random_state if random_state is not None else getattr(self, "random_state", None)
        rng = np.random.default_rng(check_random_state(given).randint(2**31 - 1))
        weights = to_numpy(params.weights)
        y = np.repeat(np.arange(len(weights)), rng.multinomial(n_samples, weights / weights.sum()))
        factors = np.linalg.cholesky(to_numpy(gaussian.full_covs(params, self.covariance_type)))
        noise = rng.normal(size=(n_samples, params.means.shape[1]))
        return to_numpy(params.means)[y] + np.einsum("nij,nj->ni", factors[y], noise), y

    def impute(self, X: Any, client: str | None = None) -> Array:
        """X with every missing value at its conditional mean."""
        from unpooled.maths import missing

        return missing.impute(self.params(client), self._rows(X), self.covariance_type)

    def conditional(self, X: Any, columns: Sequence[int | str], client: str | None = None) -> Conditional:
        """Mean and covariance of `columns` given all the other columns of X (whatever X holds in them is ignored)."""
        from unpooled.maths import missing

        check_is_fitted(self, "means_")
        wanted = np.array([self._column(c) for c in columns])
        x = np.array(to_numpy(self._rows(X)), dtype=np.float64)
        x[:, wanted] = np.nan
        mean, covariance = missing.conditional_moments(self.params(client), x, self.covariance_type)
        return Conditional(mean[:, wanted], covariance[:, wanted[:, None], wanted])

    def _column(self, column: int | str) -> int:
        """The place of a column given by name or by place."""
        if isinstance(column, str):
            names = getattr(self, "columns_", None) or []
            if column not in names:
                raise BadParameter(f"there is no column {column!r}: {suggest(column, names)}")
            return names.index(column)
        if not -self.n_features_in_ <= column < self.n_features_in_:
            raise BadParameter(f"column {column} is outside of the {self.n_features_in_} columns of the model")
        return int(column) % self.n_features_in_

    def _weights_of(self, client: str) -> Array:
        """The weights of a client that took part with personal weights."""
        known: Mapping[str, Array] = getattr(self, "client_weights_", {})
        if client not in known:
            remedy = suggest(client, known) if known else "leave out client=, or fit with personal_weights=True"
            raise BadParameter(f"no weights are known for client {client!r}: {remedy}")
        return known[client]

    def _log_joint(self, X: Any, client: str | None) -> Array:
        """Log of weight times density, (rows, k)."""
        return mixture.log_joint(self.params(client), self._rows(X), self.covariance_type)

    def _n_parameters(self) -> int:
        """How many free parameters the mixture has."""
        k, d = self.means_.shape
        return gaussian.n_parameters(k, d, self.covariance_type)

    def _rows(self, X: Any) -> Array:
        """X as an array with the columns of the fit; NaN is allowed."""
        check_is_fitted(self, "means_")
        if is_torch(X):
            return X
        return rows_of(self, X, ensure_all_finite="allow-nan", dtype=[np.float64, np.float32])


class PersonalWeights:
    """Needs a fitted mixture and, for `personal_`, its `client_weights_`."""

    covariance_type: str
    client_weights_: Mapping[str, Array]
    get_params: Any
    params: Any
    _rows: Any
    _set_params: Any

    @property
    def personal_(self) -> Mapping[str, Any]:
        """Each client's own mixture: the shared components under its own weights."""
        if not hasattr(self, "client_weights_"):
            raise AttributeError("personal_ needs personal_weights=True, a fit, and clients in this process")
        return {name: self._with_weights(weights) for name, weights in self.client_weights_.items()}

    def adapt(self, X: Any, y: Any = None) -> Any:
        """A personal model for a client never seen: EM on its weights alone, in this process, components frozen.

        Parameters
        ----------
        X : array-like of shape (n, d)
            The client's rows.
        y : None
            Ignored.

        Returns
        -------
        estimator
            A copy of this mixture with the client's own weights.
        """
        return self._with_weights(self.adapt_weights(X))

    def adapt_weights(self, X: Any) -> Array:
        """The mixing weights under which these rows are most likely, components frozen.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.

        Returns
        -------
        ndarray of shape (k,)
        """
        x = self._rows(X)
        params = self.params()
        alike = params._replace(weights=namespace(params.weights).ones_like(params.weights))
        log_joint = mixture.log_joint(alike, x, self.covariance_type)
        return mixture.fit_weights(log_joint, params.weights)

    def _with_weights(self, weights: Array) -> Any:
        """A copy of the fitted model under other weights."""
        personal = type(self)(**self.get_params())
        for name in KEPT:
            if hasattr(self, name):
                setattr(personal, name, getattr(self, name))
        personal._set_params(self.params()._replace(weights=weights))
        return personal
