"""What `OpenMixture` asks its clients after they described their rows (see `descriptions`): one SUM per round, and two GATHERs.

SUM `candidate_stats`: statistics of all candidates in one message; each client's own mixing weights stay in its state.
SUM `atom_products`: whether clients differ, and how much a single row's responsibilities vary.
GATHER `count_atoms`, if they differ: which clients hold which Gaussians.
GATHER `holdings`: the number of rows in each cluster.
`count_atoms` and `holdings` send nothing that stands for fewer than `min_count` rows, and add up to all rows of the client.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, Int, to_numpy
from unpooled.client import GATHER, SUM, Client, client
from unpooled.maths import gaussian, mixture
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
    TINY,
)
from unpooled.models.open_mixture.few_values import spread_out
from unpooled.tree import message

OFFSET = "offset"  # where a client keeps its own offset (d,), if it has one
FACTOR = "factor"  # where it keeps what its columns are multiplied by (d,), if they are
MIN_POSITIVE = 1e-9  # a count below this is none, even if min_count is 0


def aligned_rows(client: Client, units: Sequence[Sequence[float]]) -> Array:
    """The client's rows in these units, without its offset and scale."""
    return without_offset(scaled_rows(client, units), client)


def scaled_rows(client: Client, units: Sequence[Sequence[float]]) -> Array:
    """The client's rows in these units (see `Units.option`), columns of few values spread out; as they are where there are none."""
    if not len(units):
        return client.x
    scale, step = units
    return spread_out(client.x / np.asarray(scale), client, step)


def without_offset(x: Array, client: Client) -> Array:
    """Rows of this client, in the units of the fit, without its offset and scale, if it keeps some."""
    if OFFSET not in client.state:
        return x
    x = x * client.state[FACTOR][..., None, :] if FACTOR in client.state else x
    return x - client.state[OFFSET][..., None, :]


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
    units: Sequence[Sequence[float]] = (),
) -> dict[str, CandidateStats]:
    """An E-step of every candidate under the client's own weights, which are updated and kept in its state.

    The lists have one entry per candidate. `keys` name the answers and `ids` the weights in the client's state. Rows are held out of
    candidates that are `validated` and of no others. Weights of other candidates are deleted, except those with an id in `keep`.
    Columns are divided by `units`, here and in the other questions.
    """
    x = aligned_rows(client, units)
    rows = {is_validated: split_rows(x, client.w, held_out * is_validated) for is_validated in (True, False)}
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


def split_rows(x: Array, w: Array, held_out: float) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """((x, w) to fit, (x, w) held out): the same positions at every client, evenly spread, without random draws."""
    out = np.arange(1, x.shape[-2] + 1) * GOLDEN_RATIO % 1 < held_out
    return (x[..., ~out, :], w[..., ~out]), (x[..., out, :], w[..., out])


# ---- whether clients differ, and which of them hold which Gaussians ----


@message("open_mixture.Products")
class Products(NamedTuple):
    """Sums that say what Gaussians overlap, and how clients differ."""

    n: Float[Array, "k", ">=0 rows"]  # expected rows by Gaussian
    rr: Float[Array, "t"]  # sum over rows of r r', packed
    nn: Float[Array, "t"]  # n n' over the client's rows, packed
    clients: Float[Array, "", ">=0"]


@client("open_mixture.atom_products", SUM)
def atom_products(
    proposals: tuple[Proposal, ...], client: Client, *, shapes: list, units: Sequence[Sequence[float]] = ()
) -> tuple[Products, ...]:
    """Sums of the rows' responsibilities, of their outer products, and the outer product of the client's sums."""
    x = aligned_rows(client, units)
    return tuple(_products(p, x, client.w, shape) for p, shape in zip(proposals, shapes))


def _products(proposal: Proposal, x: Array, w: Array, shape: str) -> Products:
    """One client's products, over the rows with weight."""
    log_joint = mixture.log_joint(proposal.params, x, shape)
    r = np.exp(log_joint - log_joint.max(-1, keepdims=True))
    r = np.where(w[..., None] > 0, r / r.sum(-1, keepdims=True), 0.0)
    weighted = r * w[..., None]
    n, rows = weighted.sum(-2), w.sum(-1)
    scaled = n / np.sqrt(np.maximum(rows, TINY))[..., None]
    return Products(
        n=n,
        rr=gaussian.pack_triangle(np.swapaxes(weighted, -1, -2) @ r),
        nn=gaussian.pack_triangle(scaled[..., :, None] * scaled[..., None, :]),
        clients=(rows > 0) * 1.0,
    )


