"""Personal mixtures: the shared components under weights of a client's own. Sends nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unpooled.arrays import Array, namespace
from unpooled.maths import mixture

KEPT = ("n_iter_", "history_", "converged_", "columns_", "feature_names_in_")


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
        GaussianMixture
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
        x, params = self._rows(X), self.params()
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
