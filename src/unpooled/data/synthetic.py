"""Synthetic data with known parameters, split into clients, for tests, benchmarks and figures.

>>> truth = mixture(1000, 3, 2, separation=4, clients=5, random_state=0)
>>> len(truth.clients), truth.means.shape
(5, (3, 2))
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.data import partition
from unpooled.data.partition import Seed
from unpooled.data.tables import numbered
from unpooled.errors import BadParameter, suggest


class Mixture(NamedTuple):
    """Rows by client and the mixture they were drawn from; covariances have scikit-learn's shape for their type."""

    clients: dict[str, np.ndarray]  # each (n, d), NaN is missing
    labels: dict[str, np.ndarray]  # each (n,): the component of each row
    weights: np.ndarray  # (k,)
    means: np.ndarray  # (k, d)
    covariances: np.ndarray  # full (k, d, d), tied (d, d), diag (k, d), spherical (k,)


def mixture(
    n: int,
    n_components: int = 3,
    n_features: int = 2,
    *,
    separation: float = 3.0,
    conditioning: float = 10.0,
    covariance_type: str = "full",
    clients: int = 1,
    alpha: float | None = None,
    missing: float = 0.0,
    random_state: Seed = None,
) -> Mixture:
    """A Gaussian mixture whose nearest components are exactly `separation` standard deviations apart.

    `conditioning` is the ratio of the largest to the smallest variance in each component (between components, where
    they are spherical). Rows are divided evenly, or by Dirichlet(`alpha`) shares of each component. `missing` is the
    share of NaN.
    """
    if separation < 0 or conditioning < 1:
        raise BadParameter(f"separation={separation} should be 0 or more and conditioning={conditioning} 1 or more")
    rng = np.random.default_rng(random_state)
    weights = rng.dirichlet(np.full(n_components, 10.0))
    covariances = _covariances(covariance_type, n_components, n_features, conditioning, rng)
    full = as_full(covariances, covariance_type, n_components, n_features)
    means = _means(full, separation, rng)
    labels = rng.choice(n_components, n, p=weights)
    x = _draw(labels, means, full, rng)
    x = _with_gaps(x, missing, rng=rng)
    rows = _rows(labels, clients, alpha, rng)
    by_client = {name: x[mine] for name, mine in rows.items()}
    their_labels = {name: labels[mine] for name, mine in rows.items()}
    return Mixture(by_client, their_labels, weights, means, covariances)


def separation_of(means: np.ndarray, covariances: np.ndarray) -> np.ndarray:
    """Mahalanobis distances between components under the average covariance of the two, (k, k); inf on the diagonal."""
    k = len(means)
    difference = means[:, None] - means[None]  # (k, k, d)
    average = (covariances[:, None] + covariances[None]) / 2  # (k, k, d, d)
    squared = (difference * np.linalg.solve(average, difference[..., None])[..., 0]).sum(-1)
    return np.where(np.eye(k, dtype=bool), np.inf, np.sqrt(np.maximum(squared, 0)))


def as_full(covariances: np.ndarray, covariance_type: str, k: int, d: int) -> np.ndarray:
    """Covariances of any type as (k, d, d)."""
    if covariance_type == "diag":
        return covariances[:, :, None] * np.eye(d)
    if covariance_type == "spherical":
        return covariances[:, None, None] * np.eye(d)
    return np.broadcast_to(covariances, (k, d, d))


def missing(
    x: np.ndarray, share: float, patterns: int | None = None, rng: np.random.Generator | int | None = None
) -> np.ndarray:
    """A copy with about `share` of its cells NaN: independently, or by row with one of `patterns` masks.

    No row loses all its cells.
    """
    if not 0 <= share < 1:
        raise BadParameter(f"share={share} should be at least 0 and below 1")
    rng = np.random.default_rng(rng)
    n, d = x.shape
    if patterns is None:
        absent = rng.random((n, d)) < share
        empty = np.flatnonzero(absent.all(1))
        absent[empty, rng.integers(d, size=len(empty))] = False
    else:
        absent = _patterns(patterns, d, share, rng)[rng.integers(patterns, size=n)]
    return np.where(absent, np.nan, x)


_with_gaps = missing  # for `mixture`, whose parameter `missing` hides this name


# ---- helpers ----


def _draw(labels: np.ndarray, means: np.ndarray, covariances: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One row per label from the normal distribution of that label."""
    x = rng.standard_normal((len(labels), means.shape[1]))
    for k, root in enumerate(np.linalg.cholesky(covariances)):
        rows = labels == k
        x[rows] = means[k] + x[rows] @ root.T
    return x


def _rows(labels: np.ndarray, clients: int, alpha: float | None, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """The rows of each client."""
    if alpha is None:
        owner = partition.iid(len(labels), clients, random_state=rng)
    else:
        owner = partition.dirichlet(labels, clients, alpha, random_state=rng)
    ends = np.cumsum(np.bincount(owner, minlength=clients))[:-1]
    return dict(zip(numbered(clients), np.split(np.argsort(owner, kind="stable"), ends)))


def _patterns(count: int, d: int, share: float, rng: np.random.Generator) -> np.ndarray:
    """Different masks with share * d cells missing on average, never all; (count, d) bool."""
    size = np.minimum(np.floor(share * d + rng.random(20 * count)), d - 1)
    place = np.argsort(rng.random((20 * count, d)), axis=1)
    masks = np.unique(place < size[:, None], axis=0)
    if len(masks) < count:
        raise BadParameter(f"patterns={count} are too many for {d} columns with a share of {share}: ask for fewer")
    return masks[rng.permutation(len(masks))[:count]]


def _covariances(kind: str, k: int, d: int, conditioning: float, rng: np.random.Generator) -> np.ndarray:
    """Covariances of `k` clusters in the shape `kind`, with eigenvalues that differ by `conditioning`."""

    def spread(size: int) -> np.ndarray:  # variances between 1 / sqrt(conditioning) and its inverse
        return conditioning ** np.linspace(-0.5, 0.5, size) if size > 1 else np.ones(1)

    def rotated() -> np.ndarray:  # (d, d)
        """A covariance with a random basis."""
        q = np.linalg.qr(rng.standard_normal((d, d)))[0]
        cov = (q * spread(d)) @ q.T
        return (cov + cov.T) / 2

    kinds = {
        "full": lambda: np.stack([rotated() for _ in range(k)]),
        "tied": rotated,
        "diag": lambda: np.stack([rng.permutation(spread(d)) for _ in range(k)]),
        "spherical": lambda: rng.permutation(spread(k)),
    }
    if kind not in kinds:
        raise BadParameter(f"covariance_type={kind!r} is not known: {suggest(kind, kinds)}")
    return kinds[kind]()


def _means(covariances: np.ndarray, separation: float, rng: np.random.Generator) -> np.ndarray:
    """Centres scaled so that the nearest pair is `separation` apart: of 20 draws the most even one; (k, d)."""
    k, d = covariances.shape[:2]
    draws = [rng.standard_normal((k, d)) for _ in range(20)]
    if k == 1:
        return draws[0]
    nearest = [separation_of(m, covariances).min() / np.linalg.norm(m) for m in draws]
    best = draws[int(np.argmax(nearest))]
    return best * (separation / separation_of(best, covariances).min())
