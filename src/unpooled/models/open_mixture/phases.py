"""The phases of an `OpenMixture` fit, in order; each is a value that holds its candidates and says what comes next.

    Search --> Settle -------------------------> Done     structure="gaussians"
           --> Compare --> (Refit -->) Done               clients differ: Gaussians or topics
           --> Split --> Shared --> Refit -----> Done     clients do not differ

Every round of every phase is the same SUM over all its candidates. Search ends with one SUM of products and, if clients
differ, one GATHER of counts (see `grouping`), unless structure="gaussians"; nothing else is sent from here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from unpooled.federation import Federation
from unpooled.models.open_mixture import directions
from unpooled.models.open_mixture.candidates import (
    ATOMS,
    GAUSSIANS,
    TOPICS,
    Candidate,
    best,
    best_of_each_size,
    by_size,
    lowest_cost,
)
from unpooled.models.open_mixture.certainty import Evaluated
from unpooled.models.open_mixture.constants import (
    COMPARE_ROUNDS,
    COV_PRIOR_ROWS,
    FEW_ROWS_ERRORS,
    HELD_OUT,
    MAX_SPLITS,
    N_KEPT,
    N_PAIRS,
    N_SPLITS,
    N_TIED_KEPT,
    REFINE_ROUNDS,
    REFIT_ROUNDS,
    ROWS_FOR_TOPICS,
    SEARCH_ROUNDS,
    SEPARATE_SHAPES,
    SETTLE_ROUNDS,
    SHAPES,
    SHARED_ROUNDS,
    SPLIT_ROUNDS,
    TIED_ROUNDS,
)
from unpooled.models.open_mixture.grouping import Grouping, client_counts, group_by_holders, holder_sums
from unpooled.models.open_mixture.initial import (
    Centres,
    MergePath,
    candidates_on_path,
    merge_best_pair,
    merge_pairs,
    split_widest,
)
from unpooled.models.open_mixture.questions import candidate_stats
from unpooled.models.open_mixture.shared_weights import (
    first_shared,
    server_mixtures,
    should_split,
    split_atoms,
)
from unpooled.models.open_mixture.topics import agglomerate
from unpooled.models.open_mixture.units import Units
from unpooled.tree import message


@message("open_mixture.State")
class State(NamedTuple):
    """A fit between two rounds."""

    phase: Phase
    rows: float  # of all clients, known after the first round
    paths: tuple[MergePath, ...]  # one per covariance type; none with structure="topics"
    centres: Centres | None  # none with structure="gaussians"
    evaluated: dict[str, Evaluated]  # by candidate id
    groupings: dict[str, Grouping]  # candidate id -> how its Gaussians became topics
    scores: dict[str, float]  # structure -> log-likelihood per held-out row, when both were compared
    offset_scale: np.ndarray  # (d,) standard deviation of the clients' offsets, over that within clusters
    log_scale: np.ndarray  # (d,) standard deviation of the logarithms of the clients' scales
    min_count: float  # no count of fewer rows leaves a client
    units: Units  # of the columns
    is_realigned: bool = (
        False  # whether this is the second search, after sites were aligned to the clusters of the first
    )


# ---- phase 1 ----


@message("open_mixture.Search")
class Search(NamedTuple):
    """Gaussian mixtures of several sizes and covariance types, and atoms; the best sizes are refined every second round."""

    candidates: tuple[Candidate, ...]
    round: int = 0  # rounds done in this phase

    def next(self, state: State, fed: Federation) -> State:
        """Refine in some rounds, and end the search after the last."""
        if self.round == SEARCH_ROUNDS:
            return _after_search(self, state, fed)
        if self.round not in REFINE_ROUNDS:
            return state
        gaussians = [c for c in self.candidates if c.structure == GAUSSIANS]
        others = [c for c in self.candidates if c.structure != GAUSSIANS]
        kept = [c for group in _competitions(gaussians, self.round) for c in lowest_cost(group, N_KEPT)]
        neighbours = _path_neighbours(state)
        new = {c.id: c for leader in kept for c in _variants(leader, neighbours, state)}
        return state._replace(phase=self._replace(candidates=(*kept, *new.values(), *others)))


def _path_neighbours(state: State) -> Callable[[Candidate], list[Candidate]]:
    """Candidates of one Gaussian less, as many, and one more, from the merge path of the same covariance type and by splits."""
    paths = {path.shape: path for path in state.paths}
    return lambda c: [
        *candidates_on_path(paths[c.shape], range(c.size - 1, c.size + 2)),
        *split_widest(c, N_SPLITS),
    ]


def _variants(leader: Candidate, neighbours: Callable[[Candidate], list[Candidate]], state: State) -> list[Candidate]:
    """A good candidate's neighbours, and the same with pairs merged, that were not evaluated yet."""
    variants = [*neighbours(leader), *merge_pairs(leader, state.rows, N_PAIRS)]
    return [c for c in variants if c.id not in state.evaluated]


