"""Offsets of sites: every client's rows may be moved by a constant of its own, as another instrument moves them.

Sends, before the rounds of `OpenMixture`, SUMs over reference mixtures (`open_mixture.align`) and two TELLs of the choice
(`open_mixture.keep_offsets`). There are four kinds of reference, each of several sizes: with and without offsets, where clients have
weights of their own and where all have the same. If weights are the same, offsets start as the differences of the clients' means;
otherwise at 0. There are two passes: the offsets of the first align the clients' descriptions, which are asked for again and give
better references for the second.

A client's offset stays in its state. It has a normal prior about 0, whose variance is estimated per column and is at most MAX_OFFSET^2
times the variance within clusters. Offsets are kept only if rows held out are clearly more likely with them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, TELL, Client, client
from unpooled.errors import DataWarning
from unpooled.federation import Federation
from unpooled.maths import gaussian
from unpooled.maths.mixture import Stats
from unpooled.models.open_mixture.candidates import SHARED, Candidate, gaussian_m_step, pooled_covariance
from unpooled.models.open_mixture.client_weights import Proposal, local_em, row_logliks
from unpooled.models.open_mixture.constants import (
    ALIGN_HELD_OUT,
    ALIGN_ROUNDS,
    ALIGN_STEPS,
    COV_PRIOR_ROWS,
    FIRST_OFFSET,
    MAX_FULL_COLUMNS,
    MAX_OFFSET,
    MIN_OFFSET,
    N_ALIGN_SIZES,
    OFFSETS_CLEARLY,
    TINY,
)
from unpooled.models.open_mixture.initial import (
    candidates_on_path,
    initial_sizes,
    local_components,
    merge_path,
    without_client_means,
)
from unpooled.models.open_mixture.questions import OFFSET, Description, split_rows
from unpooled.tree import message


@message("open_mixture.Reference")
class Reference(NamedTuple):
    """A mixture that sites are aligned to."""

    proposal: Proposal
    variance: Float[Array, "d", ">=0"]  # of the offsets; 0: there are none
    centre: Float[Array, "d"]  # the mean of all rows


@message("open_mixture.Aligned")
class Aligned(NamedTuple):
    """Statistics of one reference mixture, of rows without their client's offset."""

    stats: Stats
    clients: Float[Array, "", ">=0"]
    squares: Float[Array, "d", ">=0"]  # of the offsets, with their posterior variances


@message("open_mixture.Alignment")
class Alignment(NamedTuple):
    """All references, and products of their log-likelihoods per row held out."""

    references: tuple[Aligned, ...]
    rows: Float[Array, "", ">=0 rows"]
    logliks: Float[Array, "m"]
    products: Float[Array, "m m"]


class SiteOffsets(NamedTuple):
    """What was found: the scale of the offsets per column, over that within clusters, and the gain per row held out."""

    scale: np.ndarray  # (d,) 0 where offsets are not kept
    gain: float
    stderr: float


@client("open_mixture.align", SUM)
def align(references: tuple[Reference, ...], client: Client, *, ids: list, shape: str, held_out: float) -> Alignment:
    """EM steps on the client's own weights and offset for every reference; both stay in its state."""
    (x, w), (x_out, w_out) = split_rows(client, held_out, aligned=False)
    answers, logliks = [], []
    for id, reference in zip(ids, references):
        known = client.state.get(f"align-{id}")
        shares, offset = (
            known if known is not None else (None, _first_offset(reference, x, w, client.state.get(OFFSET)))
        )
        for _ in range(ALIGN_STEPS):
            stats, _, shares = local_em(reference.proposal, x - offset[..., None, :], w, shape, shares)
            offset, spread = _new_offset(reference, stats, offset, shape)
        stats, _, shares = local_em(reference.proposal, x - offset[..., None, :], w, shape, shares)
        client.state[f"align-{id}"] = (shares, offset)
        answers.append(Aligned(stats, (stats.rows > 0) * 1.0, offset**2 + spread))
        moved_out = x_out - offset[..., None, :]
        logliks.append(row_logliks(reference.proposal, moved_out, w_out, shape, shares, stats.rows)[0])
    each = np.stack(logliks, -1)  # (..., n, m)
    weighted = w_out[..., None] * each
    return Alignment(tuple(answers), w_out.sum(-1), weighted.sum(-2), np.swapaxes(weighted, -1, -2) @ each)


