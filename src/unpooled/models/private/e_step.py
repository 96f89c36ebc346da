"""The E-step with differential privacy: one look at counts, means and second moments of each component in whitened coordinates.

Under a component with mean m and covariance L L', a row z becomes y = L^-1 (z - m), shortened to at most `radius`. What is summed, for
all components at once, is

    r (a, b y / radius, c y y' / radius^2)

with responsibilities r and block weights a, b, c. As the squares of the responsibilities add up to at most 1, and so do those of a, b
and c, one row moves the answer by at most 1, whatever the number of components. Missing values are at their conditional mean, with their
conditional covariance in the second moment; such rows are shortened a little more, to the same bound.

Sends k (1 + d) numbers and the second moments: k d (d + 1) / 2 (full), d (d + 1) / 2 (tied), k d (diag) or k (spherical).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float
from unpooled.client import SUM, Client, client
from unpooled.maths import gaussian
from unpooled.maths.mixture import Params
from unpooled.models.private.clipped_moments import clipped_share, max_length, usable_radius
from unpooled.models.private.frame import Frame, standard_rows
from unpooled.models.private.packing import pack_second
from unpooled.models.private.whiten import responsibilities, whiten
from unpooled.privacy.clipping import in_ball, unit_blocks
from unpooled.privacy.exact import factors, terms
from unpooled.privacy.sensitivity import declare
from unpooled.tree import message

CHUNK_ROWS = 16_384  # rows worked on at a time


@message("private.OwnFrame")
class EStepRequest(NamedTuple):
    """What goes down: the mixture, the clipping radius and the block weights."""

    frame: Frame
    params: Params  # in the units of the frame
    radius: Float[Array, ""]
    block_weights: Float[Array, "3"]  # of counts, means and second moments; their squares add up to 1


@message("private.OwnSums")
class WhitenedSums(NamedTuple):
    """Counts, means and second moments of each component in whitened coordinates, times the block weights."""

    n: Float[Array, "k"]
    first: Float[Array, "k d"]
    second: Float[Array, "*s"]  # full (k, t), tied (t,), diag (k, d), spherical (k,)


class Components(NamedTuple):
    """The components of a mixture, as whitening needs them."""

    log_weights: np.ndarray  # (k,)
    means: np.ndarray  # (k, d)
    cholesky: np.ndarray  # (k, d, d) lower factors of the covariances


@client("private.own_frame_sums", SUM, batched=False, adds=True)
def whitened_sums(down: EStepRequest, client: Client, *, shape: str) -> WhitenedSums:
    """Counts, means and second moments of each component in whitened coordinates."""
    z, weights = standard_rows(down.frame, client)
    components = _components(down.params, shape)
    k, d = components.means.shape
    radius = usable_radius(float(down.radius), d)
    moments = np.zeros((k, d + 1, d + 1))
    for start in range(0, len(z), CHUNK_ROWS):
        chunk = slice(start, start + CHUNK_ROWS)
        moments += _moments(z[chunk], weights[chunk], components, radius, shape)
    count_weight, mean_weight, second_weight = unit_blocks(down.block_weights)
    return WhitenedSums(
        n=count_weight * moments[:, 0, 0],
        first=mean_weight * moments[:, 0, 1:],
        second=second_weight * pack_second(moments[:, 1:, 1:], shape),
    )


declare(whitened_sums)


def _components(params: Params, shape: str) -> Components:
    """The components of packed parameters; whatever came down, no number raises an error."""
    with np.errstate(all="ignore"):
        cholesky = np.linalg.cholesky(gaussian.full_covs(params, shape))
        log_weights = np.log(np.clip(params.weights, 1e-300, None))
    return Components(log_weights, params.means, cholesky)


def _moments(z: np.ndarray, weights: np.ndarray, components: Components, radius: float, shape: str) -> np.ndarray:
    """Sums over rows of r v v' with v = (1, y / radius), for each component: (k, d + 1, d + 1)."""
    k, d = components.means.shape
    rows = whiten(z, components.means, components.cholesky)
    with np.errstate(all="ignore"):
        shares = responsibilities(rows.log_density + components.log_weights) * weights[:, None]  # (n, k)
    lengths = max_length(rows.n_missing, radius, d, shape)
    moments = np.stack([_outer_products(rows.y[j] / radius, lengths, shares[:, j]) for j in range(k)])
    unseen_scale = clipped_share(d, radius) / radius**2
    for pattern in rows.incomplete:
        n_rows = terms(shares[pattern.rows]).sum(0)  # (k,)
        moments[:, 1:, 1:] += (unseen_scale * n_rows)[:, None, None] * pattern.covariance
    return moments


def _outer_products(y: np.ndarray, lengths: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """The sum of r v v' with v = (1, y), each y shortened to its length: (d + 1, d + 1)."""
    y = in_ball(y, lengths[:, None])
    root = np.sqrt(shares)[:, None]
    v = factors(np.concatenate([root, root * y], 1))
    return v.T @ v
