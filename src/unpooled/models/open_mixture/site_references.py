"""The reference mixtures that sites are aligned to in each pass of `site_offsets`; sends nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.maths import gaussian
from unpooled.models.open_mixture.candidates import (
    GAUSSIANS,
    SHARED,
    Candidate,
    has_few_rows,
    pooled_covariance,
)
from unpooled.models.open_mixture.constants import (
    COV_PRIOR_ROWS,
    FIRST_LOG_SCALE,
    FIRST_OFFSET,
    MAX_FULL_COLUMNS,
    N_ALIGN_KEPT,
    N_ALIGN_SIZES,
    N_HALVES,
    N_OWN_SPLITS,
    TIED_ROWS,
)
from unpooled.models.open_mixture.descriptions import Description
from unpooled.models.open_mixture.initial import (
    candidates_on_path,
    initial_sizes,
    local_components,
    merge_best_pair,
    merge_path,
    split_along,
    split_gaussian,
    without_client_means,
)

# a column has scales where the least variance of a client is above this share of the mean, and above rounding errors
LEAST_VARIANCE = 1e-3
ROUNDING = 1e-12  # over the square of the values


class Start(NamedTuple):
    """A reference mixture at the server, and the variances of offsets and scales under it."""

    id: str  # the name under which clients keep their weights and offset
    candidate: Candidate  # its cost includes what the offsets and scales cost
    variance: np.ndarray  # (d,)
    log_variance: np.ndarray  # (d,)
    parent: str = ""  # the reference whose offsets it starts from, if any
    penalty: float = 0.0  # the part of its cost that is BIC's for the parameters at the server

    @property
    def is_moved(self) -> bool:
        """Whether sites have offsets."""
        return bool(self.variance.any())


def first_references(descriptions: Mapping[str, Description]) -> list[Start]:
    """Mixtures of several sizes, with and without offsets, with weights of clients' own and in common, and a Gaussian in halves.

    The halves of one Gaussian are for two clusters of different covariance, which merged components may not show.
    """
    as_they_are = _mixtures(descriptions)
    centred = _mixtures(without_client_means(descriptions)[0])
    plain = [*as_they_are.sizes, *(c.in_common() for c in (*as_they_are.sizes, *as_they_are.halves))]
    moved = [*as_they_are.sizes, *(c.in_common() for c in (*centred.sizes, *centred.halves))]
    return [*_starts("first-plain", plain, 0.0), *_starts("first-moved", moved, FIRST_OFFSET)]


def varied_references(starts: Sequence[Start], rows: float, name: str) -> list[Start]:
    """The best references so far, and variations of the best two.

    These are the best one with offsets after one Gaussian was split, or two were merged, and each of the best two as the other is: with
    offsets, or without. If clients have the same weights in it, offsets hide that they hold different clusters; so it is also split with
    weights of the clients' own, whose offsets start anew.
    """
    kept = [s for moved in (False, True) for s in _best_of_each_kind(_ranked(starts, moved))]
    plain, moved = (_ranked(starts, is_moved)[0] for is_moved in (False, True))
    best = moved.candidate
    merged = [c._replace(prior_rows=best.prior_rows) for c in merge_best_pair(best, rows)]
    new = _starts(f"{name}-moved", [*_splits(best), *merged, plain.candidate], FIRST_OFFSET)
    own = _starts(f"{name}-own", _own_splits(best), FIRST_OFFSET)
    untied = _with_own_covariances(_ranked(starts, True), f"{name}-untied")
    return [*kept, *(s._replace(parent=moved.id) for s in new), *own, *untied, *_starts(f"{name}-plain", [best], 0.0)]


def _splits(c: Candidate) -> list[Candidate]:
    """The mixture with one Gaussian split; if all have one covariance, across several of its axes."""
    if c.is_tied or c.size == 1:
        return _splits_along(c, min(c.size, N_ALIGN_SIZES) if c.structure == SHARED else N_ALIGN_SIZES)
    return [split_gaussian(c, int(k)) for k in _largest(c)]


def _own_splits(c: Candidate) -> list[Candidate]:
    """The mixture with one Gaussian split and weights of the clients' own, if it has common ones; one Gaussian has no weights."""
    return _splits_along(_with_own_weights(c), N_OWN_SPLITS) if c.structure == SHARED or c.size == 1 else []


def _best_of_each_kind(ranked: Sequence[Start]) -> list[Start]:
    """The best references, and the best one of each kind: with one covariance or several, and with weights in common or of clients' own.

    Mixtures of few rounds are compared with others of many; without their own places all would soon be of one kind.
    """
    kinds: dict[tuple[str, bool], Start] = {}
    for s in ranked:
        if s.candidate.size > 1:
            kinds.setdefault((s.candidate.structure, s.candidate.is_tied), s)
    chosen = {s.id for s in (*ranked[:N_ALIGN_KEPT], *kinds.values())}
    return [s for s in ranked if s.id in chosen]


