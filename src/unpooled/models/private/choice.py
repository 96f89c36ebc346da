"""Which of several mixtures fits best: one look at their log-likelihoods against each other; as many numbers as mixtures.

Per row, the log densities under the candidates less their mean over the candidates are one short vector: the answer says by how much
each is better than the others, and never how likely a row is. So it costs little, and a start in a poor optimum is given up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float
from unpooled.client import SUM, Client, client
from unpooled.federation import Federation
from unpooled.layers.private import look
from unpooled.models.private.frame import Frame, standard_rows
from unpooled.models.private.whiten import log_mixture, whiten
from unpooled.privacy.clipping import in_ball
from unpooled.privacy.exact import terms
from unpooled.privacy.sensitivity import declare
from unpooled.tree import message

REACH = 4.0  # nats: preferences of a row beyond this are clipped


@message("private.Candidates")
class Candidates(NamedTuple):
    """Mixtures to compare, stacked along the first axis."""

    frame: Frame
    weights: Float[Array, "r k"]
    means: Float[Array, "r k d"]
    covs: Float[Array, "r k d d"]


@message("private.Advantage")
class Advantage(NamedTuple):
    """How much each candidate beats the average of all, summed over rows."""

    score: Float[Array, "r"]  # sum over rows of (log density - mean over candidates) / REACH


@client("private.advantage", SUM, batched=False, adds=True)
def advantage(down: Candidates, client: Client) -> Advantage:
    """How much more likely the rows are under each candidate than under the others."""
    z, w = standard_rows(down.frame, client)
    candidates = zip(down.weights, down.means, down.covs)
    log_density = np.stack([log_mixture(_log_joint(z, *one)) for one in candidates], -1)  # (n, r)
    with np.errstate(all="ignore"):
        better = (log_density - log_density.mean(-1, keepdims=True)) / REACH
    return Advantage(terms(w[:, None] * in_ball(better)).sum(0))


declare(advantage)


def _log_joint(z: np.ndarray, weights: np.ndarray, means: np.ndarray, covs: np.ndarray) -> np.ndarray:
    """Log of weight times density, (rows, k), in the units of the frame."""
    with np.errstate(all="ignore"):
        log_weights = np.log(np.clip(weights, 1e-300, None))
        return log_weights + whiten(z, means, np.linalg.cholesky(covs)).log_density


class Scores(NamedTuple):
    """Noisy advantages per row, with the noise on each."""

    per_row: np.ndarray  # (r,) nats by which each candidate beats the average of all
    sigma: float  # noise on each


def compare(fed: Federation, frame: Frame, candidates: list, rows: float, mu2: float) -> Scores:
    """One look at how the candidates, each (weights, means, covs), compare."""
    weights, means, covs = (np.stack(part) for part in zip(*candidates))
    total, sigma = look(fed, advantage, Candidates(frame, weights, means, covs), mu2)
    return Scores(total.score * REACH / rows, sigma * REACH / rows)
