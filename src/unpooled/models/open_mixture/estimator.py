"""Clusters when nobody knows how many there are and clients hold different ones: three GATHERs and about thirty SUMs.

Two structures. "gaussians": a cluster is one Gaussian; local components go up once, the server joins those that are one, and rounds of
EM with weights private to each client choose and refine. "topics": a cluster is a group of Gaussian atoms that the same clients
hold together, found from who holds what; they are one more than the directions in which clients differ. "auto" fits both in the same
rounds and keeps the one that fits; where clients do not differ, it fits the Gaussian mixture that pooled rows would get, K by BIC.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from unpooled.arrays import Array, to_numpy
from unpooled.data.checks import check_complete
from unpooled.data.federate import as_federation
from unpooled.errors import BadData, BadParameter, suggest
from unpooled.estimator import Estimator, Info
from unpooled.federation import Federation
from unpooled.maths import gaussian, mixture
from unpooled.models.mixture import MixtureFace
from unpooled.models.open_mixture import directions
from unpooled.models.open_mixture import rounds as ask
from unpooled.models.open_mixture.alike import coarse, concentric, entrants, halved, mixtures
from unpooled.models.open_mixture.groups import grouped, holders
from unpooled.models.open_mixture.newcomers import newcomers
from unpooled.models.open_mixture.race import (
    ATOMS,
    ROUND_ATOMS,
    Candidate,
    Path,
    advance,
    along,
    atoms,
    best,
    centres,
    components,
    ladder,
    one_less,
    path,
    picked,
    pooled_within,
    some_less,
    thinned,
    unbent,
)
from unpooled.models.open_mixture.round_atoms import measured
from unpooled.models.open_mixture.rounds import Proposal
from unpooled.models.open_mixture.state import State, awake, certainty, chosen, contested, dendrogram, entry, question

SHAPES = ("spherical", "diag", "full")
ATOM_TYPES = ("full", "round")
STRUCTURES = ("auto", "gaussians", "topics")
SEARCH, SETTLE = 12, 4  # rounds: to find atoms and Gaussians, to settle among the last Gaussians
GROUP, POLISH = 12, 4  # rounds: to group atoms, to refit on all rows
HALVE, HALVES = 3, 2  # where clients are alike: rounds after which atoms are cut in two, how often at most
REFINE = (2, 4, 6, 8, 10)  # rounds of a race after which it is thinned and refilled
JOINED = {"gaussians": 1, "alike": 3}  # pairs joined at most when the best is refined
APART = 8  # rounds of that race in which each shape has its own
RIDERS = 2500  # numbers in an answer about a mixture that rides along, at most, where bytes count
EVEN = 1e6  # the largest concentration of clients' weights: they are equal


class OpenMixture(MixtureFace, Estimator):
    """Clusters over clients, their number found and never given.

    structure : "gaussians", "topics" or "auto". Topics are one more than the directions in which clients differ: one where they
        do not, and never more than there are clients.
    covariance_types : shapes tried for "gaussians".
    atom_type : "full", or "round" for those who pay by the byte: while atoms are sought they have one covariance up to their sizes,
        Gaussians ride along now and then, and atoms stand still while they are grouped. Over `Compressed(fed, quantiser="grid")` it sends
        less than a hundredth.
    max_local : components that one client's rows are described by at most.
    min_count : a mean of fewer rows than this does not leave its client, nor does a smaller count of a cluster's rows.
    noise : standard deviation of noise on the means that leave in a GATHER, in standard errors of a mean of one client's rows.

    After fitting: `n_components_`, `structure_`, `covariance_type_`; `weights_`, `means_`, `covariances_` of Gaussians or atoms;
    `topics_` (clusters x atoms), `centers_` (clusters); `labels_` (client to labels, where clients are in this process); `holdings_`
    (client to rows in each cluster) and `holders_`; `alike_` (whether clients do not differ); `evenness_` (rows by which a client's weights
    are drawn to equal ones); `merges_` (dendrogram); `certainty_` (number of clusters to probability); `scores_` (a held-out row's
    log-likelihood under each structure, when both ran).
    """

    def __init__(
        self,
        structure: str = "auto",
        *,
        covariance_types: str | Sequence[str] = SHAPES,
        atom_type: str = "full",
        max_local: int = 20,
        min_count: float = 5,
        noise: float = 0.0,
        max_iter: int = SEARCH + HALVE * HALVES + GROUP + POLISH,
        random_state: Any = None,
    ):
        self.structure = structure
        self.covariance_types = covariance_types
        self.atom_type = atom_type
        self.max_local = max_local
        self.min_count = min_count
        self.noise = noise
        self.max_iter = max_iter
        self.random_state = random_state

    @property
    def covariance_type(self) -> str:  # type: ignore[override]
        """The shape that was chosen."""
        return self.covariance_type_

    # ---- the rounds ----

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        found = fed.gather(self._describe_question(fed), None)
        if ask.one_point(found.values()):
            raise BadData("all rows are the same: there is nothing to tell clusters apart by")
        race: list[Candidate] = []
        paths: list[Path] = []
        if self.structure != "topics":
            parts = components(found)
            paths = [path(parts, shape) for shape in np.atleast_1d(self.covariance_types).tolist()]
            race = self._entering([c for p in paths for c in along(p, ladder(p.merges.best()))])
        spots = centres(found) if self.structure != "gaussians" else None
        if spots is not None:
            race.append(atoms(spots, self.atom_type, rng)._replace(tested=self.structure == "auto"))
        return State("search", 0, tuple(race), 0.0, tuple(paths), spots, {}, (), {}, {}, {})

    def _describe_question(self, fed: Federation) -> Any:
        _, most = ROUND_ATOMS if self.atom_type == "round" else ATOMS
        return ask.describe.using(
            max_local=self.max_local if self.structure != "topics" else 0,
            max_centres=most if self.structure != "gaussians" else 0,
            min_count=self.min_count if len(fed.names) > 1 else 0.0,  # a federation of one hides nothing from itself
            noise=self.noise,
        )

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        asked = awake(state, self._light)
        found = fed.sum(question(asked, state), tuple(c.proposal for c in asked))
        race = tuple(advance(c, found[c.kin]) if c.kin in found else c for c in state.race)
        tried = state.tried | {c.id: entry(c) for c in race if not c.tested}
        leader = min(race, key=lambda c: c.cost)
        info = {"phase": state.phase, "candidates": len(race), "n_components": leader.size, "bic": leader.bic}
        one = found[asked[0].kin]
        rows = float(one.stats.rows + one.held_rows)
        return self._onward(fed, state._replace(race=race, tried=tried, age=state.age + 1, rows=rows)), info

    def _onward(self, fed: Federation, state: State) -> State:
        """Thin the race, and turn to the next phase when this one is over."""
        if state.phase == "search":
            return self._group(fed, state) if state.age == SEARCH else self._searched(fed, state)
        if state.phase == "halve":
            return self._fine(fed, state) if state.age % HALVE == 0 else state
        if state.phase == "alike":
            if state.age == GROUP:
                return state._replace(phase="polish", age=0, race=thinned(state.race, "alike", 1))
            return self._refined(state, "alike") if state.age in REFINE[:-1] else state
        if state.phase == "group":
            if state.age == GROUP:
                return chosen(state, len(fed.names))
            return contested(state) if state.age == SETTLE else state
        return state._replace(phase="done") if state.age == (SETTLE if state.phase == "settle" else POLISH) else state

    def _searched(self, fed: Federation, state: State) -> State:
        """Gaussians are refined now and then, and round atoms measured."""
        due = state.age in REFINE
        state = self._refined(state, "gaussians") if due else state._replace(race=picked(state.race))
        return state._replace(race=measured(fed, state.race, state.age, state.age == SEARCH - 1))

    def _refined(self, state: State, structure: str) -> State:
        """The two best Gaussians stay; the best one's neighbours on its path join, and itself with a pair joined, or some."""
        apart = structure == "alike" and state.age < APART  # what is begun by k-means favours round shapes at first
        races = [[c for c in state.race if c.shape == s] for s in SHAPES] if apart else [state.race]
        keep = 1 if self._light and structure == "gaussians" else 2
        kept = [c for race in races for c in thinned(race, structure, keep)]
        leaders = [leader for race in races if (leader := best(race, structure))]
        new = [c for leader in leaders for c in self._variants(state, leader) if c.id not in state.tried]
        return state._replace(race=(*kept, *self._entering(new)))

    def _entering(self, new: Sequence[Candidate]) -> list[Candidate]:
        """Where bytes count, large mixtures stay away, and a mixture's likelihood is asked for before its moments are."""
        if not self._light:
            return list(new)
        small = (c for c in new if c.numbers <= RIDERS or c.structure != "gaussians")
        return [c._replace(brief=c.structure == "gaussians") for c in small]

    @property
    def _light(self) -> bool:
        """Whether bytes count: with round atoms."""
        return self.structure == "auto" and self.atom_type == "round"

    def _variants(self, state: State, leader: Candidate) -> list[Candidate]:
        name, sizes = leader.id.split("-")[0], range(leader.size - 1, leader.size + 2)
        near = [state.pool[f"{name}-{k}"] for k in sizes if f"{name}-{k}" in state.pool]
        near = near or along(next(p for p in state.paths if p.shape == name), sizes)
        return [*near, *some_less(leader, state.rows, JOINED[leader.structure])]

    def _group(self, fed: Federation, state: State) -> State:
        """Atoms become topics by who holds them, and so do Gaussians that the same clients hold; without atoms nothing is grouped.

        Clients are alike where neither shows a difference: a few Gaussians may, where it is lost among 80 atoms.
        """
        fine, clumps = best(state.race, "atoms"), best(state.race, "gaussians")
        last = (clumps, *(one_less(clumps, state.rows) if not self._light else ())) if clumps else ()
        if fine is None:
            return state._replace(phase="settle", age=0, race=last)
        who = holders(fed, (fine, clumps) if clumps else (fine,), self.noise)
        if clumps and all(held.clusters == 1 for held in who):
            return self._fine(fed, state._replace(phase="halve", age=0, race=(fine._replace(tested=False),)))
        rng = fed.journal.rng
        groups = [grouped("topics", fine._replace(still=self.atom_type == "round"), who[0], rng)]
        if clumps and directions.together(*who[1], rng):
            groups.append(grouped("groups", clumps._replace(tested=True), who[1], rng))
        race = (*last, *(g.topics for g in groups))
        return state._replace(phase="group", age=0, race=race, groups={g.topics.id: g for g in groups})

    def _fine(self, fed: Federation, state: State) -> State:
        """Clients are alike: atoms are cut until they are fine; then the mixtures that the server fits to them race."""
        atoms = state.race[0]
        if coarse(atoms, state.rows) and state.age < HALVE * HALVES:
            return state._replace(race=(halved(atoms),))
        shapes = np.atleast_1d(self.covariance_types).tolist()
        found = mixtures(atoms, state.spots, state.rows, shapes, fed.journal.rng)
        pool = {id: mixture for id, (mixture, _) in found.items()}
        return state._replace(phase="alike", age=0, race=entrants(found, shapes), pool=pool, tried={})

    def done(self, state: State, history: list[Info]) -> bool:
        return state.phase == "done"

    # ---- the result ----

    def finish(self, fed: Federation, state: State) -> None:
        final = min((*state.settled, *state.race), key=lambda c: (c.tested, c.cost))
        self.alike_ = final.structure == "alike"
        final = concentric(final) if self.alike_ else unbent(final)
        self._set(final)
        self.certainty_ = certainty(final, state)
        self.merges_ = dendrogram(final, state)
        self.scores_, self.bic_, self.within_ = state.scores, float(final.bic), pooled_within(final)
        self.rows_ = state.rows
        self.client_shares_: dict[str, Array] = {}
        self.evenness_ = 0.0 if self.alike_ else concentration(fed, final)
        self.labels_: dict[str, Array] = {}
        self.holdings_: dict[str, Array] = {}
        self._know(fed, final, self.min_count if len(fed.names) > 1 else 0.0)

    def _set(self, final: Candidate) -> None:
        params, grouped, _ = final.proposal
        self.structure_ = "gaussians" if self.alike_ else final.structure
        self.covariance_type_ = final.shape
        self.weights_, self.means_ = params.weights, params.means
        self.covariances_ = gaussian.unpack_covs(params.covs, final.shape)
        self.topics_ = grouped if len(grouped) else np.eye(len(params.weights))
        self.n_components_, self.n_features_in_ = len(self.topics_), int(params.means.shape[1])
        self.centers_ = self.topics_ @ self.means_

    def _know(self, fed: Federation, final: Candidate, min_count: float) -> None:
        """Ask who holds which cluster, and look up what clients of this process keep."""
        alike = final.structure == "alike"
        question = ask.holdings.using(
            shape=final.shape, id=final.place, alike=alike, even=self.evenness_, min_count=min_count
        )
        answers = fed.gather(question, final.proposal)
        place = ask.key(final.place)
        here = [c for c in fed.here() if place in c.state]
        self.holdings_ |= {name: to_numpy(counts.n) for name, counts in answers.items()}
        held = np.sum(list(self.holdings_.values()), axis=0)
        shared = (self.topics_ > 0) @ self.weights_
        self.cluster_weights_ = shared if self.alike_ else held / max(held.sum(), 1e-300)
        self.client_shares_ |= {c.name: shared if alike else c.state[place] for c in here}
        self.labels_ |= {c.name: self.predict(c.x, client=c.name) for c in here}

    @property
    def client_weights_(self) -> dict[str, Array]:
        """Each client's weights of Gaussians or atoms, where clients are in this process."""
        return {name: shares @ self.topics_ for name, shares in self.client_shares_.items()}

    @property
    def holders_(self) -> list[list[str]]:
        """For each cluster the clients that hold it, those with most of their rows in it first."""
        ranked = [sorted(self.holdings_, key=lambda name: -self.holdings_[name][z]) for z in range(self.n_components_)]
        return [[name for name in names if self.holdings_[name][z] > 0] for z, names in enumerate(ranked)]

    def predict(self, X: Any, client: str | None = None) -> Array:
        """The most probable cluster of each row; with `client`, under that client's own weights."""
        return self.predict_proba(X, client).argmax(-1)

    def predict_proba(self, X: Any, client: str | None = None) -> Array:
        """The probability of each cluster for each row: (n, clusters)."""
        params = self.params()
        flat = params._replace(weights=np.ones(len(params.weights)))
        log_density = mixture.log_joint(flat, to_numpy(self._rows(X)), self.covariance_type)
        shares = self.cluster_weights_ if client is None else self._shares_of(client)
        joint = np.exp(log_density - log_density.max(-1, keepdims=True)) @ self.topics_.T * (shares + 1e-12)
        return joint / np.maximum(joint.sum(-1, keepdims=True), 1e-300)

    def _shares_of(self, client: str) -> Array:
        if client not in self.client_shares_:
            raise BadParameter(f"no weights are known for client {client!r}: {suggest(client, self.client_shares_)}")
        return self.client_shares_[client]

    # ---- clients that come later ----

    def partial_fit(self, data: Any, *, by: Any = None) -> OpenMixture:
        """Take in clients never seen: their rows join clusters that are there or open new ones; the old stay as they are."""
        check_is_fitted(self, "means_")
        fed = as_federation(data, by=by)
        for newcomer in fed.here():
            self._rows(newcomer.x)  # as many columns as the model has
        fed.journal.begin(0)
        before = Candidate("known", self.structure_, self.covariance_type_, Proposal(self.params(), self.topics_))
        final = newcomers(fed, before, self.within_, self.max_local, self.min_count, self.noise)
        self._set(final)
        grown = final.size - before.size
        self.holdings_ = {n: np.concatenate([h, np.zeros(grown)]) for n, h in self.holdings_.items()}
        self.client_shares_ = {n: np.concatenate([s, np.zeros(grown)]) for n, s in self.client_shares_.items()}
        self._know(fed, final, self.min_count)  # even of one client: the server is not its own any more
        return self

    # ---- refusals ----

    def check(self, fed: Federation) -> None:
        check_complete(fed.here())
        shapes = np.atleast_1d(self.covariance_types).tolist()
        named = (
            ("structure", [self.structure], STRUCTURES),
            ("covariance_types", shapes, SHAPES),
            ("atom_type", [self.atom_type], ATOM_TYPES),
        )
        for name, values, known in named:
            for value in values:
                if value not in known:
                    raise BadParameter(f"{name}={value!r} is not known: use one of {', '.join(known)}")
        for name, least in {"max_local": 1, "min_count": 0, "noise": 0, "max_iter": 1}.items():
            if getattr(self, name) < least:
                raise BadParameter(f"{name}={getattr(self, name)!r} must be at least {least}")
        if self.structure == "topics" and self.max_iter <= SEARCH:
            raise BadParameter(
                f"max_iter={self.max_iter!r} ends before atoms become topics: give more than {SEARCH} rounds"
            )


def concentration(fed: Federation, final: Candidate) -> float:
    """How alike the weights are that a client has of its clusters: the concentration of a Dirichlet law, by moments.

    Weights from it make the chi-square of n rows in s clusters (s - 1) (n + c) / (1 + c) on average.
    """
    free, rows, squares = (
        float(a) for a in fed.sum(ask.evenness.using(shape=final.shape, id=final.place), final.proposal)
    )
    return min(max(rows - squares, 0.0) / max(squares - free, 1e-300), EVEN)
