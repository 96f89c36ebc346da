"""Where a mixture starts, from clusters of each client: one GATHER of local k-means centres (the idea of k-FED).

A client sends the count, the mean and the sum of squares of each of its clusters. A cluster of fewer than `min_count` rows is not sent,
since the mean of very few rows is nearly a row.

References
----------
Dennis, Li, Smith (2021), Heterogeneity for the win: one-shot federated clustering, ICML.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import GATHER, Ask, Client, client
from unpooled.federation import Federation
from unpooled.maths import gaussian
from unpooled.maths.mixture import Params
from unpooled.models.initialization.column_frame import Frame
from unpooled.tree import message

MAX_ROWS = 10_000  # of a client that its k-means is fitted to
MAX_CLIENTS = 500  # that are asked for centres


@message("initialization.Centres")
class Centres(NamedTuple):
    """Clusters in the standardised frame."""

    n: Float[Array, "m", ">=0 rows"]
    x: Float[Array, "m d"]  # means
    xx: Float[Array, "m d", ">=0"]  # sum of squares within the cluster


@client("initialization.local_centres", GATHER, batched=False)
def local_centres(frame: Frame, client: Client, *, k: int, min_count: float) -> Centres:
    """The size, mean and spread of each local cluster that is large enough to leave."""
    x, w = _standardised_sample(frame, client)
    labels = _cluster(x, w, k, client.rng)
    member = (labels[:, None] == np.arange(labels.max(initial=-1) + 1)) * w[:, None]  # (rows, clusters)
    enough = member.sum(0) >= max(min_count, 1e-300)
    member = member[:, enough]
    n = member.sum(0)
    means = member.T @ x / n[:, None]
    within = np.maximum(member.T @ x**2 - n[:, None] * means**2, 0.0)
    return Centres(n, means, within)


def centres(fed: Federation, frame: Any, k: int, min_count: float, question: Ask = local_centres) -> Centres:
    """All local clusters of a cohort of clients, as one list; `question` is asked with `frame`."""
    share = min(1.0, MAX_CLIENTS / len(fed.names))
    ask = question.using(k=k, min_count=min_count if len(fed.names) > 1 else 0.0)
    answers = fed.sample(share, fed.journal.rng).gather(ask, frame)
    in_order = [answers[name] for name in sorted(answers)]
    return Centres(*map(np.concatenate, zip(*in_order)))


def cluster_centres(found: Centres, k: int, rng: np.random.Generator) -> Centres:
    """The local clusters grouped into k; an empty group is drawn from the standardised frame."""
    labels = _cluster(found.x, found.n, k, rng)
    member = (labels[:, None] == np.arange(k)).astype(float)  # (clusters, groups)
    n = found.n @ member
    filled = (n > 0)[:, None]
    safe = np.where(n > 0, n, 1.0)
    group_means = (member * found.n[:, None]).T @ found.x / safe[:, None]
    means = np.where(filled, group_means, rng.normal(size=(k, found.x.shape[1])))
    between = member.T @ (found.n[:, None] * (found.x - means[labels]) ** 2) if len(labels) else 0.0
    within = np.where(filled, member.T @ found.xx + between, 1.0)
    return Centres(safe, means, within)


def from_centres(frame: Frame, found: Centres, shape: str) -> Params:
    """A mixture whose components are k clusters of the standardised frame."""
    variances = frame.scale**2 * (found.xx / found.n[:, None] + 1e-3)
    return Params(found.n / found.n.sum(), frame.mean + frame.scale * found.x, _packed(variances, shape))


def random_means(frame: Frame, k: int, rng: np.random.Generator) -> np.ndarray:
    """Means drawn from the normal distribution of all rows."""
    return frame.mean + frame.scale * rng.normal(size=(k, len(frame.mean)))


def wide(frame: Frame, means: np.ndarray, shape: str) -> Params:
    """Components at these means, of equal weights, each with the variances of all rows."""
    k = len(means)
    return Params(np.full(k, 1 / k), means, _packed(np.tile(frame.scale**2, (k, 1)), shape))


def override(params: Params, weights: Any, precisions: Any, shape: str) -> Params:
    """The same start with the weights or precisions that the user gave."""
    if weights is not None:
        params = params._replace(weights=np.asarray(weights, dtype=float))
    if precisions is not None:
        given = np.asarray(precisions, dtype=float)
        covs = np.linalg.inv(given) if shape in ("full", "tied") else 1 / given
        params = params._replace(covs=gaussian.pack_covs(covs, shape))
    return params


def _packed(variances: np.ndarray, shape: str) -> np.ndarray:  # (k, d)
    """Variances (k, d) as packed covariances of this shape."""
    covs = variances[:, :, None] * np.eye(variances.shape[1])
    return gaussian.pack_covs(gaussian.reshape_covs(covs, shape), shape)


def _cluster(x: np.ndarray, w: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """k-means labels of weighted points; fewer points than k are a cluster each."""
    points, point_of = np.unique(x, axis=0, return_inverse=True)  # so that neither order nor repetition of rows matters
    point_of = point_of.reshape(-1)
    if len(points) <= k:
        return point_of
    from sklearn.cluster import KMeans

    seed = int(rng.integers(2**31 - 1))
    weights = np.bincount(point_of, w, len(points))
    fitted = KMeans(k, n_init=3, max_iter=50, random_state=seed).fit(points, sample_weight=weights)
    return fitted.labels_[point_of]


def _standardised_sample(frame: Frame, client: Client) -> tuple[np.ndarray, np.ndarray]:
    """Some rows of positive weight, standardised, missing values at the mean."""
    w = to_numpy(client.w).astype(np.float64)
    rows = np.flatnonzero(w > 0)
    if len(rows) > MAX_ROWS:
        rows = np.sort(client.rng.choice(rows, MAX_ROWS, replace=False))
    x = to_numpy(client.x[rows]).astype(np.float64)
    return np.nan_to_num((x - frame.mean) / frame.scale), w[rows]
