"""Where `OpenMixture`'s search stands, what is asked next, and how one structure is chosen. Sends nothing itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from unpooled.models.open_mixture import merging
from unpooled.models.open_mixture import rounds as ask
from unpooled.models.open_mixture.agglomeration import Merges
from unpooled.models.open_mixture.alike import concentric
from unpooled.models.open_mixture.groups import Grouped
from unpooled.models.open_mixture.race import Candidate, Centres, Path, as_components, best
from unpooled.tree import message

RIDE = 3  # every so many rounds of grouping Gaussians move, where bytes count
HELD = 0.1  # share of rows held out of atoms, and of the structures that compete


@message("open_mixture.Tried")
class Tried(NamedTuple):
    cost: float  # the last one
    clusters: int  # 0: not counted


@message("open_mixture.State")
class State(NamedTuple):
    phase: str  # search, then settle, or group, or halve and alike; polish, done
    age: int  # rounds in this phase
    race: tuple[Candidate, ...]
    rows: float  # of all clients, known after the first round
    paths: tuple[Path, ...]  # on which Gaussians are found
    spots: Centres | None  # that clients found; none without atoms
    pool: dict[str, Candidate]  # of mixtures for clients that are alike
    settled: tuple[Candidate, ...]  # the Gaussians that were found, while structures compete
    tried: dict[str, Tried]  # by candidate
    groups: dict[str, Grouped]  # candidate -> how its Gaussians became topics
    scores: dict[str, float]  # structure -> held-out log-likelihood a row, when both ran


def awake(state: State, light: bool) -> tuple[Candidate, ...]:
    """Who is asked about: all, or, where bytes count, atoms and their topics always and others now and then."""
    if not light or state.phase not in ("search", "group"):
        return state.race
    turn = state.age % 2 == 1 if state.phase == "search" else state.age % RIDE == RIDE - 1
    return tuple(c for c in state.race if turn or c.brief or c.of_atoms)


def question(race: Sequence[Candidate], state: State) -> Any:
    """What clients are asked about the race; their weights of Gaussians that wait for the end, or for their turn, stay with them."""
    shapes, ids, tested = [c.shape for c in race], [c.place for c in race], [c.tested for c in race]
    keep = [c.place for c in (*state.settled, *state.race) if c.place not in ids]
    brief, still = ([c.place for c in race if getattr(c, kind)] for kind in ("brief", "still"))
    about = {"names": [c.kin for c in race], "brief": brief, "still": still}
    return ask.survey.using(shapes=shapes, ids=ids, tested=tested, held=HELD, keep=keep, **about)


def contested(state: State) -> State:
    """The Gaussians are found, on all rows; a copy of them goes on without the held-out ones, against the topics."""
    topics = tuple(c for c in state.race if c.structure == "topics")
    found = best(state.race, "gaussians")
    if found is None:
        return state
    rival = found._replace(id=f"{found.id}-tested", tested=True)
    return state._replace(race=(rival, *topics), settled=(found,))


def chosen(state: State, clients: int) -> State:
    """One model. Topics need clients that differ, at least two for each topic; they are refitted to all rows.

    Gaussians lose to topics where held-out rows say so, be it those of Gaussians that clients hold together, and where they are
    fewer than the clients' differences show.
    """
    g, ts = best(state.race, "gaussians"), [c for c in state.race if c.structure == "topics"]
    t = max(ts, key=lambda c: (2 <= c.size <= clients / 2, c.told))  # densities of rows are not what groups are about
    refit = state._replace(phase="polish", age=0, race=(t._replace(tested=False),), settled=())
    if g is None:
        return refit
    scores = {c.structure: c.held for c in (g, t)}
    if 2 <= t.size <= clients / 2 and _explain_more(ts, t, g):
        return refit._replace(scores=scores)
    return state._replace(phase="done", race=(), scores=scores)


def _explain_more(topics: Sequence[Candidate], t: Candidate, g: Candidate) -> bool:
    """Whether held-out rows prefer topics, of which t are the best, to the Gaussians g."""
    if any(
        c.still for c in topics
    ):  # atoms that stand still describe rows crudely; what clients' weights tell of a row counts
        return t.told > g.told
    margin = t.doubt if t.size == g.size else 0.0  # nothing is grouped: then it must be clear that Gaussians do not fit
    return max(c.held for c in topics) - margin > g.held or g.size < t.size


def dendrogram(final: Candidate, state: State) -> Merges | None:
    """How Gaussians joined into topics, local components into Gaussians, or the Gaussians of clients that are alike would join on."""
    if final.structure == "topics":
        return state.groups[final.id].merges
    if final.structure == "alike":
        return merging.merge(as_components(final, state.rows), final.shape)[2]
    return next((p.merges for p in state.paths if p.shape == final.shape), None)


def certainty(final: Candidate, state: State) -> dict[str, float]:
    """Number of clusters -> probability: by resampled clients for topics, by BIC among all that were tried for Gaussians."""
    if final.structure == "topics":
        return state.groups[final.id].resampled
    sizes: dict[str, float] = {}
    for cost, clusters in state.tried.values():
        if clusters:
            sizes[str(clusters)] = min(cost, sizes.get(str(clusters), np.inf))
    weights = {k: float(np.exp((min(sizes.values()) - b) / 2)) for k, b in sizes.items()}
    return {k: w / sum(weights.values()) for k, w in weights.items()}


def entry(c: Candidate) -> Tried:
    """Its cost and, where clusters are Gaussians, how many."""
    if c.structure == "alike":
        return Tried(c.cost, len(concentric(c).proposal.topics))
    return Tried(c.cost, c.size if c.structure == "gaussians" else 0)
