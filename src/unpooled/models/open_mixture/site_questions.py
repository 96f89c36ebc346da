"""What clients are asked about offsets and scales of sites: SUMs over reference mixtures, and a TELL of what to keep.

A site's rows are x = c + s (z - c) + b: rows z of the mixture, an offset b and a scale s per column of its own, and the mean c of all
rows. The offset and the logarithm of the scale have normal priors about 0, whose variances the server estimates per column. Both stay
in the client's state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float
from unpooled.client import SUM, TELL, Client, client
from unpooled.maths import gaussian
from unpooled.maths.mixture import Stats
from unpooled.models.open_mixture.client_weights import Proposal, local_em, row_logliks, weight_penalty
from unpooled.models.open_mixture.constants import ALIGN_STEPS, CHECK_FOLDS, CHECK_STEPS, GOLDEN_RATIO, TINY
from unpooled.models.open_mixture.questions import FACTOR, OFFSET, scaled_rows
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
    penalty: Float[Array, ""]  # for the clients' own weights, offsets and scales, on the scale of BIC


class Move(NamedTuple):
    """A client's offset and the logarithm of its scale under one reference, each (..., d)."""

    offset: Array
    log_scale: Array


@client("open_mixture.align", SUM)
def align(
    references: tuple[Reference, ...],
    client: Client,
    *,
    ids: list,
    parents: list,
    shape: str,
    units: Sequence[Sequence[float]] = (),
) -> tuple[Aligned, ...]:
    """EM steps on the client's own weights, offset and scale for every reference; all stay in its state.

    A reference that is new starts from the offset of the one in `parents`, or "" if there is none. The penalty is BIC's for the weights,
    and for offset and scale what Laplace's approximation of the marginal likelihood takes off.
    """
    answers = []
    x = scaled_rows(client, units)
    w = client.w
    for id, parent, reference in zip(ids, parents, references):
        known = client.state.get(f"align-{id}")
        parent_move = client.state.get(f"align-{parent}", (None, None))[1]
        shares, move = (None, _first_move(reference, x, w, parent_move)) if known is None else known
        move, spread, penalty = Move(*move), Move(np.zeros_like(move[0]), np.zeros_like(move[1])), 0.0
        for _ in range(ALIGN_STEPS if reference.has_offsets else 1):
            stats, _, shares = local_em(reference.proposal, _aligned(reference, x, move), w, shape, shares)
            if reference.has_offsets:
                move, spread, penalty = new_move(reference, stats, move, shape)
        stats, _, shares = local_em(reference.proposal, _aligned(reference, x, move), w, shape, shares)
        client.state[f"align-{id}"] = (shares, tuple(move))
        stretched = (w * (~np.isnan(x) * move.log_scale[..., None, :]).sum(-1)).sum(-1)  # density per unit of x
        answers.append(
            Aligned(
                stats,
                (stats.rows > 0) * 1.0,
                move.offset**2 + spread.offset,
                move.log_scale**2 + spread.log_scale,
                weight_penalty(shares, stats.rows) + penalty + 2 * stretched,
            )
        )
    return tuple(answers)


@message("open_mixture.HeldOut")
class HeldOut(NamedTuple):
    """Log-likelihoods of rows held out of their client's offset and scale."""

    loglik: Float[Array, "references"]


@client("open_mixture.check_offsets", SUM)
def check_offsets(
    references: tuple[Reference, ...], client: Client, *, ids: list, shape: str, units: Sequence[Sequence[float]] = ()
) -> HeldOut:
    """The log-likelihood of each part of the client's rows, with weights, offset and scale that its other rows give."""
    x = scaled_rows(client, units)
    w = client.w
    fold = (np.arange(1, x.shape[-2] + 1) * GOLDEN_RATIO % 1 * CHECK_FOLDS).astype(int)
    found = []
    for id, reference in zip(ids, references):
        known = client.state.get(f"align-{id}")  # none at a client that was absent
        start = Move(*known[1]) if known else _first_move(reference, x, w, None)
        found.append(sum(_held_out(reference, x, w, start, fold == i, shape) for i in range(CHECK_FOLDS)))
    return HeldOut(np.stack(found, -1))


def _held_out(reference: Reference, x: Array, weights: Array, move: Move, out: Array, shape: str) -> Array:
    """The log-likelihood of the rows in `out`."""
    w = weights * ~out
    w_out = weights * out
    shares = None
    for _ in range(CHECK_STEPS):
        stats, _, shares = local_em(reference.proposal, _aligned(reference, x, move), w, shape, shares)
        if reference.has_offsets:
            move = new_move(reference, stats, move, shape)[0]
    z = _aligned(reference, x, move)
    own, _ = row_logliks(reference.proposal, z, w_out, shape, shares, stats.rows)
    stretched = (~np.isnan(x) * move.log_scale[..., None, :]).sum(-1)
    return (w_out * (own - stretched)).sum(-1)


def _aligned(reference: Reference, x: Array, move: Any) -> Array:
    """Rows without the client's offset and scale."""
    offset, log_scale = (a[..., None, :] for a in move)
    if not reference.has_scales:
        return x - offset
    centre = reference.centre
    return centre + (x - centre - offset) * np.exp(-log_scale)