def _competitions(candidates: list[Candidate], round: int) -> list[list[Candidate]]:
    """The groups of candidates that are ranked among themselves: one per covariance type at first, then all together."""
    if round >= SEPARATE_SHAPES:
        return [candidates]
    return [[c for c in candidates if c.shape == shape] for shape in SHAPES]


def _after_search(phase: Search, state: State, fed: Federation) -> State:
    """Decide from who holds what whether clients differ, and how Gaussians and atoms group.

    Clients differ if either the atoms or the best Gaussians show it: a difference that a few Gaussians show may be lost among 80 atoms.
    """
    atoms = best(phase.candidates, ATOMS)
    gaussians = best(phase.candidates, GAUSSIANS)
    last_gaussians = (gaussians, *merge_best_pair(gaussians, state.rows)) if gaussians else ()
    if atoms is None:
        return state._replace(phase=Settle(last_gaussians))
    both = (atoms, gaussians) if gaussians else (atoms,)
    held = holder_sums(fed, both, state.units.option)
    if gaussians and all(h.n_clusters == 1 for h in held):
        return _split_or_share(Split((atoms._replace(validated=False),), found=gaussians), state, fed)
    merges = [agglomerate(h.sums) for h in held]
    counts = client_counts(fed, both, merges, state.min_count, state.units.option)
    rng = fed.journal.rng
    groupings = [group_by_holders("topics", atoms, held[0], merges[0], counts[0], rng)]
    if gaussians and directions.components_share_holders(counts[1], held[1].within, held[1].products, rng):
        copy = gaussians._replace(validated=True)
        groupings.append(group_by_holders("groups", copy, held[1], merges[1], counts[1], rng))
    return state._replace(
        phase=Compare((*last_gaussians, *(g.candidate for g in groupings))),
        groupings={g.candidate.id: g for g in groupings},
    )


# ---- phase 2 with structure="gaussians" ----


@message("open_mixture.Settle")
class Settle(NamedTuple):
    """The best Gaussians, and the same with one pair merged."""

    candidates: tuple[Candidate, ...]
    round: int = 0

    def next(self, state: State, fed: Federation) -> State:
        """Done after a fixed number of rounds."""
        return state._replace(phase=Done(self.candidates)) if self.round == SETTLE_ROUNDS else state


# ---- phase 2 where clients differ ----


