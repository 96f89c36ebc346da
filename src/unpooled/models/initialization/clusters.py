"""k-means over all rows, by sums: one SUM of counts and sums of the rows nearest to each centre per round, columns standardised.

Where scikit-learn draws a row, the mean of a cell is drawn, since rows never leave: `init_params="k-means++"` and `"random_from_data"`
draw among the means of cells, in proportion to their rows; `"kmeans"` goes on with Lloyd's rounds over all rows. All depend on the
totals and the seed alone, not on the split into clients.
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
from unpooled.models.initialization.cell_sums import NARROWEST, sum_cells, totals_of
from unpooled.models.initialization.column_frame import Frame, round_to_grid, rounded_frame
from unpooled.models.initialization.covariance_kinds import kind_of
from unpooled.models.initialization.gathered import Centres, wide
from unpooled.models.initialization.kernels import (
    POINTS_PER_COMPONENT,
    Kernels,
    finer_kernels,
    first_kernels,
    n_cells,
)
from unpooled.models.initialization.together import Answers, Search, floored, together

LLOYD = 2  # rounds before the covariances of clusters are asked for
MOST_LLOYD = 20  # rounds over all rows, at most, where clusters are the result
SEEDS = 10  # of k-means of the cells, of which the best goes on
STILL = 1e-6  # standard deviations: rounds end when no centre moves farther
RIDGE = 1e-2  # of a column's variance, added to those of clusters


def clusters(first: Cells, frame: Frame, most: int, shape: str, rng: np.random.Generator) -> Search:
    """Cells that are clusters, at most so many, by rounds of k-means over all rows from seeds among the first cells."""
    last = shape if shape in ("full", "tied") else "diag"
    m = min(most, len(first.n))
    centres = cell_search.lloyd(first.means, first.n, cell_search.seeds(first.means, first.n, m, rng))[1]
    (centres,) = yield from _moved_centres(frame, [centres], LLOYD)
    unit = np.ones(len(frame.mean)) * NARROWEST
    kernels = Kernels(centres, unit if last == "diag" else np.diag(unit))
    (found,) = yield from sum_cells(frame, [kernels], [last])
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
    n = to_numpy(up.n)
    x = to_numpy(up.x) / frame.scale
    xx = to_numpy(up.xx) / frame.scale**2
    held = n > 0
    safe = np.where(held, n, 1.0)[:, None]
    within = np.maximum(xx - x**2 / safe, 0.0)
    means = round_to_grid(centres + x / safe)
    return Centres(safe[:, 0], means, np.where(held[:, None], round_to_grid(within), 1.0))


def _nearest(frame: Frame, centres: np.ndarray, shape: str) -> Params:
    """Kernels so narrow that a row counts for the nearest centre alone."""
    k = len(centres)
    covs = gaussian.reshape_covs(np.tile(np.diag(NARROWEST * frame.scale**2), (k, 1, 1)), shape)
    return Params(np.full(k, 1 / k), frame.mean + frame.scale * centres, gaussian.pack_covs(covs, shape))


def _moved(frame: Frame, centres: np.ndarray, total: Stats) -> np.ndarray:
    """Centres moved to the means of their rows; those without rows stay."""
    n = to_numpy(total.n)[:, None]
    return round_to_grid(centres + np.where(n > 0, to_numpy(total.x) / np.maximum(n, 1e-300) / frame.scale, 0.0))


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


# ---- starts from centres of cells ----


def centre_starts(
    fed: Federation, frame: Frame, sizes: Sequence[int], shape: str, init_params: str, rng: np.random.Generator
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
    init_params : {"kmeans", "k-means++", "random_from_data"}
        As in `GaussianMixture`.
    rng : numpy.random.Generator

    Returns
    -------
    list of Params
    """
    answers = totals_of(fed)
    frame = rounded_frame(frame)
    if max(sizes) == 1:
        return [wide(frame, np.asarray(frame.mean)[None], shape)] * len(sizes)
    found = _near_cells(answers, frame, max(sizes), rng)
    draw = _at_random if init_params == "random_from_data" else _spread_out
    centres = [draw(found, k, size_rng) for k, size_rng in zip(sizes, rng.spawn(len(sizes)))]
    if init_params == "kmeans":
        return together(answers, [lloyd(frame, [_settled(found, c) for c in centres], shape, MOST_LLOYD)])[0]
    return [wide(frame, frame.mean + frame.scale * c, shape) for c in centres]


def k_means(answers: Answers, frame: Frame, sizes: Sequence[int], rng: np.random.Generator) -> list[Centres]:
    """The clusters of k-means over all rows, in the standardised frame: how many rows, centres and squares within.

    Parameters
    ----------
    answers : callable
        Asks for totals over cells.
    frame : Frame
        Mean and scale of the columns.
    sizes : sequence of int
        Numbers of clusters; all sizes share the SUMs.
    rng : numpy.random.Generator

    Returns
    -------
    list of Centres
        One for each size.
    """
    frame = rounded_frame(frame)
    found = _near_cells(answers, frame, max(sizes), rng)
    centres = [_best_of_many(found, k, size_rng) for k, size_rng in zip(sizes, rng.spawn(len(sizes)))]
    return together(answers, [clustered(frame, centres, MOST_LLOYD)])[0]


def _near_cells(answers: Answers, frame: Frame, k: int, rng: np.random.Generator) -> Cells:
    """Cells around points for up to k components, then finer ones where rows are: SUMs of counts, sums and variances."""
    d = len(frame.mean)
    m = n_cells(POINTS_PER_COMPONENT * k, k, float(frame.rows), d, "diag")

    def search() -> Search:
        """Both sets of cells, one after the other."""
        (first,) = yield from sum_cells(frame, [first_kernels(m, np.ones(d), rng)], ["diag"])
        (finer,) = yield from sum_cells(frame, [finer_kernels(first, m, kind_of("diag"), rng)], ["diag"])
        return finer

    return together(answers, [search()])[0]


def _best_of_many(found: Cells, k: int, rng: np.random.Generator) -> np.ndarray:
    """The centres (k, d) of the best of several k-means of the cells' means."""
    tried = [_settled(found, _spread_out(found, k, rng)) for _ in range(SEEDS)]
    return tried[int(np.argmin([_inertia(found, centres) for centres in tried]))]


def _inertia(found: Cells, centres: np.ndarray) -> float:
    """The sum of squares of the cells' means about their nearest centres."""
    squares = ((found.means[:, None] - centres) ** 2).sum(-1)
    return float(found.n @ squares.min(1))


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