def _first_move(reference: Reference, x: Array, w: Array, found: Any) -> Move:
    """The move that was found before, if any; else what the difference of the client's mean from that of all rows says of it."""
    nothing = np.zeros((*w.shape[:-1], x.shape[-1]))
    if not reference.has_offsets:
        return Move(nothing, nothing)
    if found is not None:
        return Move(*found)
    seen = w[..., None] * ~np.isnan(x)
    away = np.where(np.isnan(x), 0.0, x - reference.centre)
    mean = (seen * away).sum(-2) / np.maximum(seen.sum(-2), TINY)
    return Move(_likely_offset(reference, mean), nothing)


def _likely_offset(reference: Reference, mean: Array) -> Array:
    """The offset (..., d) that the difference of a client's mean from that of all rows leads to expect.

    If clients share weights it is this difference. If they have their own, it is the sum of the offset and of what the clients' weights
    make of the clusters' means; both are taken as normal, the second with the covariance of the means. So differences along the clusters'
    means are weights, and those along directions in which clusters do not differ are offsets.
    """
    if len(reference.proposal.topics):
        return mean
    params = reference.proposal.params
    away = params.means - params.weights @ params.means
    variance = np.diag(np.maximum(reference.variance, TINY))
    between = (away.T * params.weights) @ away
    return mean @ np.linalg.solve(variance + between, variance)


def new_move(reference: Reference, stats: Stats, move: Move, shape: str) -> tuple[Move, Move, Array]:
    """(a Newton step to the most probable offset and scale given responsibilities, their posterior variances, their penalty)."""
    precisions = np.linalg.inv(gaussian.full_covs(reference.proposal.params, shape))
    variance = reference.variance
    current = move.offset
    slope, curve = _offset_slope(stats, precisions)
    if reference.has_scales:
        variance = np.concatenate([variance, reference.log_variance])
        current = np.concatenate([current, move.log_scale], -1)
        slope, curve = _slope_and_curve(reference, stats, move, shape, precisions)
    prior = 1 / np.maximum(variance, TINY)
    inverse = np.linalg.inv(curve + np.diag(prior))
    step = np.einsum("...de,...e->...d", inverse, slope - prior * current)
    spread = np.einsum("...dd->...d", inverse)
    d = len(reference.variance)
    step[..., d:] = np.clip(step[..., d:], -0.5, 0.5)
    penalty = (prior * (current + step) ** 2).sum(-1) + _log_volume(curve, variance)
    return _as_move(current + step, d), _as_move(spread, d), penalty


def _as_move(numbers: Array, d: int) -> Move:
    """Offsets, and logarithms of scales if there are any."""
    offset = numbers[..., :d]
    log_scale = numbers[..., d:]
    return Move(offset, log_scale if log_scale.shape[-1] else np.zeros_like(offset))


def _log_volume(curve: Array, variance: Array) -> Array:
    """The logarithm of the prior's volume over the posterior's, squared."""
    root = np.sqrt(variance)
    return np.linalg.slogdet(np.eye(len(root)) + root[:, None] * curve * root)[1]


def _offset_slope(stats: Stats, precisions: Array) -> tuple[Array, Array]:
    """(gradient, negative second derivative) of the expected log-likelihood in the offset."""
    slope = np.einsum("kde,...ke->...d", precisions, stats.x)
    return slope, np.einsum("...k,kde->...de", stats.n, precisions)


def _slope_and_curve(
    reference: Reference, stats: Stats, move: Move, shape: str, precisions: Array
) -> tuple[Array, Array]:
    """The same in offset and logarithm of scale together: z changes by -factor db - (z - c) dl."""
    factor = np.exp(-move.log_scale)
    away = reference.proposal.params.means - reference.centre  # (k, d)
    n, first, second = stats.n, stats.x, _full(stats.xx, shape, away.shape[1])  # (..., k), (..., k, d), (..., k, d, d)
    rows = n.sum(-1)[..., None]
    residual_by_row = second + first[..., :, None] * away[:, None, :]  # sum of r (z - mean)(z - c)'
    outer = first[..., None, :] * away[:, :, None] + n[..., None, None] * away[:, :, None] * away[:, None, :]
    row_by_row = residual_by_row + outer  # sum of r (z - c)(z - c)'
    total = first + n[..., None] * away  # sum of r (z - c)
    slope, weight = _offset_slope(stats, precisions)
    slope_l = np.einsum("kde,...ked->...d", precisions, residual_by_row) - rows
    curve_bb = factor[..., :, None] * weight * factor[..., None, :]
    curve_bl = factor[..., :, None] * np.einsum("kde,...ke->...de", precisions, total)
    curve_ll = np.einsum("kde,...kde->...de", precisions, row_by_row) + rows[..., None] * np.eye(away.shape[1])
    curve = np.block([[curve_bb, curve_bl], [np.swapaxes(curve_bl, -1, -2), curve_ll]])
    return np.concatenate([factor * slope, slope_l], -1), curve


def _full(packed: Array, shape: str, d: int) -> Array:
    """(..., k, d, d) scatters from the layout of the covariance type."""
    return gaussian.unpack_triangle(packed) if shape == "full" else packed[..., None] * np.eye(d)


@client("open_mixture.keep_offsets", TELL)
def keep_offsets(centre: Array, client: Client, *, id: str, scaled: bool) -> None:
    """Keep the client's offset and scale of one reference, or none if id is "", and forget all references."""
    known = client.state
    client.state = {key: value for key, value in known.items() if not key.startswith("align-")}
    if not id:
        return
    offset, log_scale = known[f"align-{id}"][1]
    if not scaled:
        client.state[OFFSET] = offset
        return
    factor = np.exp(-log_scale)
    client.state[FACTOR] = factor
    client.state[OFFSET] = (centre + offset) * factor - centre