@message("open_mixture.Compare")
class Compare(NamedTuple):
    """Gaussians against topics, by held-out rows.

    For the first rounds the Gaussians are fitted to all rows; they are final then. A copy goes on without the held-out rows and is
    compared with the topics.
    """

    candidates: tuple[Candidate, ...]
    round: int = 0
    final_gaussians: tuple[Candidate, ...] = ()  # one or none

    def next(self, state: State, fed: Federation) -> State:
        """Choose a structure after the last round."""
        if self.round == COMPARE_ROUNDS:
            return _choose_structure(self, state, len(fed.names))
        if self.round == SETTLE_ROUNDS:
            return state._replace(phase=self._with_final_gaussians())
        return state

    def _with_final_gaussians(self) -> Compare:
        """The same phase with a copy of the best Gaussians that is judged as topics are."""
        gaussians = best(self.candidates, GAUSSIANS)
        if gaussians is None:
            return self
        d = gaussians.proposal.params.means.shape[1]
        prior_rows = d + COV_PRIOR_ROWS  # as the atoms have: held-out rows then compare structures alone
        copy = gaussians._replace(id=f"{gaussians.id}-validated", validated=True, prior_rows=prior_rows)
        topics = (c for c in self.candidates if c.structure == TOPICS)
        return self._replace(candidates=(copy, *topics), final_gaussians=(gaussians,))


def _choose_structure(phase: Compare, state: State, n_clients: int) -> State:
    """Topics are refitted to all rows, Gaussians are final. Topics need at least two clients per topic."""
    gaussians = best(phase.candidates, GAUSSIANS)
    all_topics = [c for c in phase.candidates if c.structure == TOPICS]
    topics = max(all_topics, key=lambda c: (_is_possible(c, n_clients), c.weight_gain))
    refit = Refit((topics._replace(validated=False),))
    if gaussians is None:
        return state._replace(phase=refit)
    state = state._replace(scores={c.structure: c.held_out for c in (gaussians, topics)})
    if _is_possible(topics, n_clients) and _topics_fit_better(all_topics, topics, gaussians, state.rows):
        return state._replace(phase=refit)
    return state._replace(phase=Done(phase.final_gaussians))


def _is_possible(topics: Candidate, n_clients: int) -> bool:
    """Whether so many topics can be told from so many clients."""
    return 2 <= topics.size <= n_clients / 2


def _topics_fit_better(all_topics: Sequence[Candidate], topics: Candidate, gaussians: Candidate, rows: float) -> bool:
    """By held-out rows, or because there are fewer Gaussians than clusters that clients' differences show.

    Topics must be better by a standard error where there are as many as Gaussians, so that nothing is grouped, and by two where there are
    few rows: these show few of the directions in which clients differ, so that clusters would be grouped that have different holders.
    """
    if gaussians.size < topics.size:
        return True
    errors = FEW_ROWS_ERRORS if rows < ROWS_FOR_TOPICS else float(topics.size == gaussians.size)
    held_out = max(c.held_out for c in all_topics)
    return held_out - errors * topics.held_out_stderr > gaussians.held_out


# ---- phases 2 and 3 where clients do not differ ----


@message("open_mixture.Split")
class Split(NamedTuple):
    """The atoms, split in two and refitted until they are small enough to sample rows from."""

    candidates: tuple[Candidate, ...]  # one
    round: int = 0
    found: Candidate | None = None  # the best Gaussians of the search, which go on beside those that the server fits

    def next(self, state: State, fed: Federation) -> State:
        """Split clusters, or go on to shared weights, every few rounds."""
        return _split_or_share(self, state, fed) if self.round % SPLIT_ROUNDS == 0 else state


def _split_or_share(phase: Split, state: State, fed: Federation) -> State:
    """Split the atoms once more, or go on with the mixtures that the server fits to rows sampled from them."""
    atoms = phase.candidates[0]
    if should_split(atoms, state.rows) and phase.round < SPLIT_ROUNDS * MAX_SPLITS:
        return state._replace(phase=phase._replace(candidates=(split_atoms(atoms),)))
    shapes = [path.shape for path in state.paths]
    mixtures = server_mixtures(atoms, state.centres, state.rows, shapes, fed.journal.rng)
    pool = {id: mixture for id, (mixture, _) in mixtures.items()}
    first = first_shared(mixtures, shapes)
    if phase.found is not None:
        first += (phase.found.in_common()._replace(id=f"search-{phase.found.id}"),)
    return state._replace(phase=Shared(first, pool), evaluated={})


