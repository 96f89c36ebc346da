"""A second alignment of sites, to the clusters that were found.

Reference mixtures (see `site_offsets`) are Gaussian, and clusters may not be: where columns are correlated and rows are few, mixtures of a
narrow and a wide Gaussian have more evidence than the clusters, and offsets that fit them. What clients hold tells clusters better. So,
once clusters are found, every row keeps its probabilities of them, offsets are estimated again, and the search starts anew without them.

Sends one TELL of the clusters (`open_mixture.assign_rows`), SUMs over one Gaussian per cluster (`open_mixture.realign`) and one TELL to
keep the offsets (`open_mixture.keep_realigned`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unpooled.arrays import Array, to_numpy
from unpooled.client import SUM, TELL, Client, client
from unpooled.federation import Federation
from unpooled.maths import gaussian, mixture
from unpooled.maths.mixture import Stats
from unpooled.models.open_mixture.candidates import GAUSSIANS, SHARED, Candidate, gaussian_candidate, has_few_rows
from unpooled.models.open_mixture.client_weights import Proposal, cluster_densities, common_shares, sparse_shares
from unpooled.models.open_mixture.constants import (
    ALIGN_ROUNDS,
    CLUSTER_PRIOR,
    COV_PRIOR_ROWS,
    MAX_FULL_COLUMNS,
    MIN_OFFSET,
    TIED_ROWS,
    TINY,
)
from unpooled.models.open_mixture.questions import FACTOR, OFFSET, aligned_rows, scaled_rows, state_key
from unpooled.models.open_mixture.site_offsets import offset_scale, updated_start
from unpooled.models.open_mixture.site_questions import Aligned, Move, Reference, new_move
from unpooled.models.open_mixture.site_references import Start, within_clusters

PROBABILITIES = "clusters"  # where a client keeps its rows' probabilities of the clusters
REALIGNED = "realigned"  # where it keeps the offset that is being estimated, less `_middle`


# ---- the server ----


def realign_sites(
    fed: Federation, final: Candidate, rows: float, scale: np.ndarray, units: Sequence[Sequence[float]]
) -> np.ndarray:  # (d,)
    """Estimate the offsets again, of standard deviations `scale` (d,) over those within clusters; returns the new standard deviations.

    `final` has one topic per cluster (see `several_gaussians.as_clusters`). `rows` are those of all clients.
    """
    ask = assign_rows.using(shape=final.shape, id=final.state_id, common_weights=final.structure == SHARED, units=units)
    fed.tell(ask, final.proposal)
    clusters = one_gaussian_each(final, rows)
    centre = to_numpy(final.proposal.params.weights) @ final.proposal.params.means
    start = Start("clusters", clusters, np.zeros(len(scale)), np.zeros(len(scale)))
    for i in range(ALIGN_ROUNDS + 1):
        if i == 1:  # before, clusters of rows as they are: those without the old offsets would lead back to these
            start = start._replace(variance=np.maximum(scale, MIN_OFFSET) ** 2 * within_clusters(start.candidate))
        reference = Reference(start.candidate.proposal, start.variance, start.log_variance, centre)
        start = updated_start(start, fed.sum(realign.using(shape=clusters.shape, units=units), reference))
    fed.tell(keep_realigned, centre)
    return offset_scale(start)


def one_gaussian_each(final: Candidate, rows: float) -> Candidate:
    """A Gaussian with the mean and the covariance of each cluster; with few rows they have one covariance, with many columns variances."""
    params, topics = final.proposal
    means = topics @ params.means
    away = params.means - means[:, None]  # (z, k, d)
    covs = np.tensordot(topics, gaussian.full_covs(params, final.shape), 1)
    covs = covs + np.einsum("zk,zki,zkj->zij", topics, away, away)
    weights = common_shares(topics, to_numpy(params.weights)) + TINY
    d = means.shape[1]
    shape = "full" if d <= MAX_FULL_COLUMNS else "diag"
    c = gaussian_candidate("clusters", GAUSSIANS, shape, weights, means, covs)
    return c._replace(prior_rows=TIED_ROWS if has_few_rows(c, rows) else CLUSTER_PRIOR * (d + COV_PRIOR_ROWS))


# ---- the clients ----


@client("open_mixture.assign_rows", TELL)
def assign_rows(
    proposal: Proposal,
    client: Client,
    *,
    shape: str,
    id: str,
    common_weights: bool,
    units: Sequence[Sequence[float]] = (),
) -> None:
    """Keep each row's probabilities of the clusters, under the client's own weights or those common to all."""
    density = cluster_densities(proposal, aligned_rows(client, units), shape)
    if common_weights:
        shares = common_shares(proposal.topics, proposal.params.weights)
    else:
        shares = sparse_shares(density, client.w, client.state.get(state_key(id)))
    joint = density * shares[..., None, :]
    probabilities = joint / np.maximum(joint.sum(-1, keepdims=True), TINY)
    client.state = {**client.state, PROBABILITIES: np.where(client.w[..., None] > 0, probabilities, 0.0)}


@client("open_mixture.realign", SUM)
def realign(reference: Reference, client: Client, *, shape: str, units: Sequence[Sequence[float]] = ()) -> Aligned:
    """The client's most probable offset given its rows' clusters; it stays in its state, as do the probabilities of clusters."""
    k, d = reference.proposal.params.means.shape
    x = _stretched(scaled_rows(client, units), client)
    w = client.w
    r = client.state.get(PROBABILITIES, np.zeros((*w.shape, k)))  # none at a client that was absent
    nothing = np.zeros((*w.shape[:-1], d))
    x = x - np.broadcast_to(_middle(client, reference.centre), nothing.shape)[..., None, :]
    move, spread, penalty = (
        Move(client.state.get(REALIGNED, nothing), nothing),
        Move(nothing, nothing),
        np.zeros(w.shape[:-1]),
    )
    stats = _stats_of_clusters(reference, x - move.offset[..., None, :], w, r, shape)
    if reference.has_offsets:
        move, spread, penalty = new_move(reference, stats, move, shape)
        stats = _stats_of_clusters(reference, x - move.offset[..., None, :], w, r, shape)
    if PROBABILITIES in client.state:
        client.state = {**client.state, REALIGNED: move.offset}
    here = (stats.rows > 0) * 1.0
    return Aligned(stats, here, here[..., None] * (move.offset**2 + spread.offset), nothing, here * penalty)


def _stretched(x: Array, client: Client) -> Array:
    """Rows multiplied by the client's factors, if it has some."""
    return x * client.state[FACTOR][..., None, :] if FACTOR in client.state else x


