"""A client's own mixing weights of clusters, by EM with the Gaussians fixed; pure functions of arrays, sends nothing.

`shares` are a client's weights of clusters, (..., z). A cluster is a topic, or a Gaussian where a proposal has no topics.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from unpooled.arrays import Array, Float
from unpooled.maths import mixture
from unpooled.maths.mixture import Params, Stats
from unpooled.models.open_mixture.constants import FINAL_WEIGHT_STEPS, PRIOR_SHARE_ROWS, TINY
from unpooled.tree import message


@message("open_mixture.Proposal")
class Proposal(NamedTuple):
    """A mixture of Gaussian atoms and the topics that group them; without topics every atom is a cluster of its own."""

    params: Params
    topics: Float[Array, "z k"]  # each topic's weights of atoms; z = 0: none


def local_em(
    proposal: Proposal, x: Array, w: Array, shape: str, shares: Array | None, n_steps: int = 1
) -> tuple[Stats, Array, Array]:
    """EM steps on the shares alone.

    Returns the statistics of the last E-step, the expected rows by topic and atom (..., z, k), and the new shares.
    """
    topics = proposal.topics
    if shares is None:
        shares = _uniform_shares(proposal, w)
    for _ in range(n_steps):
        weights = atom_weights(proposal, shares)
        stats = mixture.e_step(proposal.params, x, w, shape, _log(weights))
        ratio = stats.n / (weights + TINY)
        if len(topics):
            topic_counts = shares[..., :, None] * topics * ratio[..., None, :]
            cluster_counts = topic_counts.sum(-1)
        else:
            topic_counts = topics * ratio[..., None, :]  # (..., 0, k)
            cluster_counts = stats.n
        shares = (cluster_counts + TINY) / (cluster_counts + TINY).sum(-1)[..., None]
    return stats, topic_counts, shares


def _uniform_shares(proposal: Proposal, w: Array) -> Array:
    """Equal weights of all clusters."""
    n_topics, n_atoms = proposal.topics.shape
    n_clusters = n_topics or n_atoms
    return np.full((*w.shape[:-1], n_clusters), 1 / n_clusters)


def atom_weights(proposal: Proposal, shares: Array) -> Array:
    """(..., k) a client's weights of atoms, from its shares of clusters."""
    return shares @ proposal.topics if len(proposal.topics) else shares


def common_shares(topics: Array, weights: Array) -> Array:
    """(z,) the weights of clusters that give all rows these weights (k,) of atoms; an atom may be in several clusters."""
    return np.maximum(np.linalg.lstsq(topics.T, weights, rcond=None)[0], 0.0)


def row_logliks(proposal: Proposal, x: Array, w: Array, shape: str, shares: Array, rows: Array) -> tuple[Array, Array]:
    """(..., n) log-likelihood per held-out row, under the client's own shares and under the weights common to all clients.

    The shares were estimated from `rows` (...,) rows. As in a Dirichlet prior about the common weights, PRIOR_SHARE_ROWS rows are added:
    a single held-out row of a cluster that the client's other rows do not show would decide everything otherwise.
    """
    if x.shape[-2] == 0:
        return np.zeros(w.shape), np.zeros(w.shape)
    log_density = atom_log_densities(proposal, x, shape)  # (..., n, k)
    common_weights = proposal.params.weights
    own_weights = rows[..., None] * atom_weights(proposal, shares) + PRIOR_SHARE_ROWS * common_weights
    own_weights = own_weights / (rows[..., None] + PRIOR_SHARE_ROWS)
    own = logsumexp(log_density + _log(own_weights[..., None, :]), axis=-1)
    common = logsumexp(log_density + _log(common_weights), axis=-1)
    return np.where(w > 0, own, 0.0), np.where(w > 0, common, 0.0)


def atom_log_densities(proposal: Proposal, x: Array, shape: str) -> Array:
    """(..., n, k) log density of each row under each atom, without the atoms' weights."""
    unweighted = proposal.params._replace(weights=np.ones_like(proposal.params.weights))
    return mixture.log_joint(unweighted, x, shape)


def weight_penalty(shares: Array, rows: Array) -> Array:
    """BIC's penalty for a client's own weights: log(rows) per cluster that it holds, less one."""
    n_free = (shares * rows[..., None] > 0.5).sum(-1) - 1
    return np.maximum(n_free, 0) * np.log(np.maximum(rows, 2.0))


# ---- sparse weights: only of clusters that BIC justifies ----


def cluster_densities(proposal: Proposal, x: Array, shape: str) -> Array:
    """(..., n, clusters) density of each row in each cluster, divided by the row's largest atom density."""
    log_density = atom_log_densities(proposal, x, shape)
    density = np.exp(log_density - log_density.max(-1, keepdims=True))
    return density @ proposal.topics.T if len(proposal.topics) else density


def sparse_shares(density: Array, w: Array, shares: Array | None) -> Array:
    """(..., clusters) maximum-likelihood shares with clusters removed whose removal costs less than BIC's penalty.

    Backward elimination, one cluster per step. The loss of removing a cluster is bounded from above by leaving the other shares in
    proportion.
    """
    rows = w.sum(-1)[..., None]
    size = density.shape[-1]
    if shares is None:
        shares = np.full((*w.shape[:-1], size), 1 / size)
    shares = _fit_shares(density, w, shares)
    for _ in range(size):
        shares = _fit_shares(density, w, np.where(shares * rows > 0.5, shares, 0.0))
        loss = np.where(shares > 0, _removal_loss(density, w, shares), np.inf)
        cheapest = np.arange(size) == loss.argmin(-1)[..., None]
        last_one = (shares > 0).sum(-1, keepdims=True) < 2
        removed = cheapest & (loss < np.log(np.maximum(rows, 2.0)) / 2) & ~last_one & (rows > 0)
        if not removed.any():
            break
        shares = np.where(removed, 0.0, shares)
    return shares


def _fit_shares(density: Array, w: Array, shares: Array) -> Array:
    """EM for the shares; clusters of share 0 stay out, and a client whose shares are all 0 starts from equal ones."""
    shares = np.where(shares.sum(-1, keepdims=True) > 0, shares, 1.0)
    equal = (shares > 0) / (shares > 0).sum(-1, keepdims=True)
    for _ in range(FINAL_WEIGHT_STEPS):
        new = expected_rows(density, w, shares) + TINY * equal
        shares = new / new.sum(-1, keepdims=True)
    return shares


def expected_rows(density: Array, w: Array, shares: Array) -> Array:
    """(..., clusters) expected number of rows in each cluster."""
    row_weight = w / np.maximum((density @ shares[..., None])[..., 0], TINY)
    return shares * (row_weight[..., None, :] @ density)[..., 0, :]


def _removal_loss(density: Array, w: Array, shares: Array) -> Array:
    """(..., clusters) upper bound of the log-likelihood that a client's rows lose without each cluster."""
    joint = density * shares[..., None, :]
    total = joint.sum(-1, keepdims=True)
    remaining = np.maximum(total - joint, TINY) / np.maximum(total, TINY)
    rescaled = w.sum(-1)[..., None] * np.log(np.maximum(1 - shares, TINY))
    return rescaled - (w[..., None, :] @ np.log(remaining))[..., 0, :]


def _log(weights: Array) -> Array:
    """The logarithm, finite for a weight of 0."""
    return np.log(np.maximum(weights, TINY))
