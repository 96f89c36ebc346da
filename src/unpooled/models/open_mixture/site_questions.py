"""What clients are asked about offsets and scales of sites: a SUM over reference mixtures, and a TELL of what to keep.

A site's rows are x = c + s (z - c) + b: rows z of the mixture, an offset b and a scale s per column of its own, and the mean c of all
rows. The offset and the logarithm of the scale have normal priors about 0, whose variances the server estimates per column. Both stay
in the client's state.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float
from unpooled.client import SUM, TELL, Client, client
from unpooled.maths import gaussian
from unpooled.maths.mixture import Stats
from unpooled.models.open_mixture.client_weights import Proposal, local_em, row_logliks
from unpooled.models.open_mixture.constants import ALIGN_FOLDS, ALIGN_STEPS, GOLDEN_RATIO, TINY
from unpooled.models.open_mixture.questions import FACTOR, OFFSET
from unpooled.tree import message


@message("open_mixture.Reference")
class Reference(NamedTuple):
    """A mixture that sites are aligned to."""

    proposal: Proposal
    variance: Float[Array, "d", ">=0"]  # of the offsets; 0: there are none
    log_variance: Float[Array, "d", ">=0"]  # of the logarithms of the scales; 0: there are none
    centre: Float[Array, "d"]  # the mean of all rows

    @property
    def has_offsets(self) -> bool:
        """Whether sites are moved."""
        return bool(np.any(self.variance > 0))

    @property
    def has_scales(self) -> bool:
        """Whether sites are stretched."""
        return bool(np.any(self.log_variance > 0))


@message("open_mixture.Aligned")
class Aligned(NamedTuple):
    """Statistics of one reference mixture, of rows without their client's offset and scale."""

    stats: Stats
    clients: Float[Array, "", ">=0"]
    squares: Float[Array, "d", ">=0"]  # of the offsets, with their posterior variances
    log_squares: Float[Array, "d", ">=0"]  # of the logarithms of the scales, with their posterior variances
    loglik: Float[Array, ""]  # of the rows held out
    rows: Float[Array, "", ">=0 rows"]  # held out
    differences: Float[Array, "", ">=0"]  # squared, per row held out, to the reference before it of the same fold


class Move(NamedTuple):
    """A client's offset and the logarithm of its scale under one reference, each (..., d)."""

    offset: Array
    log_scale: Array


@client("open_mixture.align", SUM)
def align(
    references: tuple[Reference, ...], client: Client, *, ids: list, folds: list, shape: str
) -> tuple[Aligned, ...]:
    """EM steps on the client's own weights, offset and scale for every reference; all stay in its state.

    `folds` has, per reference, the part of the rows that is held out; -1: none.
    """
    answers = []
    before: dict[int, Array] = {}  # fold -> log-likelihood per row held out, of the last reference
    for id, fold, reference in zip(ids, folds, references):
        (x, w), (x_out, w_out) = _fold(client, fold)
        known = client.state.get(f"align-{id}")
        shares, move = (None, _first_move(reference, x, w, client.state.get(OFFSET))) if known is None else known
        precisions = (
            np.linalg.inv(gaussian.full_covs(reference.proposal.params, shape)) if reference.has_offsets else None
        )
        spread = Move(np.zeros_like(move[0]), np.zeros_like(move[1]))
        for _ in range(ALIGN_STEPS if reference.has_offsets else 1):
            stats, _, shares = local_em(reference.proposal, _aligned(reference, x, move), w, shape, shares)
            if precisions is not None:
                move, spread = _new_move(reference, stats, Move(*move), shape, precisions)
        stats, _, shares = local_em(reference.proposal, _aligned(reference, x, move), w, shape, shares)
        client.state[f"align-{id}"] = (shares, tuple(move))
        moved_out = _aligned(reference, x_out, move)
        logliks = row_logliks(reference.proposal, moved_out, w_out, shape, shares, stats.rows)[0]
        if reference.has_scales:
            logliks = logliks - np.where(w_out > 0, (~np.isnan(x_out) * move[1][..., None, :]).sum(-1), 0.0)
        difference = logliks - before.get(fold, logliks)
        before[fold] = logliks
        answers.append(
            Aligned(
                stats,
                (stats.rows > 0) * 1.0,
                move[0] ** 2 + spread[0],
                move[1] ** 2 + spread[1],
                (w_out * logliks).sum(-1),
                w_out.sum(-1),
                (w_out * difference**2).sum(-1),
            )
        )
    return tuple(answers)


def _fold(client: Client, fold: int) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """((x, w) to fit, (x, w) held out): one of ALIGN_FOLDS parts, the same positions at every client, evenly spread."""
    x, w = client.x, client.w
    out = np.floor(np.arange(1, x.shape[-2] + 1) * GOLDEN_RATIO % 1 * ALIGN_FOLDS) == fold
    return (x[..., ~out, :], w[..., ~out]), (x[..., out, :], w[..., out])


