"""Topics over atoms, p_c(m) = sum_z pi_c(z) beta_z(m), from the counts of each client's rows per atom; sends nothing.

A topic is a group of atoms that the same clients hold together. Where the atoms are does not matter.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import xlogy

from unpooled.models.open_mixture.agglomeration import Merges, greedy
from unpooled.models.open_mixture.constants import SHARE_SMOOTHING, TINY, TOPIC_SMOOTHING, TOPIC_STEPS
from unpooled.models.open_mixture.directions import HolderSums
from unpooled.tree import message


@message("open_mixture.Topics")
class Topics(NamedTuple):
    """Topics of atoms, and clients' weights of them."""

    shares: np.ndarray  # (c, z) each client's weights of topics
    atoms: np.ndarray  # (z, m) each topic's weights of atoms
    loglik: float


def agglomerate(sums: HolderSums) -> Merges:
    """Merge atoms while losing as little as possible of the chi-squared of the table of clients and atoms (Greenacre, 1988)."""
    mass = np.maximum(sums.n, TINY)
    squares = np.array(sums.squares)

    def gains(i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """What merging pairs of atoms costs."""
        own = np.diag(squares)
        return (own[i] + 2 * squares[i, j] + own[j]) / (mass[i] + mass[j]) - own[i] / mass[i] - own[j] / mass[j]

    def join(i: int, j: int) -> None:
        """Put the merged pair in the place of `i`."""
        squares[i] += squares[j]
        squares[:, i] += squares[:, j]
        mass[i] += mass[j]

    return greedy(len(mass), gains, join)


def initial_topics(counts: np.ndarray, labels: np.ndarray) -> Topics:
    """One topic per group of atoms, smoothed so that no atom has probability 0."""
    member = np.eye(labels.max() + 1)[labels]  # (m, z)
    mass = counts.sum(0)
    atoms = member.T * mass + TOPIC_SMOOTHING * mass.mean()
    shares = counts @ member + SHARE_SMOOTHING
    return Topics(shares / shares.sum(1, keepdims=True), atoms / atoms.sum(1, keepdims=True), -np.inf)


def fit(counts: np.ndarray, topics: Topics, n_iter: int = TOPIC_STEPS) -> Topics:
    """EM for shares and atoms; the log-likelihood rises in every step."""
    shares = topics.shares
    atoms = topics.atoms
    for _ in range(n_iter):
        ratio = counts / (shares @ atoms + TINY)  # (c, m)
        new_atoms = atoms * (shares.T @ ratio)
        new_shares = shares * (ratio @ atoms.T)
        atoms = new_atoms / np.maximum(new_atoms.sum(1, keepdims=True), TINY)
        shares = new_shares / np.maximum(new_shares.sum(1, keepdims=True), TINY)
    return Topics(shares, atoms, float(xlogy(counts, shares @ atoms + TINY).sum()))
