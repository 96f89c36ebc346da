"""The missing cells of a table under a Gaussian mixture: their distributions, quantiles and draws. Sends nothing.

It also hides cells to choose a model by. These are picked by the values of their row, so any split of the rows into
clients hides the same ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from unpooled.maths import missing
from unpooled.maths.mixture import Params
from unpooled.tree import message

HALVINGS = 50  # bisection steps for a quantile


@message("maths.imputation.Laws")
class Laws(NamedTuple):
    """The conditional distribution of each missing cell, a mixture of k normals; c cells."""

    rows: np.ndarray  # (c,)
    columns: np.ndarray  # (c,)
    r: np.ndarray  # (c, k) probabilities of the components
    means: np.ndarray  # (c, k)
    scales: np.ndarray  # (c, k)


def laws(params: Params, x: np.ndarray) -> Laws:
    """The distribution of every missing cell given the observed values of its row."""
    parts = [_cells(g) for g in missing.conditional(params, x, "full")]
    if not parts:
        k = len(params.weights)
        return Laws(np.zeros(0, int), np.zeros(0, int), *(np.zeros((0, k)) for _ in range(3)))
    return Laws(*(np.concatenate(p) for p in zip(*parts)))


def _cells(g: missing.Given) -> Laws:
    """`Laws` of the rows with one pattern of missing values."""
    m, k, u = g.means.shape
    scales = np.sqrt(np.maximum(np.einsum("kuu->ku", g.covs), 0.0))

    def by_cell(a: np.ndarray) -> np.ndarray:
        """Numbers that broadcast to (m, k, u), as (m u, k)."""
        return np.moveaxis(np.broadcast_to(a, (m, k, u)), 1, 2).reshape(m * u, k)

    rows = np.repeat(g.rows, u)
    columns = np.tile(g.missing, m)
    return Laws(rows, columns, by_cell(g.r[:, :, None]), by_cell(g.means), by_cell(scales[None]))


def mean(law: Laws) -> np.ndarray:  # (c,)
    """The mean of each cell."""
    return (law.r * law.means).sum(axis=1)


def cdf(law: Laws, value: np.ndarray) -> np.ndarray:  # (c,) -> (c,)
    """The distribution function of each cell at `value` (c,)."""
    return (law.r * ndtr((value[:, None] - law.means) / np.maximum(law.scales, 1e-300))).sum(axis=1)


def quantile(law: Laws, p: float) -> np.ndarray:  # (c,)
    """The quantile of each cell at level p, (c,), by bisection."""
    low = (law.means - 9 * law.scales).min(axis=1)
    high = (law.means + 9 * law.scales).max(axis=1)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        above = cdf(law, middle) > p
        low = np.where(above, low, middle)
        high = np.where(above, middle, high)
    return (low + high) / 2


def draw(params: Params, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The table (n, d) with its missing cells drawn at random, jointly per row."""
    x = x.copy()
    for given in missing.conditional(params, x, "full"):
        m, k = given.r.shape
        below = given.r.cumsum(axis=1) < rng.random((m, 1))
        component = below.sum(axis=1).clip(max=k - 1)  # (m,)
        values, vectors = np.linalg.eigh(given.covs)
        roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]  # (k, u, u)
        normal = rng.normal(size=(m, len(given.missing)))
        noise = np.einsum("muv,mv->mu", roots[component], normal)
        x[given.rows[:, None], given.missing] = given.means[np.arange(m), component] + noise
    return x


def hidden(x: np.ndarray, share: float) -> np.ndarray:  # (n, d) -> (n, d) bool
    """Which observed cells to hide: a pseudo-random share, by the bits of the row; no row loses its last cell."""
    wanted = (_pseudo_random(x)[:, :-1] < share) & ~np.isnan(x)
    wanted[wanted.sum(axis=1) == (~np.isnan(x)).sum(axis=1)] = False
    return wanted


def part(x: np.ndarray, share: float) -> np.ndarray:  # (n, d) -> (n, d) bool
    """A pseudo-random share of the rows for each column, by the bits of the row."""
    return np.asarray(_pseudo_random(x)[:, :-1] < share)


def half(x: np.ndarray) -> np.ndarray:  # (n, d) -> (n,) bool
    """Which rows are in a pseudo-random half, by the bits of the row."""
    return _pseudo_random(x)[:, -1] < 0.5


def _pseudo_random(x: np.ndarray) -> np.ndarray:
    """Pseudo-random numbers (n, d + 1) in [0, 1) that the bits of each row (n, d) determine."""
    d = x.shape[1]
    odd = 2 * np.random.default_rng(0).integers(0, 2**62, size=(d, d + 1), dtype=np.uint64) + np.uint64(1)
    bits = np.where(np.isnan(x), 0.0, x).view(np.uint64)
    mixed = (bits ^ (bits >> np.uint64(29))) @ odd  # integer overflow is intended: it mixes the bits
    mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)
    return (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53


def deviation(law: Laws) -> np.ndarray:  # (c,)
    """The standard deviation of each cell."""
    middle = mean(law)
    second = (law.r * (law.scales**2 + (law.means - middle[:, None]) ** 2)).sum(axis=1)
    return np.sqrt(second)
