"""Numbers rounded to grids, so that sums and what follows from them are the same however rows are split among clients. Sends nothing.

Features that are multiples of a step have second moments that are sums of whole numbers: exact in any order, and in four bytes
where the grid is chosen so that no sum can be larger. By the inequality of Cauchy and Schwarz no product of two features sums to more, for
any part of the rows, than the larger of their two sums of squares. A step is a power of two, so that multiplying by it is exact as well.

Means, scales and length scales, from which features are computed, come from sums of floats, whose last digits depend on the order of
adding. They are rounded far above these digits (`snapped`): otherwise a feature close to the middle between two multiples would be rounded
up for one split and down for another.
"""

from __future__ import annotations

import numpy as np

from unpooled.arrays import Array
from unpooled.errors import BadData

# the root of a feature's sum of squares is below 2^15 steps: rounding included, the sum stays below 2^31
ROOT_BITS = 15
# step of standardised targets: their squares and products with features are exact in double precision
TARGETS = 2.0**-18
MOST_ROWS = 2**16  # with more rows a step would be coarser than 1/64 of a feature's root mean square


def steps_for(squares: np.ndarray) -> np.ndarray:  # (k,)
    """The finest power of two for each feature, by its sum of squares (k,) over all rows."""
    root = np.sqrt(np.maximum(squares, 0.0))
    return np.where(root > 0, 2.0 ** (np.ceil(np.log2(np.where(root > 0, root, 1.0))) - ROOT_BITS), 1.0)


def on_grid(z: Array, steps: np.ndarray | None) -> Array:
    """Features z (..., k), rounded to multiples of the steps (k,); unchanged without steps."""
    return z if steps is None or not len(steps) else steps * np.rint(z / steps)


def in_four_bytes(whole: np.ndarray) -> np.ndarray:
    """Whole numbers as integers of four bytes; refused where one is too large, as it can be where rows are new to the grid."""
    if np.abs(whole).max(initial=0.0) > np.iinfo(np.int32).max:
        raise BadData("second moments of these rows exceed four bytes: the grid of the features was made without them")
    return whole.astype(np.int32)


def snapped(values: np.ndarray, step: np.ndarray | float) -> np.ndarray:
    """Values rounded to multiples of a step."""
    return step * np.rint(values / step)


def power_below(values: np.ndarray) -> np.ndarray:
    """The largest power of two that is not above each positive value."""
    return 2.0 ** np.floor(np.log2(values))
