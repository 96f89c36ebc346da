"""Metrics of clusterings over all rows together (pooled) and within each client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score, silhouette_score

from unpooled.errors import BadData

Labels = Mapping[str, Any]  # client -> (n,)


class Scores(NamedTuple):
    """Agreement of found with true clusters, over all rows and within clients."""

    pooled_ari: float
    client_ari: float  # mean over clients, weighted by rows
    pooled_nmi: float
    client_nmi: float
    k: int  # clusters found
    k_error: int  # clusters found minus true clusters


def score(truth: Labels, found: Labels) -> Scores:
    """Scores of found labels against true labels, by client; labels have the same meaning at all clients."""
    names = sorted(truth)
    if sorted(found) != names or any(len(truth[n]) != len(found[n]) for n in names):
        raise BadData("truth and found must name the same clients, with one label for each row")
    y = [np.asarray(truth[name]) for name in names]
    z = [np.asarray(found[name]) for name in names]
    rows = [len(a) for a in y]
    all_y = np.concatenate(y)
    all_z = np.concatenate(z)
    k = len(np.unique(all_z))
    return Scores(
        float(adjusted_rand_score(all_y, all_z)),
        float(np.average([adjusted_rand_score(*pair) for pair in zip(y, z)], weights=rows)),
        float(normalized_mutual_info_score(all_y, all_z)),
        float(np.average([normalized_mutual_info_score(*pair) for pair in zip(y, z)], weights=rows)),
        k,
        k - len(np.unique(all_y)),
    )


def silhouette(x: np.ndarray, labels: np.ndarray, *, sample: int = 2000, random_state: Any = 0) -> float:
    """Mean silhouette of a sample of rows; 0 if there is one cluster, or one per row."""
    rng = np.random.default_rng(random_state)
    rows = rng.choice(len(x), min(sample, len(x)), replace=False)
    found = len(np.unique(labels[rows]))
    return float(silhouette_score(x[rows], labels[rows])) if 1 < found < len(rows) else 0.0


def label_centres(x: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(k, d) the mean of the rows of each label, in the order of labels; for methods that return labels only."""
    place, n = np.unique(labels, return_inverse=True, return_counts=True)[1:]
    return np.stack([np.bincount(place, column) for column in np.asarray(x, dtype=float).T], axis=1) / n[:, None]


class CentreError(NamedTuple):
    """How found centres match true ones."""

    matched: float  # mean distance of matched pairs
    missed: int  # true centres without a match
    extra: int  # found centres without a match


def centre_error(true: np.ndarray, found: np.ndarray) -> CentreError:
    """Errors of found centres, matched to true ones with the smallest total distance."""
    distances = np.linalg.norm(np.asarray(true)[:, None] - np.asarray(found), axis=-1)
    i, j = linear_sum_assignment(distances)
    error = float(distances[i, j].mean())
    return CentreError(error, len(true) - len(i), len(found) - len(j))
