"""The E-step with differential privacy: one look at counts, means and second moments of each component in its own standard coordinates.

A row becomes y = L^-1 (z - mean) under each component, shortened to at most `radius`; what is summed, for all components at once, is
r (a, b y / radius, c y y' / radius^2) with responsibilities r. As the squares of the responsibilities add up to at most 1, and so do
those of a, b and c, one row moves the answer by at most 1, whatever the number of components. Missing values are at their conditional
mean, with their conditional covariance in the second moment; such rows are shortened a little more, to the same bound.

Sends k (1 + d) numbers and the second moments: k d (d + 1) / 2 (full), d (d + 1) / 2 (tied), k d (diag) or k (spherical).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import gammainc, gammaincc

from unpooled.arrays import Array, Float
from unpooled.client import SUM, Client, client
from unpooled.maths import gaussian
from unpooled.maths.mixture import Params
from unpooled.models.private.frame import Frame, standard_rows
from unpooled.models.private.whiten import Whitened, responsibilities, whiten
from unpooled.privacy.clipping import in_ball, unit_blocks
from unpooled.privacy.exact import factors, terms
from unpooled.privacy.sensitivity import declare
from unpooled.tree import message

WIDEST = 1e6  # a radius beyond which nothing would be clipped
PIECE = 16_384  # rows worked on at a time


@message("private.OwnFrame")
class OwnFrame(NamedTuple):
    """What goes down with a look: the mixture, the clipping radius and the weights of the blocks."""

    frame: Frame
    params: Params  # in the units of the frame
    radius: Float[Array, ""]
    blocks: Float[Array, "3"]  # weights of counts, means and second moments; their squares add up to 1


@message("private.OwnSums")
class OwnSums(NamedTuple):
    """Noisy counts, means and second moments of each component in its own coordinates."""

    n: Float[Array, "k"]
    first: Float[Array, "k d"]
    second: Float[Array, "*s"]  # full (k, t), tied (t,), diag (k, d), spherical (k,)


@client("private.own_frame_sums", SUM, batched=False, adds=True)
def own_frame_sums(down: OwnFrame, client: Client, *, shape: str) -> OwnSums:
    """Counts, means and second moments of each component in its own standard coordinates."""
    z, w = standard_rows(down.frame, client)
    d = z.shape[1]
    with np.errstate(all="ignore"):
        lower = np.linalg.cholesky(gaussian.full_covs(down.params, shape))
        log_weights = np.log(np.clip(down.params.weights, 1e-300, None))
    radius = least_radius(float(down.radius), d)
    gram = np.zeros((len(log_weights), d + 1, d + 1))
    for s in range(0, len(z), PIECE):
        some = slice(s, s + PIECE)
        gram += _gram(whiten(z[some], down.params.means, lower), w[some], log_weights, radius, shape)
    return _weighted(gram, unit_blocks(down.blocks), shape)


declare(own_frame_sums)


def least_radius(radius: float, d: int) -> float:
    """The radius, within what arithmetic bears; at least that of a typical row, so that rows with gaps fit into it."""
    return float(np.clip(radius, np.sqrt(d), WIDEST)) if np.isfinite(radius) else float(np.sqrt(d))


def _gram(rows: Whitened, w: np.ndarray, log_weights: np.ndarray, radius: float, shape: str) -> np.ndarray:
    """sum over rows of r v v' with v = (1, y / radius), for each component: (k, d + 1, d + 1)."""
    k, _, d = rows.y.shape
    with np.errstate(all="ignore"):
        share = responsibilities(rows.log_density + log_weights) * w[:, None]  # (n, k)
    kept = clipped_share(d, radius)
    longest = longest_row(rows.unseen, kept, radius, shape)
    gram = np.empty((k, d + 1, d + 1))
    for j in range(k):
        y = in_ball(rows.y[j] / radius, longest[:, None])
        root = np.sqrt(share[:, j])
        v = factors(np.concatenate([root[:, None], root[:, None] * y], 1))
        gram[j] = v.T @ v
        for group in rows.groups:
            gram[j, 1:, 1:] += kept / radius**2 * terms(share[group.rows, j]).sum() * group.covariance[j]
    return gram


def longest_row(unseen: np.ndarray, kept: float, radius: float, shape: str) -> np.ndarray:
    """How long a row may be, in radii, so that there is room for the conditional covariance of its missing values.

    That covariance is a projection of rank `unseen`: a matrix of norm sqrt(unseen), and of trace unseen, which is what "spherical" sends.
    """
    if shape == "spherical":
        return np.sqrt(np.maximum(1 - kept * unseen / radius**2, 0.0))
    return np.maximum(1 - kept**2 * unseen / radius**4, 0.0) ** 0.25


def _weighted(gram: np.ndarray, blocks: np.ndarray, shape: str) -> OwnSums:
    """The three blocks of the second-moment matrices, weighted so that one row moves each by its share."""
    a, b, c = blocks
    return OwnSums(a * gram[:, 0, 0], b * gram[:, 0, 1:], c * pack_second(gram[:, 1:, 1:], shape))


def pack_second(second: np.ndarray, shape: str) -> np.ndarray:
    """(k, d, d) to what is sent, with the same norm or a smaller one."""
    if shape in ("full", "tied"):
        packed = gaussian.pack_triangle(second) * _twice(second.shape[-1])
        return packed if shape == "full" else packed.sum(0)
    diagonal = np.einsum("kii->ki", second)
    return diagonal if shape == "diag" else diagonal.sum(-1)


def unpack_second(packed: np.ndarray, shape: str, k: int, d: int) -> np.ndarray:
    """What was sent as matrices: (k, d, d), or (1, d, d) if tied."""
    if shape in ("full", "tied"):
        return gaussian.unpack_triangle(np.atleast_2d(packed / _twice(d)))
    diagonal = packed if shape == "diag" else np.repeat(packed[:, None] / d, d, 1)
    return diagonal[:, :, None] * np.eye(d)


def _twice(d: int) -> np.ndarray:
    """sqrt 2 for entries off the diagonal, which stand for two."""
    i, j = np.tril_indices(d)
    return np.where(i == j, 1.0, np.sqrt(2.0))


# ---- how to weigh the blocks, and what clipping takes away ----


def clipped_share(d: int, radius: float) -> float:
    """What clipping at `radius` leaves of the second moment of a standard Gaussian of d columns."""
    half = radius**2 / 2
    inside = gammainc(d / 2 + 1, half)  # of chi-square laws with d + 2 and d degrees of freedom
    outside = gammaincc(d / 2, half)
    return float(inside + radius**2 * outside / d)


def second_numbers(shape: str, k: int, d: int) -> float:
    """How much the noise on second moments matters: numbers per component, as the log-likelihood feels them."""
    t = d * (d + 1) / 2
    return {"full": t, "tied": t / k**2, "diag": float(d), "spherical": 1 / d}[shape]


def best_blocks(shape: str, k: int, d: int, radius: float) -> np.ndarray:
    """Weights of counts, means and second moments under which noise costs the least log-likelihood."""
    cost = np.array([0.5, 0.5 * d * radius**2, 0.25 * second_numbers(shape, k, d) * radius**4])
    share = np.sqrt(cost) / np.sqrt(cost).sum()
    share[0] = max(share[0], 0.02)
    return np.sqrt(share / share.sum())
