"""What a Gaussian mixture says of the missing cells of a table: their laws, quantiles and draws; and which cells to learn from.

Cells hidden for the choice of a model are picked by what their row holds, so any split of the rows into clients hides the same ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from unpooled.maths import gaussian, missing
from unpooled.maths.mixture import Params, Stats
from unpooled.tree import message

HALVINGS = 50  # of the bracket around a quantile


@message("maths.imputation.Laws")
class Laws(NamedTuple):
    """One mixture of normals a missing cell."""

    rows: np.ndarray  # (c,)
    columns: np.ndarray  # (c,)
    r: np.ndarray  # (c, k)
    means: np.ndarray  # (c, k)
    scales: np.ndarray  # (c, k)


def laws(params: Params, x: np.ndarray) -> Laws:
    """The law of every missing cell given what is there of its row."""
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
    """By bisection between the components' own quantiles."""
    low, high = (law.means - 9 * law.scales).min(axis=1), (law.means + 9 * law.scales).max(axis=1)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        above = cdf(law, middle) > p
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return (low + high) / 2


def draw(params: Params, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The table with its missing cells drawn, those of a row together."""
    x = x.copy()
    for g in missing.conditional(params, x, "full"):
        of = (g.r.cumsum(axis=1) < rng.random((len(g.r), 1))).sum(axis=1).clip(max=g.r.shape[1] - 1)
        values, vectors = np.linalg.eigh(g.covs)
        roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]  # (k, u, u)
        noise = np.einsum("muv,mv->mu", roots[of], rng.normal(size=(len(of), len(g.missing))))
        x[g.rows[:, None], g.missing] = g.means[np.arange(len(of)), of] + noise
    return x


def hidden(x: np.ndarray, share: float) -> np.ndarray:  # (n, d) -> (n, d) bool
    """A pseudo-random share of the cells that are there, decided by the bits of the row; the last cell of a row stays."""
    d = x.shape[1]
    odd = 2 * np.random.default_rng(0).integers(0, 2**62, size=(d, d + 1), dtype=np.uint64) + np.uint64(1)
    bits = np.where(np.isnan(x), 0.0, x).view(np.uint64)
    mixed = (bits ^ (bits >> np.uint64(29))) @ odd  # wraps around, which is what mixes
    mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)
    chosen = (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53  # (n, d + 1)
    wanted = (chosen[:, :d] < share) & ~np.isnan(x)
    wanted[wanted.sum(axis=1) == (~np.isnan(x)).sum(axis=1)] = False
    return wanted


def map_step(params: Params, stats: Stats, centre: np.ndarray, scale: np.ndarray, prior: float) -> Params:
    """The most probable full mixture under a prior worth `prior` rows of uncorrelated columns, and one row at the centre."""
    k, d = params.means.shape
    away = centre - params.means
    n, x = stats.n + 1.0, stats.x + away
    xx = gaussian.unpack_triangle(stats.xx) + away[:, :, None] * away[:, None, :]
    xx = xx + prior * np.diag((scale / k ** (1 / d)) ** 2) - x[:, :, None] * (x / n[:, None])[:, None, :]
    covs = xx / (n + prior)[:, None, None]
    return Params(n / n.sum(), params.means + x / n[:, None], gaussian.pack_covs(covs, "full"))
