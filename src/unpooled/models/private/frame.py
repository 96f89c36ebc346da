"""Means and standard deviations of columns with differential privacy: one look of 1 + 3 d numbers.

`ColumnMoments` is the estimator; the other private models begin with the same look, to bring all columns to one scale.
A missing value adds nothing to its column; how many are missing is part of the same look.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, Ask, Client, client
from unpooled.estimator import Estimator, Info
from unpooled.federation import Federation
from unpooled.layers.private import look, private_layer
from unpooled.privacy.clipping import from_unit, row_weights, to_unit
from unpooled.privacy.exact import terms
from unpooled.privacy.sensitivity import declare
from unpooled.tree import message

ROWS, VALUES = np.sqrt(0.1), np.sqrt(0.9)  # weights of the blocks: the squares add up to 1
FIRST = SECOND = np.sqrt(0.45)  # a value that is there has these two instead of VALUES
FEWEST_ROWS = 10.0
NARROWEST = 0.01  # a standard deviation is taken to be at least this share of half the bounds' width
ZOOM = 4.0  # standard deviations about the mean that a second, closer look takes in


@message("private.Bounded")
class Bounded(NamedTuple):
    """Public bounds of the columns, which go down with a look."""

    bounds: Float[Array, "d 2"]


@message("private.Moments")
class Moments(NamedTuple):
    """Weighted sums over rows of values u scaled to [-1, 1]."""

    rows: Float[Array, ""]
    absent: Float[Array, "d"]  # missing values
    first: Float[Array, "d"]  # sum of u
    second: Float[Array, "d"]  # sum of u^2


@message("private.Frame")
class Frame(NamedTuple):
    """How rows are standardised: moved into their bounds, scaled to [-1, 1], then (u - mean) / scale."""

    bounds: Float[Array, "d 2"]
    mean: Float[Array, "d"]
    scale: Float[Array, "d"]


@message("private.Columns")
class Columns(NamedTuple):
    """The result of the first look."""

    frame: Frame
    rows: float
    absent: np.ndarray  # (d,)
    sigma: float  # noise of the look
    unclear: bool  # whether a column's standard deviation is hidden by the noise


@client("private.column_moments", SUM, batched=False, adds=True)
def column_moments(down: Bounded, client: Client) -> Moments:
    """Rows, missing values, sums and sums of squares of every column, scaled so that one row moves all of it by at most 1."""
    return moments_of(to_unit(rows_of(client), down.bounds), client)


declare(column_moments)


def moments_of(u: np.ndarray, client: Client) -> Moments:
    """The weighted sums of values in [-1, 1] that are missing where they are NaN."""
    w = row_weights(to_numpy(client.w).astype(np.float64))
    d = u.shape[-1]
    is_missing = np.isnan(u)
    values = np.where(is_missing, 0.0, u)
    share = 1 / np.sqrt(d)
    absent = terms(w[:, None] * is_missing).sum(0)
    first = terms(w[:, None] * values).sum(0)
    second = terms(w[:, None] * values**2).sum(0)
    rows = np.asarray(terms(w).sum())
    return Moments(ROWS * rows, VALUES * share * absent, FIRST * share * first, SECOND * share * second)


def rows_of(client: Client) -> np.ndarray:
    """The client's rows in float64."""
    return to_numpy(client.x).astype(np.float64, copy=False)


def standard_rows(frame: Frame, client: Client) -> tuple[np.ndarray, np.ndarray]:
    """(z, w): rows within their bounds and standardised, NaN where missing; weights within [0, 1]."""
    with np.errstate(all="ignore"):
        z = (to_unit(rows_of(client), frame.bounds) - frame.mean) / frame.scale
    return z, row_weights(to_numpy(client.w).astype(np.float64))


# ---- the server's side ----


def read_columns(total: Moments, sigma: float, bounds: np.ndarray) -> Columns:
    """Means and scales from noisy sums; a scale is never below what the noise allows to tell from 0."""
    d = len(bounds)
    rows = max(float(total.rows) / ROWS, FEWEST_ROWS)
    absent = total.absent * np.sqrt(d) / VALUES
    absent = np.where(absent > 4 * sigma * np.sqrt(d) / VALUES, absent, 0.0)
    seen = np.maximum(rows - absent, FEWEST_ROWS)
    mean = np.clip(total.first * np.sqrt(d) / FIRST / seen, -1, 1)
    variance = total.second * np.sqrt(d) / SECOND / seen - mean**2
    unclear = 2 * sigma * np.sqrt(d) / SECOND / seen
    scale = np.sqrt(np.clip(variance, np.maximum(unclear, NARROWEST**2), 1.0))
    return Columns(Frame(bounds, mean, scale), rows, absent, sigma, bool((variance < 2 * unclear).any()))


