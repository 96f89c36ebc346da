"""Offsets of sites: every client's rows may be moved by a constant of its own, as another instrument moves them.

Sends, before the rounds of `OpenMixture`, SUMs over reference mixtures of several sizes, each with and without offsets
(`open_mixture.align`), and one TELL of the choice (`open_mixture.keep_offsets`). A client's offset stays in its state. It has a normal
prior about 0, whose variance is estimated per column and is at most MAX_OFFSET^2 times the variance within clusters: rows farther away
are another cluster. Offsets are kept only if rows held out are more likely with them.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, TELL, Client, client
from unpooled.errors import DataWarning
from unpooled.federation import Federation
from unpooled.maths import gaussian
from unpooled.maths.mixture import Stats
from unpooled.models.open_mixture.candidates import Candidate, gaussian_m_step, pooled_covariance
from unpooled.models.open_mixture.client_weights import Proposal, local_em, row_logliks
from unpooled.models.open_mixture.constants import (
    ALIGN_HELD_OUT,
    ALIGN_ROUNDS,
    ALIGN_STEPS,
    FIRST_OFFSET,
    MAX_OFFSET,
    MIN_OFFSET,
    OFFSETS_CLEARLY,
)
from unpooled.models.open_mixture.questions import OFFSET, split_rows
from unpooled.tree import message


@message("open_mixture.Reference")
class Reference(NamedTuple):
    """A mixture that sites are aligned to."""

    proposal: Proposal
    variance: Float[Array, "d", ">=0"]  # of the offsets; 0: there are none


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
        shares, offset = client.state.get(f"align-{id}", (None, np.zeros((*w.shape[:-1], x.shape[-1]))))
        for _ in range(ALIGN_STEPS):
            stats, _, shares = local_em(reference.proposal, x - offset[..., None, :], w, shape, shares)
            offset, spread = _new_offset(reference, stats, offset, shape)
        stats, _, shares = local_em(reference.proposal, x - offset[..., None, :], w, shape, shares)
        client.state[f"align-{id}"] = (shares, offset)
        answers.append(Aligned(stats, (stats.rows > 0) * 1.0, offset**2 + spread))
        logliks.append(row_logliks(reference.proposal, x_out - offset[..., None, :], w_out, shape, shares)[0])
    each = np.stack(logliks, -1)  # (..., n, m)
    weighted = w_out[..., None] * each
    return Alignment(tuple(answers), w_out.sum(-1), weighted.sum(-2), np.swapaxes(weighted, -1, -2) @ each)


def _new_offset(reference: Reference, stats: Stats, offset: Array, shape: str) -> tuple[Array, Array]:
    """(the most probable offset (..., d) given responsibilities, its posterior variances)."""
    if not np.any(reference.variance > 0):
        return offset, np.zeros_like(offset)
    precisions = np.linalg.inv(gaussian.full_covs(reference.proposal.params, shape))  # (k, d, d)
    prior = 1 / np.maximum(reference.variance, 1e-300)  # (d,)
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


def find_offsets(fed: Federation, candidates: Sequence[Candidate]) -> SiteOffsets:
    """Align the clients to mixtures of several sizes; their offsets are kept if rows held out are clearly more likely with them."""
    within = np.diag(gaussian.unpack_triangle(pooled_covariance(candidates[0])))
    none = np.zeros_like(within)
    twice = [(c, v) for v in (none, FIRST_OFFSET**2 * within) for c in candidates]
    ids = [f"{i}" for i in range(len(twice))]
    ask = align.using(ids=ids, shape=candidates[0].shape, held_out=ALIGN_HELD_OUT)
    for _ in range(ALIGN_ROUNDS):
        answer = fed.sum(ask, tuple(Reference(c.proposal, v) for c, v in twice))
        twice = [_updated(c, v, a) for (c, v), a in zip(twice, answer.references)]
    moved, gain, stderr = _compared(answer, len(candidates))
    chosen, variance = twice[moved]
    scale = np.sqrt(variance / np.diag(gaussian.unpack_triangle(pooled_covariance(chosen))))
    scale = np.where(scale >= MIN_OFFSET, scale, 0.0)
    kept = scale.any() and gain > OFFSETS_CLEARLY * stderr
    fed.tell(keep_offsets.using(id=ids[moved] if kept else ""), None)
    return SiteOffsets(scale if kept else none, gain, stderr)


def _updated(c: Candidate, variance: np.ndarray, answer: Aligned) -> tuple[Candidate, np.ndarray]:
    """The reference after an M-step, and the new variance of the offsets."""
    c = c._replace(proposal=gaussian_m_step(c, answer.stats))
    if not variance.any():
        return c, variance
    within = np.diag(gaussian.unpack_triangle(pooled_covariance(c)))
    found = to_numpy(answer.squares) / max(float(answer.clients), 1.0)
    return c, np.clip(found, 1e-6 * within, MAX_OFFSET**2 * within)


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
