"""How many features a budget of bytes allows. Sends nothing.

The second moments of k features are k (k + 1) / 2 numbers per client and round: they are nearly all that is sent.
"""

from __future__ import annotations

import numpy as np

from unpooled.maths import calibration
from unpooled.models.fedbnr.marginals import N_BINS
from unpooled.models.regression import BINS

BYTES = 1.75e6  # for all clients together where the table has up to VALUES values
BYTES_BEYOND = 500.0  # per value beyond these
SUMS = 6  # numbers per column of counts, means and squares, before the histograms
VALUES = 10_000
LEAST = 0.3e6  # for second moments, if there are so many columns or clients that histograms take the rest
LEARNING = 0.45  # fraction of the budget for learning the kernel
MIN_LEARNING, MAX_LEARNING = 3, 20  # rounds
MIN_FREQUENCIES, MAX_FREQUENCIES = 8, 100
MIN_FEATURES, MAX_FEATURES = 30, 300  # of the last layer


def budget(rows: float, n_columns: int, n_clients: int) -> float:
    """Bytes of second moments of features that all clients together may send: what histograms of columns and residuals leave."""
    allowed = BYTES + BYTES_BEYOND * max(0.0, rows * n_columns - VALUES)
    columns = n_columns * (SUMS + BINS + 2 * N_BINS + n_columns / 2)
    return max(allowed - 8 * n_clients * (columns + calibration.BINS), LEAST)


def bytes_left(rows: float, n_columns: int, n_clients: int) -> float:
    """What learning the kernel leaves of the budget."""
    return (1 - LEARNING) * budget(rows, n_columns, n_clients)


def rounds_to_learn_in(rows: float, n_columns: int, n_clients: int) -> int:
    """The most rounds of learning: fewer than MAX_LEARNING where clients are so many that the fewest frequencies exceed the budget."""
    n_features = 2 * MIN_FREQUENCIES
    answer = 8 * n_clients * (n_features * (n_features + 5) / 2 + n_columns)
    fits = LEARNING * budget(rows, n_columns, n_clients) / answer
    return int(np.clip(fits, MIN_LEARNING, MAX_LEARNING))


def frequencies_to_learn_with(rows: float, n_columns: int, n_clients: int) -> int:
    """The number of frequencies while the kernel is learned, in MAX_LEARNING rounds."""
    return frequencies_for(LEARNING * budget(rows, n_columns, n_clients), n_clients * MAX_LEARNING)


def frequencies_for(n_bytes: float, n_answers: int) -> int:
    """The number of frequencies, two features each, with which so many answers fit into so many bytes."""
    return int(np.clip(_features(n_bytes, n_answers) / 2, MIN_FREQUENCIES, MAX_FREQUENCIES))


def features_for(n_bytes: float, n_answers: int) -> int:
    """The number of features with which so many answers fit into so many bytes."""
    return int(np.clip(_features(n_bytes, n_answers), MIN_FEATURES, MAX_FEATURES))


def _features(n_bytes: float, n_answers: int) -> float:
    """How many features fit when so many second moments are sent."""
    numbers = n_bytes / (8 * max(n_answers, 1))
    return np.sqrt(2 * numbers)
