"""The questions of FedGEM: GATHERs of local centres and of balls around them, one SUM of silhouettes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import GATHER, SUM, Client, client
from unpooled.errors import BadData
from unpooled.maths import local_mixture, mixture
from unpooled.maths.distances import squared
from unpooled.maths.mixture import Params, Stats
from unpooled.models.fedgem import balls
from unpooled.tree import message

MIN_ROWS = 1e-9  # keeps the mean of a component without rows finite
KMEANS_STARTS = 5


# ---- GATHER, once: where clients begin ----


@message("fedgem.Start")
class Start(NamedTuple):
    """A client's local k-means."""

    centre: Float[Array, "k d"]
    squares: Float[Array, "", ">=0"]  # squared distances of all rows to their centres
    rows: Float[Array, "", ">=0 rows"]


@client("fedgem.begin", GATHER, batched=False)
def begin(nothing: None, client: Client, *, sizes: dict, default: int, max_local: int, min_count: float) -> Start:
    """Centres of local k-means, as many as given for the client or else by BIC; fewer where one would have too few rows."""
    x = to_numpy(client.x).astype(float)
    w = to_numpy(client.w).astype(float)
    x, w = x[w > 0], w[w > 0]
    if w.sum() < min_count:
        raise BadData(f"client {client.name!r} has fewer than min_count={min_count:g} rows: nothing of it may leave")
    k = sizes.get(client.name, default)
    if not k:
        k = len(local_mixture.fit(x, w, client.rng, range(1, max_local + 1)).params.weights)
    labels = local_mixture.kmeans(x, w, k, client.rng, n_init=KMEANS_STARTS)
    while np.bincount(labels, w).min() < min_count:
        one_less = int(labels.max())
        labels = local_mixture.kmeans(x, w, one_less, client.rng, n_init=KMEANS_STARTS)
    r = np.eye(labels.max() + 1)[labels] * w[:, None]
    centre = r.T @ x / r.sum(0)[:, None]
    client.state["weights"] = r.sum(0) / r.sum()
    return Start(centre, np.asarray(w @ ((x - centre[labels]) ** 2).sum(1)), np.asarray(w.sum()))


# ---- GATHER, every round: local EM and balls ----


@message("fedgem.Guide")
class Guide(NamedTuple):
    """Sent to all clients; each takes its own centres from it."""

    variance: Float[Array, ""]
    centres: dict[str, Float[Array, "k d"]]


@message("fedgem.Balls")
class Balls(NamedTuple):
    """A client's components."""

    centre: Float[Array, "k d"]
    radius: Float[Array, "k", ">=0"]
    n: Float[Array, "k", ">=0 rows"]  # expected rows


@client("fedgem.local_step", GATHER, batched=False)
def local_step(guide: Guide, client: Client, *, radius: str, steps: int, min_count: float) -> Balls:
    """EM steps on the client's own components, and the ball around each centre in which the gain of the last step is kept.

    A component with fewer than min_count rows is dropped for good; the largest is always kept.
    """
    centre = guide.centres[client.name]
    weights = client.state["weights"]
    for _ in range(steps):
        before = centre
        stats = _e_step(client, weights, before, float(guide.variance))
        n = np.maximum(stats.n, MIN_ROWS)
        shift = stats.x / n[:, None]
        centre = before + shift
        weights = n / n.sum()
    sent = stats.n >= min(min_count, stats.n.max())
    client.state["weights"] = weights[sent] / weights[sent].sum()
    if radius == "exact":
        sizes = balls.exact_radius(centre, before)
    else:
        d = centre.shape[1]
        spread = np.maximum(d * stats.xx / n - (shift**2).sum(1), 0.0)  # mean squared distance of a row to its centre
        sizes = balls.conservative_radius(centre, before, spread)
    return Balls(centre[sent], sizes[sent], stats.n[sent])


def _e_step(client: Client, weights: Array, centre: Array, variance: float) -> Stats:
    """Statistics of an isotropic mixture with one variance, about its centres."""
    params = Params(weights, centre, np.full(len(centre), variance))
    return mixture.e_step(params, client.x, client.w, "spherical")


# ---- SUM, once: which final radius ----


@message("fedgem.CentreSets")
class CentreSets(NamedTuple):
    """The cluster centres that each candidate radius leads to."""

    sets: tuple[Float[Array, "k d"], ...]


@message("fedgem.Silhouettes")
class Silhouettes(NamedTuple):
    """Sums of silhouettes, one per set of centres."""

    total: Float[Array, "s"]  # sum over rows, for each set of centres
    rows: Float[Array, "", ">=0 rows"]


@client("fedgem.silhouettes", SUM, adds=True)
def silhouettes(down: CentreSets, client: Client) -> Silhouettes:
    """For each set of centres the sum over rows of the simplified silhouette."""
    totals = [(_simplified_silhouette(client.x, centres) * client.w).sum(-1) for centres in down.sets]
    return Silhouettes(np.stack(totals, axis=-1), client.w.sum(-1))


def _simplified_silhouette(x: Array, centres: Array) -> Array:
    """(..., n) (b - a) / b of each row: a is the distance to the nearest centre, b to the second; 0 with one centre."""
    if len(centres) < 2:
        return np.zeros(x.shape[:-1])
    two_nearest = np.sqrt(np.partition(squared(x, centres), 1, axis=-1)[..., :2])
    a = two_nearest[..., 0]
    b = two_nearest[..., 1]
    return (b - a) / np.maximum(b, 1e-300)
