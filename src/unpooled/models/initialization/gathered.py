"""Where a mixture starts: two SUMs for the columns' means and variances, one GATHER of local k-means centres (k-FED's idea).

What leaves: per column a count, a sum and a sum of squares; and per local cluster its count, mean and spread. A cluster of fewer
than `min_count` rows does not leave, since the mean of very few rows is nearly a row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, namespace, to_numpy
from unpooled.client import GATHER, SUM, Client, client
from unpooled.errors import BadData
from unpooled.federation import Federation
from unpooled.maths import gaussian
from unpooled.maths.mixture import Params
from unpooled.tree import message

MAX_ROWS = 10_000  # a client's k-means looks at this many of its rows at most
MAX_CLIENTS = 500  # and this many clients are asked for centres at most
ROUNDING = 1e-13  # a column whose standard deviation is a smaller share of its mean has one value
FLOOR = 1e-12  # of the largest variance: that of a column of one value


@message("initialization.Look")
class Look(NamedTuple):
    """A first look at a table."""

    rows: Float[Array, "", ">=0 rows"]
    seen: Float[Array, "d", ">=0 rows"]  # values that are not missing
    x: Float[Array, "d"]


@message("initialization.Centre")
class Centre(NamedTuple):
    """The mean about which squares are summed."""

    mean: Float[Array, "d"]


@message("initialization.Spread")
class Spread(NamedTuple):
    """Sums of squares about the centre."""

    xx: Float[Array, "d", ">=0"]  # sum of squares about the centre


@message("initialization.Frame")
class Frame(NamedTuple):
    """The federation's mean and standard deviation of each column, and how many rows there are."""

    mean: Float[Array, "d"]
    scale: Float[Array, "d"]
    rows: Float[Array, ""]


@message("initialization.Centres")
class Centres(NamedTuple):
    """Local clusters in the standardised frame."""

    n: Float[Array, "m", ">=0 rows"]
    x: Float[Array, "m d"]
    xx: Float[Array, "m d", ">=0"]  # sum of squares within the cluster


@client("initialization.look", SUM, adds=True)
def look(nothing: None, client: Client) -> Look:
    """How many rows there are, and of each column how many values and their sum."""
    xp = namespace(client.x)
    seen, x = _seen(client.x, client.w)
    return Look(double(client.w.sum(-1)), double(seen.sum(-2)), double((seen * xp.nan_to_num(x)).sum(-2)))


@client("initialization.spread", SUM, adds=True)
def spread(centre: Centre, client: Client) -> Spread:
    """The sum of squares of each column about the mean of all clients."""
    xp = namespace(client.x)
    seen, x = _seen(client.x, client.w)
    away = xp.nan_to_num(x - xp.asarray(centre.mean, dtype=x.dtype, **_device(x)))
    return Spread(double((seen * away**2).sum(-2)))


@client("initialization.local_centres", GATHER, batched=False)
def local_centres(frame: Frame, client: Client, *, k: int, min_count: float) -> Centres:
    """The size, mean and spread of each local cluster that is large enough to leave."""
    x, w = _standardised_sample(frame, client)
    labels = _cluster(x, w, k, client.rng)
    one_hot = (labels[:, None] == np.arange(labels.max(initial=-1) + 1)) * w[:, None]
    n = one_hot.sum(0)
    one_hot, n = one_hot[:, n >= max(min_count, 1e-300)], n[n >= max(min_count, 1e-300)]
    means = one_hot.T @ x / n[:, None]
    within = np.maximum(one_hot.T @ x**2 - n[:, None] * means**2, 0.0)
    return Centres(n, means, within)


def frame(fed: Federation) -> Frame:
    """Mean and standard deviation of every column over all clients, exact far from the origin too: two SUMs."""
    first = fed.sum(look, None)
    seen = to_numpy(first.seen)
    if (seen == 0).any():
        raise BadData(f"column {int(np.argmin(seen))} holds no value at any client: drop it")
    mean = to_numpy(first.x) / seen
    second = fed.sum(spread, Centre(mean))
    variance = to_numpy(second.xx) / seen
    return Frame(mean, np.sqrt(without_constants(variance, mean)), np.asarray(float(first.rows)))


