"""Which Gaussians the same clients hold, so that they are one cluster: one SUM of products, and one GATHER of counts if clients differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, to_numpy
from unpooled.federation import Federation
from unpooled.maths import gaussian
from unpooled.models.open_mixture import directions, topics
from unpooled.models.open_mixture.agglomeration import Merges
from unpooled.models.open_mixture.candidates import TOPICS, Candidate
from unpooled.models.open_mixture.constants import MAX_TOPICS, N_RESAMPLES
from unpooled.models.open_mixture.directions import HolderSums
from unpooled.models.open_mixture.questions import Tree, atom_products, count_atoms
from unpooled.tree import message


@message("open_mixture.Held")
class Held(NamedTuple):
    """What sums say of how clients differ in the Gaussians of a candidate."""

    sums: HolderSums
    products: Array  # (k, k) sum over rows of r r'
    n_columns: int

    @property
    def within(self) -> np.ndarray:
        """(k, k) covariance of one row's responsibilities about its client's mean."""
        return directions.within_covariance(self.sums, self.products)

    @property
    def n_clusters(self) -> int:
        """One more than the number of directions in which clients differ."""
        groups = self.determined()
        sums = self.sums.grouped(groups)
        within = groups.T @ self.within @ groups
        return min(directions.count_directions(sums, within) + 1, MAX_TOPICS, len(self.sums.n))

    def determined(self) -> np.ndarray:
        """(k, groups): Gaussians of fewer rows than columns count as one.

        So few rows determine a mean, and lie about it: a Gaussian that started from rows of one client would keep them.
        """
        few = self.sums.n < self.n_columns
        if not few.any() or few.sum() > len(few) - 2:
            return np.eye(len(few))
        return np.column_stack([np.eye(len(few))[:, ~few], few])


@message("open_mixture.Grouping")
class Grouping(NamedTuple):
    """Gaussians grouped into topics."""

    candidate: Candidate
    merges: Merges  # the dendrogram of the grouping
    resampled: dict[str, float]  # number of topics -> fraction of resampled federations that have it


def holder_sums(fed: Federation, candidates: Sequence[Candidate], units: Sequence[Sequence[float]]) -> list[Held]:
    """How clients differ in each candidate's Gaussians; all candidates in one SUM."""
    proposals = tuple(c.proposal for c in candidates)
    totals = fed.sum(atom_products.using(shapes=[c.shape for c in candidates], units=units), proposals)
    return [
        Held(
            sums=HolderSums(to_numpy(total.n), gaussian.unpack_triangle(to_numpy(total.nn)), float(total.clients)),
            products=gaussian.unpack_triangle(to_numpy(total.rr)),
            n_columns=c.proposal.params.means.shape[1],
        )
        for c, total in zip(candidates, totals)
    ]


def client_counts(
    fed: Federation,
    candidates: Sequence[Candidate],
    merges: Sequence[Merges],
    min_count: float,
    units: Sequence[Sequence[float]],
) -> list[np.ndarray]:
    """(clients, k) rows of each client in each Gaussian, of all candidates in one GATHER."""
    trees = tuple(Tree(c.proposal, m.left, m.right) for c, m in zip(candidates, merges))
    ask = count_atoms.using(shapes=[c.shape for c in candidates], min_count=min_count, units=units)
    answers = fed.gather(ask, trees)
    return [np.stack([to_numpy(answers[name][i].n) for name in sorted(answers)]) for i in range(len(trees))]


def group_by_holders(
    name: str, c: Candidate, held: Held, merges: Merges, counts: np.ndarray, rng: np.random.Generator
) -> Grouping:
    """The candidate's Gaussians grouped into as many topics as clients' differences show."""
    n_topics = held.n_clusters
    groups = held.determined()
    start = topics.initial_topics(counts, merges.labels(n_topics))
    fitted = topics.fit(counts, start)
    candidate = c._replace(id=f"{name}-{n_topics}", structure=TOPICS, proposal=c.proposal._replace(topics=fitted.atoms))
    within = groups.T @ held.within @ groups
    resampled = directions.resampled_sizes(counts @ groups, within, N_RESAMPLES, rng)
    return Grouping(candidate, merges, resampled)
