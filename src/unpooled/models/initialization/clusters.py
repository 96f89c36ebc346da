"""k-means over all rows, by sums: one SUM of counts and sums of the rows nearest to each centre per round, columns standardised."""

from __future__ import annotations

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.maths import gaussian, mixture
from unpooled.maths.mixture import Params, Stats
from unpooled.models.initialization import cell_search
from unpooled.models.initialization.cell_mixture import Cells
from unpooled.models.initialization.cell_sums import NARROWEST, Kernels, asked, rounded
from unpooled.models.initialization.gathered import Centres, Frame, wide
from unpooled.models.initialization.together import Search, floored

LLOYD = 2  # rounds before the covariances of clusters are asked for
STILL = 1e-6  # of a standard deviation: centres that move less have settled
RIDGE = 1e-2  # of a column's variance, added to those of clusters


def clusters(first: Cells, frame: Frame, most: int, shape: str, rng: np.random.Generator) -> Search:
    """Cells that are clusters, at most so many, by rounds of k-means over all rows from seeds among the first cells."""
    last = shape if shape in ("full", "tied") else "diag"
    m = min(most, len(first.n))
    centres = cell_search.lloyd(first.means, first.n, cell_search.seeds(first.means, first.n, m, rng))[1]
    (centres,) = yield from _moved_centres(frame, [centres], LLOYD)
    unit = np.ones(len(frame.mean)) * NARROWEST
    kernels = Kernels(centres, unit if last == "diag" else np.diag(unit))
    (found,) = yield from asked(frame, [kernels], [last])
    return found


def _moved_centres(frame: Frame, centres: list[np.ndarray], rounds: int) -> Search:
    """The centres after rounds of k-means over all rows, side by side."""
    for _ in range(rounds):
        totals = yield from floored([_nearest(frame, c, "diag") for c in centres], ["diag"] * len(centres))
        moved = [_moved(frame, c, up) for c, up in zip(centres, totals)]
        still = max(np.abs(new - old).max() for new, old in zip(moved, centres)) < STILL
        centres = moved
        if still:
            break
    return centres


def lloyd(frame: Frame, centres: list[np.ndarray], shape: str, rounds: int) -> Search:
    """k-means over all rows from each of the centres, side by side, then a mixture of the clusters."""
    centres = yield from _moved_centres(frame, centres, rounds)
    last = "diag" if shape == "spherical" else shape
    kernels = [_nearest(frame, c, last) for c in centres]
    totals = yield from floored(kernels, [last] * len(kernels))
    found = [_mixture(frame, kernel, up, last) for kernel, up in zip(kernels, totals)]
    return [p._replace(covs=p.covs.mean(-1)) for p in found] if shape == "spherical" else found


def clustered(frame: Frame, centres: list[np.ndarray], rounds: int) -> Search:
    """k-means over all rows from each of the centres, side by side: the clusters' rows, centres and squares within."""
    centres = yield from _moved_centres(frame, centres, rounds)
    totals = yield from floored([_nearest(frame, c, "diag") for c in centres], ["diag"] * len(centres))
    return [_centres(frame, c, up) for c, up in zip(centres, totals)]


def _centres(frame: Frame, centres: np.ndarray, up: Stats) -> Centres:
    """Clusters in the standardised frame; one of few rows stays where it is, as wide as all rows."""
    n, x, xx = to_numpy(up.n), to_numpy(up.x) / frame.scale, to_numpy(up.xx) / frame.scale**2
    held = n > 0
    safe = np.where(held, n, 1.0)[:, None]
    within = np.maximum(xx - x**2 / safe, 0.0)
    return Centres(np.where(held, n, 1.0), rounded(centres + x / safe), np.where(held[:, None], rounded(within), 1.0))


def _nearest(frame: Frame, centres: np.ndarray, shape: str) -> Params:
    """Kernels so narrow that a row counts for the nearest centre alone."""
    k = len(centres)
    covs = gaussian.reshape_covs(np.tile(np.diag(NARROWEST * frame.scale**2), (k, 1, 1)), shape)
    return Params(np.full(k, 1 / k), frame.mean + frame.scale * centres, gaussian.pack_covs(covs, shape))


def _moved(frame: Frame, centres: np.ndarray, total: Stats) -> np.ndarray:
    n = to_numpy(total.n)[:, None]
    return rounded(centres + np.where(n > 0, to_numpy(total.x) / np.maximum(n, 1e-300) / frame.scale, 0.0))


def _mixture(frame: Frame, kernels: Params, total: Stats, shape: str) -> Params:
    """A component for each cluster; one of which few rows are nearest is as wide as all rows."""
    total = Stats(*(to_numpy(a) for a in total))
    found = mixture.m_step(kernels, total, shape, 0.0)
    rest = wide(frame, np.asarray(found.means), shape)
    covs = gaussian.project_positive(found.covs, shape, 0.0) + RIDGE * rest.covs
    if shape != "tied":
        held = (total.n > 1).reshape((-1,) + (1,) * (covs.ndim - 1))
        covs = np.where(held, covs, rest.covs)
    weights = np.maximum(found.weights, 1e-6)
    return Params(weights / weights.sum(), found.means, covs)