def _with_own_covariances(ranked: Sequence[Start], name: str) -> list[Start]:
    """The best mixtures of one covariance with a covariance for each Gaussian instead, and the offsets that they have.

    And the best one of several covariances with weights of the clients' own, if it has common ones; offsets start anew then.
    """
    found: list[Start] = []
    for s in _best_of_each_kind(ranked):
        c = s.candidate
        if c.size > 1 and c.is_tied:
            prior_rows = c.proposal.params.means.shape[1] + COV_PRIOR_ROWS
            found.append(
                s._replace(id=f"{name}-{len(found)}", parent=s.id, candidate=c._replace(prior_rows=prior_rows))
            )
        elif c.size > 1 and c.structure == SHARED:
            found += _starts(f"{name}-{len(found)}", [_with_own_weights(c)], FIRST_OFFSET)
    return found


def _splits_along(c: Candidate, n: int) -> list[Candidate]:
    """Up to n mixtures with one Gaussian split: the largest ones across their longest axis, then across the next.

    The halves of a single Gaussian have one covariance at first.
    """
    largest = _largest(c)
    prior_rows = TIED_ROWS if c.size == 1 else c.prior_rows
    n = min(n, len(largest) * c.proposal.params.means.shape[1])
    splits = [split_along(c, int(largest[i % len(largest)]), i // len(largest)) for i in range(n)]
    return [split._replace(prior_rows=prior_rows) for split in splits]


def _largest(c: Candidate) -> np.ndarray:
    """The Gaussians with most rows."""
    return np.argsort(-to_numpy(c.proposal.params.weights))[:N_ALIGN_SIZES]


def last_references(starts: Sequence[Start], varies: np.ndarray) -> list[Start]:
    """The best without offsets, the best with them, the same without, and with scales of the columns that vary (d,)."""
    plain, moved = (_ranked(starts, is_moved)[0] for is_moved in (False, True))
    log_variance = np.where(varies, FIRST_LOG_SCALE**2, 0.0)
    twin = _starts("last-plain", [moved.candidate], 0.0)
    return [plain, *twin, moved, moved._replace(id="scaled", parent=moved.id, log_variance=log_variance)]


def varies(descriptions: Mapping[str, Description]) -> np.ndarray:  # (d,)
    """Columns that vary at every client; the scale of a column without variance is arbitrary, and small ones are always likelier."""
    components = local_components(descriptions)
    rows = components.held.sum(0)  # (clients,)
    by_row = np.diagonal(components.scatter, axis1=1, axis2=2) / components.n[:, None]  # (components, d)
    variances = (components.held.T @ by_row)[rows > 0] / rows[rows > 0, None]
    rounding = ROUNDING * np.square(components.mean).max(0)
    return variances.min(0) > LEAST_VARIANCE * variances.mean(0) + rounding


def _starts(name: str, candidates: Sequence[Candidate], offset: float) -> list[Start]:
    """Starts from candidates, with offsets of this size."""
    return [
        Start(f"{name}-{i}", c, offset**2 * within_clusters(c), np.zeros(c.proposal.params.means.shape[1]))
        for i, c in enumerate(candidates)
    ]


def _ranked(starts: Sequence[Start], moved: bool) -> list[Start]:
    """The starts with or without offsets, the best first."""
    return sorted((s for s in starts if s.is_moved == moved), key=lambda s: s.candidate.cost)


class Mixtures(NamedTuple):
    """Reference mixtures that the clients' components lead to."""

    sizes: list[Candidate]  # merged into several numbers of Gaussians; with few rows they have one covariance
    halves: list[Candidate]  # one Gaussian, split across each of its longest axes


def _mixtures(descriptions: Mapping[str, Description]) -> Mixtures:
    """Mixtures of the clients' components."""
    components = local_components(descriptions)
    rows = components.n.sum()
    d = components.mean.shape[1]
    path = merge_path(components, "full" if d <= MAX_FULL_COLUMNS else "diag")
    own_rows = d + COV_PRIOR_ROWS
    sizes = candidates_on_path(path, initial_sizes(path.merges.best())[:N_ALIGN_SIZES])
    halves = [split_along(c, 0, axis) for c in candidates_on_path(path, [1]) for axis in range(min(d, N_HALVES))]
    return Mixtures(
        [c._replace(prior_rows=TIED_ROWS if has_few_rows(c, rows) else own_rows) for c in sizes],
        [c._replace(prior_rows=own_rows) for c in halves],
    )


def _with_own_weights(c: Candidate) -> Candidate:
    """The mixture with weights of clients' own."""
    return c._replace(structure=GAUSSIANS, proposal=c.proposal._replace(topics=np.zeros((0, c.size))))


def within_clusters(c: Candidate) -> np.ndarray:
    """(d,) variances within clusters."""
    return np.diag(gaussian.unpack_triangle(pooled_covariance(c)))
