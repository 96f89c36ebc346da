"""What a fit of `OpenMixture` leaves: its attributes, after one GATHER of how many rows each client has in each cluster."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from unpooled.arrays import Array, to_numpy
from unpooled.federation import Federation
from unpooled.maths import gaussian
from unpooled.models.open_mixture import mixed_columns
from unpooled.models.open_mixture.candidates import SHARED, Candidate, pooled_covariance
from unpooled.models.open_mixture.certainty import bic_weights, certainty, dendrogram
from unpooled.models.open_mixture.client_weights import common_shares
from unpooled.models.open_mixture.constants import TINY
from unpooled.models.open_mixture.inference import OpenFace
from unpooled.models.open_mixture.mixed_columns import MixedCandidate, MixedState
from unpooled.models.open_mixture.mixed_questions import mixed_holdings
from unpooled.models.open_mixture.phases import State, result
from unpooled.models.open_mixture.questions import FACTOR, OFFSET, Holdings, holdings, state_key
from unpooled.models.open_mixture.several_gaussians import as_clusters
from unpooled.models.open_mixture.site_offsets import say_offsets
from unpooled.models.open_mixture.units import multiplied, packed_products, units_option


class OpenResult(OpenFace):
    """Sets the attributes of a fitted `OpenMixture`; needs `min_count`."""

    min_count: float

    def finish(self, fed: Federation, state: State | MixedState) -> None:
        """Set the attributes, after one GATHER of how many rows each client has in each cluster."""
        self.client_offsets_, self.client_factors_, self.client_shares_ = {}, {}, {}
        self.labels_: dict[str, Array] = {}
        self.holdings_ = {}
        if isinstance(state, MixedState):
            self._finish_mixed(fed, state)
            return
        final = result(state.phase)
        self.alike_ = final.structure == SHARED
        final = as_clusters(final)
        units = state.units
        self.column_scale_, self.column_step_ = units.scale, units.step
        self._set_clusters(multiplied(final, units.scale))
        self.certainty_ = certainty(final, state.evaluated, state.groupings, state.rows)
        self.merges_ = dendrogram(final, state.rows, state.paths, state.groupings)
        self.bic_ = float(final.bic) + 2 * units.log_volume
        self.rows_ = state.rows
        self.scores_ = {name: score - units.log_volume / state.rows for name, score in state.scores.items()}
        self.within_: np.ndarray | None = pooled_covariance(final) * packed_products(units.scale)
        self.site_offset_scale_ = state.offset_scale
        self.site_log_scale_ = state.log_scale
        self.kinds_ = self.n_levels_ = None
        self._set_clients(fed, final, self._min_count(fed))
        say_offsets(state.offset_scale, state.log_scale, fed.columns)

    def _finish_mixed(self, fed: Federation, state: MixedState) -> None:
        """The same attributes where columns are mixed."""
        final = state.best
        self.kinds_, self.n_levels_ = list(state.kinds), list(state.levels)
        self._set_mixed_clusters(final, state.shape)
        self.certainty_ = bic_weights(mixed_columns.evaluations(state), final.size, state.rows)
        self.merges_, self.scores_ = None, {}
        self.bic_ = float(final.cost)
        self.rows_ = state.rows
        self.within_ = None
        self.site_offset_scale_ = self.site_log_scale_ = np.zeros(len(state.kinds))
        self.column_scale_, self.column_step_ = np.ones(len(state.kinds)), np.zeros(len(state.kinds))
        ask = mixed_holdings.using(
            columns=state.columns.option,
            shape=state.shape,
            id=final.id,
            own=final.own,
            min_count=self._min_count(fed),
        )
        self._keep_clients(fed, fed.gather(ask, final.params), state_key(final.id))

    def _set_mixed_clusters(self, final: MixedCandidate, shape: str) -> None:
        """Set the attributes of a fit with mixed columns."""
        block = final.params.gaussian
        self.structure_ = "mixed"
        self.covariance_type_ = shape
        self.alike_ = not final.own
        self.weights_ = block.weights
        self.means_ = block.means
        self.covariances_ = gaussian.unpack_covs(block.covs, shape) if block.means.shape[1] else block.covs
        self.probabilities_ = final.params.levels
        self.count_means_ = final.params.mean
        self.count_dispersions_ = final.params.dispersion
        self.n_components_, self.topics_ = final.size, np.eye(final.size)
        self.n_features_in_ = len(self.kinds_ or [])
        self.centers_ = block.means

    def _set_clusters(self, final: Candidate) -> None:
        """Set the attributes of a fit with numbers alone."""
        params, topics = final.proposal
        self.structure_ = "gaussians" if self.alike_ else final.structure
        self.covariance_type_ = final.shape
        self.weights_ = params.weights
        self.means_ = params.means
        self.covariances_ = gaussian.unpack_covs(params.covs, final.shape)
        self.topics_ = topics if len(topics) else np.eye(len(params.weights))
        self.n_components_, self.n_features_in_ = len(self.topics_), int(params.means.shape[1])
        self.centers_ = self.topics_ @ self.means_

    def _set_clients(self, fed: Federation, final: Candidate, min_count: float) -> None:
        """Ask for the rows in each cluster, `final` in the units of the rounds, and read the weights that clients here keep."""
        ask = holdings.using(
            shape=final.shape,
            id=final.state_id,
            common_weights=final.structure == SHARED,
            min_count=min_count,
            units=units_option(self.column_scale_, self.column_step_),
        )
        self._keep_clients(fed, fed.gather(ask, final.proposal), state_key(final.state_id))

    def _keep_clients(self, fed: Federation, answers: Mapping[str, Holdings], key: str) -> None:
        """The attributes of clients; a client in this process keeps its weights under `key`."""
        self.holdings_ |= {name: to_numpy(answer.n) for name, answer in answers.items()}
        common = common_shares(self.topics_, self.weights_)
        held = np.sum(list(self.holdings_.values()), axis=0)
        self.cluster_weights_ = common if self.alike_ else held / max(held.sum(), TINY)
        here = [c for c in fed.here() if key in c.state]
        self.client_shares_ |= {c.name: common if self.alike_ else c.state[key] for c in here}
        self.client_offsets_ |= {
            c.name: to_numpy(c.state[OFFSET]) * self.column_scale_ for c in here if OFFSET in c.state
        }
        self.client_factors_ |= {c.name: to_numpy(c.state[FACTOR]) for c in here if FACTOR in c.state}
        self.labels_ |= {c.name: self.predict(c.x, client=c.name) for c in here}

    def _min_count(self, fed: Federation) -> float:
        """A single client is its own server: there is nothing to hide."""
        return self.min_count if len(fed.names) > 1 else 0.0