def _middle(client: Client, centre: Array) -> Any:
    """What stretching rows about their mean moves them by, which is no offset: (..., d), or 0 without a factor."""
    return centre * (client.state[FACTOR] - 1.0) if FACTOR in client.state else 0.0


def _stats_of_clusters(reference: Reference, z: Array, w: Array, r: Array, shape: str) -> Stats:
    """Statistics of rows whose probabilities of the clusters are known."""
    params = reference.proposal.params
    parts = []
    for k in range(len(params.means)):
        one = mixture.Params(np.ones(1), params.means[k : k + 1], params.covs[k : k + 1])
        parts.append(mixture.e_step(one, z, w * r[..., k], shape))
    n, x, xx = (np.concatenate([part[i] for part in parts], axis) for i, axis in enumerate((-1, -2, -2)))
    return Stats(n, x, xx, sum(part.loglik for part in parts), sum(part.rows for part in parts))


@client("open_mixture.keep_realigned", TELL)
def keep_realigned(centre: Array, client: Client) -> None:
    """Keep the new offset, and forget the rows' clusters; a client that was absent keeps what it has."""
    known = client.state
    client.state = {key: value for key, value in known.items() if key not in (PROBABILITIES, REALIGNED)}
    if REALIGNED in known:
        client.state[OFFSET] = known[REALIGNED] + _middle(client, centre)
