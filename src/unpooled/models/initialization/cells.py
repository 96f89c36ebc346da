"""Where a mixture starts, from sums alone: three SUMs over cells, K Gaussians found at the server, sixteen rounds of EM to choose.

Rows are cut into cells (`cell_sums`) in three ways. `around` cuts in all columns: finely where components are many and far from each
other. `across` cuts along the few directions that tell components apart best: finely where components overlap. `clusters` are k-means
over all rows with a few times as many centres as components: few of them hold rows of two components where columns are many.

1. Cells around points drawn from the frame: a count and a sum per cell, one second moment for all. They give the covariance of
   all rows, and so its leading directions, and seeds for k-means.
2. Cells around points drawn from those of 1, slabs across the leading directions, a round of k-means.
3. Cells around points drawn from those of 2, slabs across the directions that discriminate best between K Gaussians fitted to
   the cells of 2, another round of k-means; one SUM more for the clusters' second moments. Mixtures are fitted to all kinds of
   cells (`cell_search`).
4. Rounds of EM over all rows from the best of these fits, side by side (`short_runs`): the likeliest are the starts.

Missing values are integrated out, as in EM. The totals do not depend on how rows are split into clients; they are rounded before
anything is decided by them, so that the order of additions decides nothing.

References
----------
Bradley, Fayyad, Reina (1998), Scaling clustering algorithms to large databases.
Vasconcelos, Lippman (1998), Learning mixture hierarchies.
Biernacki, Celeux, Govaert (2003), Choosing starting values for the EM algorithm.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import NamedTuple

import numpy as np

from unpooled.federation import Federation
from unpooled.maths import gaussian
from unpooled.maths.mixture import Params
from unpooled.models.initialization import cell_mixture, cell_search
from unpooled.models.initialization.cell_mixture import Cells, Fit
from unpooled.models.initialization.cell_sums import sum_cells, totals_of
from unpooled.models.initialization.clusters import LLOYD, clusters
from unpooled.models.initialization.column_frame import Frame, rounded_frame
from unpooled.models.initialization.covariance_kinds import Matrices, kind_of
from unpooled.models.initialization.gathered import wide
from unpooled.models.initialization.kernels import (
    POINTS_PER_COMPONENT,
    discriminant_slabs,
    finer_kernels,
    first_kernels,
    leading_slabs,
    n_cells,
)
from unpooled.models.initialization.part_of_rows import Part, part_of
from unpooled.models.initialization.short_runs import QUICK, STAGES, Pool, params_of, short_runs
from unpooled.models.initialization.together import Answers, Search, floor_of, together

SLABS_PER_COMPONENT = 8
CLUSTERS_PER_COMPONENT = 5
MATRIX_COLUMNS = 100  # more, where variances alone are asked for: no covariance is sent, and nothing is cut across
MORE_FITS = 1  # fits to cells around points or across directions that are compared, beyond those asked for
MORE_CLUSTER_FITS = 2  # fits to clusters, likewise
CELL_SUMS = 2 * (1 + LLOYD + 1) + sum(1 + stage.rounds for stage in STAGES)  # each counted first


class CellSets(NamedTuple):
    """Cells of three kinds, in the standardised frame."""

    around: Cells
    across: Cells | None  # None where nothing was cut so
    clusters: Cells


def cells_start(
    fed: Federation,
    frame: Frame,
    sizes: Sequence[int],
    n_init: int,
    shape: str,
    rng: np.random.Generator,
    quick: bool = False,
) -> list[Params]:
    """Starts of mixtures, from 28 SUMs, of which eight are counts and sixteen rounds of EM; one component alone needs none.

    Of many rows a part is enough (see `part_of_rows`): with them there is one SUM more.

    Parameters
    ----------
    fed : Federation
    frame : Frame
        What `frame(fed)` gave.
    sizes : sequence of int
        The numbers of components; all share the same cells.
    n_init : int
        Starts for each size.
    shape : {"full", "tied", "diag", "spherical"}
        Of the covariances.
    rng : numpy.random.Generator
        Nothing but it and the totals decides.
    quick : bool, default=False
        With one round of EM instead of sixteen, for fits that are to have few rounds themselves.

    Returns
    -------
    list of Params
        `n_init` for the first size, best first, then for the next.
    """
    part = Part(1, float(frame.rows))
    if max(sizes) > 1:
        part = part_of(fed, frame, gaussian.n_parameters(max(sizes), len(frame.mean), shape))
    frame = frame._replace(rows=np.asarray(part.rows))
    return starts(totals_of(fed, part.every), frame, sizes, n_init, shape, rng, quick)


def starts(
    answers: Answers,
    frame: Frame,
    sizes: Sequence[int],
    n_init: int,
    shape: str,
    rng: np.random.Generator,
    quick: bool = False,
) -> list[Params]:
    """As `cells_start`, from any way of asking for totals."""
    frame = rounded_frame(frame)
    if max(sizes) == 1:
        return [wide(frame, np.asarray(frame.mean)[None], shape)] * (len(sizes) * n_init)
    cells = all_cells(answers, frame, max(sizes), shape, rng)
    drawing = rng.spawn(len(sizes))
    choosing = rng.spawn(len(sizes))
    stages = QUICK if quick else STAGES

    def run(k: int, n: int, draw: np.random.Generator, choose: np.random.Generator) -> Search:
        """The best n of the mixtures of k components; with copies of generators, so that each n begins alike."""
        pool = _pool(cells, k, n, frame, shape, deepcopy(draw))
        return short_runs(pool, n, frame, shape, deepcopy(choose), stages, floor_of(answers))

    counts = sorted({1, n_init})  # the best one of a search for one comes first, whatever n_init is
    searches = [run(k, n, *rngs) for n in counts for k, *rngs in zip(sizes, drawing, choosing)]
    found = together(answers, searches)
    alone = found[: len(sizes)]
    several = found[len(sizes) :]
    ranked = alone
    if several:
        ranked = [[one[0], *others] for one, others in zip(alone, several)]
    return [some[i % len(some)] for some in ranked for i in range(n_init)]


def _pool(cells: CellSets, k: int, n_init: int, frame: Frame, shape: str, rng: np.random.Generator) -> Pool:
    """Mixtures of k components to choose `n_init` from; the search for one is always among those for several."""
    cut = [some for some in (cells.around, cells.across) if some is not None]
    drawn = _candidates(cut, k, n_init + MORE_FITS, shape, rng)
    dense = _candidates([cells.clusters], k, n_init + MORE_CLUSTER_FITS, shape, rng)
    plain = [_filled(cell_search.k_means_fit(cells.clusters, k, shape, rng), k, rng) for _ in range(n_init)]

    def params(fits: list[Fit]) -> list[Params]:
        """The fits as mixtures."""
        return [params_of(fit, frame, shape) for fit in fits]

    return Pool(params(drawn), params(dense), params(plain))


# ---- three SUMs over cells ----


def all_cells(answers: Answers, frame: Frame, k: int, shape: str, rng: np.random.Generator) -> CellSets:
    """Cells of all kinds for up to k components; the searches for clusters and for the other cells share their SUMs."""
    first = first_cells(answers, frame, k, shape, rng)
    rows = float(frame.rows)
    d = len(frame.mean)
    n_clusters = n_cells(CLUSTERS_PER_COMPONENT * k, k, rows / 2, d, shape)
    cut_cells = _cut_around if _is_wide(frame, shape) else _cut
    cut = cut_cells(first, frame, k, shape, rng)
    (around, across), clustered = together(answers, [cut, clusters(first, frame, n_clusters, shape, rng)])
    return CellSets(around, across, clustered)


def first_cells(answers: Answers, frame: Frame, k: int, shape: str, rng: np.random.Generator) -> Cells:
    """Cells around points drawn from the frame."""
    d = len(frame.mean)
    kind = "diag" if _is_wide(frame, shape) else "tied"
    m = n_cells(POINTS_PER_COMPONENT * k, k, float(frame.rows), d, _cell_shape(shape))
    unit = np.eye(d) if kind == "tied" else np.ones(d)
    ((cells,),) = together(answers, [sum_cells(frame, [first_kernels(m, unit, rng)], [kind])])
    return cells


def _is_wide(frame: Frame, shape: str) -> bool:
    """Whether cells are summed by variances alone, because there are many columns."""
    return len(frame.mean) > MATRIX_COLUMNS and shape not in ("full", "tied")


def _cell_shape(shape: str) -> str:
    """The covariances that the last cells around points have; "spherical" ones are asked for as "diag"."""
    return shape if shape in ("full", "tied") else "diag"


def _cut_around(first: Cells, frame: Frame, k: int, shape: str, rng: np.random.Generator) -> Search:
    """(cells around points, None) for up to k components of a wide table: two SUMs."""
    m = n_cells(POINTS_PER_COMPONENT * k, k, float(frame.rows), len(frame.mean), "diag")
    around = first
    for _ in range(2):
        (around,) = yield from sum_cells(frame, [finer_kernels(around, m, kind_of(shape), rng)], ["diag"])
    return around, None


def _cut(first: Cells, frame: Frame, k: int, shape: str, rng: np.random.Generator) -> Search:
    """(cells around points, cells across directions) for up to k components: two SUMs."""
    rows = float(frame.rows)
    d = len(frame.mean)
    around_shape = _cell_shape(shape)
    across_shape = "full" if shape == "full" else "tied"
    n_around = n_cells(POINTS_PER_COMPONENT * k, k, rows, d, around_shape)
    n_across = n_cells(SLABS_PER_COMPONENT * k, k, rows, d, across_shape)
    matrices = Matrices(False)
    centre = cell_mixture.centre_of(first)
    cov = matrices.positive(cell_mixture.total(first, matrices), 1e-6)
    slabs = leading_slabs(centre, cov, k, n_across, rng)
    kernels = finer_kernels(first, n_around, matrices, rng)
    around, across = yield from sum_cells(frame, [kernels, slabs], ["tied", across_shape])
    slabs = discriminant_slabs(across, centre, cov, k, n_across, rng)
    kernels = finer_kernels(around, n_around, matrices, rng)
    if around_shape == "diag":
        kernels = kernels._replace(cov=np.diag(kernels.cov))
    around, across = yield from sum_cells(frame, [kernels, slabs], [around_shape, across_shape])
    if around_shape == "diag":
        across = across._replace(covs=matrices.diagonal(across.covs))
    return around, across


# ---- the server ----


def _candidates(kinds: Sequence[Cells], k: int, each: int, shape: str, rng: np.random.Generator) -> list[Fit]:
    """The best mixtures of k components for these kinds of cells, without those that are alike."""
    fits = [fit for some in kinds for fit in cell_search.search(some, min(k, len(some.n)), shape, rng)[:each]]
    kind = kind_of(shape)
    seen = cell_mixture.moments(kinds[0], kind)
    filled = [_filled(fit, k, rng) for fit in fits]
    placed = [fit._replace(shares=cell_mixture.responsibilities(seen, fit, kind)) for fit in filled]
    return cell_search.apart(placed, seen.n)


def _filled(fit: Fit, k: int, rng: np.random.Generator) -> Fit:
    """Components beyond the number of cells are as wide as all rows, at random points of the frame."""
    extra = k - len(fit.weights)
    d = fit.means.shape[1]
    if not extra:
        return fit
    unit = np.eye(d) if fit.covs.ndim == 3 else np.ones(d)
    weights = np.append(fit.weights, np.full(extra, 1e-3))
    means = np.concatenate([fit.means, rng.normal(size=(extra, d))])
    covs = np.concatenate([fit.covs, np.tile(unit, (extra,) + (1,) * unit.ndim)])
    return fit._replace(weights=weights / weights.sum(), means=means, covs=covs)