@message("open_mixture.Tree")
class Tree(NamedTuple):
    """A mixture whose Gaussians are the leaves of a dendrogram: step s merges nodes left[s] and right[s] into node k + s."""

    proposal: Proposal
    left: Int[Array, "s"]
    right: Int[Array, "s"]


@message("open_mixture.Counts")
class Counts(NamedTuple):
    """Rows by Gaussian, in groups of at least min_count."""

    n: Float[Array, "k", ">=0 rows"]


@client("open_mixture.count_atoms", GATHER, batched=False)
def count_atoms(
    trees: tuple[Tree, ...], client: Client, *, shapes: list, min_count: float, units: Sequence[Sequence[float]] = ()
) -> tuple[Counts, ...]:
    """The expected number of the client's rows in every Gaussian under the common weights, as far as min_count allows."""
    found, x = [], aligned_rows(client, units)
    for tree, shape in zip(trees, shapes):
        params = tree.proposal.params
        n = to_numpy(mixture.e_step(params, x, client.w, shape).n)
        found.append(Counts(shared_out(n, to_numpy(params.weights), tree, min_count)))
    return tuple(found)


def shared_out(n: np.ndarray, weights: np.ndarray, tree: Tree, min_count: float) -> np.ndarray:  # (k,)
    """Counts (k,) with the same total where no number stands for fewer rows than min_count.

    From the root down, the count of a node is divided between its branches. If both have min_count rows, each has its own. Otherwise, if
    the smaller has less than half of what the common weights give it, it has none; if not, the whole node is divided by these weights.
    """
    k = len(n)
    merges = np.stack([tree.left, tree.right], axis=1)
    true = _with_nodes(n, merges)
    expected = _with_nodes(weights, merges)
    sent = np.zeros(len(true))
    by_weights = np.zeros(len(true), dtype=bool)
    sent[-1] = true[-1] if true[-1] >= max(min_count, MIN_POSITIVE) else 0.0
    for s in range(len(merges) - 1, -1, -1):
        node, pair = k + s, merges[s]
        share = expected[pair] / max(expected[pair].sum(), TINY)
        is_small = true[pair] < min_count
        is_absent = is_small & (true[pair] < share * true[node] / 2)
        if by_weights[node] or (is_small.any() and not is_absent.any()):
            sent[pair] = share * sent[node]
            by_weights[pair] = True
        else:
            sent[pair] = np.where(is_absent, 0.0, true[pair])
            sent[pair[true[pair].argmax()]] += sent[node] - sent[pair].sum()  # rows of branches that have none
    return sent[:k]


def _with_nodes(leaves: np.ndarray, merges: np.ndarray) -> np.ndarray:
    """The numbers of the leaves, followed by those of the nodes that they merge into."""
    numbers = np.concatenate([leaves, np.zeros(len(merges))])
    for s, pair in enumerate(merges):
        numbers[len(leaves) + s] = numbers[pair].sum()
    return numbers


# ---- the last GATHER: rows in each cluster ----


@message("open_mixture.Holdings")
class Holdings(NamedTuple):
    """Expected rows by cluster."""

    n: Float[Array, "clusters", ">=0 rows"]  # expected rows by cluster


@client("open_mixture.holdings", GATHER)
def holdings(
    proposal: Proposal,
    client: Client,
    *,
    shape: str,
    id: str,
    common_weights: bool,
    min_count: float,
    units: Sequence[Sequence[float]] = (),
) -> Holdings:
    """Expected rows in each cluster, under the client's own weights or those common to all, without counts below min_count.

    The client keeps its own weights: of those clusters alone that BIC justifies.
    """
    density = cluster_densities(proposal, aligned_rows(client, units), shape)
    if common_weights:
        n = expected_rows(density, client.w, common_shares(proposal.topics, proposal.params.weights))
        shares = n / np.maximum(n.sum(-1), TINY)[..., None]
    else:
        shares = sparse_shares(density, client.w, client.state.get(state_key(id)))
        n = expected_rows(density, client.w, shares)
    client.state[state_key(id)] = shares
    return Holdings(without_small_counts(n, min_count))


def without_small_counts(n: Array, min_count: float) -> Array:  # (..., clusters)
    """Counts with 0 below min_count, and these rows in the client's largest cluster: the total less what is sent would show them."""
    sent = np.where(n >= max(min_count, MIN_POSITIVE), n, 0.0)
    is_largest = np.arange(n.shape[-1]) == n.argmax(-1)[..., None]
    return np.where(is_largest & (sent > 0), sent + (n - sent).sum(-1)[..., None], sent)
