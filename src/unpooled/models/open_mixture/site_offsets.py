"""Offsets and scales of sites: every client's rows may be moved and stretched, as another instrument does it.

Sends, before the rounds of `OpenMixture`, SUMs over reference mixtures (`open_mixture.align`), one SUM of log-likelihoods of rows held
out (`open_mixture.check_offsets`), if scales seem to be there one more (see `scale_direction`) and one TELL of the choice
(`open_mixture.keep_offsets`). There are several passes:

1. Mixtures of several sizes, with and without offsets, where clients have weights of their own and where all have the same. If weights
   are the same, offsets start as the differences of the clients' means; otherwise as the part of them that weights do not explain.
2. The best ones, and variations of them: a Gaussian split, two merged, with offsets or without; if weights are the same, also a Gaussian
   split and weights of the clients' own.
3. The best mixture without offsets, the best one with them, and that without them and with scales as well.

Mixtures are compared by their evidence for all rows: BIC, where offsets and scales are random effects that are integrated out (Laplace's
approximation). Where clusters are not Gaussian this finds offsets and scales that are chance: a heavy tail moves a client's mean and
spread more than a Gaussian's rows could. So rows held out are asked too: the offset and scale that four fifths of a client's rows give
must make the others likelier. Offsets are kept only if both gain clearly, and so are scales.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.errors import DataWarning
from unpooled.federation import Federation
from unpooled.models.open_mixture.candidates import SHARED, gaussian_m_step, parameter_penalty
from unpooled.models.open_mixture.constants import (
    ALIGN_ROUNDS,
    CLEAR_NATS,
    MAX_LOG_SCALE,
    MAX_OFFSET,
    MIN_LOG_SCALE,
    MIN_OFFSET,
    N_VARIATIONS,
)
from unpooled.models.open_mixture.descriptions import Description
from unpooled.models.open_mixture.initial import without_client_means
from unpooled.models.open_mixture.scale_direction import scales_show_clusters
from unpooled.models.open_mixture.site_questions import Aligned, Reference, align, check_offsets, keep_offsets
from unpooled.models.open_mixture.site_references import (
    Start,
    first_references,
    last_references,
    varied_references,
    varies,
    within_clusters,
)


class SiteOffsets(NamedTuple):
    """What was found."""

    scale: np.ndarray  # (d,) standard deviation of the offsets, over that within clusters; 0 where they are not kept
    log_scale: np.ndarray  # (d,) standard deviation of the logarithms of the scales; 0 where they are not kept
    by_offsets: float  # log evidence gained over mixtures without
    by_scales: float  # log evidence gained over offsets alone


def find_offsets(
    fed: Federation, descriptions: Mapping[str, Description], units: Sequence[Sequence[float]] = ()
) -> SiteOffsets:
    """Align the clients, whose columns are divided by `units`; they keep offsets and scales if the evidence for them is clear."""
    centre = without_client_means(descriptions)[1]
    rows = sum(float(d.n.sum()) for d in descriptions.values())
    starts = _pass(fed, first_references(descriptions), centre, units)
    for i in range(N_VARIATIONS):
        starts = _pass(fed, varied_references(starts, rows, f"varied-{i}"), centre, units)
    *unmoved, moved, scaled = _pass(fed, last_references(starts, varies(descriptions)), centre, units)
    plain = min(unmoved, key=lambda s: s.candidate.cost)
    gain = _gains(fed, (plain, moved, scaled), centre, units)
    by_offsets = gain[0, 1]
    by_scales = gain[1, 2]
    log_scale = _at_least(MIN_LOG_SCALE, np.sqrt(scaled.log_variance)) * (by_scales > CLEAR_NATS)
    if log_scale.any() and scales_show_clusters(fed, scaled.id):
        log_scale = np.zeros_like(log_scale)
    final = scaled if log_scale.any() else moved
    scale = offset_scale(final)
    is_clear = gain[0, 2 if log_scale.any() else 1] > CLEAR_NATS
    kept = bool(is_clear and (scale.any() or log_scale.any()))
    fed.tell(keep_offsets.using(id=final.id if kept else "", scaled=bool(log_scale.any())), centre)
    return SiteOffsets(scale * kept, log_scale * kept, by_offsets, by_scales)


def _gains(
    fed: Federation, starts: Sequence[Start], centre: np.ndarray, units: Sequence[Sequence[float]]
) -> np.ndarray:
    """(before, after) log evidence gained: of all rows, or of rows held out with BIC's penalty at the server, whichever is less."""
    ask = check_offsets.using(ids=[s.id for s in starts], shape=starts[0].candidate.shape, units=units)
    held_out = fed.sum(ask, _references(starts, centre)).loglik
    by_rows_held_out = to_numpy(held_out) - np.array([s.penalty for s in starts]) / 2
    by_all_rows = -np.array([s.candidate.cost for s in starts]) / 2
    return np.minimum(*(after[None] - after[:, None] for after in (by_all_rows, by_rows_held_out)))


