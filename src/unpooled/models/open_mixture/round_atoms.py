"""Round atoms of `OpenMixture`: described where one covariance, common to all up to their sizes, is round. SUMs of d(d+1)/2 numbers.

k-means at the clients gives the first covariance. It sees hard clusters of few rows, so that it is measured anew once the atoms have moved.
In the last round of the search atoms get covariances of their own, and then stay as they are while topics of them are found.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float
from unpooled.client import SUM, Client, client
from unpooled.federation import Federation
from unpooled.maths import gaussian, mixture
from unpooled.maths.mixture import Params
from unpooled.models.open_mixture.race import Candidate, floored, unbent
from unpooled.models.open_mixture.rounds import Proposal, seen, split
from unpooled.models.open_mixture.state import HELD
from unpooled.tree import message

REFRESHED = (3, 7)  # rounds after which the covariance is measured anew


@message("open_mixture.Common")
class Common(NamedTuple):
    """Sums over rows and atoms of r (z - mean)(z - mean)' / size, and over rows; z are the rows where the atoms are described."""

    scatter: Float[Array, "t"]  # packed
    rows: Float[Array, "", ">=0"]


@client("open_mixture.common_scatter", SUM)
def common_scatter(proposal: Proposal, client: Client, *, held: float) -> Common:
    """Of the rows that are not held out."""
    (x, w), _ = split(client, held)
    middle = proposal.params.weights @ proposal.params.means
    z, means = np.where(w[..., None] > 0, seen(proposal, x) - middle, 0.0), proposal.params.means - middle
    q = mixture.log_joint(proposal.params._replace(means=means), z, "spherical")
    r = np.exp(q - q.max(-1, keepdims=True))
    r = r / r.sum(-1, keepdims=True) * w[..., None] / proposal.params.covs  # (..., n, k)
    across = means.T @ (np.swapaxes(r, -1, -2) @ z)  # (..., d, d)
    about = np.swapaxes(z * r.sum(-1, keepdims=True), -1, -2) @ z + (means.T * r.sum(-2)[..., None, :]) @ means
    return Common(gaussian.pack_triangle(about - across - np.swapaxes(across, -1, -2)), w.sum(-1))


def measured(fed: Federation, race: tuple[Candidate, ...], age: int, last: bool) -> tuple[Candidate, ...]:
    """After some rounds round atoms get the covariance that they have in common now, before the last those of their own; others do not."""
    if last:
        return tuple(unbent(c) for c in race)
    due = age in REFRESHED
    return tuple(_refreshed(fed, c) if due and len(c.proposal.metric) else c for c in race)


def _refreshed(fed: Federation, c: Candidate) -> Candidate:
    (weights, means, sizes), topics, metric = c.proposal
    found = fed.sum(common_scatter.using(held=HELD if c.tested else 0.0), c.proposal)
    common = floored(gaussian.unpack_triangle(found.scatter / found.rows))
    turn = np.linalg.inv(np.linalg.cholesky(common)).T
    return c._replace(proposal=Proposal(Params(weights, means @ turn, sizes), topics, metric @ turn))
