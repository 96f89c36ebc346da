"""Clusters that one Gaussian does not describe, so that BIC spends several; sends nothing.

A Gaussian at whose own mean another one is more than DENSER times as dense has no mode of its own. If its rows are mistaken for those of
others, it describes tails, or rows between clusters, and belongs in parts to the clusters that it overlaps with. If they hardly ever are,
it is a wide cluster around a narrow one: in many columns rows are far from their mean.
"""

from __future__ import annotations

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.maths import gaussian, mixture
from unpooled.models.open_mixture.candidates import GAUSSIANS, SHARED, Candidate
from unpooled.models.open_mixture.client_weights import atom_log_densities
from unpooled.models.open_mixture.constants import CONFUSED, DENSER, N_PROBES, TINY


def as_clusters(c: Candidate) -> Candidate:
    """The candidate with one topic per cluster, if it is made of Gaussians."""
    if c.structure not in (GAUSSIANS, SHARED):
        return c
    is_cluster = are_clusters(c)
    weights = to_numpy(c.proposal.params.weights)
    parts = _overlaps(c) * is_cluster * weights  # (k, k): of each Gaussian, to each cluster
    parts = np.where(is_cluster[:, None], np.eye(len(weights)), parts / parts.sum(1, keepdims=True))
    joint = (parts * weights[:, None]).T[is_cluster]  # (clusters, k)
    topics = joint / np.maximum(joint.sum(1, keepdims=True), TINY)
    id = c.id if is_cluster.all() else f"{c.id}-joined"  # clients know their weights of Gaussians by the id
    return c._replace(id=id, proposal=c.proposal._replace(topics=topics))


def n_clusters(c: Candidate) -> int:
    """The number of clusters of a candidate made of Gaussians, 0 for others."""
    return int(are_clusters(c).sum()) if c.structure in (GAUSSIANS, SHARED) else 0


def are_clusters(c: Candidate) -> np.ndarray:
    """(k,) whether each Gaussian has a mode of its own, or rows that are hardly ever mistaken for those of others."""
    found = have_modes(c)
    found[~found] = [error_rate(c, k) < CONFUSED for k in np.flatnonzero(~found)]
    return found


def error_rate(c: Candidate, k: int) -> float:
    """The fraction of rows drawn from one Gaussian that are likelier to be of another (Hennig, 2010)."""
    params = c.proposal.params
    half = np.random.default_rng(0).normal(size=(N_PROBES // 2, params.means.shape[1]))
    factor = np.linalg.cholesky(gaussian.full_covs(params, c.shape)[k])
    rows = params.means[k] + np.concatenate([half, -half]) @ factor.T
    return float((mixture.log_joint(params, rows, c.shape).argmax(1) != k).mean())


def have_modes(c: Candidate) -> np.ndarray:
    """(k,) whether no other Gaussian is much denser, times its weight, at the mean of each."""
    params = c.proposal.params
    log_joint = atom_log_densities(c.proposal, params.means, c.shape) + np.log(np.maximum(params.weights, TINY))
    return log_joint.max(-1) - np.diag(log_joint) <= np.log(DENSER)


def _overlaps(c: Candidate) -> np.ndarray:
    """(k, k) integrals of the products of two Gaussians' densities, each row divided by its largest."""
    params = c.proposal.params
    covs = gaussian.full_covs(params, c.shape)
    difference = params.means[:, None] - params.means[None]  # (k, k, d)
    sums = covs[:, None] + covs[None]
    solved = np.linalg.solve(sums, difference[..., None])[..., 0]
    log_overlap = -0.5 * (np.einsum("ijd,ijd->ij", difference, solved) + np.linalg.slogdet(sums)[1])
    return np.exp(log_overlap - log_overlap.max(1, keepdims=True)) + TINY
