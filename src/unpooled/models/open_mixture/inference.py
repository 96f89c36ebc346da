"""What a fitted `OpenMixture` can do with new rows, in this process: clusters, densities, samples. Sends nothing.

Rows of numbers go to `MixtureFace`; where columns are mixed, everything goes to the `MixedMixture` of the same components.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from unpooled.arrays import Array, to_numpy
from unpooled.errors import BadParameter, suggest
from unpooled.maths import mixture
from unpooled.models.mixed import MixedMixture
from unpooled.models.mixed import Params as MixedParams
from unpooled.models.mixture import MixtureFace
from unpooled.models.open_mixture.constants import TINY

CARRIED = ("columns_", "schema_", "feature_names_in_", "_by_frame")  # what encodes new rows as those of the fit


class OpenFace(MixtureFace):
    """Needs the attributes of a fitted `OpenMixture`."""

    covariance_type_: str
    structure_: str
    n_components_: int
    topics_: Array
    cluster_weights_: Array
    client_shares_: dict[str, Array]
    client_offsets_: dict[str, Array]
    client_factors_: dict[str, Array]
    holdings_: dict[str, Array]
    kinds_: list[str] | None
    n_levels_: list[int] | None
    probabilities_: Array
    count_means_: Array
    count_dispersions_: Array

    @property
    def covariance_type(self) -> str:  # type: ignore[override]
        """The covariance type that was chosen."""
        return self.covariance_type_

    # ---- clusters ----

    def predict(self, X: Any, client: str | None = None) -> Array:
        """The most probable cluster of each row.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
        client : str, default=None
            Use this client's own weights, offset and scale; by default the weights over all clients and no offset.

        Returns
        -------
        labels : array of shape (n,)
        """
        return self.predict_proba(X, client).argmax(-1)

    def predict_proba(self, X: Any, client: str | None = None) -> Array:
        """The probability of each cluster for each row.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
        client : str, default=None
            Use this client's own weights, offset and scale; by default the weights over all clients and no offset.

        Returns
        -------
        probabilities : array of shape (n, n_components_)
        """
        check_is_fitted(self, "cluster_weights_")
        shares = self.cluster_weights_ if client is None else self._shares_of(client)
        if self._is_mixed:
            return self.as_mixed(shares + 1e-12).predict_proba(X)
        params = self.params()
        unweighted = params._replace(weights=np.ones(len(params.weights)))
        factor = self.client_factors_.get(client or "", 1.0)
        offset = self.client_offsets_.get(client or "", 0.0)
        rows = to_numpy(self._rows(X)) * factor - offset
        log_density = mixture.log_joint(unweighted, rows, self.covariance_type)
        density = np.exp(log_density - log_density.max(-1, keepdims=True)) @ self.topics_.T
        joint = density * (shares + 1e-12)
        return joint / np.maximum(joint.sum(-1, keepdims=True), TINY)

    @property
    def client_weights_(self) -> dict[str, Array]:
        """Each client's own weights of the components, for clients in this process."""
        return {name: shares @ self.topics_ for name, shares in self.client_shares_.items()}

    @property
    def holders_(self) -> list[list[str]]:
        """For each cluster the clients that hold it, those with most rows in it first."""
        holders = []
        for z in range(self.n_components_):
            names = [name for name, held in self.holdings_.items() if held[z] > 0]
            holders.append(sorted(names, key=lambda name: -self.holdings_[name][z]))
        return holders

    def _shares_of(self, client: str) -> Array:
        """The weights of a client that took part."""
        if client not in self.client_shares_:
            raise BadParameter(f"no weights are known for client {client!r}: {suggest(client, self.client_shares_)}")
        return self.client_shares_[client]

    # ---- mixed columns ----

    @property
    def _is_mixed(self) -> bool:
        """Whether columns are mixed."""
        return getattr(self, "kinds_", None) is not None

    def as_mixed(self, weights: Array | None = None) -> MixedMixture:
        """The clusters as a `MixedMixture`, where columns are mixed.

        Parameters
        ----------
        weights : array of shape (n_components_,), default=None
            Weights of the clusters; by default those over all clients.

        Returns
        -------
        MixedMixture
            Fitted; it fills in missing values, draws samples and tells conditional distributions.
        """
        if not self._is_mixed:
            raise BadParameter("as_mixed is for fits of mixed columns: this one has numbers alone, use its own methods")
        model = MixedMixture(self.n_components_, kinds=self.kinds_, covariance_type=self.covariance_type_)
        for name in CARRIED:
            if hasattr(self, name):
                setattr(model, name, getattr(self, name))
        model.kinds_, model.n_levels_ = list(self.kinds_ or []), list(self.n_levels_ or [])
        covs = self.covariances_
        block = mixture.Params(self.weights_ if weights is None else weights / weights.sum(), self.means_, covs)
        if self.means_.shape[1]:
            block = MixtureFace.params(self)._replace(weights=block.weights)
        model._set_params(MixedParams(block, self.probabilities_, self.count_means_, self.count_dispersions_))
        return model

    def _mixed_of(self, client: str | None) -> MixedMixture:
        """The mixed mixture under a client's weights, or the common ones."""
        return self.as_mixed(None if client is None else self._shares_of(client))

    def score_samples(self, X: Any, client: str | None = None) -> Array:
        """log p(x) of each row, over the values that are there."""
        return self._mixed_of(client).score_samples(X) if self._is_mixed else super().score_samples(X, client)

    def sample(self, n_samples: int = 1, client: str | None = None, random_state: Any = None) -> tuple[Array, Array]:
        """Rows drawn from the mixture, and the component each came from; levels as codes."""
        if self._is_mixed:
            return self._mixed_of(client).sample(n_samples, random_state=random_state)
        return super().sample(n_samples, client, random_state)

    def impute(self, X: Any, client: str | None = None) -> Array:
        """X with every missing number at its conditional mean, and every missing level at the most likely one."""
        return self._mixed_of(client).impute(X) if self._is_mixed else super().impute(X, client)

    def conditional(self, X: Any, columns: Sequence[int | str], client: str | None = None) -> Any:
        """The distribution of `columns` given all the other columns of X (whatever X holds in them is ignored)."""
        return (
            self._mixed_of(client).conditional(X, columns)
            if self._is_mixed
            else super().conditional(X, columns, client)
        )

    def _n_parameters(self) -> int:
        """How many free parameters the mixture has."""
        return self.as_mixed()._n_parameters() if self._is_mixed else super()._n_parameters()
