"""In how many directions clients differ more than chance would have it: one less than the number of clusters they mix.

When all rows are drawn alike, the clients' mean responsibilities, whitened by the covariance of one row's, are white noise, and their
largest eigenvalue follows the Tracy-Widom law. Clients that mix K clusters in their own shares add up to K - 1 larger ones. Nothing
here knows where an atom is, and nothing is fitted.
"""

from __future__ import annotations

import numpy as np

QUANTILE = 2.02  # of the Tracy-Widom law, 99 %
CUTS = (1e-3, 1e-2, 1e-1)  # directions of less variance, relative to the largest, are left out: fewer have a lower bar


def count(counts: np.ndarray, within: np.ndarray) -> int:
    """How many directions stand out: counts (clients, atoms) of rows, within (atoms, atoms) the covariance of one row at a client."""
    if len(counts) < 3:
        return 0
    away = deviations(counts)
    variance, axes = np.linalg.eigh(within)
    found = 0
    for cut in CUTS:
        kept = variance > cut * max(variance[-1], 1e-300)
        white = away @ axes[:, kept] / np.sqrt(variance[kept])
        found = max(found, int((np.linalg.svd(white, compute_uv=False) ** 2 > edge(len(counts) - 1, kept.sum())).sum()))
    return found


def deviations(counts: np.ndarray) -> np.ndarray:
    """(clients, atoms) each client's counts less what it would have if all were alike, in standard errors of its size."""
    rows = np.maximum(counts.sum(1, keepdims=True), 1e-300)
    return (counts - rows * (counts.sum(0) / counts.sum())) / np.sqrt(rows)


def within(counts: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """(atoms, atoms) covariance of one row's responsibilities about its client's, from their summed outer products."""
    rows = np.maximum(counts.sum(1, keepdims=True), 1e-300)
    free = max(counts.sum() - len(counts), 1.0)
    return (squares - (counts / np.sqrt(rows)).T @ (counts / np.sqrt(rows))) / free


def edge(samples: int, size: int) -> float:
    """What the largest eigenvalue of white noise (samples x size), not divided by the samples, stays below 99 times in 100."""
    root = np.sqrt(max(samples - 1, 1)) + np.sqrt(size)
    spread = root * (1 / np.sqrt(max(samples - 1, 1)) + 1 / np.sqrt(size)) ** (1 / 3)
    return float(root**2 + QUANTILE * spread)


def resampled(counts: np.ndarray, within: np.ndarray, times: int, rng: np.random.Generator) -> dict[str, float]:
    """Number of clusters -> share of federations that find it, when a fifth of the clients is left out."""
    found: dict[str, float] = {}
    for _ in range(times):
        stay = rng.permutation(len(counts))[: max(1, len(counts) * 4 // 5)]
        size = str(count(counts[stay], within) + 1)
        found[size] = found.get(size, 0.0) + 1 / times
    return found
