"""The space of the Gaussians: the rows themselves, or their principal components and the length of the residual.

With `embedding=` the principal axes are those of `PCA`. They cost two SUMs beside the means: its second moments, and moments of the
residual's length.
"""

from __future__ import annotations

from numbers import Integral
from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, like, namespace, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.errors import BadData, BadParameter
from unpooled.federation import Federation
from unpooled.models import initialization as start
from unpooled.models.pca import second_moments
from unpooled.tree import message

MIN_RESIDUAL = 1e-3  # added to the squared residual, relative to its mean, before the logarithm
NEGLIGIBLE = 1e-9  # of the variance: a smaller residual counts as zero


@message("fedgmm.Embedding")
class Embedding(NamedTuple):
    """z = (x - mean) axes and, last, the standardised log length of the residual; without axes, z = x."""

    mean: Float[Array, "inputs"]
    axes: Float[Array, "inputs axes"]
    residual: Float[Array, "numbers"]  # mean square of the residual, mean and sd of `log_residual`; or empty


@message("fedgmm.ResidualMoments")
class ResidualMoments(NamedTuple):
    """Moments of `log_residual`."""

    n: Float[Array, "", ">=0 rows"]
    total: Float[Array, ""]
    squares: Float[Array, "", ">=0"]


@message("fedgmm.EmbeddedFrame")
class EmbeddedFrame(NamedTuple):
    """The embedding, and the means and standard deviations of embedded rows."""

    frame: start.Frame
    embedding: Embedding


@client("fedgmm.residual_moments", SUM, adds=True)
def residual_moments(embedding: Embedding, client: Client) -> ResidualMoments:
    """Count, sum and sum of squares of `log_residual`."""
    xp = namespace(client.x)
    z = (client.x - like(embedding.mean, client.x)) @ like(embedding.axes, client.x)
    w = xp.asarray(client.w, dtype=xp.float64)
    r = xp.asarray(log_residual(client.x, z, embedding), dtype=xp.float64)
    return ResidualMoments(w.sum(-1), (w * r).sum(-1), (w * r * r).sum(-1))


def embed(x: Array, embedding: Embedding) -> Array:
    """Rows (..., n, d) in the space of the Gaussians."""
    if embedding.axes.shape[-1] == 0:
        return x
    z = (x - like(embedding.mean, x)) @ like(embedding.axes, x)
    if embedding.residual.shape[-1] == 0:
        return z
    _, mean, sd = map(float, embedding.residual)
    return namespace(x).concatenate([z, ((log_residual(x, z, embedding) - mean) / sd)[..., None]], -1)


def log_residual(x: Array, z: Array, embedding: Embedding) -> Array:
    """Log of the squared distance of each row from the span of the axes, (..., n), relative to its mean."""
    residual = x - like(embedding.mean, x) - z @ like(embedding.axes, x).T
    return namespace(x).log((residual * residual).sum(-1) / float(embedding.residual[0]) + MIN_RESIDUAL)


def fit_embedding(
    fed: Federation, frame: start.Frame, axes: int | None, residual: bool
) -> tuple[EmbeddedFrame, np.ndarray]:
    """(the embedding, covariance (d, d) of the rows): all columns, or the leading principal axes.

    With `residual` the length of what the axes leave out is one more coordinate. Without axes nothing is asked, and the
    covariance is (0, 0).
    """
    d = len(frame.mean)
    if axes is None:
        return EmbeddedFrame(frame, Embedding(frame.mean, np.zeros((d, 0)), np.zeros(0))), np.zeros((0, 0))
    if not isinstance(axes, Integral) or not 1 <= axes <= d:
        raise BadParameter(f"embedding={axes!r} must be a number of principal axes between 1 and {d}, or None")
    total = second_moments(fed, to_numpy(frame.mean))
    if not np.isfinite(total).all():
        raise BadData("principal axes need complete rows: fill in missing values first, or leave embedding= out")
    cov = total / float(frame.rows)
    values, vectors = np.linalg.eigh(cov)
    values = values[::-1]
    vectors = vectors[:, ::-1][:, :axes]
    vectors = vectors * np.sign(vectors[np.abs(vectors).argmax(0), np.arange(axes)])
    scale = np.sqrt(np.maximum(values[:axes], 1e-12))
    left_out = max(values[axes:].sum(), 0.0)
    embedding = Embedding(frame.mean, vectors, np.zeros(0))
    if residual and left_out > NEGLIGIBLE * values.sum():
        embedding = embedding._replace(residual=_residual_scale(fed, embedding, left_out))
        scale = np.append(scale, 1.0)
    return EmbeddedFrame(start.Frame(np.zeros(len(scale)), scale, frame.rows), embedding), cov


def _residual_scale(fed: Federation, embedding: Embedding, mean_square: float) -> np.ndarray:
    """(mean square of the residual, mean and standard deviation of its log); one SUM."""
    up = fed.sum(residual_moments, embedding._replace(residual=np.array([mean_square, 0.0, 1.0])))
    mean = float(up.total / up.n)
    return np.array([mean_square, mean, np.sqrt(max(float(up.squares / up.n) - mean**2, 1e-12))])
