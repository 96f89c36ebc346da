"""FedGEM's geometry: how far a centre may move without loss, which balls overlap, and where; sends nothing."""

from __future__ import annotations

import numpy as np

CHUNK = 512  # rows of the distance table in memory at a time


def exact_radius(centre: np.ndarray, before: np.ndarray) -> np.ndarray:
    """(k,) the largest radius within which the expected log-likelihood is not below its value before the EM step.

    For isotropic components it falls by n |mu - centre|^2 / 2 around its maximiser, so the ball reaches exactly to the old centre.
    """
    return np.linalg.norm(centre - before, axis=-1)


def conservative_radius(centre: np.ndarray, before: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """(k,) the smaller radius of the authors' robust optimisation problem; `spread` is the mean of |x - centre|^2."""
    moved = ((centre - before) ** 2).sum(-1)
    return np.sqrt(spread + moved) - np.sqrt(spread)


def overlaps(centre: np.ndarray, radius: np.ndarray, owner: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(i, j, distance), i < j: the pairs of overlapping balls of different owners, nearest centres first."""
    found = []
    squares = (centre**2).sum(1)
    for start in range(0, len(centre), CHUNK):
        rows = slice(start, start + CHUNK)
        distance = np.sqrt(np.maximum(squares[rows, None] + squares - 2 * centre[rows] @ centre.T, 0.0))
        overlap = (distance <= radius[rows, None] + radius) & (owner[rows, None] != owner)
        i, j = np.nonzero(overlap)
        later = j > i + start
        found.append((i[later] + start, j[later], distance[i[later], j[later]]))
    i, j, distance = (np.concatenate(parts) for parts in zip(*found))
    order = np.argsort(distance, kind="stable")
    return i[order], j[order], distance[order]


def common_points(
    first: np.ndarray, radius: np.ndarray, second: np.ndarray, other_radius: np.ndarray, distance: np.ndarray
) -> np.ndarray:
    """(p, d) the point in both balls nearest to the midpoint of their centres, for overlapping pairs."""
    distance = np.maximum(distance, 1e-300)
    fraction = np.clip(0.5, 1 - other_radius / distance, radius / distance)
    return first + fraction[:, None] * (second - first)


def super_clusters(i: np.ndarray, j: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """(m,) labels: pairs are joined in the given order, unless a cluster would hold two balls of one owner."""
    root = list(range(len(owner)))
    holds = [1 << int(o) for o in owner]  # owners as a bit mask: intersection is one operation

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
