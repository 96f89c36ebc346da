"""Balls around estimates: how far an estimate may move without loss, which balls meet, and where (FedGEM's geometry)."""

from __future__ import annotations

import numpy as np

CHUNK = 512  # rows of the distance table in memory at a time


def exact_radius(centre: np.ndarray, before: np.ndarray) -> np.ndarray:
    """(k,) the largest ball around the maximiser in which an isotropic expected log-likelihood is not below its value before.

    It falls by n |mu - centre|^2 / 2 around its maximiser, so the ball reaches exactly to where the estimate was.
    """
    return np.linalg.norm(centre - before, axis=-1)


def conservative_radius(centre: np.ndarray, before: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """(k,) the smaller ball that robust optimisation over all rows at once guarantees; `spread` is the mean of |x - centre|^2."""
    moved = ((centre - before) ** 2).sum(-1)
    return np.sqrt(spread + moved) - np.sqrt(spread)


def meetings(centre: np.ndarray, radius: np.ndarray, owner: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(i, j, distance), i < j: the pairs of balls of different owners that meet, nearest centres first."""
    found = []
    squares = (centre**2).sum(1)
    for start in range(0, len(centre), CHUNK):
        rows = slice(start, start + CHUNK)
        apart = np.sqrt(np.maximum(squares[rows, None] + squares - 2 * centre[rows] @ centre.T, 0.0))
        meet = (apart <= radius[rows, None] + radius) & (owner[rows, None] != owner)
        i, j = np.nonzero(meet)
        later = j > i + start
        found.append((i[later] + start, j[later], apart[i[later], j[later]]))
    i, j, apart = (np.concatenate(parts) for parts in zip(*found))
    order = np.argsort(apart, kind="stable")
    return i[order], j[order], apart[order]


def meeting_points(
    first: np.ndarray, radius: np.ndarray, second: np.ndarray, other_radius: np.ndarray, apart: np.ndarray
) -> np.ndarray:
    """(p, d) the point in both balls nearest to the middle between their centres, for pairs that meet."""
    apart = np.maximum(apart, 1e-300)
    share = np.clip(0.5, 1 - other_radius / apart, radius / apart)
    return first + share[:, None] * (second - first)


def super_clusters(i: np.ndarray, j: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """(m,) labels: balls joined pair by pair in the order given, as long as no cluster holds two balls of one owner."""
    root = list(range(len(owner)))
    holds = [1 << int(o) for o in owner]  # owners as bits of one number: an intersection is one operation

    def find(a: int) -> int:
        while root[a] != a:
            root[a] = root[root[a]]
            a = root[a]
        return a

    for a, b in zip(i.tolist(), j.tolist()):
        a, b = find(a), find(b)
        if a != b and not holds[a] & holds[b]:
            root[b] = a
            holds[a] |= holds[b]
    return np.unique([find(a) for a in range(len(root))], return_inverse=True)[1]
