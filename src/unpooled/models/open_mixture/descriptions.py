"""GATHER `describe`: one partition of each client's rows, as counts and means of small clusters and scatters of larger ones.

The rows are divided among the components of a local mixture, and those of each component among k-means centres. So a component is the
sum of its centres, and every difference of two sums stands for whole centres, of at least `min_count` rows. Two partitions of the same
rows would show rows: clusters that differ by one. For the same reason a client divides its rows as they are, with the same random
numbers in every fit: when it describes them again, without an offset and scale that were found, or in another fit with another
`random_state`, the clusters have the same rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, Int, to_numpy
from unpooled.client import GATHER, Client, client
from unpooled.maths import gaussian, local_mixture
from unpooled.models.open_mixture.constants import MIN_CENTRES, MIN_ROWS_PER_CENTRE, PARTITION_SEED, ROWS_PER_CENTRE
from unpooled.models.open_mixture.gaps import filled
from unpooled.models.open_mixture.questions import MIN_POSITIVE, scaled_rows, without_offset
from unpooled.tree import message


@message("open_mixture.Description")
class Description(NamedTuple):
    """A client's rows in summary: centres, and the components of a local mixture that they divide."""

    n: Float[Array, "m", ">=0 rows"]  # rows of each centre
    centre: Float[Array, "m d"]  # their mean
    component: Int[Array, "m"]  # the component that it is part of
    scatter: Float[Array, "own t"]  # of each component's rows about their centres, packed

    def components(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(n (own,), mean (own, d), scatter about the mean (own, t), packed) of the components."""
        member = np.eye(len(self.scatter))[self.component] * self.n[:, None]  # (m, own)
        n, mean, between = local_mixture.summarise(self.centre, member)
        return n, mean, self.scatter + gaussian.pack_triangle(between)


@client("open_mixture.describe", GATHER, batched=False)
def describe(
    nothing: None,
    client: Client,
    *,
    max_local: int,
    max_centres: int,
    min_count: float,
    units: Sequence[Sequence[float]] = (),
) -> Description:
    """Components of a local mixture (K by BIC) and k-means centres of each, of at least min_count rows.

    With max_centres=0 every component has one centre. A client with fewer rows than min_count describes nothing. Columns are divided by
    `units`.
    """
    x, w = rows_with_weight(client, units)
    if min(len(w), w.sum()) < max(min_count, MIN_POSITIVE):
        return description(x[:0], w[:0], np.zeros(0, int), np.zeros(0, int))
    rng = np.random.default_rng(PARTITION_SEED)
    component = draw_components(x, w, local_mixture.fit(x, w, rng, range(1, max_local + 1)), min_count, rng)
    centre = divide_components(x, w, component, max_centres, min_count, rng)
    return description(without_offset(x, client), w, component, centre)


def rows_with_weight(client: Client, units: Sequence[Sequence[float]]) -> tuple[np.ndarray, np.ndarray]:
    """(x, w) of the rows whose weight is not 0, in these units, gaps filled in by the client's own rows."""
    x = to_numpy(scaled_rows(client, units)).astype(float)
    w = to_numpy(client.w).astype(float)
    return filled(x[w > 0], w[w > 0], client.name), w[w > 0]


def draw_components(
    x: np.ndarray, w: np.ndarray, fit: local_mixture.Fit, min_count: float, rng: np.random.Generator
) -> np.ndarray:
    """(n,) the component of every row, drawn by its probabilities: the most probable ones would cut covariances off."""
    up_to = local_mixture.responsibilities(fit, x).cumsum(1)
    drawn = (up_to[:, :-1] < rng.random((len(x), 1))).sum(1)
    return without_small(drawn, x, w, min_count)


def divide_components(
    x: np.ndarray, w: np.ndarray, component: np.ndarray, max_centres: int, min_count: float, rng: np.random.Generator
) -> np.ndarray:
    """(n,) the centre of every row, numbered through all components: k-means of each component's rows."""
    least = min(MIN_CENTRES, len(x) // MIN_ROWS_PER_CENTRE)
    per_row = min(max(len(x) // ROWS_PER_CENTRE, least), max_centres) / len(x)
    found, n_before = np.zeros(len(x), int), 0
    for k in range(component.max() + 1):
        own = component == k
        n_centres = max(1, round(per_row * own.sum()))
        labels = local_mixture.kmeans(x[own], w[own], n_centres, rng)
        found[own] = n_before + without_small(labels, x[own], w[own], min_count)
        n_before = found[own].max() + 1
    return found


def without_small(labels: np.ndarray, x: np.ndarray, w: np.ndarray, min_count: float) -> np.ndarray:
    """(n,) labels 0, 1, ...: clusters of fewer than min_count rows are part of the nearest larger one; all are one if none is larger."""
    labels = np.unique(labels, return_inverse=True)[1]
    n = np.bincount(labels, w)
    large = np.minimum(n, np.bincount(labels)) >= min_count  # a row of weight 5 is one row
    if not large.any():
        return np.zeros_like(labels)
    mean = means(labels, x, w)
    apart = ((mean[:, None] - mean[large]) ** 2).sum(-1)  # (all, large)
    return apart.argmin(1)[labels]


def means(labels: np.ndarray, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """(k, d) the mean of the rows of each label."""
    sums = np.stack([np.bincount(labels, w * column) for column in x.T], axis=1)
    return np.asarray(sums / np.bincount(labels, w)[:, None])


def description(x: np.ndarray, w: np.ndarray, component: np.ndarray, centre: np.ndarray) -> Description:
    """The summary of rows (n, d) that are divided into components, and these into centres."""
    mean = means(centre, x, w)
    centred = x - mean[centre]
    n_components = component.max(initial=-1) + 1
    scatter = np.zeros((n_components, x.shape[1], x.shape[1]))
    for k in range(n_components):
        own = component == k
        scatter[k] = (centred[own] * w[own, None]).T @ centred[own]
    owner = np.zeros(len(mean), int)
    owner[centre] = component
    return Description(np.bincount(centre, w).astype(float), mean, owner, gaussian.pack_triangle(scatter))


def all_rows_equal(descriptions: Collection[Description]) -> bool:
    """Whether every centre is at the same point, without scatter."""
    places = np.concatenate([d.centre for d in descriptions])
    scatter = sum(np.abs(d.scatter).sum() for d in descriptions)
    size = np.abs(places).max(initial=0.0)
    if not len(places):
        return False
    same_place = np.ptp(places, axis=0).max() <= 1e-9 * size
    return bool(same_place and scatter <= 1e-18 * size**2 * len(places))
