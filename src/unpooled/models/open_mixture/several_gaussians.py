"""Clusters that one Gaussian does not describe, so that BIC spends several; sends nothing.

A Gaussian at whose own mean another one is more than DENSER times as dense has no mode of its own. If its rows are mistaken for those of
Gaussians with modes, directly or through others without, it describes tails, or rows between clusters, and belongs in parts to the
clusters that it overlaps with. If they hardly ever are, it is a cluster, or a part of one, that is wide around a narrow one: in many
columns rows are far from their mean.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse.csgraph import connected_components

from unpooled.arrays import to_numpy
from unpooled.maths import gaussian, mixture
from unpooled.models.open_mixture.candidates import GAUSSIANS, SHARED, Candidate
from unpooled.models.open_mixture.client_weights import atom_log_densities
from unpooled.models.open_mixture.constants import CONFUSED, DENSER, N_PROBES, TINY

NONE = -1  # no cluster of its own
RARELY = 1e-6  # added to the fractions of rows that are mistaken, so that none is 0


def as_clusters(c: Candidate) -> Candidate:
    """The candidate with one topic per cluster, if it is made of Gaussians."""
    if c.structure not in (GAUSSIANS, SHARED):
        return c
    cluster = cluster_of(c)
    weights = to_numpy(c.proposal.params.weights)
    parts = (cluster[:, None] == np.arange(cluster.max() + 1)) * 1.0  # (k, clusters)
    if not parts.any(1).all():
        parts[cluster == NONE] = _parts_of_clusters(c, cluster == NONE, parts[cluster != NONE])
    joint = (parts * weights[:, None]).T  # (clusters, k)
    topics = joint / np.maximum(joint.sum(1, keepdims=True), TINY)
    is_same = len(topics) == len(weights)
    id = c.id if is_same else f"{c.id}-joined"  # clients know their weights of Gaussians by the id
    return c._replace(id=id, proposal=c.proposal._replace(topics=topics[cluster] if is_same else topics))


def n_clusters(c: Candidate) -> int:
    """The number of clusters of a candidate made of Gaussians, 0 for others."""
    return int(cluster_of(c).max()) + 1 if c.structure in (GAUSSIANS, SHARED) else 0


def cluster_of(c: Candidate) -> np.ndarray:
    """(k,) the cluster of each Gaussian, NONE for those that are parts of several."""
    has_mode = have_modes(c)
    cluster = np.where(has_mode, has_mode.cumsum() - 1, NONE)
    without = np.flatnonzero(~has_mode)
    if len(without):
        mistaken = np.stack([mistaken_for(c, int(k)) for k in without])  # (without, k)
        group = connected_components(mistaken[:, without] >= CONFUSED, directed=False)[1]
        is_part = np.isin(group, group[mistaken[:, has_mode].sum(1) >= CONFUSED])
        if not is_part.all():
            cluster[without[~is_part]] = has_mode.sum() + np.unique(group[~is_part], return_inverse=True)[1]
    return cluster


def mistaken_for(c: Candidate, k: int) -> np.ndarray:
    """(k,) of rows drawn from one Gaussian, the fraction that each is the likeliest for (Hennig, 2010)."""
    params = c.proposal.params
    half = np.random.default_rng(0).normal(size=(N_PROBES // 2, params.means.shape[1]))
    factor = np.linalg.cholesky(gaussian.full_covs(params, c.shape)[k])
    rows = params.means[k] + np.concatenate([half, -half]) @ factor.T
    likeliest = mixture.log_joint(params, rows, c.shape).argmax(1)
    return np.bincount(likeliest, minlength=len(params.means)) / len(rows)


def have_modes(c: Candidate) -> np.ndarray:
    """(k,) whether no other Gaussian is much denser, times its weight, at the mean of each."""
    params = c.proposal.params
    log_joint = atom_log_densities(c.proposal, params.means, c.shape) + np.log(np.maximum(params.weights, TINY))
    return log_joint.max(-1) - np.diag(log_joint) <= np.log(DENSER)


def _parts_of_clusters(c: Candidate, is_part: np.ndarray, member: np.ndarray) -> np.ndarray:
    """(parts, clusters) of each Gaussian that is a part, the fraction that belongs to each cluster.

    Its rows belong to the clusters that they are mistaken for; those that are mistaken for another part, to what that belongs to.
    """
    k = np.flatnonzero(is_part)
    mistaken = np.stack([mistaken_for(c, int(i)) for i in k]) + RARELY * to_numpy(c.proposal.params.weights)
    mistaken[np.arange(len(k)), k] = 0.0
    mistaken /= mistaken.sum(1, keepdims=True)
    return np.linalg.solve(np.eye(len(k)) - mistaken[:, is_part], mistaken[:, ~is_part] @ member)
