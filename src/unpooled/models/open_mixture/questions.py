"""What `OpenMixture` asks its clients: three GATHERs, each once, and one SUM per round.

GATHER `describe`: components of a local mixture and local k-means centres, with counts.
SUM `candidate_stats`: statistics of all candidates in one message; each client's own mixing weights stay in its state.
GATHER `count_atoms` and SUM `atom_products`: which clients hold which Gaussians, and how much a single row's responsibilities vary.
GATHER `holdings`: the number of rows in each cluster.
`describe` and `holdings` send nothing that stands for fewer than `min_count` rows.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import GATHER, SUM, Client, client
from unpooled.maths import gaussian, local_mixture, mixture
from unpooled.maths.mixture import Stats
from unpooled.models.open_mixture.client_weights import (
    Proposal,
    cluster_densities,
    common_shares,
    expected_rows,
    local_em,
    row_logliks,
    sparse_shares,
    weight_penalty,
)
from unpooled.models.open_mixture.constants import (
    FIRST_WEIGHT_STEPS,
    GOLDEN_RATIO,
    MIN_CENTRES,
    MIN_ROWS_PER_CENTRE,
    ROWS_PER_CENTRE,
    TINY,
)
from unpooled.models.open_mixture.gaps import filled
from unpooled.tree import message

OFFSET = "offset"  # where a client keeps its own offset (d,), if it has one
FACTOR = "factor"  # where it keeps what its columns are multiplied by (d,), if they are
MIN_POSITIVE = 1e-9  # a count below this is none, even if min_count is 0

# ---- the first GATHER: a description of each client's rows ----


@message("open_mixture.Description")
class Description(NamedTuple):
    """A client's rows in summary: components of a local mixture, and finer k-means centres."""

    n: Float[Array, "own", ">=0 rows"]  # rows of each component
    mean: Float[Array, "own d"]
    scatter: Float[Array, "own t"]  # about the mean, packed
    centre_n: Float[Array, "m", ">=0 rows"]  # rows of each centre
    centre: Float[Array, "m d"]
    centre_scatter: Float[Array, "t"]  # of all rows about their centres, packed


@client("open_mixture.describe", GATHER, batched=False)
def describe(nothing: None, client: Client, *, max_local: int, max_centres: int, min_count: float) -> Description:
    """A local mixture (K by BIC) and local k-means, without components and centres of fewer than min_count rows.

    Rows of smaller ones count to the nearest that is sent. Were they left out, the difference between components and centres would
    show their sum: a row, where there is one.
    """
    x, w = rows_with_weight(client)
    n, mean, scatter = _local_components(x, w, client.rng, max_local, min_count)
    sent = n >= max(min_count, MIN_POSITIVE)
    client.rng.normal(size=mean[sent].shape)  # not used: k-means draws what it drew when the stored results were made
    centre_n, centre, centre_scatter = _local_centres(x, w, client.rng, max_centres, min_count)
    centre_sent = centre_n >= max(min_count, MIN_POSITIVE)
    packed = gaussian.pack_triangle(scatter[sent])
    return Description(n[sent], mean[sent], packed, centre_n[centre_sent], centre[centre_sent], centre_scatter)


def aligned_rows(client: Client) -> Array:
    """The client's rows without its offset and scale."""
    if OFFSET not in client.state:
        return client.x
    x = client.x * client.state[FACTOR][..., None, :] if FACTOR in client.state else client.x
    return x - client.state[OFFSET][..., None, :]


def rows_with_weight(client: Client) -> tuple[np.ndarray, np.ndarray]:
    """(x, w) of the rows whose weight is not 0, without the client's offset, gaps filled in by its own rows."""
    x, w = to_numpy(aligned_rows(client)).astype(float), to_numpy(client.w).astype(float)
    return filled(x[w > 0], w[w > 0], client.name), w[w > 0]