def _first_offset(reference: Reference, x: Array, w: Array, found: Any) -> Array:
    """(..., d) the offset that an earlier pass found; else the client's mean minus that of all rows, if clients share weights; else 0."""
    nothing = np.zeros((*w.shape[:-1], x.shape[-1]))
    if not np.any(reference.variance > 0):
        return nothing
    if found is not None:
        return nothing + found
    if not len(reference.proposal.topics):
        return nothing
    seen = w[..., None] * ~np.isnan(x)
    away = np.where(np.isnan(x), 0.0, x - reference.centre)
    return (seen * away).sum(-2) / np.maximum(seen.sum(-2), TINY)


def _new_offset(reference: Reference, stats: Stats, offset: Array, shape: str) -> tuple[Array, Array]:
    """(the most probable offset (..., d) given responsibilities, its posterior variances)."""
    if not np.any(reference.variance > 0):
        return offset, np.zeros_like(offset)
    precisions = np.linalg.inv(gaussian.full_covs(reference.proposal.params, shape))  # (k, d, d)
    prior = 1 / np.maximum(reference.variance, TINY)  # (d,)
    curve = np.einsum("...k,kde->...de", stats.n, precisions) + np.diag(prior)
    slope = np.einsum("kde,...ke->...d", precisions, stats.x) - prior * offset
    inverse = np.linalg.inv(curve)
    moved = offset + np.einsum("...de,...e->...d", inverse, slope)
    return moved, np.einsum("...dd->...d", inverse)


@client("open_mixture.keep_offsets", TELL)
def keep_offsets(nothing: None, client: Client, *, id: str, last: bool) -> None:
    """Keep the client's offset of one reference, or none if id is ""; after the `last` pass forget all references."""
    known = client.state
    client.state = {
        key: value for key, value in known.items() if key != OFFSET and not (last and key.startswith("align-"))
    }
    if id:
        client.state[OFFSET] = known[f"align-{id}"][1]


# ---- at the server ----


class Start(NamedTuple):
    """A reference mixture at the server, and the variance of the offsets under it."""

    id: str  # the name under which clients keep their weights and offset
    candidate: Candidate
    variance: np.ndarray  # (d,)
    loglik: float = -np.inf  # per row held out

    @property
    def is_moved(self) -> bool:
        """Whether sites have offsets."""
        return bool(self.variance.any())


def find_offsets(fed: Federation, descriptions: Mapping[str, Description], ask_again: Any) -> SiteOffsets:
    """Align the clients to reference mixtures; their offsets are kept if rows held out are clearly more likely with them.

    `ask_again` is the GATHER that gave the descriptions.
    """
    centre = without_client_means(descriptions)[1]
    answer, starts = _pass(fed, first_references(descriptions), centre)
    fed.tell(keep_offsets.using(id=_ranked(starts, True)[0].id, last=False), None)
    aligned = fed.gather(ask_again, None)
    answer, starts = _pass(fed, second_references(starts, aligned), centre)
    best, gain, stderr = _compared(answer, starts)
    scale = np.sqrt(best.variance / _within(best.candidate))
    scale = np.where(scale >= MIN_OFFSET, scale, 0.0)
    kept = bool(scale.any() and gain > OFFSETS_CLEARLY * stderr)
    fed.tell(keep_offsets.using(id=best.id if kept else "", last=True), None)
    return SiteOffsets(scale if kept else np.zeros_like(scale), gain, stderr)


def _pass(fed: Federation, starts: list[Start], centre: np.ndarray) -> tuple[Alignment, list[Start]]:
    """(the last answer, the references after it)."""
    ask = align.using(ids=[s.id for s in starts], shape=starts[0].candidate.shape, held_out=ALIGN_HELD_OUT)
    for _ in range(ALIGN_ROUNDS):
        answer = fed.sum(ask, tuple(Reference(s.candidate.proposal, s.variance, centre) for s in starts))
        rows = max(float(answer.rows), 1.0)
        logliks = to_numpy(answer.logliks) / rows
        starts = [_updated(s, a, float(l)) for s, a, l in zip(starts, answer.references, logliks)]
    return answer, starts


