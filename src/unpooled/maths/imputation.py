"""What a Gaussian mixture says of the missing cells of a table: their laws, quantiles and draws; and which cells to
learn from.

Cells hidden for the choice of a model are picked by what their row holds, so any split of the rows into clients hides
the same ones.
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
    """The conditional distribution of each missing cell: a mixture of normals."""

    rows: np.ndarray  # (c,)
    columns: np.ndarray  # (c,)
    r: np.ndarray  # (c, k)
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
    m, k, u = g.means.shape
    scales = np.sqrt(np.maximum(np.einsum("kuu->ku", g.covs), 0.0))
    spread = lambda a: np.moveaxis(np.broadcast_to(a, (m, k, u)), 1, 2).reshape(m * u, k)  # noqa: E731
    return Laws(
        np.repeat(g.rows, u), np.tile(g.missing, m), spread(g.r[:, :, None]), spread(g.means), spread(scales[None])
    )


def mean(law: Laws) -> np.ndarray:  # (c,)
    return (law.r * law.means).sum(axis=1)


def cdf(law: Laws, value: np.ndarray) -> np.ndarray:  # (c,) -> (c,)
    return (law.r * ndtr((value[:, None] - law.means) / np.maximum(law.scales, 1e-300))).sum(axis=1)


def quantile(law: Laws, p: float) -> np.ndarray:  # (c,)
    """The quantile at level p, by bisection between the components' quantiles."""
    low, high = (law.means - 9 * law.scales).min(axis=1), (law.means + 9 * law.scales).max(axis=1)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        above = cdf(law, middle) > p
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return (low + high) / 2


def draw(params: Params, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The table with its missing cells drawn at random, jointly per row."""
    x = x.copy()
    for g in missing.conditional(params, x, "full"):
        of = (g.r.cumsum(axis=1) < rng.random((len(g.r), 1))).sum(axis=1).clip(max=g.r.shape[1] - 1)
        values, vectors = np.linalg.eigh(g.covs)
        roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]  # (k, u, u)
        noise = np.einsum("muv,mv->mu", roots[of], rng.normal(size=(len(of), len(g.missing))))
        x[g.rows[:, None], g.missing] = g.means[np.arange(len(of)), of] + noise
    return x


def hidden(x: np.ndarray, share: float) -> np.ndarray:  # (n, d) -> (n, d) bool
    """A pseudo-random share of the observed cells, determined by the bits of the row; no row loses its last cell."""
    wanted = (_chosen(x)[:, :-1] < share) & ~np.isnan(x)
    wanted[wanted.sum(axis=1) == (~np.isnan(x)).sum(axis=1)] = False
    return wanted


def half(x: np.ndarray) -> np.ndarray:  # (n, d) -> (n,) bool
    """A pseudo-random half of the rows, determined by their bits."""
    return _chosen(x)[:, -1] < 0.5


def _chosen(x: np.ndarray) -> np.ndarray:
    """Numbers from 0 to 1, (n, d + 1), that look random and are determined by the bits of the row."""
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
