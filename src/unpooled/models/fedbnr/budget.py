"""How many features and bins a budget of bytes allows. Sends nothing.

The second moments of k features are k (k + 1) / 2 numbers per client and round: they are nearly all that is sent. Those of the last layer
are whole numbers of four bytes, its features being on a grid; those that length scales are learned from are floats of eight bytes.
Histograms of columns have fewer bins where clients or columns are so many that they would take more than their share.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.maths import calibration, grids
from unpooled.models.fedbnr.marginals import N_BINS
from unpooled.models.regression import BINS, MAX_THINNING

BYTES = 1.9e6  # for all clients together where the table has up to VALUES values
BYTES_BEYOND = 500.0  # per value beyond these
VALUES = 10_000
FOUR, DOUBLE = 4, 8  # bytes of a whole number or a count, and of any other number
SUMS = 4  # numbers per column of counts, means and squares, before the histograms
HISTOGRAMS = 0.25  # fraction of the budget for histograms of columns, at most
LEAST = 0.3e6  # for second moments, if there are so many columns or clients that histograms take the rest
SQUARES = 1  # numbers per feature that are sent beforehand, to choose its grid
LEARNING = 0.2  # fraction of the rest for learning the kernel
MIN_LEARNING, MAX_LEARNING = 1, 10  # rounds
MIN_FREQUENCIES, MAX_FREQUENCIES = 8, 100
MIN_FEATURES, MAX_FEATURES = 30, 300  # of the last layer


class Size(NamedTuple):
    """What the budget depends on."""

    rows: float
    n_columns: int
    n_clients: int


def thinning(size: Size) -> int:
    """One in how many edges of the columns' histograms is used: an odd number, so that a wide bin has a bin in its middle."""
    full = size.n_clients * size.n_columns * (FOUR * BINS + (FOUR + DOUBLE) * N_BINS)
    wanted = int(np.ceil(full / (HISTOGRAMS * _allowed(size))))
    return min(wanted + 1 - wanted % 2, MAX_THINNING)


def n_bins(size: Size) -> int:
    """The number of bins of a column in which effects on y are looked at."""
    return N_BINS // thinning(size)


def budget(size: Size) -> float:
    """Bytes of second moments of features that all clients together may send, after histograms of columns and residuals."""
    d = size.n_columns
    counts = d * (BINS / thinning(size) + n_bins(size)) + calibration.BINS
    others = d * (SUMS + n_bins(size) + d / 2)
    return max(_allowed(size) - size.n_clients * (FOUR * counts + DOUBLE * others), LEAST)


def bytes_left(size: Size) -> float:
    """The budget that remains after learning the kernel."""
    per_round = _answer(2 * frequencies_to_learn_with(size)) + _gradient(size)
    return max(budget(size) - size.n_clients * rounds_to_learn_in(size) * per_round, LEAST)


def rounds_to_learn_in(size: Size) -> int:
    """The most rounds of learning: fewer than MAX_LEARNING where clients are so many that the fewest frequencies exceed the budget."""
    per_round = size.n_clients * (_answer(2 * MIN_FREQUENCIES) + _gradient(size))
    return int(np.clip(LEARNING * budget(size) / per_round, MIN_LEARNING, MAX_LEARNING))


def frequencies_to_learn_with(size: Size) -> int:
    """The number of frequencies while the kernel is learned, in MAX_LEARNING rounds."""
    k = _features(LEARNING * budget(size), size.n_clients * MAX_LEARNING, DOUBLE, 0)
    return int(np.clip(k / 2, MIN_FREQUENCIES, MAX_FREQUENCIES))


def fits_a_grid(size: Size) -> bool:
    """Whether the last layer's features are rounded to a grid: not with so many rows that it would be coarse (their budget is large)."""
    return size.rows <= grids.MOST_ROWS


def n_frequencies(size: Size) -> int:
    """The number of frequencies of the last layer, two features each, that the remaining budget allows."""
    return int(np.clip(_last_features(size) / 2, MIN_FREQUENCIES, MAX_FREQUENCIES))


def n_features(size: Size) -> int:
    """The number of features of the last layer that the remaining budget allows."""
    return int(np.clip(_last_features(size), MIN_FEATURES, MAX_FEATURES))


def _last_features(size: Size) -> float:
    """How many features fit into the remaining budget."""
    number, squares = (FOUR, SQUARES) if fits_a_grid(size) else (DOUBLE, 0)
    return _features(bytes_left(size), size.n_clients, number, squares)


def _allowed(size: Size) -> float:
    """Bytes that all clients together may send."""
    return BYTES + BYTES_BEYOND * max(0.0, size.rows * size.n_columns - VALUES)


def _answer(k: int) -> float:
    """Bytes of the sums of k features while the kernel is learned: second moments, means and products with a target."""
    return DOUBLE * k * (k + 1) / 2 + DOUBLE * 2 * k


def _gradient(size: Size) -> float:
    """Bytes of a gradient by the length scales, and of errors on held-out rows."""
    return DOUBLE * (size.n_columns + 5)


def _features(n_bytes: float, n_answers: int, number: int, squares: int) -> float:
    """How many features fit where second moments have `number` bytes each, and `squares` more sums per feature are sent."""
    linear = number / 2 + (2 + squares) * DOUBLE
    return (np.sqrt(linear**2 + 2 * number * n_bytes / max(n_answers, 1)) - linear) / number
