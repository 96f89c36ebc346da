"""Whether scales of sites are those of instruments, or say that clients hold different clusters; sends one SUM of second moments.

A client that holds more of a wide cluster has wider rows than a mixture expects, if this does not describe the cluster well. Such scales
are, at all clients, multiples of one pattern: they lie along one direction. Scales of instruments differ from column to column, and lie
along as many directions as there are clients or columns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.federation import Federation
from unpooled.maths import gaussian
from unpooled.models.open_mixture.constants import MAX_SCALE_COLUMNS, TINY
from unpooled.tree import message


@message("open_mixture.ScaleMoments")
class ScaleMoments(NamedTuple):
    """Sums over clients of the logarithms of their scales, of at most MAX_SCALE_COLUMNS columns."""

    clients: Float[Array, "", ">=0"]
    total: Float[Array, "m"]
    products: Float[Array, "t"]  # packed
    fourth: Float[Array, "", ">=0"]  # of the squared lengths, squared


@client("open_mixture.scale_moments", SUM)
def scale_moments(payload: None, client: Client, *, id: str) -> ScaleMoments:
    """Moments of the logarithms of the scale that the client has under one reference."""
    known = client.state.get(f"align-{id}")  # none at a client that was absent
    here = (client.w.sum(-1) > 0) * (known is not None) * 1.0
    log_scale = known[1][1] if known else np.zeros((*here.shape, client.x.shape[-1]))
    some = here[..., None] * log_scale[..., _columns(log_scale.shape[-1])]
    products = gaussian.pack_triangle(some[..., :, None] * some[..., None, :])
    return ScaleMoments(here, some, products, np.square((some**2).sum(-1)))


def _columns(d: int) -> np.ndarray:
    """At most MAX_SCALE_COLUMNS of d columns, evenly spread."""
    return np.unique(np.linspace(0, d - 1, min(d, MAX_SCALE_COLUMNS)).astype(int))


def scales_show_clusters(fed: Federation, id: str) -> bool:
    """Whether the clients' scales under this reference are nearer to one direction than chance is.

    The share of the largest eigenvalue of their covariance is then more than half of the way from what it would be if scales were
    independent (its expectation, as Marchenko and Pastur give it) to 1. If it is almost one client that has a scale, nothing can be said.
    """
    told = ScaleMoments(*(to_numpy(a) for a in fed.sum(scale_moments.using(id=id), None)))
    n = max(float(told.clients), 1.0)
    products = gaussian.unpack_triangle(told.products)
    lengths = float(np.trace(products))
    few, many = sorted((max(n - 1.0, 1.0), float(len(told.total))))
    by_chance = (np.sqrt(few) + np.sqrt(many)) ** 2 / (few * many)
    one_client = lengths**2 < 2 * float(told.fourth)
    eigenvalues = np.linalg.eigvalsh(products - np.outer(told.total, told.total) / n)
    share = eigenvalues[-1] / max(eigenvalues.sum(), TINY)
    return bool(not one_client and share > (1 + by_chance) / 2)