@message("open_mixture.Shared")
class Shared(NamedTuple):
    """Gaussian mixtures whose weights all clients share; the best sizes are refined every second round."""

    candidates: tuple[Candidate, ...]
    pool: dict[str, Candidate]  # id -> starting point that the server found, for every type and size
    round: int = 0
    fewest: float = np.inf  # cost of the fewest Gaussians with full covariances, known after the first refinement

    def next(self, state: State, fed: Federation) -> State:
        """Refine in some rounds, and keep the best after the last."""
        if self.round == SHARED_ROUNDS:
            return state._replace(phase=Refit((by_size(self.candidates, state.rows, self.fewest)[0][0],)))
        if self.round not in REFINE_ROUNDS[:-1]:
            return state
        fewest = self.fewest if np.isfinite(self.fewest) else _cost_of_fewest(self.candidates)
        tied = best_of_each_size([c for c in self.candidates if c.is_tied], N_TIED_KEPT)
        free = [c for c in self.candidates if not c.is_tied]
        ranked = [
            by_size(group, state.rows, fewest, 0.0)[:N_KEPT] for group in _competitions(free, self.round) if group
        ]
        kept = [c for groups in ranked for group in groups for c in group]
        new = [c for groups in ranked for c in _variants(groups[0][-1], self._neighbours, state)]
        if self.round >= TIED_ROUNDS:
            tied = [c._replace(prior_rows=COV_PRIOR_ROWS) for c in tied]
        return state._replace(phase=self._replace(candidates=(*kept, *new, *tied), fewest=fewest))

    def _neighbours(self, c: Candidate) -> list[Candidate]:
        """Candidates with one cluster less or more."""
        ids = [f"{c.shape}-{k}" for k in range(c.size - 1, c.size + 2)]
        return [self.pool[id] for id in ids if id in self.pool]


def _cost_of_fewest(candidates: Sequence[Candidate]) -> float:
    """The cost of the mixture with full covariances that has fewest Gaussians."""
    full = ((c.size, c.cost) for c in candidates if c.shape == "full")
    return min(full, default=(0, np.inf))[1]


# ---- the last phases ----


@message("open_mixture.Refit")
class Refit(NamedTuple):
    """The chosen model, fitted to all rows."""

    candidates: tuple[Candidate, ...]
    round: int = 0

    def next(self, state: State, fed: Federation) -> State:
        """Done after a fixed number of rounds."""
        return state._replace(phase=Done(self.candidates)) if self.round == REFIT_ROUNDS else state


@message("open_mixture.Done")
class Done(NamedTuple):
    """The end of the fit."""

    candidates: tuple[Candidate, ...]  # the best one is the result
    round: int = 0

    def next(self, state: State, fed: Federation) -> State:
        """Nothing follows."""
        return state


Phase = Search | Settle | Compare | Split | Shared | Refit | Done


# ---- what all phases have in common ----


def question(phase: Phase, units: Sequence[Sequence[float]]) -> Any:
    """The SUM of this round; clients keep their weights of the final Gaussians while these are not asked about."""
    candidates = phase.candidates
    return candidate_stats.using(
        keys=[c.answer_key for c in candidates],
        ids=[c.state_id for c in candidates],
        shapes=[c.shape for c in candidates],
        validated=[c.validated for c in candidates],
        held_out=HELD_OUT,
        keep=[c.state_id for c in final_gaussians(phase)],
        units=units,
    )


def final_gaussians(phase: Phase) -> tuple[Candidate, ...]:
    """The best Gaussians that were set aside, if any."""
    return phase.final_gaussians if isinstance(phase, Compare) else ()


def result(phase: Phase) -> Candidate:
    """The best candidate, also of a fit that ended early; one that saw all rows is preferred."""
    return min((*final_gaussians(phase), *phase.candidates), key=lambda c: (c.validated, c.cost))
