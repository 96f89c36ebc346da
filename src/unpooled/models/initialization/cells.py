"""Where a mixture starts, from sums alone: three SUMs over cells, K Gaussians found at the server, sixteen rounds of EM to choose.

Rows are cut into cells (`cell_sums`) in three ways. `around` cuts in all columns: finely where components are many and apart.
`across` cuts in the few directions that tell components apart best: finely where components overlap. `clusters` are k-means over all
rows with a few times as many centres as components: they are pure where columns are many.

1. Cells around points drawn from the frame: a count and a sum per cell, one second moment for all. They give the covariance of
   all rows, and so its leading directions, and seeds for k-means.
2. Cells around points drawn from those of 1, cells across the leading directions, a round of k-means.
3. Cells around points drawn from those of 2, cells across the directions that discriminate best between K Gaussians fitted to
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
from unpooled.maths.mixture import Params
from unpooled.models.initialization import cell_mixture, cell_search
from unpooled.models.initialization.cell_mixture import Cells, Fit
from unpooled.models.initialization.cell_sums import (
    AROUND,
    across_discriminants,
    across_leading,
    asked,
    finer_points,
    first_points,
    how_many,
    steady,
    totals_of,
)
from unpooled.models.initialization.clusters import LLOYD, clusters
from unpooled.models.initialization.gathered import Frame, wide
from unpooled.models.initialization.short_runs import QUICK, STAGES, Pool, params_of, short_runs
from unpooled.models.initialization.together import Answers, Search, together

ACROSS = 8  # cells across directions, for each component
CLUSTERS = 5  # cells that are clusters, for each component
MATRIX_COLUMNS = 100  # more, where variances alone are asked for: no covariance is sent, and nothing is cut across
MORE = 1  # fits of either kind that are compared, beyond those asked for
MORE_CENTRED = 2  # fits of clusters, likewise
CELL_SUMS = 2 * (1 + LLOYD + 1) + sum(1 + stage.rounds for stage in STAGES)  # each counted first


class Found(NamedTuple):
    """Cells of both kinds; `across` is None where nothing was cut so."""

    around: Cells
    across: Cells | None


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
    return starts(totals_of(fed), frame, sizes, n_init, shape, rng, quick)


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
    settled = steady(frame)
    if max(sizes) == 1:
        return [wide(settled, np.asarray(settled.mean)[None], shape)] * (len(sizes) * n_init)
    first = first_cells(answers, settled, max(sizes), shape, rng)
    most = how_many(CLUSTERS * max(sizes), max(sizes), float(settled.rows) / 2, len(settled.mean), shape)
    searches = [collect(first, settled, max(sizes), shape, rng), clusters(first, settled, most, shape, rng)]
    kinds, clustered = together(answers, searches)
    drawing, choosing = rng.spawn(len(sizes)), rng.spawn(len(sizes))
    stages = QUICK if quick else STAGES
    searches = [
        short_runs(
            _pool(kinds, clustered, k, n, settled, shape, deepcopy(own)), n, settled, shape, deepcopy(other), stages
        )
        for n in sorted({1, n_init})
        for k, own, other in zip(sizes, drawing, choosing)
    ]
    runs = together(answers, searches)
    alone, more = runs[: len(sizes)], runs[len(sizes) :]
    found = [[one[0], *others] for one, others in zip(alone, more)] if more else alone
    return [some[i % len(some)] for some in found for i in range(n_init)]


def _pool(
    kinds: Found, clustered: Cells, k: int, n_init: int, frame: Frame, shape: str, rng: np.random.Generator
) -> Pool:
    """Mixtures of k components to choose `n_init` from; the search for one is always among those for several."""
    drawn = _candidates([some for some in kinds if some is not None], k, n_init + MORE, shape, rng)
    dense = _candidates([clustered], k, n_init + MORE_CENTRED, shape, rng)
    plain = [_filled(cell_search.k_means_fit(clustered, k, shape, rng), k, rng) for _ in range(n_init)]
    return Pool(*([params_of(fit, frame, shape) for fit in fits] for fits in (drawn, dense, plain)))


# ---- three SUMs over cells ----


def first_cells(answers: Answers, frame: Frame, k: int, shape: str, rng: np.random.Generator) -> Cells:
    """Cells around points drawn from the frame."""
    d, kind = len(frame.mean), _kind_of_cells(frame, shape)
    m = how_many(AROUND * k, k, float(frame.rows), d, shape if shape in ("full", "tied") else "diag")
    unit = np.eye(d) if kind == "tied" else np.ones(d)
    ((found,),) = together(answers, [asked(frame, [first_points(m, unit, rng)], [kind])])
    return found


def _kind_of_cells(frame: Frame, shape: str) -> str:
    """Whether cells have a common covariance, or variances where tables are wide."""
    wide_table = len(frame.mean) > MATRIX_COLUMNS and shape not in ("full", "tied")
    return "diag" if wide_table else "tied"


def collect(first: Cells, frame: Frame, k: int, shape: str, rng: np.random.Generator) -> Search:
    """Cells of both kinds for up to k components, in the standardised frame: two SUMs."""
    rows, d = float(frame.rows), len(frame.mean)
    last = shape if shape in ("full", "tied") else "diag"
    m = how_many(AROUND * k, k, rows, d, last)
    kind = cell_mixture.kind_of(shape)
    if _kind_of_cells(frame, shape) == "diag":
        around = first
        for _ in range(2):
            (around,) = yield from asked(frame, [finer_points(around, m, kind, rng)], ["diag"])
        return Found(around, None)
    side = "full" if shape == "full" else "tied"
    few = how_many(ACROSS * k, k, rows, d, side)
    matrices = cell_mixture.Matrices(False)
    whole = matrices.positive(cell_mixture.total(first, matrices), 1e-6)
    centre = cell_mixture.centre_of(first)
    across = across_leading(centre, whole, k, few, rng)
    near, crossed = yield from asked(frame, [finer_points(first, m, matrices, rng), across], ["tied", side])
    across = across_discriminants(crossed, centre, whole, k, few, rng)
    finest = finer_points(near, m, matrices, rng)
    if last == "diag":
        finest = finest._replace(cov=np.diag(finest.cov))
    near, crossed = yield from asked(frame, [finest, across], [last, side])
    return Found(near, crossed if shape in ("full", "tied") else crossed._replace(covs=matrices.diagonal(crossed.covs)))


# ---- the server ----


def _candidates(kinds: Sequence[Cells], k: int, each: int, shape: str, rng: np.random.Generator) -> list[Fit]:
    """The best mixtures of k components for these kinds of cells, without those that are alike."""
    fits = [fit for some in kinds for fit in cell_search.search(some, min(k, len(some.n)), shape, rng)[:each]]
    kind = cell_mixture.kind_of(shape)
    seen = cell_mixture.moments(kinds[0], kind)
    filled = [_filled(fit, k, rng) for fit in fits]
    placed = [fit._replace(shares=cell_mixture.responsibilities(seen, fit, kind)) for fit in filled]
    return cell_search.apart(placed, seen.n)


def _filled(fit: Fit, k: int, rng: np.random.Generator) -> Fit:
    """Components beyond the number of cells are as wide as all rows, at random points of the frame."""
    extra, d = k - len(fit.weights), fit.means.shape[1]
    if not extra:
        return fit
    unit = np.eye(d) if fit.covs.ndim == 3 else np.ones(d)
    weights = np.append(fit.weights, np.full(extra, 1e-3))
    means = np.concatenate([fit.means, rng.normal(size=(extra, d))])
    covs = np.concatenate([fit.covs, np.tile(unit, (extra,) + (1,) * unit.ndim)])
    return fit._replace(weights=weights / weights.sum(), means=means, covs=covs)
