"""How many random frequencies a budget of bytes allows. Sends nothing.

The second moments of k features are k (k + 1) / 2 numbers per client and round: they are nearly all that is sent.
"""

from __future__ import annotations

import numpy as np

from unpooled.maths.calibration import BINS
from unpooled.models.regression import N_EDGES

BYTES = 1.75e6  # for all clients together where the table has up to VALUES values
VALUES = 10_000
LEAST = 0.5e6  # for second moments, if there are so many columns or clients that histograms take the rest
LEARNING = 0.65  # fraction of the budget for learning the kernel
MAX_LEARNING = 20  # rounds
MIN_FREQUENCIES, MAX_FREQUENCIES = 8, 100


def budget(rows: float, n_columns: int, n_clients: int) -> float:
    """Bytes of second moments that all clients together may send: what is left by the histograms of columns and of residuals."""
    allowed = BYTES * max(1.0, rows * n_columns / VALUES)
    histograms = 8 * n_clients * (n_columns * (2 * N_EDGES + 1) + BINS)
    return max(allowed - histograms, LEAST)


def frequencies_for(n_bytes: float, n_answers: int) -> int:
    """The number of frequencies with which so many answers fit into so many bytes."""
    numbers = n_bytes / (8 * max(n_answers, 1))
    n_features = np.sqrt(2 * numbers)
    return int(np.clip(n_features / 2, MIN_FREQUENCIES, MAX_FREQUENCIES))
