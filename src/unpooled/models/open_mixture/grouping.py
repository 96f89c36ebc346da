"""Which Gaussians the same clients hold, so that they are one cluster: one GATHER of counts and one SUM of products."""

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
from unpooled.models.open_mixture.questions import atom_products, count_atoms
from unpooled.tree import message


@message("open_mixture.ClientCounts")
class ClientCounts(NamedTuple):
    """How many rows each client has in each Gaussian of a candidate."""

    counts: Array  # (clients, k) expected rows
    within: Array  # (k, k) covariance of one row's responsibilities about its client's mean
    products: Array  # (k, k) sum over rows of r r'
    n_columns: int

    @property
    def n_clusters(self) -> int:
        """One more than the number of directions in which clients differ."""
        return min(directions.count_directions(*self.determined()) + 1, MAX_TOPICS, self.counts.shape[1])

    def determined(self) -> tuple[Array, Array]:
        """(counts, within) where Gaussians of fewer rows than columns count as one.

        So few rows determine a mean, and lie about it: a Gaussian that started from rows of one client would keep them.
        """
        few = self.counts.sum(0) < self.n_columns
        if not few.any() or few.sum() > len(few) - 2:
            return self.counts, self.within
        groups = np.column_stack([np.eye(len(few))[:, ~few], few])
        return self.counts @ groups, groups.T @ self.within @ groups


@message("open_mixture.Grouping")
class Grouping(NamedTuple):
    """Gaussians grouped into topics."""

    candidate: Candidate
    merges: Merges  # the dendrogram of the grouping
    resampled: dict[str, float]  # number of topics -> fraction of resampled federations that have it


def client_counts(fed: Federation, candidates: Sequence[Candidate]) -> list[ClientCounts]:
    """The counts of each candidate's Gaussians; all candidates in the same two messages."""
    shapes, proposals = [c.shape for c in candidates], tuple(c.proposal for c in candidates)
    answers = fed.gather(count_atoms.using(shapes=shapes), proposals)
    totals = fed.sum(atom_products.using(shapes=shapes), proposals)
    found = []
    for i, total in enumerate(totals):
        counts = np.stack([to_numpy(answers[name][i].n) for name in sorted(answers)])
        products = gaussian.unpack_triangle(to_numpy(total.rr))
        within = directions.within_covariance(counts, products)
        found.append(ClientCounts(counts, within, products, proposals[i].params.means.shape[1]))
    return found


def group_by_holders(name: str, c: Candidate, held: ClientCounts, rng: np.random.Generator) -> Grouping:
    """The candidate's Gaussians grouped into as many topics as clients' differences show."""
    merges, n_topics = topics.agglomerate(held.counts), held.n_clusters
    start = topics.initial_topics(held.counts, merges.labels(n_topics))
    fitted = topics.fit(held.counts, start)
    candidate = c._replace(id=f"{name}-{n_topics}", structure=TOPICS, proposal=c.proposal._replace(topics=fitted.atoms))
    resampled = directions.resampled_sizes(*held.determined(), N_RESAMPLES, rng)
    return Grouping(candidate, merges, resampled)
