"""How certain the number of clusters is, and the dendrogram behind it; sends nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from unpooled.models.open_mixture import merging
from unpooled.models.open_mixture.agglomeration import Merges
from unpooled.models.open_mixture.candidates import SHARED, TOPICS, Candidate
from unpooled.models.open_mixture.constants import ROWS_OF_EVIDENCE
from unpooled.models.open_mixture.grouping import Grouping
from unpooled.models.open_mixture.initial import MergePath, as_components
from unpooled.models.open_mixture.several_gaussians import n_clusters
from unpooled.tree import message


@message("open_mixture.Evaluated")
class Evaluated(NamedTuple):
    """The last cost of a candidate, and its number of clusters where clusters are Gaussians (else 0)."""

    cost: float
    n_clusters: int


def evaluations(candidates: Sequence[Candidate]) -> dict[str, Evaluated]:
    """Candidate id -> its cost, for candidates that were fitted to all rows."""
    return {c.id: Evaluated(c.cost, n_clusters(c)) for c in candidates if not c.validated}


def certainty(
    final: Candidate, evaluated: Mapping[str, Evaluated], groupings: Mapping[str, Grouping], rows: float
) -> dict[str, float]:
    """Number of clusters -> probability; the number of the final model has the largest.

    For topics half of the probability is that of resampled clients, half is the final number's. For Gaussians they are BIC weights of
    all evaluated candidates, as if there were at most ROWS_OF_EVIDENCE rows: clusters are never quite Gaussian, so more rows do not make
    their number as certain as BIC says (a coarsened posterior; Miller and Dunson 2019).
    """
    if final.structure == TOPICS:
        shares = {k: share / 2 for k, share in groupings[final.id].resampled.items()}
        return shares | {str(final.size): shares.get(str(final.size), 0.0) + 0.5}
    return bic_weights(evaluated, n_clusters(final), rows)


def bic_weights(evaluated: Mapping[str, Evaluated], chosen: int, rows: float) -> dict[str, float]:
    """Number of clusters -> its BIC weight; the chosen number gets the lowest BIC of all."""
    lowest: dict[str, float] = {}
    for cost, number in evaluated.values():
        if number:
            lowest[str(number)] = min(cost, lowest.get(str(number), np.inf))
    lowest[str(chosen)] = best = min(lowest.values(), default=0.0)
    strength = ROWS_OF_EVIDENCE / (ROWS_OF_EVIDENCE + rows)
    weights = {k: float(np.exp(strength * (best - cost) / 2)) for k, cost in lowest.items()}
    total = math.fsum(weights.values())  # whatever the order
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
