"""Which Gaussians the same clients hold, so that they are one cluster: one GATHER of counts, one SUM of squares, then the server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, to_numpy
from unpooled.federation import Federation
from unpooled.maths import gaussian
from unpooled.models.open_mixture import directions, topics
from unpooled.models.open_mixture import rounds as ask
from unpooled.models.open_mixture.agglomeration import Merges
from unpooled.models.open_mixture.race import Candidate
from unpooled.tree import message

MOST_TOPICS = 30
RESAMPLES = 20


@message("open_mixture.Holders")
class Holders(NamedTuple):
    """Who holds the Gaussians of a candidate."""

    counts: Array  # (clients, k) expected rows
    within: Array  # (k, k) how one row's responsibilities vary at a client, and the noise that was added to the counts
    squares: Array  # (k, k) sum over rows of r r'

    @property
    def clusters(self) -> int:
        """One more than the directions in which clients differ."""
        return min(directions.count(self.counts, self.within) + 1, MOST_TOPICS, self.counts.shape[1])


@message("open_mixture.Grouped")
class Grouped(NamedTuple):
    topics: Candidate
    merges: Merges
    resampled: dict[str, float]  # number of topics -> share of resampled federations that chose it


def holders(fed: Federation, race: Sequence[Candidate], noise: float) -> list[Holders]:
    """Of each candidate, all in the same two messages."""
    shapes, down = [c.shape for c in race], tuple(c.proposal for c in race)
    answers = fed.gather(ask.count_atoms.using(shapes=shapes, noise=noise), down)
    totals = fed.sum(ask.atom_squares.using(shapes=shapes), down)
    counts = [np.stack([to_numpy(answers[name][i].n) for name in sorted(answers)]) for i in range(len(race))]
    return [_holders(n, gaussian.unpack_triangle(to_numpy(s.rr)), noise) for n, s in zip(counts, totals)]


def _holders(counts: Array, squares: Array, noise: float) -> Holders:
    added = noise**2 * np.mean(1 / np.maximum(counts.sum(1), 1.0))
    return Holders(counts, directions.within(counts, squares) + added * np.eye(len(squares)), squares)


def grouped(name: str, c: Candidate, held: Holders, rng: np.random.Generator) -> Grouped:
    """The candidate's Gaussians as topics by who holds them, as many as clients' differences show."""
    merges, size = topics.group(held.counts), held.clusters
    found = topics.fit(held.counts, topics.start(held.counts, merges.labels(size))).atoms
    new = c._replace(id=f"{name}-{size}", structure="topics", proposal=c.proposal._replace(topics=found))
    return Grouped(new, merges, directions.resampled(held.counts, held.within, RESAMPLES, rng))