def first_references(descriptions: Mapping[str, Description]) -> list[Start]:
    """Mixtures of several sizes, with and without offsets, with weights of clients' own and in common."""
    as_they_are, centred = _mixtures(descriptions), _mixtures(without_client_means(descriptions)[0])
    plain = [*as_they_are, *map(_in_common, as_they_are)]
    moved = [*as_they_are, *map(_in_common, centred)]
    return [*_starts("1-plain", plain, 0.0), *_starts("1-moved", moved, FIRST_OFFSET)]


def second_references(starts: Sequence[Start], aligned: Mapping[str, Description]) -> list[Start]:
    """The best references so far, and new ones with offsets, of descriptions that the offsets found so far have aligned."""
    kept = [s for moved in (False, True) for s in _ranked(starts, moved)[:N_ALIGN_SIZES]]
    mixtures = _mixtures(aligned)
    return [*kept, *_starts("2-moved", [*mixtures, *map(_in_common, mixtures)], FIRST_OFFSET)]


def _starts(name: str, candidates: Sequence[Candidate], offset: float) -> list[Start]:
    """Starts from candidates, with offsets of this size."""
    return [Start(f"{name}-{i}", c, offset**2 * _within(c)) for i, c in enumerate(candidates)]


def _ranked(starts: Sequence[Start], moved: bool) -> list[Start]:
    """The starts with or without offsets, the likeliest first."""
    return sorted((s for s in starts if s.is_moved == moved), key=lambda s: -s.loglik)


def _mixtures(descriptions: Mapping[str, Description]) -> list[Candidate]:
    """Mixtures of several sizes that the clients' components merge into; covariances are shrunk as rows held out like it."""
    components = local_components(descriptions)
    d = components.mean.shape[1]
    path = merge_path(components, "full" if d <= MAX_FULL_COLUMNS else "diag")
    sizes = initial_sizes(path.merges.best())[:N_ALIGN_SIZES]
    return [c._replace(prior_rows=d + COV_PRIOR_ROWS) for c in candidates_on_path(path, sizes)]


def _in_common(c: Candidate) -> Candidate:
    """The mixture with the same weights at all clients: one topic of all its Gaussians."""
    return c._replace(structure=SHARED, proposal=c.proposal._replace(topics=c.proposal.params.weights[None]))


def _within(c: Candidate) -> np.ndarray:
    """(d,) variances within clusters."""
    return np.diag(gaussian.unpack_triangle(pooled_covariance(c)))


def _updated(start: Start, answer: Aligned, loglik: float) -> Start:
    """The reference after an M-step, and the new variance of the offsets."""
    c = start.candidate._replace(proposal=gaussian_m_step(start.candidate, answer.stats))
    c = _in_common(c) if c.structure == SHARED else c
    if not start.is_moved:
        return start._replace(candidate=c, loglik=loglik)
    within = _within(c)
    found = to_numpy(answer.squares) / max(float(answer.clients), 1.0)
    variance = np.clip(found, 1e-6 * within, MAX_OFFSET**2 * within)
    return start._replace(candidate=c, loglik=loglik, variance=variance)


def _compared(answer: Alignment, starts: Sequence[Start]) -> tuple[Start, float, float]:
    """(the best reference with offsets, its gain per row held out over the best without, the standard error)."""
    plain, moved = (_ranked(starts, moved)[0] for moved in (False, True))
    ids = [s.id for s in starts]
    i, j = ids.index(plain.id), ids.index(moved.id)
    rows, products = max(float(answer.rows), 1.0), to_numpy(answer.products)
    gain = moved.loglik - plain.loglik
    square = (products[j, j] - 2 * products[j, i] + products[i, i]) / rows
    return moved, gain, float(np.sqrt(max(square - gain**2, 0.0) / rows))


def say_offsets(found: SiteOffsets, columns: Sequence[Any] | None) -> None:
    """Warn that clients differ as instruments do, and in which columns."""
    moved = np.flatnonzero(found.scale)
    if not len(moved):
        return
    names = [str(columns[j]) if columns is not None else str(j) for j in moved[np.argsort(-found.scale[moved])]]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    warnings.warn(
        f"sites differ as instruments do, in columns {', '.join(names[:5])}{more}: offsets of up to "
        f"{found.scale.max():.2g} standard deviations within clusters are removed; use site_offsets=False to keep them",
        DataWarning,
        stacklevel=2,
    )
