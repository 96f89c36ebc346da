"""The number of directions in which clients differ, one less than the number of clusters they mix; sends nothing.

If all rows came from one distribution, the clients' mean responsibilities, whitened by the covariance of one row's, would be white
noise, and the logarithm of their largest eigenvalue would follow the Tracy-Widom distribution (Roy's largest root; Johnstone, 2008).
Clients that mix K clusters with weights of their own have K - 1 larger eigenvalues.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.models.open_mixture.constants import N_PERMUTATIONS, P_SEPARATED, TINY, TW_99, TW_9999, VARIANCE_CUTS
from unpooled.tree import message


@message("open_mixture.HolderSums")
class HolderSums(NamedTuple):
    """Sums over clients that say how they differ; n_c are a client's expected rows by atom."""

    n: np.ndarray  # (atoms,) sum of n_c
    squares: np.ndarray  # (atoms, atoms) sum of n_c n_c' over the client's rows
    clients: float

    @property
    def deviations(self) -> np.ndarray:
        """(atoms, atoms) sum of squares of n_c minus what it would be if all clients were alike, over the client's rows."""
        return self.squares - np.outer(self.n, self.n) / max(self.n.sum(), TINY)

    @property
    def degrees_of_freedom(self) -> float:
        """Rows minus clients."""
        return max(self.n.sum() - self.clients, 1.0)

    def grouped(self, groups: np.ndarray) -> HolderSums:
        """The sums of groups of atoms; groups is (atoms, groups)."""
        return HolderSums(self.n @ groups, groups.T @ self.squares @ groups, self.clients)


def sums_of(counts: np.ndarray) -> HolderSums:
    """The sums over clients of counts (clients, atoms)."""
    scaled = counts / np.sqrt(np.maximum(counts.sum(1, keepdims=True), TINY))
    return HolderSums(counts.sum(0), scaled.T @ scaled, len(counts))


def within_covariance(sums: HolderSums, products: np.ndarray) -> np.ndarray:
    """(atoms, atoms) covariance of one row's responsibilities about its client's mean, from the sum of their outer products."""
    return (products - sums.squares) / sums.degrees_of_freedom


def count_directions(sums: HolderSums, within: np.ndarray) -> int:
    """The number of significant directions; within is (atoms, atoms), the covariance of one row's responsibilities at a client."""
    deviations = sums.deviations
    dof = sums.degrees_of_freedom
    variance, axes = np.linalg.eigh(within)
    constant = variance <= VARIANCE_CUTS[0] * variance[-1]
    separated = _separated_directions(deviations, axes[:, constant], variance[constant], dof, sums.clients)
    n_separated = len(separated)
    n_samples = int(sums.clients) - 1 - n_separated
    if n_samples < 1:
        return n_separated
    remaining = deviations - separated.T @ separated
    n_above_noise = [_count_above_noise(remaining, variance, axes, cut, n_samples, dof) for cut in VARIANCE_CUTS]
    return n_separated + max(n_above_noise)


def _count_above_noise(
    deviations: np.ndarray, variance: np.ndarray, axes: np.ndarray, cut: float, n_samples: int, dof: float
) -> int:
    """Eigenvalues above the noise level, on the axes with at least the fraction `cut` of the largest variance.

    0 unless the largest one is above the stricter level: it says whether clients differ at all, and is tested at several cuts.
    """
    used = variance > max(cut * variance[-1], TINY)
    size = int(used.sum())
    if size == 0:
        return 0
    whitening = axes[:, used] / np.sqrt(variance[used])
    eigenvalues = np.linalg.eigvalsh(whitening.T @ deviations @ whitening)
    if eigenvalues.max() <= largest_noise_eigenvalue(n_samples, size, dof, TW_9999):
        return 0
    return int((eigenvalues > largest_noise_eigenvalue(n_samples, size, dof)).sum())


