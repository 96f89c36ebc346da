"""The number of directions in which clients differ, one less than the number of clusters they mix; sends nothing.

If all rows came from one distribution, the clients' mean responsibilities, whitened by the covariance of one row's, would be white
noise, and the logarithm of their largest eigenvalue would follow the Tracy-Widom distribution (Roy's largest root; Johnstone, 2008).
Clients that mix K clusters with weights of their own have K - 1 larger eigenvalues.
"""

from __future__ import annotations

import numpy as np

from unpooled.models.open_mixture.constants import N_PERMUTATIONS, P_SEPARATED, TINY, TW_99, TW_9999, VARIANCE_CUTS


def count_directions(counts: np.ndarray, within: np.ndarray) -> int:
    """The number of significant directions.

    counts is (clients, atoms), expected rows; within is (atoms, atoms), the covariance of one row's responsibilities at a client.
    """
    deviations, dof = standardised_deviations(counts), _degrees_of_freedom(counts)
    variance, axes = np.linalg.eigh(within)
    constant = variance <= VARIANCE_CUTS[0] * variance[-1]
    separated = _separated_directions(deviations @ axes[:, constant], variance[constant], dof)  # (clients, b)
    n_separated = separated.shape[1]
    n_samples = len(counts) - 1 - n_separated
    if n_samples < 1:
        return n_separated
    remaining = deviations - separated @ (separated.T @ deviations)
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
    whitened = deviations @ axes[:, used] / np.sqrt(variance[used])
    eigenvalues = np.linalg.eigvalsh(whitened.T @ whitened)
    if eigenvalues.max() <= largest_noise_eigenvalue(n_samples, size, dof, TW_9999):
        return 0
    return int((eigenvalues > largest_noise_eigenvalue(n_samples, size, dof)).sum())


def _separated_directions(deviations: np.ndarray, variance: np.ndarray, dof: float) -> np.ndarray:
    """(clients, b) orthonormal: directions in which clients differ while the rows of one client (almost) do not vary.

    There a normal approximation fails, but half the squared distance of two rows is at most 1. If all rows came from one distribution,
    its mean within clients would be this far below that of all rows with a probability below
    exp(-dof (all - within + within log(within / all))) (Chernoff's bound).
    """
    clients, length, axes = np.linalg.svd(deviations, full_matrices=False)
    within = axes**2 @ np.maximum(variance, 0.0) + TINY
    overall = (length**2 + dof * within) / (dof + len(deviations) - 1)
    exponent = dof * (overall - within + within * np.log(within / overall))
    return clients[:, (overall > within) & (exponent > -np.log(P_SEPARATED))]


def standardised_deviations(counts: np.ndarray) -> np.ndarray:
    """(clients, atoms) counts minus those expected if all clients were alike, divided by the square root of the client's rows."""
    rows = np.maximum(counts.sum(1, keepdims=True), TINY)
    expected = rows * (counts.sum(0) / max(counts.sum(), TINY))
    return (counts - expected) / np.sqrt(rows)


def within_covariance(counts: np.ndarray, products: np.ndarray) -> np.ndarray:
    """(atoms, atoms) covariance of one row's responsibilities about its client's mean, from the sum of their outer products."""
    rows = np.maximum(counts.sum(1, keepdims=True), TINY)
    scaled = counts / np.sqrt(rows)
    return (products - scaled.T @ scaled) / _degrees_of_freedom(counts)


def _degrees_of_freedom(counts: np.ndarray) -> float:
    """Rows minus clients."""
    return max(counts.sum() - len(counts), 1.0)


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
    found = count_directions(counts, within)
    permuted = (_permuted_counts(own, overlap, root, rng) for _ in range(N_PERMUTATIONS))
    return all(found < count_directions(redrawn, within) for redrawn in permuted)


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
        size = str(count_directions(counts[subset], within) + 1)
        found[size] = found.get(size, 0.0) + 1 / times
    return found