def _aligned(reference: Reference, x: Array, move: Any) -> Array:
    """Rows without the client's offset and scale."""
    offset, log_scale = (a[..., None, :] for a in move)
    if not reference.has_scales:
        return x - offset
    centre = reference.centre
    return centre + (x - centre - offset) * np.exp(-log_scale)


def _first_move(reference: Reference, x: Array, w: Array, found: Any) -> Move:
    """The offset that an earlier pass found; else the client's mean minus that of all rows, if clients share weights; else 0."""
    nothing = np.zeros((*w.shape[:-1], x.shape[-1]))
    if not reference.has_offsets:
        return Move(nothing, nothing)
    if found is not None:
        return Move(nothing + found, nothing)
    if not len(reference.proposal.topics):
        return Move(nothing, nothing)
    seen = w[..., None] * ~np.isnan(x)
    away = np.where(np.isnan(x), 0.0, x - reference.centre)
    return Move((seen * away).sum(-2) / np.maximum(seen.sum(-2), TINY), nothing)


def _new_move(reference: Reference, stats: Stats, move: Move, shape: str, precisions: Array) -> tuple[Move, Move]:
    """(a Newton step to the most probable offset and scale given responsibilities, their posterior variances)."""
    prior = 1 / np.maximum(reference.variance, TINY)  # (d,)
    if not reference.has_scales:
        curve = np.einsum("...k,kde->...de", stats.n, precisions) + np.diag(prior)
        slope = np.einsum("kde,...ke->...d", precisions, stats.x) - prior * move.offset
        inverse = np.linalg.inv(curve)
        offset = move.offset + np.einsum("...de,...e->...d", inverse, slope)
        return Move(offset, move.log_scale), Move(np.einsum("...dd->...d", inverse), np.zeros_like(offset))
    return _scaled_move(reference, stats, move, shape, precisions, prior)


def _scaled_move(
    reference: Reference, stats: Stats, move: Move, shape: str, precisions: Array, prior: Array
) -> tuple[Move, Move]:
    """The same for offset and scale together: z changes by -factor db - (z - c) dl."""
    factor = np.exp(-move.log_scale)
    log_prior = 1 / np.maximum(reference.log_variance, TINY)
    away = reference.proposal.params.means - reference.centre  # (k, d)
    n, first, second = stats.n, stats.x, _full(stats.xx, shape, away.shape[1])  # (..., k), (..., k, d), (..., k, d, d)
    rows = n.sum(-1)[..., None]
    residual_by_row = second + first[..., :, None] * away[:, None, :]  # sum of r (z - mean)(z - c)'
    outer = first[..., None, :] * away[:, :, None] + n[..., None, None] * away[:, :, None] * away[:, None, :]
    row_by_row = residual_by_row + outer  # sum of r (z - c)(z - c)'
    total = first + n[..., None] * away  # sum of r (z - c)
    slope_b = factor * np.einsum("kde,...ke->...d", precisions, first) - prior * move.offset
    slope_l = np.einsum("kde,...ked->...d", precisions, residual_by_row) - rows - log_prior * move.log_scale
    weight = np.einsum("...k,kde->...de", n, precisions)
    curve_bb = factor[..., :, None] * weight * factor[..., None, :] + np.diag(prior)
    curve_bl = factor[..., :, None] * np.einsum("kde,...ke->...de", precisions, total)
    identity = np.eye(away.shape[1])
    curve_ll = np.einsum("kde,...kde->...de", precisions, row_by_row) + (rows + log_prior)[..., None] * identity
    curve = np.block([[curve_bb, curve_bl], [np.swapaxes(curve_bl, -1, -2), curve_ll]])
    inverse = np.linalg.inv(curve)
    step = np.einsum("...de,...e->...d", inverse, np.concatenate([slope_b, slope_l], -1))
    spread, d = np.einsum("...dd->...d", inverse), away.shape[1]
    moved = Move(move.offset + step[..., :d], move.log_scale + np.clip(step[..., d:], -0.5, 0.5))
    return moved, Move(spread[..., :d], spread[..., d:])


def _full(packed: Array, shape: str, d: int) -> Array:
    """(..., k, d, d) scatters from the layout of the covariance type."""
    return gaussian.unpack_triangle(packed) if shape == "full" else packed[..., None] * np.eye(d)


@client("open_mixture.keep_offsets", TELL)
def keep_offsets(centre: Array, client: Client, *, id: str, scaled: bool, last: bool) -> None:
    """Keep the client's offset and scale of one reference, or none if id is ""; after the `last` pass forget all references."""
    known = client.state
    forgotten = (OFFSET, FACTOR)
    client.state = {
        key: value for key, value in known.items() if key not in forgotten and not (last and key.startswith("align-"))
    }
    if not id:
        return
    offset, log_scale = known[f"align-{id}"][1]
    if not scaled:
        client.state[OFFSET] = offset
        return
    factor = np.exp(-log_scale)
    client.state[FACTOR], client.state[OFFSET] = factor, (centre + offset) * factor - centre
