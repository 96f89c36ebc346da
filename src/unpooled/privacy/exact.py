"""Sums over rows without rounding: every row's numbers are cut to a grid so coarse that float64 adds them exactly. Sends nothing.

In floating-point arithmetic one more row changes how all the others round, and the sensitivity of a sum is larger than on paper [1]_.
Numbers of magnitude at most 1 cut to multiples of 2^-16 have products that are multiples of 2^-32, so that two million of them add up
without any rounding, in any order. Numbers are cut towards zero, so that no norm grows.

References
----------
.. [1] Casacuberta, Shoemate, Vadhan and Wagaman (2022). Widespread underestimation of sensitivity in differentially private libraries. CCS.
"""

from __future__ import annotations

import numpy as np

FACTOR_BITS = 16  # of numbers whose products are added
TERM_BITS = 30  # of numbers that are added themselves


def factors(v: np.ndarray) -> np.ndarray:
    """Numbers of magnitude at most 1, cut so that sums of products of two are exact."""
    return np.trunc(v * (1 << FACTOR_BITS)) / (1 << FACTOR_BITS)


def terms(v: np.ndarray) -> np.ndarray:
    """Numbers of magnitude at most 1, cut so that their sums are exact."""
    return np.trunc(v * (1 << TERM_BITS)) / (1 << TERM_BITS)
