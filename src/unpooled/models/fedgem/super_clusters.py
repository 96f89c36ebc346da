"""What FedGEM's server does with all clients' balls: move centres towards each other, and join them to super-clusters; sends nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree
from scipy.spatial.distance import pdist

from unpooled.arrays import to_numpy
from unpooled.models.fedgem import balls
from unpooled.models.fedgem.questions import MIN_ROWS, Balls
from unpooled.tree import message


@message("fedgem.AllBalls")
class AllBalls(NamedTuple):
    """All clients' components in one list."""

    names: list[str]  # clients
    owner: np.ndarray  # (m,) index into names
    centre: np.ndarray  # (m, d)
    radius: np.ndarray  # (m,)
    n: np.ndarray  # (m,)

    def by_client(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """Client -> the values of its components."""
        return {name: values[self.owner == c] for c, name in enumerate(self.names)}


def all_balls(answers: Mapping[str, Balls]) -> AllBalls:
    """The clients' answers in one list, in the order of their names."""
    names = sorted(answers)
    parts = [answers[name] for name in names]
    owner = np.repeat(np.arange(len(names)), [len(p.n) for p in parts])
    balls = Balls(*(np.concatenate([to_numpy(a) for a in field]) for field in zip(*parts)))
    return AllBalls(names, owner, balls.centre, balls.radius, balls.n)


def moved_centres(found: AllBalls) -> np.ndarray:
    """(m, d) each centre averaged with the points at which its ball overlaps others of its super-cluster."""
    i, j, distance = balls.overlaps(found.centre, found.radius, found.owner)
    label = balls.super_clusters(i, j, found.owner)
    same = label[i] == label[j]
    i = i[same]
    j = j[same]
    distance = distance[same]
    centre = found.centre
    radius = found.radius
    points = balls.common_points(centre[i], radius[i], centre[j], radius[j], distance)
    total = np.array(centre)
    count = np.ones(len(centre))
    for ends in (i, j):
        np.add.at(total, ends, points)
        np.add.at(count, ends, 1)
    return total / count[:, None]


def final_labels(found: AllBalls, factor: float) -> np.ndarray:
    """(m,) the super-cluster of each component, from balls with the final radius."""
    i, j, _ = balls.overlaps(found.centre, final_radius(found, factor), found.owner)
    return balls.super_clusters(i, j, found.owner)


def final_radius(found: AllBalls, factor: float) -> np.ndarray:
    """(m,) factor R K / sqrt(N) for each component: R is the smallest distance between its client's K centres, N the client's rows.

    The authors' code uses this length as a squared radius, so that its clusters depend on the unit of measurement.
    """
    out = np.empty(len(found.n))
    separation = _separation(found)
    for c in range(len(found.names)):
        own = found.owner == c
        out[own] = factor * separation[c] * own.sum() / np.sqrt(max(found.n[own].sum(), 1.0))
    return out


def _separation(found: AllBalls) -> np.ndarray:
    """(clients,) the smallest distance between a client's own centres.

    For a client with one centre it is the median over the other clients; if all have one, the median distance to the nearest centre.
    """
    centres = list(found.by_client(found.centre).values())
    smallest = np.array([pdist(own).min() if len(own) > 1 else np.nan for own in centres])
    has_one = np.isnan(smallest)
    if not has_one.all():
        return np.where(has_one, np.nanmedian(smallest), smallest)
    if len(centres) == 1:
        return np.ones(1)
    to_nearest = cKDTree(found.centre).query(found.centre, k=2)[0][:, 1]
    return np.full(len(centres), np.median(to_nearest))


def cluster_centres(found: AllBalls, label: np.ndarray) -> np.ndarray:
    """(k, d) the mean centre of each super-cluster, weighted by rows."""
    rows = found.n + MIN_ROWS
    total = np.stack([np.bincount(label, rows * column) for column in found.centre.T], axis=1)
    return total / np.bincount(label, rows)[:, None]