def _separated_directions(
    deviations: np.ndarray, axes: np.ndarray, variance: np.ndarray, dof: float, n_clients: float
) -> np.ndarray:
    """(b, atoms) what the directions explain in which clients differ while the rows of one client (almost) do not vary.

    There a normal approximation fails, but half the squared distance of two rows is at most 1. If all rows came from one distribution,
    its mean within clients would be this far below that of all rows with a probability below
    exp(-dof (all - within + within log(within / all))) (Chernoff's bound).
    """
    squares, turned = np.linalg.eigh(axes.T @ deviations @ axes)  # of the clients' deviations along the axes
    squares = np.maximum(squares, 0.0)
    within = np.maximum(variance, 0.0) @ turned**2 + TINY
    overall = (squares + dof * within) / (dof + n_clients - 1)
    exponent = dof * (overall - within + within * np.log(within / overall))
    found = (overall > within) & (exponent > -np.log(P_SEPARATED))
    return (axes @ turned[:, found] / np.sqrt(squares[found])).T @ deviations


def largest_noise_eigenvalue(n_samples: int, size: int, dof: float, quantile: float = TW_99) -> float:
    """A level that the largest eigenvalue of white noise exceeds in 1 % of cases by default (Johnstone's approximation).

    The eigenvalues are those of a sum of n_samples squares in `size` dimensions, whitened by a covariance with dof degrees of freedom.
    """
    if size == 0 or max(n_samples, size) > dof:
        return np.inf
    total = dof + n_samples - 1
    small, large = (2 * np.arcsin(np.sqrt((n - 0.5) / total)) for n in sorted((n_samples, size)))
    location = 2 * np.log(np.tan((small + large) / 2))
    scale = (16 / total**2 / (np.sin(small + large) ** 2 * np.sin(small) * np.sin(large))) ** (1 / 3)
    return float(dof * np.exp(location + quantile * scale))


# ---- components that the same clients hold ----


def components_share_holders(
    counts: np.ndarray, within: np.ndarray, products: np.ndarray, rng: np.random.Generator
) -> bool:
    """Permutation test: whether clients differ in fewer directions than if every component had holders of its own.

    Each permutation reassigns the holders of every component independently and draws counts anew, with the observed overlap.
    """
    overlap = products / np.maximum(products.sum(1, keepdims=True), TINY)  # a component's row -> where it is counted
    own = _counts_before_overlap(counts, overlap)
    variance, axes = np.linalg.eigh(within)
    root = axes * np.sqrt(np.maximum(variance, 0.0))  # (k, k)
    found = count_directions(sums_of(counts), within)
    permuted = (_permuted_counts(own, overlap, root, rng) for _ in range(N_PERMUTATIONS))
    return all(found < count_directions(sums_of(redrawn), within) for redrawn in permuted)


def _counts_before_overlap(counts: np.ndarray, overlap: np.ndarray, n_iter: int = 50) -> np.ndarray:
    """(clients, components) maximum-likelihood rows of each client in each component, by EM; counts = own @ overlap."""
    own = counts.copy()
    for _ in range(n_iter):
        own = own * (counts / np.maximum(own @ overlap, TINY) @ overlap.T)
    return own


def _permuted_counts(own: np.ndarray, overlap: np.ndarray, root: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(clients, components) noisy counts after permuting each component's holders; clients left without a row are dropped."""
    permuted = rng.permuted(own, axis=0)
    permuted = permuted[permuted.sum(1) >= 1]
    noise = rng.normal(size=permuted.shape) @ root.T
    return permuted @ overlap + np.sqrt(permuted.sum(1, keepdims=True)) * noise


# ---- how certain the number is ----


def resampled_sizes(counts: np.ndarray, within: np.ndarray, times: int, rng: np.random.Generator) -> dict[str, float]:
    """Number of clusters -> fraction of random subsets, of four fifths of the clients, in which it is found."""
    found: dict[str, float] = {}
    for _ in range(times):
        subset = rng.permutation(len(counts))[: max(1, len(counts) * 4 // 5)]
        size = str(count_directions(sums_of(counts[subset]), within) + 1)
        found[size] = found.get(size, 0.0) + 1 / times
    return found