def look_at_columns(fed: Federation, ask: Ask, bounds: np.ndarray, mu2: float) -> tuple[Columns, float]:
    """(the columns' moments, their cost): one look, and a second within narrower bounds where the first were too wide."""
    total, sigma = look(fed, ask, Bounded(bounds), mu2 / 2)
    first = read_columns(total, sigma, bounds)
    if not first.unclear:
        return first, mu2 / 2
    frame = first.frame
    reach = np.clip(np.stack([frame.mean - ZOOM * frame.scale, frame.mean + ZOOM * frame.scale], 1), -1, 1)
    close = from_unit(reach.T, bounds).T
    total, sigma = look(fed, ask, Bounded(close), mu2 / 2)
    second = read_columns(total, sigma, close)
    return second._replace(frame=moved(second.frame, bounds)), mu2


def moved(frame: Frame, bounds: np.ndarray) -> Frame:
    """The same means and scales, in the units of other bounds."""
    mean = from_unit(frame.mean, frame.bounds)
    ratio = half_widths(frame.bounds) / half_widths(bounds)
    return Frame(bounds, (mean - bounds.mean(1)) / half_widths(bounds), frame.scale * ratio)


def half_widths(bounds: np.ndarray) -> np.ndarray:
    """Half the width of each column's bounds."""
    return (bounds[:, 1] - bounds[:, 0]) / 2


class ColumnMoments(Estimator):
    """Mean, standard deviation and share of missing values of every column, with differential privacy: one look.

    Parameters
    ----------
    random_state : int or None, default None
        Not used: the noise comes from the layer `Private`.

    Attributes
    ----------
    n_rows_ : float
        The number of rows, with noise.
    mean_, std_ : array (d,)
        Mean and standard deviation of each column.
    mean_stderr_ : array (d,)
        The standard error of each mean that is due to noise alone.
    missing_ : array (d,)
        The share of missing values of each column; below four standard deviations of the noise it is given as 0.

    Examples
    --------
    >>> import numpy as np
    >>> import unpooled as up
    >>> from unpooled.layers.private import Private
    >>> from unpooled.models.private import ColumnMoments
    >>> x = np.random.default_rng(0).normal([0, 10], [1, 2], size=(20_000, 2))
    >>> private = Private(up.federate({"a": x}), epsilon=2.0, delta=1e-6, bounds=[[-5, 5], [0, 20]], secret=b"s" * 32)
    >>> ColumnMoments().fit(private).std_.round(1)
    array([1., 2.])
    """

    max_iter = 1

    def __init__(self, *, random_state: Any = None):
        self.random_state = random_state

    def check(self, fed: Federation) -> None:
        """Refuse a federation without a privacy budget."""
        private_layer(fed)

    def init(self, fed: Federation, rng: np.random.Generator) -> None:
        """Nothing is asked before the look."""
        return None

    def step(self, fed: Federation, state: Any) -> tuple[Any, Info]:
        """The one look: noisy counts, sums and second moments of all columns."""
        private = private_layer(fed)
        total, sigma = look(fed, column_moments, Bounded(private.bounds), private.mu2_for_fit)
        found = read_columns(total, sigma, private.bounds)
        return found, {"epsilon": private.accountant.spent.epsilon}

    def finish(self, fed: Federation, state: Columns) -> None:
        """Set means, standard deviations and their standard errors, in the data's units."""
        frame = state.frame
        d = len(state.frame.mean)
        half = half_widths(frame.bounds)
        self.n_rows_ = state.rows
        self.n_features_in_ = d
        self.mean_ = from_unit(frame.mean, frame.bounds)
        self.std_ = half * frame.scale
        self.missing_ = state.absent / state.rows
        seen = np.maximum(state.rows - state.absent, FEWEST_ROWS)
        noise_first = state.sigma * np.sqrt(d) / FIRST
        noise_rows = state.sigma / ROWS
        self.mean_stderr_ = half * np.hypot(noise_first, frame.mean * noise_rows) / seen