def without_constants(variance: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """The variances, with a small one for columns of one value; columns may have units of any size beside each other."""
    constant = variance <= (ROUNDING * mean) ** 2
    return np.where(constant, FLOOR * variance.max(initial=0.0) or 1.0, variance)


def centres(fed: Federation, frame: Frame, k: int, min_count: float) -> Centres:
    """All local clusters of a cohort of clients, as one list."""
    share = min(1.0, MAX_CLIENTS / len(fed.names))
    ask = local_centres.using(k=k, min_count=min_count if len(fed.names) > 1 else 0.0)
    answers = fed.sample(share, fed.journal.rng).gather(ask, frame)
    return Centres(*(np.concatenate(parts) for parts in zip(*(answers[name] for name in sorted(answers)))))


def cluster_centres(found: Centres, k: int, rng: np.random.Generator) -> Centres:
    """The local clusters grouped into k; a group that nobody fills is drawn from the standardised frame."""
    labels = _cluster(found.x, found.n, k, rng)
    one_hot = (labels[:, None] == np.arange(k)).astype(float)
    n = found.n @ one_hot
    filled = n > 0
    safe = np.where(filled, n, 1.0)[:, None]
    means = np.where(
        filled[:, None], (one_hot * found.n[:, None]).T @ found.x / safe, rng.normal(size=(k, found.x.shape[1]))
    )
    between = one_hot.T @ (found.n[:, None] * (found.x - means[labels]) ** 2) if len(labels) else 0.0
    within = np.where(filled[:, None], one_hot.T @ found.xx + between, 1.0)
    return Centres(np.where(filled, n, 1.0), means, within)


def from_centres(frame: Frame, found: Centres, shape: str) -> Params:
    """A mixture whose components are k clusters of the standardised frame."""
    variances = frame.scale**2 * (found.xx / found.n[:, None] + 1e-3)
    return Params(found.n / found.n.sum(), frame.mean + frame.scale * found.x, _packed(variances, shape))


def random_means(frame: Frame, k: int, rng: np.random.Generator) -> np.ndarray:
    """Means drawn from the normal distribution of all rows."""
    return frame.mean + frame.scale * rng.normal(size=(k, len(frame.mean)))


def wide(frame: Frame, means: np.ndarray, shape: str) -> Params:
    """Components at these means, alike in weight, each as wide as all the rows."""
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
    points, place = np.unique(x, axis=0, return_inverse=True)  # so that neither order nor repetition of rows matters
    place = place.reshape(-1)
    if len(points) <= k:
        return place
    from sklearn.cluster import KMeans

    seed = int(rng.integers(2**31 - 1))
    weights = np.bincount(place, w, len(points))
    return KMeans(k, n_init=3, max_iter=50, random_state=seed).fit(points, sample_weight=weights).labels_[place]


def _standardised_sample(frame: Frame, client: Client) -> tuple[np.ndarray, np.ndarray]:
    """Some rows of positive weight, standardised, missing values at the mean."""
    w = to_numpy(client.w).astype(np.float64)
    rows = np.flatnonzero(w > 0)
    if len(rows) > MAX_ROWS:
        rows = np.sort(client.rng.choice(rows, MAX_ROWS, replace=False))
    x = to_numpy(client.x[rows]).astype(np.float64)
    return np.nan_to_num((x - frame.mean) / frame.scale), w[rows]


def _seen(x: Array, w: Array) -> tuple[Array, Array]:
    """(row weight where a value is there, x in float64)."""
    xp = namespace(x)
    x = double(x)
    return (~xp.isnan(x)) * double(w)[..., None], x


def double(a: Array) -> Array:
    """The array in 64 bit floats."""
    xp = namespace(a)
    return a.to(xp.float64) if xp is not np else np.asarray(a, dtype=np.float64)


def _device(a: Array) -> dict:
    """The keyword that puts new tensors where `a` is."""
    return {"device": a.device} if namespace(a) is not np else {}
