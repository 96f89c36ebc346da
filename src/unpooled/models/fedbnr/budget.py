"""How many random frequencies a budget of bytes allows. Sends nothing.

The second moments of k features are k (k + 1) / 2 numbers per client and round: they are nearly all that is sent.
"""

from __future__ import annotations

import numpy as np

BYTES = 1.35e6  # for all clients together where the table has up to VALUES values; the rest of 2 MB is for scaling and calibration
VALUES = 10_000
LEARNING = 0.65  # fraction of the budget for learning the kernel
MAX_LEARNING = 20  # rounds
MIN_FREQUENCIES, MAX_FREQUENCIES = 8, 100


def budget(values: float) -> float:
    """Bytes that all clients together may send, for a table of so many values (rows times columns)."""
    return BYTES * max(1.0, values / VALUES)


def frequencies_for(n_bytes: float, n_answers: int) -> int:
    """The number of frequencies with which so many answers fit into so many bytes."""
    numbers = n_bytes / (8 * max(n_answers, 1))
    n_features = np.sqrt(2 * numbers)
    return int(np.clip(n_features / 2, MIN_FREQUENCIES, MAX_FREQUENCIES))