def offset_scale(start: Start) -> np.ndarray:  # (d,)
    """Standard deviations of the offsets over those within clusters, 0 where they are small."""
    return _at_least(MIN_OFFSET, np.sqrt(start.variance / within_clusters(start.candidate)))


def _at_least(least: float, spread: np.ndarray) -> np.ndarray:
    """Standard deviations, 0 where they are smaller than the least."""
    return np.where(spread >= least, spread, 0.0)


def _pass(fed: Federation, starts: list[Start], centre: np.ndarray, units: Sequence[Sequence[float]]) -> list[Start]:
    """The references after some rounds."""
    shape = starts[0].candidate.shape
    ask = align.using(ids=[s.id for s in starts], parents=[s.parent for s in starts], shape=shape, units=units)
    for _ in range(ALIGN_ROUNDS):
        starts = [updated_start(s, a) for s, a in zip(starts, fed.sum(ask, _references(starts, centre)))]
    return starts


def _references(starts: Sequence[Start], centre: np.ndarray) -> tuple[Reference, ...]:
    """What clients are told of the references."""
    return tuple(Reference(s.candidate.proposal, s.variance, s.log_variance, centre) for s in starts)


# ---- one round ----


def updated_start(start: Start, answer: Aligned) -> Start:
    """The reference scored at the parameters that were sent, after an M-step, and the new variances of offsets and scales."""
    n_variances = np.count_nonzero(start.variance) + np.count_nonzero(start.log_variance)
    clients = max(float(answer.clients), 1.0)
    penalty = parameter_penalty(start.candidate, float(answer.stats.rows)) + n_variances * np.log(clients)
    bic = -2 * float(answer.stats.loglik) + penalty + float(answer.penalty)
    c = start.candidate._replace(proposal=gaussian_m_step(start.candidate, answer.stats), bic=bic)
    c = c.in_common() if c.structure == SHARED else c
    within = within_clusters(c)
    variance = np.clip(to_numpy(answer.squares) / clients, 1e-6 * within, MAX_OFFSET**2 * within)
    log_variance = np.clip(to_numpy(answer.log_squares) / clients, 1e-6, MAX_LOG_SCALE**2)
    return start._replace(
        candidate=c,
        penalty=float(penalty),
        variance=np.where(start.variance > 0, variance, 0.0),
        log_variance=np.where(start.log_variance > 0, log_variance, 0.0),
    )


# ---- what is said ----


def say_offsets(scale: np.ndarray, log_scale: np.ndarray, columns: Sequence[Any] | None) -> None:
    """Warn that clients differ as instruments do, and in which columns."""
    if not scale.any() and not log_scale.any():
        return
    said = []
    if scale.any():
        said.append(f"offsets of up to {scale.max():.2g} standard deviations within clusters")
    if log_scale.any():
        said.append(f"scales that differ by up to {np.expm1(log_scale.max()):.0%}")
    moved = _names(np.maximum(scale, log_scale), columns)
    warnings.warn(
        f"sites differ as instruments do, in columns {moved}: {' and '.join(said)} are removed; use site_offsets=False to keep them",
        DataWarning,
        stacklevel=2,
    )


def _names(spread: np.ndarray, columns: Sequence[Any] | None) -> str:
    """The columns with a spread, the largest first, at most five of them by name."""
    differ = np.flatnonzero(spread)
    names = [str(columns[j]) if columns is not None else str(j) for j in differ[np.argsort(-spread[differ])]]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more
