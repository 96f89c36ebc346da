"""The distribution of each column, from the histograms that clients add up: bins, knots and drawn rows follow from it. Sends nothing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import norm

from unpooled.arrays import Array, Float
from unpooled.models.regression import MIDDLES, Scaling, standard
from unpooled.tree import message

N_BINS = 24  # of a column, where effects on y are looked at; fewer where clients are many
MIN_ROWS = 5  # of a bin
N_DRAWN = 1200  # rows drawn to place points among
FEW_VALUES = 40  # a column with fewer values has knots at its values, else at quantiles of its rows
FAR = 1e300


@message("fedbnr.Marginals")
class Marginals(NamedTuple):
    """Counts of standardised values, column by column."""

    values: Float[Array, "d b"]  # in ascending order
    counts: Float[Array, "d b", ">=0 rows"]


def marginals(counts: np.ndarray, first: Scaling, last: Scaling) -> Marginals:
    """Counts (d, b) of values standardised by `first`, as values standardised by `last`."""
    raw = first.x_mean + first.x_scale * MIDDLES[:, None]  # (b, d)
    return Marginals(standard(last, raw).T, counts)


def occupied(known: Marginals, column: int) -> tuple[np.ndarray, np.ndarray]:
    """(values, counts) of a column's bins that have rows."""
    rows = known.counts[column] > 0
    return known.values[column, rows], known.counts[column, rows]


def bin_edges(known: Marginals, n_bins: int = N_BINS) -> np.ndarray:  # (d, n_bins - 1)
    """Edges between bins of about equally many rows, at least MIN_ROWS; FAR where a column has fewer bins."""
    edges = np.full((len(known.values), n_bins - 1), FAR)
    for j in range(len(known.values)):
        found = _edges(*occupied(known, j), n_bins)
        edges[j, : len(found)] = found
    return edges


def _edges(values: np.ndarray, counts: np.ndarray, n_bins: int) -> list[float]:
    """Edges of bins with enough rows in each."""
    least = max(counts.sum() / n_bins, MIN_ROWS)
    found: list[float] = []
    rows = 0.0
    after = counts.sum()
    for i in range(len(values) - 1):
        rows = rows + counts[i]
        after = after - counts[i]
        if rows >= least and after >= MIN_ROWS and len(found) < n_bins - 1:
            found.append(0.5 * (values[i] + values[i + 1]))
            rows = 0.0
    return found


def knots(known: Marginals, wanted: np.ndarray) -> list[np.ndarray]:
    """For each column, so many knots (d,): at quantiles of its rows, or of its values where it has few."""
    found = []
    for j, n_knots in enumerate(wanted):
        values, counts = occupied(known, j)
        even = np.ones_like(counts) if len(values) < FEW_VALUES else counts
        found.append(np.unique(_quantiles(values, even, np.arange(1, n_knots + 1) / (n_knots + 1))))
    return found


def most_knots(known: Marginals) -> np.ndarray:  # (d,)
    """How many knots a column can have: none with two values or fewer."""
    n_values = (known.counts > 0).sum(1)
    return np.clip(n_values - 2, 0, N_BINS)


def hinge_means(known: Marginals, columns: np.ndarray, at: np.ndarray) -> np.ndarray:  # (a,)
    """Means of max(x - knot, 0) over the rows, as far as the histograms tell."""
    share = known.counts / np.maximum(known.counts.sum(1, keepdims=True), 1e-300)
    return np.array([share[j] @ np.maximum(known.values[j] - t, 0.0) for j, t in zip(columns, at)])


def drawn_rows(known: Marginals, second_moments: np.ndarray, seed: int) -> np.ndarray:  # (N_DRAWN, d)
    """Random rows with the marginals of the columns and about their correlations (a Gaussian copula)."""
    d = len(known.values)
    spread = np.sqrt(np.diag(second_moments))
    varies = spread > 0
    spread = np.where(varies, spread, 1.0)
    correlation = np.where(np.outer(varies, varies), second_moments / np.outer(spread, spread), 0.0)
    values, vectors = np.linalg.eigh(correlation)
    values = np.maximum(values, 0.0)
    # symmetric: it does not depend on which eigenvectors are found for equal eigenvalues
    root = vectors * np.sqrt(values) @ vectors.T
    normal = np.random.default_rng([seed, 1]).standard_normal((N_DRAWN, d)) @ root
    normal /= np.sqrt(np.maximum(vectors**2 @ values, 1e-12))
    levels = norm.cdf(normal)
    return np.column_stack([_quantiles(*occupied(known, j), levels[:, j]) for j in range(d)])


def _quantiles(values: np.ndarray, counts: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Quantiles of one column from its histogram."""
    if not len(values):
        return np.zeros(len(levels))
    share = np.cumsum(counts) / counts.sum()
    return values[np.minimum(np.searchsorted(share, levels), len(values) - 1)]
