"""Starts from centres of cells: k-means over all rows, k-means++ seeds, or cells drawn at random; SUMs only.

Rows never leave, so that a cell's mean stands for a row: `k-means++` and `random_from_data` draw among the means of cells, in
proportion to their rows. `kmeans` goes on with Lloyd's rounds over all rows: one SUM of counts, sums and variances of the rows
nearest to each centre, columns standardised. All depend on the totals and the seed alone, not on the split into clients.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.federation import Federation
from unpooled.maths import gaussian, mixture
from unpooled.maths.mixture import Params, Stats
from unpooled.models.initialization import cell_search
from unpooled.models.initialization.cell_mixture import Cells
from unpooled.models.initialization.cells import NARROWEST, Answers, cells, near_cells, steady
from unpooled.models.initialization.gathered import Frame, wide

LLOYD = 20  # rounds over all rows, at most
STILL = 1e-6  # of a standard deviation: centres that move less have settled
RIDGE = 1e-3  # of a column's variance, added to those of clusters


def centre_starts(
    fed: Federation, frame: Frame, sizes: Sequence[int], shape: str, how: str, rng: np.random.Generator
) -> list[Params]:
    """One start for each of `sizes`.

    Parameters
    ----------
    fed : Federation
    frame : Frame
        What `frame(fed)` gave.
    sizes : sequence of int
        The number of components of each start; all share the SUMs.
    shape : {"full", "tied", "diag", "spherical"}
        Of the covariances.
    how : {"kmeans", "k-means++", "random_from_data"}
    rng : numpy.random.Generator

    Returns
    -------
    list of Params
    """

    def answers(down: tuple[Params, ...], shapes: list[str]) -> tuple[Stats, ...]:
        return fed.sum(cells.using(shapes=shapes), down)

    frame = steady(frame)
    if max(sizes) == 1:
        return [wide(frame, np.asarray(frame.mean)[None], shape)] * len(sizes)
    found = near_cells(answers, frame, max(sizes), rng)
    drawn = _at_random if how == "random_from_data" else _spread_out
    centres = [drawn(found, k, own) for k, own in zip(sizes, rng.spawn(len(sizes)))]
    if how == "kmeans":
        return _lloyd(answers, frame, [_settled(found, c) for c in centres], shape)
    return [wide(frame, frame.mean + frame.scale * c, shape) for c in centres]


def _at_random(found: Cells, k: int, rng: np.random.Generator) -> np.ndarray:
    """k cells' means, none twice while there are enough cells."""
    m = len(found.n)
    few = rng.choice(m, size=min(k, m), replace=False, p=found.n / found.n.sum())
    return _enough(found.means[few], k, rng)


def _spread_out(found: Cells, k: int, rng: np.random.Generator) -> np.ndarray:
    """k cells' means, each next drawn by its squared distance to those before (k-means++)."""
    return _enough(cell_search.seeds(found.means, found.n, min(k, len(found.n)), rng), k, rng)


def _enough(centres: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """More centres than cells are drawn from the frame."""
    return np.concatenate([centres, rng.normal(size=(k - len(centres), centres.shape[1]))])


def _settled(found: Cells, centres: np.ndarray) -> np.ndarray:
    """k-means of the cells' means, from these centres."""
    return cell_search.lloyd(found.means, found.n, centres)[1]


def _lloyd(answers: Answers, frame: Frame, centres: list[np.ndarray], shape: str) -> list[Params]:
    """k-means over all rows from each of the centres, side by side, then a mixture of the clusters."""
    for _ in range(LLOYD):
        totals = answers(tuple(_nearest(frame, c, "diag") for c in centres), ["diag"] * len(centres))
        moved = [_moved(frame, c, t) for c, t in zip(centres, totals)]
        still = max(np.abs(new - old).max() for new, old in zip(moved, centres)) < STILL
        centres = moved
        if still:
            break
    asked = "diag" if shape == "spherical" else shape
    kernels = [_nearest(frame, c, asked) for c in centres]
    found = [_clusters(frame, *both, asked) for both in zip(kernels, answers(tuple(kernels), [asked] * len(kernels)))]
    return [p._replace(covs=p.covs.mean(-1)) for p in found] if shape == "spherical" else found


def _nearest(frame: Frame, centres: np.ndarray, shape: str) -> Params:
    """Kernels so narrow that a row counts for the nearest centre alone."""
    k = len(centres)
    covs = gaussian.reshape_covs(np.tile(np.diag(NARROWEST * frame.scale**2), (k, 1, 1)), shape)
    return Params(np.full(k, 1 / k), frame.mean + frame.scale * centres, gaussian.pack_covs(covs, shape))


def _moved(frame: Frame, centres: np.ndarray, total: Stats) -> np.ndarray:
    n = to_numpy(total.n)[:, None]
    return centres + np.where(n > 0, to_numpy(total.x) / np.maximum(n, 1e-300) / frame.scale, 0.0)


def _clusters(frame: Frame, kernels: Params, total: Stats, shape: str) -> Params:
    """A component for each cluster; one of which no row is nearest is as wide as all rows."""
    total = Stats(*(to_numpy(a) for a in total))
    found = mixture.m_step(kernels, total, shape, 0.0)
    rest = wide(frame, np.asarray(found.means), shape)
    covs = gaussian.project_positive(found.covs, shape, 0.0) + RIDGE * rest.covs
    if shape != "tied":
        held = (total.n > 1).reshape((-1,) + (1,) * (covs.ndim - 1))
        covs = np.where(held, covs, rest.covs)
    weights = np.maximum(found.weights, 1e-6)
    return Params(weights / weights.sum(), found.means, covs)
