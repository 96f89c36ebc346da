"""Offsets of sites: every client's rows may be moved by a constant of its own, as another instrument moves them.

Sends, before the rounds of `OpenMixture`, SUMs over reference mixtures (`open_mixture.align`) and one TELL of the choice
(`open_mixture.keep_offsets`). There are four kinds of reference, each of several sizes: with and without offsets, where clients have
weights of their own and where all have the same. If weights are the same, offsets start as the differences of the clients' means;
otherwise at 0. A client's offset stays in its state. It has a normal prior about 0, whose variance is estimated per column and is at most
MAX_OFFSET^2 times the variance within clusters. Offsets are kept only if rows held out are clearly more likely with them.
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
    (x, w), (x_out, w_out) = split_rows(client, held_out)
    answers, logliks = [], []
    for id, reference in zip(ids, references):
        known = client.state.get(f"align-{id}")
        shares, offset = known if known is not None else (None, _first_offset(reference, x, w))
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


def _first_offset(reference: Reference, x: Array, w: Array) -> Array:
    """(..., d) the client's mean minus that of all rows where clients share their weights; else 0."""
    nothing = np.zeros((*w.shape[:-1], x.shape[-1]))
    if not (np.any(reference.variance > 0) and len(reference.proposal.topics)):
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
def keep_offsets(nothing: None, client: Client, *, id: str) -> None:
    """Keep the client's offset of one reference, or none if id is ""."""
    known = client.state
    client.state = {key: value for key, value in known.items() if not key.startswith("align-")}
    if id:
        client.state[OFFSET] = known[f"align-{id}"][1]


# ---- at the server ----


class Start(NamedTuple):
    """A reference mixture at the server, and the variance of the offsets under it."""

    candidate: Candidate
    variance: np.ndarray  # (d,)


def find_offsets(fed: Federation, descriptions: Mapping[str, Description]) -> SiteOffsets:
    """Align the clients to reference mixtures; their offsets are kept if rows held out are clearly more likely with them."""
    plain, moved, centre = references(descriptions)
    starts, n_plain = [*plain, *moved], len(plain)
    ids = [f"{i}" for i in range(len(starts))]
    ask = align.using(ids=ids, shape=starts[0].candidate.shape, held_out=ALIGN_HELD_OUT)
    for _ in range(ALIGN_ROUNDS):
        answer = fed.sum(ask, tuple(Reference(s.candidate.proposal, s.variance, centre) for s in starts))
        starts = [_updated(s, a) for s, a in zip(starts, answer.references)]
    best, gain, stderr = _compared(answer, n_plain)
    scale = np.sqrt(starts[best].variance / _within(starts[best].candidate))
    scale = np.where(scale >= MIN_OFFSET, scale, 0.0)
    kept = bool(scale.any() and gain > OFFSETS_CLEARLY * stderr)
    fed.tell(keep_offsets.using(id=ids[best] if kept else ""), None)
    return SiteOffsets(scale if kept else np.zeros_like(scale), gain, stderr)


def references(descriptions: Mapping[str, Description]) -> tuple[list[Start], list[Start], np.ndarray]:
    """(without offsets, with offsets, mean of all rows): mixtures of several sizes, weights of clients' own and in common."""
    without_means, centre = without_client_means(descriptions)
    as_they_are, aligned = _mixtures(descriptions), _mixtures(without_means)
    plain = [*as_they_are, *map(_in_common, as_they_are)]
    moved = [*as_they_are, *map(_in_common, aligned)]
    return (
        [Start(c, np.zeros(len(centre))) for c in plain],
        [Start(c, FIRST_OFFSET**2 * _within(c)) for c in moved],
        centre,
    )


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


def _updated(start: Start, answer: Aligned) -> Start:
    """The reference after an M-step, and the new variance of the offsets."""
    c = start.candidate._replace(proposal=gaussian_m_step(start.candidate, answer.stats))
    c = _in_common(c) if c.structure == SHARED else c
    if not start.variance.any():
        return Start(c, start.variance)
    within = _within(c)
    found = to_numpy(answer.squares) / max(float(answer.clients), 1.0)
    return Start(c, np.clip(found, 1e-6 * within, MAX_OFFSET**2 * within))


def _compared(answer: Alignment, n: int) -> tuple[int, float, float]:
    """(the best reference with offsets, its gain per row held out over the best without, the standard error)."""
    rows = max(float(answer.rows), 1.0)
    logliks, products = to_numpy(answer.logliks) / rows, to_numpy(answer.products)
    plain, moved = int(np.argmax(logliks[:n])), n + int(np.argmax(logliks[n:]))
    gain = float(logliks[moved] - logliks[plain])
    square = (products[moved, moved] - 2 * products[moved, plain] + products[plain, plain]) / rows
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
