"""The columns' means and standard deviations over all clients, to which rows are standardised: two SUMs.

The first SUM is of a count and a sum per column, the second of squares about the means, so that both are exact far from the origin too.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, namespace, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.errors import BadData, DataWarning
from unpooled.federation import Federation, find_layer
from unpooled.tree import message

ROUNDING = 1e-13  # a column whose standard deviation is a smaller share of its mean has one value
FLOOR = 1e-12  # of the largest variance: that of a column of one value
UNLIKE = 10.0  # deviations of columns that differ by more have second moments that differ a hundredfold
GRID = 1e-9  # totals per row are rounded to this share of a column's standard deviation


@message("initialization.Look")
class ColumnSums(NamedTuple):
    """Rows, and of each column the values that are not missing and their sum."""

    rows: Float[Array, "", ">=0 rows"]
    seen: Float[Array, "d", ">=0 rows"]  # values that are not missing
    x: Float[Array, "d"]  # their sum


@message("initialization.Centre")
class Centre(NamedTuple):
    """The mean about which squares are summed."""

    mean: Float[Array, "d"]


@message("initialization.Spread")
class ColumnSquares(NamedTuple):
    """Sums of squares about the centre."""

    xx: Float[Array, "d", ">=0"]


@message("initialization.Frame")
class Frame(NamedTuple):
    """The federation's mean and standard deviation of each column, and how many rows there are."""

    mean: Float[Array, "d"]
    scale: Float[Array, "d"]
    rows: Float[Array, ""]


@client("initialization.look", SUM, adds=True)
def column_sums(nothing: None, client: Client) -> ColumnSums:
    """How many rows there are, and of each column how many values and their sum."""
    xp = namespace(client.x)
    seen, x = _seen(client.x, client.w)
    return ColumnSums(double(client.w.sum(-1)), double(seen.sum(-2)), double((seen * xp.nan_to_num(x)).sum(-2)))


@client("initialization.spread", SUM, adds=True)
def column_squares(centre: Centre, client: Client) -> ColumnSquares:
    """The sum of squares of each column about the mean of all clients."""
    xp = namespace(client.x)
    seen, x = _seen(client.x, client.w)
    deviations = xp.nan_to_num(x - xp.asarray(centre.mean, dtype=x.dtype, **_device(x)))
    return ColumnSquares(double((seen * deviations**2).sum(-2)))


def frame(fed: Federation) -> Frame:
    """Mean and standard deviation of every column over all clients, exact far from the origin too: two SUMs."""
    first = fed.sum(column_sums, None)
    seen = to_numpy(first.seen)
    if (seen == 0).any():
        raise BadData(f"column {int(np.argmin(seen))} holds no value at any client: drop it")
    mean = to_numpy(first.x) / seen
    second = fed.sum(column_squares, Centre(mean))
    variance = to_numpy(second.xx) / seen
    return Frame(mean, np.sqrt(without_constants(variance, mean)), np.asarray(float(first.rows)))


def without_constants(variance: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """The variances, with a small one for columns of one value; columns may have units of any size beside each other."""
    constant = variance <= (ROUNDING * mean) ** 2
    return np.where(constant, FLOOR * variance.max(initial=0.0) or 1.0, variance)


def rounded_frame(frame: Frame) -> Frame:
    """The frame with its last digits rounded, so that it is the same for every split of rows into clients."""
    mean = to_numpy(frame.mean)
    scale = to_numpy(frame.scale)
    scale = np.array([float(f"{s:.9e}") for s in scale])
    return Frame(round_to_grid(mean / scale) * scale, scale, round_to_grid(to_numpy(frame.rows)))


def round_to_grid(a: np.ndarray) -> np.ndarray:
    """Numbers rounded to multiples of GRID, so that the order of a sum's terms does not matter."""
    return np.round(a / GRID) * GRID


def _seen(x: Array, w: Array) -> tuple[Array, Array]:
    """(row weight where a value is there, x in float64)."""
    xp = namespace(x)
    x = double(x)
    return (~xp.isnan(x)) * double(w)[..., None], x


def double(a: Array) -> Array:
    """The array in 64 bit floats."""
    xp = namespace(a)
    return a.to(xp.float64) if xp is not np else np.asarray(a, dtype=np.float64)


def _device(a: Array) -> dict:
    """The keyword that puts new tensors where `a` is."""
    return {"device": a.device} if namespace(a) is not np else {}


# ---- compressed sums ----


def is_rounded(fed: Federation) -> bool:
    """Whether a `Compressed` around the federation changes the numbers that clients send, and no node follows the fit.

    A node that follows a study does not know the compression, and would expect the questions of EM.
    """
    layer = find_layer(fed, "quantiser")
    if layer is None or find_layer(fed, "is_followed") is not None:
        return False
    from unpooled.layers.compression import Identity

    return not isinstance(layer.quantiser, Identity)


def warn_of_rounding(fed: Federation, scale: np.ndarray) -> None:
    """Warn where second moments of columns in unlike units, with deviations `scale` (d,), are rounded together.

    Numbers of one block are rounded to a share of the largest of them, so that those of narrow columns are lost.
    """
    least = scale[scale > 0].min(initial=np.inf)
    if is_rounded(fed) and scale.max(initial=0.0) > UNLIKE * least:
        text = (
            f"deviations of the columns lie between {least:.3g} and {scale.max():.3g}, and Compressed rounds their sums together: narrow "
            "columns are lost in the noise of wide ones. Divide each column by a typical deviation first, the same at every site"
        )
        warnings.warn(text, DataWarning, stacklevel=2)
