"""The SUMs of a private regression: moments of columns and target, second moments, gradients about a fit, counts of residuals.

Rows are moved into their bounds and standardised; a missing value is replaced by its column's mean, a row without a target does not count.
For d columns and the target they send 1 + 3 (d + 1), (d + 2) (d + 3) / 2, d + 2 and 34 numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.errors import BadData
from unpooled.models.private.frame import Bounded, Frame, Moments, moments_of, rows_of
from unpooled.models.private.packing import pack_second
from unpooled.privacy.clipping import in_ball, row_weights, to_unit
from unpooled.privacy.exact import factors, terms
from unpooled.privacy.sensitivity import declare
from unpooled.tree import message

ONE = 0.5  # the entry for the intercept, beside a row of length at most 1
LONGEST = np.sqrt(1 + ONE**2)
SLOPE, SQUARE = np.sqrt([0.9, 0.1])  # weights of the gradient and of the squared residual
EDGES = np.linspace(-4, 4, 33)  # of the histogram of standardised residuals


@message("private.Scaled")
class Scaled(NamedTuple):
    """Frame and clipping radius, which go down with the look at second moments."""

    frame: Frame  # of the columns and, last, the target
    radius: Float[Array, ""]


@message("private.Second")
class Second(NamedTuple):
    """Second moments of columns and target."""

    triangle: Float[Array, "t"]  # of the second moment of (ONE, z, y), scaled


@message("private.Line")
class Line(NamedTuple):
    """A fit, and coordinates in which its features are uncorrelated."""

    frame: Frame
    whiten: Float[Array, "f f"]  # (z - centre) @ whiten
    centre: Float[Array, "f"]
    slope: Float[Array, "f"]
    offset: Float[Array, ""]
    scale: Float[Array, ""]  # of residuals
    radius: Float[Array, ""]  # of whitened features
    reach: Float[Array, ""]  # of residuals, in scales


@message("private.Gradient")
class Gradient(NamedTuple):
    """Residuals and their products with features."""

    offset: Float[Array, ""]  # sum of residuals
    slope: Float[Array, "f"]  # sum of residuals times whitened features
    square: Float[Array, ""]  # sum of squared residuals


@message("private.Residuals")
class Residuals(NamedTuple):
    """Counts of residuals between fixed edges."""

    counts: Float[Array, "b"]


@client("private.joint_moments", SUM, batched=False, adds=True)
def joint_moments(down: Bounded, client: Client) -> Moments:
    """Rows, missing values, sums and sums of squares of every column and, last, the target."""
    u, w = _joint(down.bounds, client)
    return moments_of(u, Client(client.name, client.x, None, w))


@client("private.second_moments", SUM, batched=False, adds=True)
def second_moments(down: Scaled, client: Client) -> Second:
    """The second moment of columns and target, each row shortened to the radius."""
    z, w = standard_joint(down.frame, client)
    with np.errstate(all="ignore"):
        v = in_ball(z / down.radius)
    v = np.concatenate([np.full((len(v), 1), ONE), v], 1) * (np.sqrt(w) / LONGEST)[:, None]
    v = factors(v)
    return Second(pack_second((v.T @ v)[None], "full")[0])


@client("private.gradient", SUM, batched=False, adds=True)
def gradient(down: Line, client: Client) -> Gradient:
    """Residuals, their products with whitened features, and their squares; each clipped."""
    z, w, residual = _residuals(down, client)
    with np.errstate(all="ignore"):
        residual = np.clip(residual / down.reach, -1, 1)
        x = in_ball((z - down.centre) @ down.whiten / down.radius)
    residual = np.where(np.isfinite(residual), residual, 0.0)
    v = factors(np.concatenate([np.full((len(x), 1), ONE), x], 1) / LONGEST)
    slopes = terms(w[:, None] * residual[:, None] * v).sum(0)
    square = np.asarray(terms(w * residual**2).sum())
    return Gradient(SLOPE * slopes[0], SLOPE * slopes[1:], SQUARE * square)


@client("private.residual_counts", SUM, batched=False, adds=True)
def residual_counts(down: Line, client: Client) -> Residuals:
    """How many standardised residuals lie between the edges."""
    _, w, residual = _residuals(down, client)
    where = np.searchsorted(EDGES, np.nan_to_num(residual))
    return Residuals(np.bincount(where, terms(w), len(EDGES) + 1))


for question in (joint_moments, second_moments, gradient, residual_counts):
    declare(question)


def _joint(bounds: np.ndarray, client: Client) -> tuple[np.ndarray, np.ndarray]:
    """(columns and target scaled to [-1, 1], weights); a row without a target has weight 0."""
    if client.y is None:
        raise BadData(f"client {client.name!r} has no targets: give y")
    y = to_numpy(client.y).astype(np.float64)
    w = row_weights(to_numpy(client.w).astype(np.float64)) * ~np.isnan(y)
    return to_unit(np.column_stack([rows_of(client), y]), bounds), w


def standard_joint(frame: Frame, client: Client) -> tuple[np.ndarray, np.ndarray]:
    """(columns and target standardised, weights); missing values are at the mean."""
    u, w = _joint(frame.bounds, client)
    with np.errstate(all="ignore"):
        z = (u - frame.mean) / frame.scale
    return np.where(np.isnan(u), 0.0, z), w


def _residuals(line: Line, client: Client) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(standardised columns, weights, residuals in units of their scale)."""
    joint, w = standard_joint(line.frame, client)
    z = joint[:, :-1]
    y = joint[:, -1]
    with np.errstate(all="ignore"):
        return z, w, (y - z @ line.slope - line.offset) / line.scale
