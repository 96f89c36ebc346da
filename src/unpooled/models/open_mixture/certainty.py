"""How certain the number of clusters is, and the dendrogram behind it; sends nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from unpooled.models.open_mixture import merging
from unpooled.models.open_mixture.agglomeration import Merges
from unpooled.models.open_mixture.candidates import GAUSSIANS, SHARED, TOPICS, Candidate
from unpooled.models.open_mixture.grouping import Grouping
from unpooled.models.open_mixture.initial import MergePath, as_components
from unpooled.models.open_mixture.shared_weights import concentric_clusters
from unpooled.tree import message


@message("open_mixture.Evaluated")
class Evaluated(NamedTuple):
    """The last cost of a candidate, and its number of clusters where clusters are Gaussians (else 0)."""

    cost: float
    n_clusters: int


def evaluations(candidates: Sequence[Candidate]) -> dict[str, Evaluated]:
    """Candidate id -> its cost, for candidates that were fitted to all rows."""
    return {c.id: Evaluated(c.cost, _n_gaussian_clusters(c)) for c in candidates if not c.validated}


def _n_gaussian_clusters(c: Candidate) -> int:
    if c.structure == SHARED:
        return len(concentric_clusters(c).proposal.topics)
    return c.size if c.structure == GAUSSIANS else 0


def certainty(
    final: Candidate, evaluated: Mapping[str, Evaluated], groupings: Mapping[str, Grouping]
) -> dict[str, float]:
    """Number of clusters -> probability: by resampled clients for topics, by BIC weights of all evaluated candidates for Gaussians."""
    if final.structure == TOPICS:
        return groupings[final.id].resampled
    lowest: dict[str, float] = {}
    for cost, n_clusters in evaluated.values():
        if n_clusters:
            lowest[str(n_clusters)] = min(cost, lowest.get(str(n_clusters), np.inf))
    best = min(lowest.values())
    weights = {k: float(np.exp((best - cost) / 2)) for k, cost in lowest.items()}
    total = sum(weights.values())
    return {k: weight / total for k, weight in weights.items()}


def dendrogram(
    final: Candidate, rows: float, paths: Sequence[MergePath], groupings: Mapping[str, Grouping]
) -> Merges | None:
    """How Gaussians grouped into topics, or local components into Gaussians, or how shared Gaussians would merge further."""
    if final.structure == TOPICS:
        return groupings[final.id].merges
    if final.structure == SHARED:
        return merging.merge(as_components(final, rows), final.shape)[2]
    return next((path.merges for path in paths if path.shape == final.shape), None)
