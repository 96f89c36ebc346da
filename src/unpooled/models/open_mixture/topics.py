"""Topics over atoms: p_c(m) = sum_z pi_c(z) beta_z(m), from the counts of each client's rows per atom alone.

A topic is a group of atoms that the same clients hold together. Nothing here knows where an atom is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from scipy.special import xlogy

from unpooled.models.open_mixture.agglomeration import Merges, greedy
from unpooled.tree import message

TINY = 1e-300


@message("open_mixture.Topics")
class Topics(NamedTuple):
    shares: np.ndarray  # (c, z) each client's weights of topics
    atoms: np.ndarray  # (z, m) each topic's weights of atoms
    loglik: float
    bic: float


def group(counts: np.ndarray) -> Merges:
    """Join atoms while as little as possible is lost of what an atom tells about the client (information bottleneck)."""
    columns = np.array(counts.T, dtype=float)  # (m, c)
    entropy, mass = xlogy(columns, columns).sum(1), columns.sum(1)

    def gains(i: np.ndarray, j: np.ndarray) -> np.ndarray:
        profile = _joined_entropy(columns, i, j) - entropy[i] - entropy[j]
        size = xlogy(mass[i] + mass[j], mass[i] + mass[j]) - xlogy(mass[i], mass[i]) - xlogy(mass[j], mass[j])
        return profile - size

    def join(i: int, j: int) -> None:
        columns[i] += columns[j]
        entropy[i], mass[i] = xlogy(columns[i], columns[i]).sum(), mass[i] + mass[j]

    return greedy(len(columns), gains, join)


def _joined_entropy(columns: np.ndarray, i: np.ndarray, j: np.ndarray, chunk: int = 4096) -> np.ndarray:
    out = np.empty(len(i))
    for start in range(0, len(i), chunk):
        part = slice(start, start + chunk)
        both = columns[i[part]] + columns[j[part]]
        out[part] = xlogy(both, both).sum(1)
    return out


def start(counts: np.ndarray, labels: np.ndarray) -> Topics:
    """Topics that a grouping of atoms suggests, blurred so that no atom is shut out."""
    member = np.eye(labels.max() + 1)[labels]  # (m, z)
    mass = counts.sum(0)
    atoms = member.T * mass + 0.05 * mass.mean()
    shares = counts @ member + 0.5
    return Topics(shares / shares.sum(1, keepdims=True), atoms / atoms.sum(1, keepdims=True), -np.inf, np.inf)


def fit(counts: np.ndarray, topics: Topics, n_iter: int = 150) -> Topics:
    """EM for shares and atoms; the likelihood rises every step."""
    shares, atoms = topics.shares, topics.atoms
    for _ in range(n_iter):
        ratio = counts / (shares @ atoms + TINY)  # (c, m)
        new_atoms, new_shares = atoms * (shares.T @ ratio), shares * (ratio @ atoms.T)
        atoms, shares = (a / np.maximum(a.sum(1, keepdims=True), TINY) for a in (new_atoms, new_shares))
    loglik = float(xlogy(counts, shares @ atoms + TINY).sum())
    return Topics(shares, atoms, loglik, -2 * loglik + price(counts, shares, atoms))


def price(counts: np.ndarray, shares: np.ndarray, atoms: np.ndarray) -> float:
    """BIC's: each client pays for the topics it holds, the federation for its atoms' weights."""
    rows = counts.sum(1)
    held = (shares * rows[:, None] > 0.5).sum(1) - 1
    z, m = atoms.shape
    return float(np.maximum(held, 0) @ np.log(np.maximum(rows, 2)) + (m - 1 + z - 1) * np.log(rows.sum()))


def choose(counts: np.ndarray, grouping: Merges, sizes: Iterable[int], n_iter: int = 150) -> dict[int, Topics]:
    """Topics for each number asked for that the grouping reaches."""
    return {z: fit(counts, start(counts, grouping.labels(z)), n_iter) for z in sizes if 1 <= z <= grouping.leaves}
