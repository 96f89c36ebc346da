"""Columns of few values: a value stands for the interval halfway to its neighbours, as a rounded number does.

Rows that share a value have no spread in its column, so that a Gaussian of them has a density without bound, and BIC prefers clusters
that are single values of the column. So rows are spread evenly over the interval of their value. The numbers by which they move stay
the same for the whole fit, and in every other one. Sends one SUM (`open_mixture.steps`): how far apart neighbouring values are, as a power
of two, which is no difference of two rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, Client, client, generator
from unpooled.federation import Federation
from unpooled.models.open_mixture.constants import PARTITION_SEED, ROWS_PER_VALUE, SAME_VALUE
from unpooled.tree import message


@message("open_mixture.Steps")
class Steps(NamedTuple):
    """What clients know of the distances between neighbouring values, per column."""

    varied: Float[Array, "d", ">=0"]  # clients at which the column varies
    few: Float[Array, "d", ">=0"]  # those at which it has few values
    step: Float[Array, "d", ">=0"]  # sum of the smallest distances there, in units of `scale`


@client("open_mixture.steps", SUM, batched=False)
def steps(nothing: None, client: Client, *, scale: Sequence[float]) -> Steps:
    """The smallest distance between two values of each column in which the client has few; columns are divided by `scale`."""
    x = to_numpy(client.x).astype(float)[to_numpy(client.w) > 0] / np.asarray(scale)
    values = [column[~np.isnan(column)] for column in x.T]
    found = np.array([smallest_step(v) for v in values])
    varied = [len(v) > 0 and np.ptp(v) > 0 for v in values]
    return Steps(np.asarray(varied, float), (found > 0) * 1.0, found)


def smallest_step(values: np.ndarray) -> float:
    """The power of two next to the smallest distance between two of the values; 0 if they are all the same, or not few."""
    distinct = np.unique(values)
    if len(distinct) < 2 or ROWS_PER_VALUE * len(distinct) > len(values):
        return 0.0
    gaps = np.diff(distinct)
    return float(2.0 ** np.round(np.log2(gaps[gaps > SAME_VALUE * np.ptp(distinct)].min())))


def find_steps(fed: Federation, scale: np.ndarray) -> np.ndarray:
    """(d,) the mean step over the clients with few values, 0 in columns in which they are a minority."""
    total = fed.sum(steps.using(scale=scale.tolist()), None)
    varied, few, step = (to_numpy(a) for a in total)
    return np.where(2 * few >= np.maximum(varied, 1), step / np.maximum(few, 1), 0.0)


def spread_out(x: Array, client: Client, step: Sequence[float]) -> Array:
    """The client's rows (..., n, d), each value moved by at most half a step."""
    width = np.asarray(step)
    if not width.any():
        return x
    names = client.members if client.stacked else (client.name,)
    moves = np.stack([generator(PARTITION_SEED, 0, name).random(x.shape[-2:]) - 0.5 for name in names])
    return x + width * moves.reshape(x.shape)
