"""In how many directions clients differ more than chance would have it: one less than the number of clusters they mix.

When all rows are drawn alike, the clients' mean responsibilities, whitened by the covariance of one row's, are white noise, and the
logarithm of their largest eigenvalue follows the Tracy-Widom law (Roy's largest root). Clients that mix K clusters in their own shares
have K - 1 larger ones. Nothing here knows where an atom is, and nothing is fitted.
"""

from __future__ import annotations

import numpy as np

REDRAWN = 20  # times that holders change places: all must show more directions, so that chance has 1 in 21
QUANTILE = 2.02  # of the Tracy-Widom law, 99 %
SURE = 4.32  # 99.99 %: the first direction says whether clients differ at all, and is asked for in several ways
UNLIKELY = 1e-4  # the same, where it is a bound of the chance itself
# directions of less variance than so much of the largest are left out: fewer have a lower bar
CUTS = (1e-3, 1e-2, 1e-1, 0.3)


def count(counts: np.ndarray, within: np.ndarray) -> int:
    """How many directions stand out: counts (clients, atoms) of rows, within (atoms, atoms) the covariance of one row at a client."""
    away, free = deviations(counts), max(counts.sum() - len(counts), 1.0)
    variance, axes = np.linalg.eigh(within)
    rare = variance <= CUTS[0] * variance[-1]
    apart = _apart(away @ axes[:, rare], variance[rare], free)
    away, samples, found = away - apart @ (apart.T @ away), len(counts) - 1 - apart.shape[1], 0
    if samples < 1:
        return apart.shape[1]
    for cut in CUTS:
        kept = variance > max(cut * variance[-1], 1e-300)
        white = away @ axes[:, kept] / np.sqrt(variance[kept])
        roots, size = np.linalg.eigvalsh(white.T @ white), int(kept.sum())
        if size and roots.max() > edge(samples, size, free, SURE):
            found = max(found, int((roots > edge(samples, size, free)).sum()))
    return found + apart.shape[1]


def _apart(away: np.ndarray, variance: np.ndarray, free: float) -> np.ndarray:
    """(clients, b) orthonormal: how clients differ where rows of one client never do, or next to never; away is (clients, axes).

    Nothing is normal there, but half the square of two rows' distance is at most 1: were all rows drawn alike, its mean within clients
    would be as far below that of all rows with a chance below exp(-free (all - within + within log(within / all))) (Chernoff).
    """
    clients, length, axes = np.linalg.svd(away, full_matrices=False)
    inside = axes**2 @ np.maximum(variance, 0.0) + 1e-300
    every = (length**2 + free * inside) / (free + len(away) - 1)
    chance = free * (every - inside + inside * np.log(inside / every))
    return clients[:, (every > inside) & (chance > -np.log(UNLIKELY))]


def deviations(counts: np.ndarray) -> np.ndarray:
    """(clients, atoms) each client's counts less what it would have if all were alike, in standard errors of its size."""
    rows = np.maximum(counts.sum(1, keepdims=True), 1e-300)
    return (counts - rows * (counts.sum(0) / max(counts.sum(), 1e-300))) / np.sqrt(rows)


def within(counts: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """(atoms, atoms) covariance of one row's responsibilities about its client's, from their summed outer products."""
    rows = np.maximum(counts.sum(1, keepdims=True), 1e-300)
    free = max(counts.sum() - len(counts), 1.0)
    return (squares - (counts / np.sqrt(rows)).T @ (counts / np.sqrt(rows))) / free


def edge(samples: int, size: int, free: float, quantile: float = QUANTILE) -> float:
    """What the largest eigenvalue stays below, 99 times in 100 by default, where all is noise (Johnstone's approximation).

    The eigenvalues are those of a sum of `samples` squares in `size` directions, whitened by a covariance of `free` degrees of freedom.
    """
    if size == 0 or max(samples, size) > free:
        return np.inf
    total = free + samples - 1
    low, high = (2 * np.arcsin(np.sqrt((n - 0.5) / total)) for n in sorted((samples, size)))
    spread = (16 / total**2 / (np.sin(low + high) ** 2 * np.sin(low) * np.sin(high))) ** (1 / 3)
    return float(free * np.exp(2 * np.log(np.tan((low + high) / 2)) + quantile * spread))


# ---- components that the same clients hold ----


def together(counts: np.ndarray, within: np.ndarray, squares: np.ndarray, rng: np.random.Generator) -> bool:
    """Whether clients differ in fewer directions than if every component had holders of its own.

    That is tried out: each component's holders change places by themselves, and counts are drawn again, as overlapping as they are.
    """
    overlap = squares / np.maximum(squares.sum(1, keepdims=True), 1e-300)  # where a row of one component is counted
    own, (variance, axes) = _own(counts, overlap), np.linalg.eigh(within)
    root = axes * np.sqrt(np.maximum(variance, 0.0))  # (k, k)
    found = count(counts, within)
    return all(found < count(_redrawn(own, overlap, root, rng), within) for _ in range(REDRAWN))


def _own(counts: np.ndarray, overlap: np.ndarray, n_iter: int = 50) -> np.ndarray:
    """(clients, components) the rows each client has of each, before they overlap: EM for the likeliest."""
    own = counts.copy()
    for _ in range(n_iter):
        own = own * (counts / np.maximum(own @ overlap, 1e-300) @ overlap.T)
    return own


def _redrawn(own: np.ndarray, overlap: np.ndarray, root: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(clients, components) counts where each component's holders have changed places; clients left without a row are left out."""
    moved = rng.permuted(own, axis=0)
    moved = moved[moved.sum(1) >= 1]
    noise = rng.normal(size=moved.shape) @ root.T
    return moved @ overlap + np.sqrt(moved.sum(1, keepdims=True)) * noise


# ---- how sure ----


def resampled(counts: np.ndarray, within: np.ndarray, times: int, rng: np.random.Generator) -> dict[str, float]:
    """Number of clusters -> share of federations that find it, when a fifth of the clients is left out."""
    found: dict[str, float] = {}
    for _ in range(times):
        stay = rng.permutation(len(counts))[: max(1, len(counts) * 4 // 5)]
        size = str(count(counts[stay], within) + 1)
        found[size] = found.get(size, 0.0) + 1 / times
    return found
