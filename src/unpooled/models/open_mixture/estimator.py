"""`OpenMixture`: one GATHER of local components, about thirty SUMs of statistics, and GATHERs of counts (see the package docstring)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from unpooled.arrays import Array, to_numpy
from unpooled.data.federate import as_federation
from unpooled.errors import BadData, BadParameter, suggest
from unpooled.estimator import Estimator, Info
from unpooled.federation import Federation
from unpooled.maths import gaussian, mixture
from unpooled.models.mixture import MixtureFace
from unpooled.models.open_mixture.candidates import SHARED, Candidate, pooled_covariance, updated
from unpooled.models.open_mixture.certainty import certainty, dendrogram, evaluations
from unpooled.models.open_mixture.client_weights import Proposal
from unpooled.models.open_mixture.constants import (
    MAX_ATOMS,
    MAX_ROUNDS,
    REFERENCE_SHAPE,
    SEARCH_ROUNDS,
    SHAPES,
    STRUCTURES,
    TINY,
)
from unpooled.models.open_mixture.gaps import check_columns
from unpooled.models.open_mixture.initial import (
    candidates_on_path,
    initial_atoms,
    initial_sizes,
    local_centres,
    local_components,
    merge_path,
)
from unpooled.models.open_mixture.new_clients import with_new_clusters
from unpooled.models.open_mixture.phases import Done, Search, State, question, result
from unpooled.models.open_mixture.questions import OFFSET, Description, all_rows_equal, describe, holdings, state_key
from unpooled.models.open_mixture.shared_weights import concentric_clusters
from unpooled.models.open_mixture.site_offsets import find_offsets, say_offsets


class OpenMixture(MixtureFace, Estimator):
    """Clusters over clients that may hold different ones; the number of clusters is estimated.

    With ``structure="gaussians"`` a cluster is one Gaussian and every client has its own mixing weights. With ``structure="topics"`` a
    cluster is a group of Gaussians that the same clients hold together; their number is one more than the number of directions in
    which clients differ. ``"auto"`` fits both in the same rounds and keeps the better one by held-out rows. Where clients do not
    differ, ``"auto"`` fits the Gaussian mixture that the pooled rows would get, with the number of Gaussians by BIC.

    Parameters
    ----------
    structure : {"auto", "gaussians", "topics"}, default="auto"
        What a cluster is.
    covariance_types : str or sequence of str, default=("spherical", "diag", "full")
        Covariance types that are tried for Gaussians; see `covariance_type` of `sklearn.mixture.GaussianMixture`.
    max_local : int, default=20
        Largest number of components of the mixture that describes one client's rows.
    min_count : float, default=5
        A mean of fewer rows than this does not leave its client, nor does a smaller count of a cluster's rows.
    site_offsets : bool, default=True
        Whether each client's rows may be moved by an offset of its own, as another instrument moves them. Offsets are removed if rows
        held out are more likely without them, and a warning names the columns; they stay at the clients. Not with
        ``structure="topics"``.
    max_iter : int, default=34
        Largest number of rounds. The default is enough for every sequence of phases.
    random_state : int, RandomState instance or None, default=None
        Seed of all random draws.

    Attributes
    ----------
    n_components_ : int
        Number of clusters.
    structure_ : {"gaussians", "topics"}
        The structure that was chosen.
    covariance_type_ : str
        The covariance type that was chosen.
    weights_, means_, covariances_ : arrays
        Of the Gaussians (atoms, if clusters are topics), as in `sklearn.mixture.GaussianMixture`.
    topics_ : array of shape (n_components_, n_gaussians)
        Each cluster's weights of the Gaussians.
    centers_ : array of shape (n_components_, n_features)
        Mean of each cluster.
    cluster_weights_ : array of shape (n_components_,)
        Fraction of all rows in each cluster.
    labels_ : dict of str to array
        Client to the cluster of each of its rows, for clients in this process.
    client_shares_ : dict of str to array
        Client to its own weights of the clusters, for clients in this process.
    holdings_ : dict of str to array
        Client to its expected number of rows in each cluster.
    site_offset_scale_ : array of shape (n_features,)
        Standard deviation of the clients' offsets over that within clusters, per column; 0 where there are none.
    client_offsets_ : dict of str to array
        Client to the offset of its rows, for clients in this process.
    alike_ : bool
        Whether clients do not differ, so that all have the same weights.
    merges_ : Merges or None
        Dendrogram: local components to Gaussians, or Gaussians to topics.
    certainty_ : dict of str to float
        Number of clusters to its probability.
    scores_ : dict of str to float
        Structure to log-likelihood per held-out row; empty unless both structures were compared.
    bic_ : float
        BIC of the final model, with the penalty of the clients' own weights.
    rows_ : float
        Rows of all clients.
    within_ : array
        Mean covariance of the Gaussians, as a packed triangle.
    n_features_in_ : int
        Number of columns.

    Examples
    --------
    Four clients hold two of three clusters each:

    >>> import numpy as np
    >>> import unpooled as up
    >>> rng = np.random.default_rng(0)
    >>> centers = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
    >>> held = {"a": [0, 1], "b": [1, 2], "c": [0, 2], "d": [0, 1]}
    >>> data = {name: centers[rng.choice(k, 60)] + rng.normal(size=(60, 2)) for name, k in held.items()}
    >>> model = up.OpenMixture(random_state=0).fit(data)
    >>> model.n_components_, model.structure_
    (3, 'gaussians')
    >>> sorted(len(clients) for clients in model.holders_)
    [2, 3, 3]
    """

    def __init__(
        self,
        structure: str = "auto",
        *,
        covariance_types: str | Sequence[str] = SHAPES,
        max_local: int = 20,
        min_count: float = 5,
        site_offsets: bool = True,
        max_iter: int = MAX_ROUNDS,
        random_state: Any = None,
    ):
        self.structure = structure
        self.covariance_types = covariance_types
        self.max_local = max_local
        self.min_count = min_count
        self.site_offsets = site_offsets
        self.max_iter = max_iter
        self.random_state = random_state

    @property
    def covariance_type(self) -> str:  # type: ignore[override]
        """The covariance type that was chosen."""
        return self.covariance_type_

    # ---- the rounds ----

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        """The first candidates, from one GATHER of what clients describe."""
        uses_gaussians, uses_atoms = self.structure != "topics", self.structure != "gaussians"
        describe_all = describe.using(
            max_local=self.max_local if uses_gaussians else 0,
            max_centres=MAX_ATOMS if uses_atoms else 0,
            min_count=self._min_count(fed),
        )
        descriptions = fed.gather(describe_all, None)
        if all_rows_equal(descriptions.values()):
            raise BadData("all rows are the same: there is nothing to tell clusters apart by")
        offset_scale = self._offset_scale(fed, descriptions)
        if offset_scale.any():
            descriptions = fed.gather(describe_all, None)  # of rows without offsets
        candidates: list[Candidate] = []
        paths, centres = [], None
        if uses_gaussians:
            components = local_components(descriptions)
            paths = [merge_path(components, shape) for shape in self._shapes()]
            for path in paths:
                candidates += candidates_on_path(path, initial_sizes(path.merges.best()))
        if uses_atoms:
            centres = local_centres(descriptions)
            candidates.append(initial_atoms(centres, rng)._replace(validated=self.structure == "auto"))
        return State(Search(tuple(candidates)), 0.0, tuple(paths), centres, {}, {}, {}, offset_scale)

    def _offset_scale(self, fed: Federation, descriptions: Mapping[str, Description]) -> np.ndarray:  # (d,)
        """Find the clients' offsets, if they have some; say so."""
        n_columns = next(iter(descriptions.values())).mean.shape[1]
        if not self.site_offsets or self.structure == "topics" or len(fed.names) < 2:
            return np.zeros(n_columns)
        path = merge_path(local_components(descriptions), REFERENCE_SHAPE)
        found = find_offsets(fed, candidates_on_path(path, initial_sizes(path.merges.best())))
        say_offsets(found, fed.columns)
        return found.scale

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        """One SUM over all candidates of the phase, their M-steps, and what the phase does then."""
        phase = state.phase
        answers = fed.sum(question(phase), tuple(c.proposal for c in phase.candidates))
        candidates = tuple(updated(c, answers[c.answer_key]) for c in phase.candidates)
        any_answer = answers[candidates[0].answer_key]
        state = state._replace(
            phase=phase._replace(candidates=candidates, round=phase.round + 1),
            rows=float(any_answer.stats.rows + any_answer.held_out_rows),
            evaluated=state.evaluated | evaluations(candidates),
        )
        leader = min(candidates, key=lambda c: c.cost)
        info = {
            "phase": type(phase).__name__.lower(),
            "candidates": len(candidates),
            "n_components": leader.size,
            "bic": leader.bic,
        }
        return state.phase.next(state, fed), info

    def done(self, state: State, history: list[Info]) -> bool:
        return isinstance(state.phase, Done)

    def _shapes(self) -> list[str]:
        return np.atleast_1d(self.covariance_types).tolist()

    def _min_count(self, fed: Federation) -> float:
        """A single client is its own server: there is nothing to hide."""
        return self.min_count if len(fed.names) > 1 else 0.0

    # ---- the result ----

    def finish(self, fed: Federation, state: State) -> None:
        """Set the attributes, after one GATHER of how many rows each client has in each cluster."""
        final = result(state.phase)
        self.alike_ = final.structure == SHARED
        if self.alike_:
            final = concentric_clusters(final)
        self._set_clusters(final)
        self.certainty_ = certainty(final, state.evaluated, state.groupings, state.rows)
        self.merges_ = dendrogram(final, state.rows, state.paths, state.groupings)
        self.scores_, self.bic_, self.rows_ = state.scores, float(final.bic), state.rows
        self.within_ = pooled_covariance(final)
        self.site_offset_scale_ = state.offset_scale
        self.client_offsets_: dict[str, Array] = {}
        self.client_shares_: dict[str, Array] = {}
        self.labels_: dict[str, Array] = {}
        self.holdings_: dict[str, Array] = {}
        self._set_clients(fed, final, self._min_count(fed))

    def _set_clusters(self, final: Candidate) -> None:
        params, topics = final.proposal
        self.structure_ = "gaussians" if self.alike_ else final.structure
        self.covariance_type_ = final.shape
        self.weights_, self.means_ = params.weights, params.means
        self.covariances_ = gaussian.unpack_covs(params.covs, final.shape)
        self.topics_ = topics if len(topics) else np.eye(len(params.weights))
        self.n_components_, self.n_features_in_ = len(self.topics_), int(params.means.shape[1])
        self.centers_ = self.topics_ @ self.means_

    def _set_clients(self, fed: Federation, final: Candidate, min_count: float) -> None:
        """Ask for the rows in each cluster, and read the weights that clients in this process keep."""
        common_weights = final.structure == SHARED
        ask = holdings.using(shape=final.shape, id=final.state_id, common_weights=common_weights, min_count=min_count)
        answers = fed.gather(ask, final.proposal)
        self.holdings_ |= {name: to_numpy(answer.n) for name, answer in answers.items()}
        common = (self.topics_ > 0) @ self.weights_
        held = np.sum(list(self.holdings_.values()), axis=0)
        self.cluster_weights_ = common if self.alike_ else held / max(held.sum(), TINY)
        key = state_key(final.state_id)
        here = [c for c in fed.here() if key in c.state]
        self.client_shares_ |= {c.name: common if common_weights else c.state[key] for c in here}
        self.client_offsets_ |= {c.name: to_numpy(c.state[OFFSET]) for c in here if OFFSET in c.state}
        self.labels_ |= {c.name: self.predict(c.x, client=c.name) for c in here}

    @property
    def client_weights_(self) -> dict[str, Array]:
        """Each client's own weights of the Gaussians, for clients in this process."""
        return {name: shares @ self.topics_ for name, shares in self.client_shares_.items()}

    @property
    def holders_(self) -> list[list[str]]:
        """For each cluster the clients that hold it, those with most rows in it first."""
        holders = []
        for z in range(self.n_components_):
            names = [name for name, held in self.holdings_.items() if held[z] > 0]
            holders.append(sorted(names, key=lambda name: -self.holdings_[name][z]))
        return holders

    def predict(self, X: Any, client: str | None = None) -> Array:
        """The most probable cluster of each row.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
        client : str, default=None
            Use this client's own weights and offset; by default the weights over all clients and no offset.

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
            Use this client's own weights and offset; by default the weights over all clients and no offset.

        Returns
        -------
        probabilities : array of shape (n, n_components_)
        """
        params = self.params()
        unweighted = params._replace(weights=np.ones(len(params.weights)))
        rows = to_numpy(self._rows(X)) - self.client_offsets_.get(client or "", 0.0)
        log_density = mixture.log_joint(unweighted, rows, self.covariance_type)
        density = np.exp(log_density - log_density.max(-1, keepdims=True)) @ self.topics_.T
        shares = self.cluster_weights_ if client is None else self._shares_of(client)
        joint = density * (shares + 1e-12)
        return joint / np.maximum(joint.sum(-1, keepdims=True), TINY)

    def _shares_of(self, client: str) -> Array:
        if client not in self.client_shares_:
            raise BadParameter(f"no weights are known for client {client!r}: {suggest(client, self.client_shares_)}")
        return self.client_shares_[client]

    # ---- new clients ----

    def partial_fit(self, data: Any, *, by: Any = None) -> OpenMixture:
        """Add new clients: their rows join known clusters or open new ones; the known clusters do not change.

        Parameters
        ----------
        data : dict of client to rows, Federation, or rows with `by`
            As in `fit`, with clients that were not in it.
        by : array-like or str, default=None
            The client of each row, if data are rows.

        Returns
        -------
        self : OpenMixture
            New clusters are numbered after the known ones.
        """
        check_is_fitted(self, "means_")
        fed = as_federation(data, by=by)
        for client in fed.here():
            self._rows(client.x)  # refuses another number of columns
        fed.journal.begin(0)
        known = Candidate("known", self.structure_, self.covariance_type_, Proposal(self.params(), self.topics_))
        final = with_new_clusters(fed, known, self.within_, self.max_local, self.min_count)
        self._set_clusters(final)
        none_yet = np.zeros(final.size - known.size)
        self.holdings_ = {name: np.concatenate([n, none_yet]) for name, n in self.holdings_.items()}
        self.client_shares_ = {name: np.concatenate([s, none_yet]) for name, s in self.client_shares_.items()}
        self._set_clients(fed, final, self.min_count)  # also for a single client: this server has seen others
        return self

    # ---- checks ----

    def check(self, fed: Federation) -> None:
        """Refuse bad parameters, and clients without any value in a column, before the first round."""
        for client in fed.here():
            check_columns(to_numpy(client.x), client.name)
        self._check_choice("structure", self.structure, STRUCTURES)
        for shape in self._shapes():
            self._check_choice("covariance_types", shape, SHAPES)
        for name, least in {"max_local": 1, "min_count": 0, "max_iter": 1}.items():
            if getattr(self, name) < least:
                raise BadParameter(f"{name}={getattr(self, name)!r} must be at least {least}")
        if self.structure == "topics" and self.max_iter <= SEARCH_ROUNDS:
            raise BadParameter(
                f"max_iter={self.max_iter!r} ends before atoms become topics: give more than {SEARCH_ROUNDS} rounds"
            )

    @staticmethod
    def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
        if value not in choices:
            raise BadParameter(f"{name}={value!r} is not known: use one of {', '.join(choices)}")