def _local_components(
    x: np.ndarray, w: np.ndarray, rng: np.random.Generator, max_local: int, min_count: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(n, mean, scatter) of the components of the best local mixture by BIC; none if max_local is 0."""
    if max_local == 0:
        d = x.shape[1]
        return np.zeros(0), np.zeros((0, d)), np.zeros((0, d, d))
    fit = local_mixture.fit(x, w, rng, range(1, max_local + 1))
    shares = local_mixture.responsibilities(fit, x) * w[:, None]
    return local_mixture.summarise(x, _without_small(shares, x, min_count))


def _without_small(shares: np.ndarray, x: np.ndarray, min_count: float) -> np.ndarray:  # (n, k)
    """Shares of rows (n, d) in clusters, where clusters of fewer than min_count rows are part of the nearest larger one."""
    n = shares.sum(0)
    large = n >= max(min_count, MIN_POSITIVE)
    if large.all() or not large.any():
        return shares
    mean = shares.T @ x / np.maximum(n, MIN_POSITIVE)[:, None]
    apart = ((mean[~large, None] - mean[large]) ** 2).sum(-1)  # (small, large)
    nearest = np.eye(int(large.sum()))[apart.argmin(1)]
    return np.asarray(shares[:, large] + shares[:, ~large] @ nearest)


def _local_centres(
    x: np.ndarray, w: np.ndarray, rng: np.random.Generator, max_centres: int, min_count: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(n, mean) of each local k-means cluster, and the packed scatter of the rows about them; none if max_centres is 0."""
    d = x.shape[1]
    if max_centres == 0:
        return np.zeros(0), np.zeros((0, d)), gaussian.pack_triangle(np.zeros((d, d)))
    least = min(MIN_CENTRES, len(x) // MIN_ROWS_PER_CENTRE)
    n_centres = max(1, min(max(len(x) // ROWS_PER_CENTRE, least), max_centres))
    labels = local_mixture.kmeans(x, w, n_centres, rng)
    labels = _without_small(w[:, None] * np.eye(n_centres)[labels], x, min_count).argmax(1)
    n = np.bincount(labels, w)
    mean = np.stack([np.bincount(labels, w * column) for column in x.T], axis=1) / n[:, None]
    centred = x - mean[labels]
    return n, mean, gaussian.pack_triangle((centred * w[:, None]).T @ centred)


def all_rows_equal(descriptions: Collection[Description]) -> bool:
    """Whether every component and centre is at the same point, without scatter."""
    means = np.concatenate([np.concatenate([d.mean, d.centre]) for d in descriptions])
    scatter = sum(np.abs(d.scatter).sum() + np.abs(d.centre_scatter).sum() for d in descriptions)
    size = np.abs(means).max(initial=0.0)
    if not len(means):
        return False
    same_place = np.ptp(means, axis=0).max() <= 1e-9 * size
    return bool(same_place and scatter <= 1e-18 * size**2 * len(means))


# ---- the SUM of every round: statistics of all candidates ----


@message("open_mixture.CandidateStats")
class CandidateStats(NamedTuple):
    """Sufficient statistics of one candidate, and log-likelihoods of the rows held out of it."""

    stats: Stats
    topics: Float[Array, "k z"]  # expected rows by atom and topic
    weight_penalty: Float[Array, "", ">=0"]  # BIC's penalty for the clients' own weights
    held_out_loglik: Float[Array, ""]
    held_out_common: Float[Array, ""]  # the same under the weights common to all clients
    held_out_squares: Float[Array, "", ">=0"]  # squared differences, per row, to the first validated candidate
    held_out_rows: Float[Array, "", ">=0 rows"]


@client("open_mixture.candidate_stats", SUM)
def candidate_stats(
    proposals: tuple[Proposal, ...],
    client: Client,
    *,
    keys: list,
    ids: list,
    shapes: list,
    validated: list,
    held_out: float,
    keep: list,
) -> dict[str, CandidateStats]:
    """An E-step of every candidate under the client's own weights, which are updated and kept in its state.

    The lists have one entry per candidate. `keys` name the answers and `ids` the weights in the client's state. Rows are held out of
    candidates that are `validated` and of no others. Weights of other candidates are deleted, except those with an id in `keep`.
    """
    rows = {True: split_rows(client, held_out), False: split_rows(client, 0.0)}
    known = client.state
    client.state = _without_shares(known, keep)
    answers: dict[str, CandidateStats] = {}
    reference = None  # held-out log-likelihood per row of the first validated candidate
    for key, id, proposal, shape, is_validated in zip(keys, ids, proposals, shapes, validated):
        (x, w), (x_out, w_out) = rows[is_validated]
        stats, topic_counts, shares = _local_step(proposal, x, w, shape, known.get(state_key(id)))
        client.state[state_key(id)] = shares
        own, common = row_logliks(proposal, x_out, w_out, shape, shares, stats.rows)
        if is_validated and reference is None:
            reference = own
        difference = own - reference if is_validated else own
        answers[key] = CandidateStats(
            stats=stats,
            topics=np.swapaxes(topic_counts, -1, -2),
            weight_penalty=weight_penalty(shares, stats.rows),
            held_out_loglik=(w_out * own).sum(-1),
            held_out_common=(w_out * common).sum(-1),
            held_out_squares=(w_out * difference**2).sum(-1),
            held_out_rows=(w_out * np.ones_like(own)).sum(-1),
        )
    return answers


def _local_step(proposal: Proposal, x: Array, w: Array, shape: str, shares: Array | None) -> tuple[Stats, Array, Array]:
    """One EM step on the shares; a client that sees a candidate for the first time makes some more before it."""
    if shares is None:
        shares = local_em(proposal, x, w, shape, None, FIRST_WEIGHT_STEPS)[2]
    return local_em(proposal, x, w, shape, shares)


def _without_shares(state: dict, keep: list) -> dict:
    """The client's state without weights of candidates, except those to keep."""
    kept = {state_key(id) for id in keep}
    return {key: value for key, value in state.items() if not key.startswith("shares-") or key in kept}


def state_key(id: str) -> str:
    """Where a client keeps its weights of a candidate."""
    return f"shares-{id}"


def split_rows(client: Client, held_out: float) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """((x, w) to fit, (x, w) held out): the same positions at every client, evenly spread, without random draws."""
    x = aligned_rows(client)
    out = np.arange(1, x.shape[-2] + 1) * GOLDEN_RATIO % 1 < held_out
    return (x[..., ~out, :], client.w[..., ~out]), (x[..., out, :], client.w[..., out])


# ---- which clients hold which Gaussians ----


@message("open_mixture.Counts")
class Counts(NamedTuple):
    """Expected rows by Gaussian."""

    n: Float[Array, "k", ">=0 rows"]  # expected rows by Gaussian


@message("open_mixture.Products")
class Products(NamedTuple):
    """Sums of products of responsibilities, which say what Gaussians overlap."""

    rr: Float[Array, "t"]  # sum over rows of r r', packed


@client("open_mixture.count_atoms", GATHER)
def count_atoms(proposals: tuple[Proposal, ...], client: Client, *, shapes: list) -> tuple[Counts, ...]:
    """The expected number of the client's rows in every Gaussian of every proposal, under the weights common to all clients."""
    return tuple(
        Counts(mixture.e_step(p.params, aligned_rows(client), client.w, shape).n) for p, shape in zip(proposals, shapes)
    )


@client("open_mixture.atom_products", SUM)
def atom_products(proposals: tuple[Proposal, ...], client: Client, *, shapes: list) -> tuple[Products, ...]:
    """Sums of the outer products of each row's responsibilities."""
    return tuple(_products(p, aligned_rows(client), client.w, shape) for p, shape in zip(proposals, shapes))


def _products(proposal: Proposal, x: Array, w: Array, shape: str) -> Products:
    """One client's products, over the rows with weight."""
    log_joint = mixture.log_joint(proposal.params, x, shape)
    r = np.exp(log_joint - log_joint.max(-1, keepdims=True))
    r = np.where(w[..., None] > 0, r / r.sum(-1, keepdims=True), 0.0)
    return Products(gaussian.pack_triangle(np.swapaxes(r * w[..., None], -1, -2) @ r))


# ---- the last GATHER: rows in each cluster ----


@message("open_mixture.Holdings")
class Holdings(NamedTuple):
    """Expected rows by cluster."""

    n: Float[Array, "clusters", ">=0 rows"]  # expected rows by cluster


@client("open_mixture.holdings", GATHER)
def holdings(
    proposal: Proposal, client: Client, *, shape: str, id: str, common_weights: bool, min_count: float
) -> Holdings:
    """Expected rows in each cluster, under the client's own weights or those common to all; below min_count it is 0.

    The client keeps its own weights: of those clusters alone that BIC justifies.
    """
    density = cluster_densities(proposal, aligned_rows(client), shape)
    if common_weights:
        n = expected_rows(density, client.w, common_shares(proposal.topics, proposal.params.weights))
        shares = n / np.maximum(n.sum(-1), TINY)[..., None]
    else:
        shares = sparse_shares(density, client.w, client.state.get(state_key(id)))
        n = expected_rows(density, client.w, shares)
    client.state[state_key(id)] = shares
    return Holdings(np.where(n >= max(min_count, MIN_POSITIVE), n, 0.0))
