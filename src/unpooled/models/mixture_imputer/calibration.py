"""How wide intervals must be in each column: where cells lie in their distributions, as histograms. Nothing is sent.

Hidden cells were not seen by the fit, but are few. Cells that the final fit has seen are many, but lie nearer to what it says. The
histogram of the many is moved by how much the hidden cells differ, before and after the fit has seen them: a control variate.
"""

from __future__ import annotations

import numpy as np

BINS = 40  # not more: a bin of one column should hold several cells
SEEN = 0.4  # the share of cells that are looked at after the final fit
ENOUGH = 5000  # hidden cells that need no others beside them
STEADY = 30.0  # hidden cells that speak for no difference between cells that were hidden and cells that were not
ALIKE = 25.0  # cells of all columns together that the histogram of a column is joined by


def by_column(held: np.ndarray, again: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Histograms (d, b) that add up to 1, from counts (d, b) of |2 F(value) - 1|.

    Parameters
    ----------
    held : ndarray of shape (d, b)
        Of hidden cells, under mixtures that have not seen them.
    again : ndarray of shape (d, b)
        Of the same cells, under the final mixtures.
    seen : ndarray of shape (d, b)
        Of more cells, under the final mixtures.
    """
    if not seen.sum():
        return np.full(seen.shape, 1 / seen.shape[1])
    everywhere = seen.sum(0) / seen.sum()
    own = (seen + ALIKE * everywhere) / (seen.sum(1, keepdims=True) + ALIKE)
    return _proper(own + (held - again).sum(0) / (held.sum() + STEADY))


def _proper(histograms: np.ndarray) -> np.ndarray:
    """Histograms without bins below 0, which differences can have: their sums up to each bin never fall, and end at 1."""
    upto = np.maximum.accumulate(np.cumsum(histograms, axis=1).clip(0.0), axis=1)
    return np.diff(upto, axis=1, prepend=0.0) / upto[:, -1:]


def nominal(histogram: np.ndarray, coverage: float) -> float:
    """The nominal coverage at which this share of the cells of a column is inside."""
    share = np.append(0.0, np.cumsum(histogram) / histogram.sum())
    return float(np.interp(coverage, share, np.linspace(0, 1, len(share))).clip(1e-6, 1 - 1e-6))
