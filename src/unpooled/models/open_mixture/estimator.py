"""`OpenMixture`: one GATHER of local components, about thirty SUMs of statistics, and GATHERs of counts (see the package docstring)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from unpooled.arrays import to_numpy
from unpooled.data.federate import as_federation
from unpooled.errors import BadData, BadParameter
from unpooled.estimator import Estimator, Info
from unpooled.federation import Federation, is_masked
from unpooled.maths import gaussian
from unpooled.models import mixed
from unpooled.models.column_names import n_columns, names_of
from unpooled.models.open_mixture import mixed_columns
from unpooled.models.open_mixture.candidates import Candidate, updated
from unpooled.models.open_mixture.certainty import evaluations
from unpooled.models.open_mixture.client_weights import Proposal
from unpooled.models.open_mixture.constants import (
    MAX_ATOMS,
    MAX_ROUNDS,
    SEARCH_ROUNDS,
    SHAPES,
    STRUCTURES,
)
from unpooled.models.open_mixture.descriptions import Description, all_rows_equal, describe
from unpooled.models.open_mixture.gaps import check_columns
from unpooled.models.open_mixture.initial import (
    Centres,
    MergePath,
    candidates_on_path,
    initial_atoms,
    initial_sizes,
    local_centres,
    local_components,
    merge_path,
)
from unpooled.models.open_mixture.mixed_columns import MixedState
from unpooled.models.open_mixture.new_clients import with_new_clusters
from unpooled.models.open_mixture.phases import Done, Search, State, question, result
from unpooled.models.open_mixture.realignment import realign_sites
from unpooled.models.open_mixture.results import OpenResult
from unpooled.models.open_mixture.several_gaussians import as_clusters
from unpooled.models.open_mixture.site_offsets import find_offsets
from unpooled.models.open_mixture.units import Units, find_units, multiplied, packed_products, units_option


class OpenMixture(OpenResult, Estimator):
    """Clusters over clients that may hold different ones; the number of clusters is estimated.

    With ``structure="gaussians"`` a cluster is one Gaussian and every client has its own mixing weights. With ``structure="topics"`` a
    cluster is a group of Gaussians that the same clients hold together; their number is one more than the number of directions in
    which clients differ. ``"auto"`` fits both in the same rounds and keeps the better one by held-out rows. Where clients do not
    differ, ``"auto"`` fits the Gaussian mixture that the pooled rows would get, with the number of Gaussians by BIC.

    Where columns are mixed (categories, ordered or binary levels, counts, positive numbers), a cluster is a component of `MixedMixture`.
    NaN is a missing value.

    Parameters
    ----------
    structure : {"auto", "gaussians", "topics"}, default="auto"
        What a cluster is.
    covariance_types : str or sequence of str, default=("spherical", "diag", "full")
        Covariance types that are tried for Gaussians; see `covariance_type` of `sklearn.mixture.GaussianMixture`. Among several,
        "spherical" is of columns in units of their standard deviation; the result then is "diag" in the units of the table.
        With mixed columns the last of them is that of the numbers.
    kinds : list or dict of str, default=None
        The kind of each column, as in `MixedMixture`. None takes the kinds of the data's schema; columns of plain arrays are numbers.
    levels : list or dict of int, default=None
        How many levels discrete columns have, where no schema says so; codes are 0, 1, ... None counts them.
    max_local : int, default=20
        Largest number of components of the mixture that describes one client's rows.
    min_count : float, default=5
        A mean of fewer rows than this does not leave its client, nor does a smaller count of a cluster's rows or a difference of two.
    site_offsets : bool, default=True
        Whether each client's rows may have an offset and a scale of their own per column, as another instrument gives them. They are
        removed if the evidence for them is clear, and a warning names the columns; they stay at the clients. Not with
        ``structure="topics"``, and not with mixed columns.
    max_iter : int, default=68
        Largest number of rounds. The default is enough for every sequence of phases.
    random_state : int, RandomState instance or None, default=None
        Seed of all random draws.

    Attributes
    ----------
    n_components_ : int
        Number of clusters.
    structure_ : {"gaussians", "topics", "mixed"}
        The structure that was chosen; "mixed" where columns are.
    covariance_type_ : str
        The covariance type that was chosen.
    weights_, means_, covariances_ : arrays
        Of the Gaussians (atoms, if clusters are topics), as in `sklearn.mixture.GaussianMixture`; with mixed columns, of the numbers.
    kinds_, n_levels_ : list or None
        With mixed columns, the kind of every column and its number of levels; `as_mixed` gives all parameters of the clusters.
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
        Client to its expected number of rows in each cluster; rows of counts below `min_count` are in its largest one.
    site_offset_scale_ : array of shape (n_features,)
        Standard deviation of the clients' offsets over that within clusters, per column; 0 where there are none.
    site_log_scale_ : array of shape (n_features,)
        Standard deviation of the logarithms of the clients' scales, per column; 0 where there are none.
    client_offsets_, client_factors_ : dict of str to array
        Client to what is subtracted from its rows, after they are multiplied by the factors if it has some, for clients in this
        process.
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
    column_scale_ : array of shape (n_features,)
        What columns were divided by in the rounds, so that the clusters do not depend on units: their standard deviations over all
        clients. All are 1 with mixed columns, and if all covariances are to be spherical.
    column_step_ : array of shape (n_features,)
        Distance of neighbouring values in columns of few values, over `column_scale_`; 0 in other columns. In the fit, rows are spread
        evenly over the intervals of their values.
    rows_ : float
        Rows of all clients.
    within_ : array or None
        Mean covariance of the Gaussians, as a packed triangle; None with mixed columns.
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

    encoding = "codes"

    def __init__(
        self,
        structure: str = "auto",
        *,
        covariance_types: str | Sequence[str] = SHAPES,
        kinds: Sequence[str] | Mapping[Any, str] | None = None,
        levels: Sequence[int] | Mapping[Any, int] | None = None,
        max_local: int = 20,
        min_count: float = 5,
        site_offsets: bool = True,
        max_iter: int = MAX_ROUNDS,
        random_state: Any = None,
    ):
        self.structure = structure
        self.covariance_types = covariance_types
        self.kinds = kinds
        self.levels = levels
        self.max_local = max_local
        self.min_count = min_count
        self.site_offsets = site_offsets
        self.max_iter = max_iter
        self.random_state = random_state

    # ---- the rounds ----

    def init(self, fed: Federation, rng: np.random.Generator) -> State | MixedState:
        """The first candidates, from one GATHER of what clients describe; with mixed columns from sums."""
        given = self._mixed_columns(fed)
        if given is not None:
            return mixed_columns.begin(fed, given, self._names(fed), self._shapes()[-1], rng)
        units = find_units(fed, n_columns(fed), self._shapes())
        descriptions = self._local_clusters(fed, units)
        if all_rows_equal(descriptions.values()):
            raise BadData("all rows are the same: there is nothing to tell clusters apart by")
        offset_scale, log_scale = self._offsets(fed, descriptions, units)
        if offset_scale.any() or log_scale.any():
            descriptions = self._local_clusters(fed, units)  # the same clusters without offsets
        phase, paths, centres = self._search(descriptions, rng)
        found = (offset_scale, log_scale, self._min_count(fed), units)
        return State(phase, 0.0, paths, centres, {}, {}, {}, *found)

    def _local_clusters(self, fed: Federation, units: Units) -> dict[str, Description]:
        """What clients describe, without their offsets if they have some."""
        ask = describe.using(
            max_local=self.max_local,
            max_centres=0 if self.structure == "gaussians" else MAX_ATOMS,
            min_count=self._min_count(fed),
            units=units.option,
        )
        return fed.gather(ask, None)

    def _search(
        self, descriptions: Mapping[str, Description], rng: np.random.Generator
    ) -> tuple[Search, tuple[MergePath, ...], Centres | None]:
        """The first candidates, and what further ones are made from."""
        candidates: list[Candidate] = []
        paths: list[MergePath] = []
        centres = None
        if self.structure != "topics":
            components = local_components(descriptions)
            paths = [merge_path(components, shape) for shape in self._shapes()]
            for path in paths:
                candidates += candidates_on_path(path, initial_sizes(path.merges.best()))
        if self.structure != "gaussians":
            centres = local_centres(descriptions)
            candidates.append(initial_atoms(centres, rng)._replace(validated=self.structure == "auto"))
        return Search(tuple(candidates)), tuple(paths), centres

    def _second_search(self, fed: Federation, state: State) -> State:
        """Where sites have offsets, align them to the clusters that were found, and search anew."""
        final = as_clusters(result(state.phase))
        if state.is_realigned or not state.offset_scale.any() or len(final.proposal.topics) < 2:
            return state
        scale = realign_sites(fed, final, state.rows, state.offset_scale, state.units.option)
        phase, paths, centres = self._search(self._local_clusters(fed, state.units), fed.journal.rng)
        return state._replace(
            phase=phase,
            paths=paths,
            centres=centres,
            evaluated={},
            groupings={},
            scores={},
            offset_scale=scale if scale.any() else state.offset_scale,
            is_realigned=True,
        )

    def _offsets(
        self, fed: Federation, descriptions: Mapping[str, Description], units: Units
    ) -> tuple[np.ndarray, np.ndarray]:  # (d,), (d,)
        """Find the clients' offsets and scales, if they have some; returns their standard deviations."""
        none = np.zeros(next(iter(descriptions.values())).centre.shape[1])
        if not self.site_offsets or self.structure == "topics" or len(fed.names) < 2:
            return none, none
        found = find_offsets(fed, descriptions, units.option)
        return found.scale, found.log_scale

    def step(self, fed: Federation, state: State | MixedState) -> tuple[State | MixedState, Info]:
        """One SUM over all candidates of the phase, their M-steps, and what the phase does then."""
        if isinstance(state, MixedState):
            return mixed_columns.step(fed, state, self._names(fed))
        phase = state.phase
        answers = fed.sum(question(phase, state.units.option), tuple(c.proposal for c in phase.candidates))
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
            "bic": leader.bic + 2 * state.units.log_volume,
        }
        state = state.phase.next(state, fed)
        return self._second_search(fed, state) if isinstance(state.phase, Done) else state, info

    def done(self, state: State | MixedState, history: list[Info]) -> bool:
        """Whether the last phase is reached."""
        return mixed_columns.done(state) if isinstance(state, MixedState) else isinstance(state.phase, Done)

    def _mixed_columns(self, fed: Federation) -> mixed.Columns | None:
        """The kinds of the columns, if there are others than numbers."""
        schema = getattr(fed, "schema", None)
        if self.kinds is None and (schema is None or schema.plain):
            return None
        names = self._names(fed)
        given = mixed.given_columns(self.kinds, self.levels, schema, len(names), names)
        return given if set(given.kinds) - {"real", "date"} else None

    @staticmethod
    def _names(fed: Federation) -> list[str]:
        """Names of the columns."""
        return names_of(fed, n_columns(fed))

    def _shapes(self) -> list[str]:
        """The covariance types to try."""
        return np.atleast_1d(self.covariance_types).tolist()

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
        if self._is_mixed:
            raise BadParameter("partial_fit takes tables of numbers: with mixed columns, fit again with all clients")
        fed = as_federation(data, by=by)
        for client in fed.here():
            self._rows(client.x)  # refuses another number of columns
        fed.journal.begin(0)
        known = Candidate("known", self.structure_, self.covariance_type_, Proposal(self.params(), self.topics_))
        final = self._with_new_clusters(fed, known)
        none_yet = np.zeros(final.size - known.size)
        self.holdings_ = {name: np.concatenate([n, none_yet]) for name, n in self.holdings_.items()}
        self.client_shares_ = {name: np.concatenate([s, none_yet]) for name, s in self.client_shares_.items()}
        self._set_clients(fed, final, self.min_count)  # also for a single client: this server has seen others
        return self

    def _with_new_clusters(self, fed: Federation, known: Candidate) -> Candidate:
        """Set the clusters that there are with the new clients; returns them in the units of the first fit."""
        within = self.within_ / packed_products(self.column_scale_)
        scaled = multiplied(known, 1 / self.column_scale_)
        units = units_option(self.column_scale_, self.column_step_)
        final = with_new_clusters(fed, scaled, within, self.max_local, self.min_count, units)
        self._set_clusters(multiplied(final, self.column_scale_))
        n = len(known.proposal.params.means)
        self.means_[:n] = known.proposal.params.means  # without rounding errors of the change of units
        self.covariances_[:n] = gaussian.unpack_covs(known.proposal.params.covs, known.shape)
        self.centers_ = self.topics_ @ self.means_
        return final

    # ---- checks ----

    def check(self, fed: Federation) -> None:
        """Refuse bad parameters, and clients without any value in a column, before the first round."""
        if is_masked(fed):
            raise BadParameter(
                "OpenMixture asks which site holds what, which masks hide: use MixedMixture or GaussianMixture, or leave secure = true out"
            )
        is_mixed = self._mixed_columns(fed) is not None
        if is_mixed and self.structure == "topics":
            raise BadParameter("structure='topics' takes numbers and columns are mixed: use structure='auto'")
        for client in fed.here() if not is_mixed else ():
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
        """Refuse a value that is not one of the choices."""
        if value not in choices:
            raise BadParameter(f"{name}={value!r} is not known: use one of {', '.join(choices)}")
