"""Sums over cells, from which EM is started: one SUM of counts, one SUM of moments.

A cell is a Gaussian kernel at a point that the server chose (`kernels`). A row counts for the cells near it, with weights that sum to
one; with very narrow kernels it counts for the nearest point alone. The first SUM sends a count per cell. The second sends, per cell that
holds enough rows at all clients together (`together.floored`), a count, a sum and second moments by covariance shape.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.client import SUM, Client, client
from unpooled.federation import Federation
from unpooled.maths import gaussian, mixture
from unpooled.maths.mixture import Params, Stats
from unpooled.models.initialization.cell_mixture import Cells
from unpooled.models.initialization.column_frame import Frame, double, round_to_grid
from unpooled.models.initialization.covariance_kinds import kind_of
from unpooled.models.initialization.kernels import Kernels
from unpooled.models.initialization.part_of_rows import taken
from unpooled.models.initialization.together import Answers, Counts, Search, Totals, count_rows, floored

NARROWEST = 1e-7  # the least eigenvalue of a kernel in the standardised frame
LEAST_ROWS = 0.5  # a cell with fewer rows is left out


@client("initialization.cells", SUM, adds=True, exact=True)
def cell_moments(down: tuple[Params, ...], client: Client, *, shapes: list, every: int = 1) -> tuple[Stats, ...]:
    """Counts, sums and second moments of the rows near each point, about the point; in float64 whatever the rows are."""
    x, w = taken(client, every)
    return tuple(mixture.e_step(kernels, x, w, shape) for kernels, shape in zip(down, shapes))


@client("initialization.cell_counts", SUM, adds=True, exact=True)
def cell_counts(down: tuple[Params, ...], client: Client, *, shapes: list, every: int = 1) -> tuple[Counts, ...]:
    """How many rows are near each point."""
    x, w = taken(client, every)
    return tuple(count_rows(kernels, x, double(w), shape) for kernels, shape in zip(down, shapes))


def totals_of(fed: Federation, every: int = 1) -> Answers:
    """A function (kernels, covariance shapes, whether counts only) -> total over this federation: one SUM per call.

    The total is over all rows, or over the part of about one of `every` (see `part_of_rows`).
    """
    part = {"every": every} if every > 1 else {}

    def total(down: tuple[Params, ...], shapes: list, counts: bool) -> Any:
        question = cell_counts if counts else cell_moments
        return fed.sum(question.using(shapes=shapes, **part), down)

    return Totals(fed, total)


def sum_cells(frame: Frame, kernels: list[Kernels], shapes: list[str]) -> Search:
    """The cells of each set of kernels, standardised and rounded; a generator that yields what is to be asked (see `together`)."""
    params = [_kernel_params(frame, some, shape) for some, shape in zip(kernels, shapes)]
    totals = yield from floored(params, shapes)
    return [_cells(frame, some, total, shape) for some, total, shape in zip(kernels, totals, shapes)]


def _kernel_params(frame: Frame, kernels: Kernels, shape: str) -> Params:
    """The kernels as a mixture of equal weights in the clients' own units."""
    m = len(kernels.points)
    kind = kind_of("full" if kernels.cov.ndim == 2 else "diag")
    cov = kind.positive(kernels.cov, NARROWEST) * kind.outer(frame.scale)
    covs = cov if shape == "tied" else np.tile(cov, (m,) + (1,) * cov.ndim)
    means = frame.mean + frame.scale * kernels.points
    return Params(np.full(m, 1 / m), means, gaussian.pack_covs(covs, shape))


def _cells(frame: Frame, kernels: Kernels, total: Stats, shape: str) -> Cells:
    """Cells that hold enough rows, from their totals, in standardised units."""
    n, x, xx = (to_numpy(a) for a in (total.n, total.x, total.xx))
    enough = n >= LEAST_ROWS * min(1.0, n.sum() / len(n))
    shift = x / np.maximum(n, 1e-300)[:, None] / frame.scale
    means = round_to_grid(kernels.points + shift)
    covs = round_to_grid(cell_covs(n, x, xx, frame, shape))
    return Cells(round_to_grid(n[enough]), means[enough], covs[enough])


def cell_covs(n: np.ndarray, x: np.ndarray, xx: np.ndarray, frame: Frame, shape: str) -> np.ndarray:
    """Covariances within cells in the standardised frame; a tied one is repeated for each cell."""
    scatter = gaussian.unpack_covs(xx - gaussian.mean_scatter(n, x, shape), shape)
    if shape == "tied":
        cov = scatter / n.sum() / np.outer(frame.scale, frame.scale)
        return np.broadcast_to(cov, (len(n), *cov.shape))
    square = frame.scale**2 if shape == "diag" else np.outer(frame.scale, frame.scale)
    rows = np.maximum(n, 1e-300).reshape((-1,) + (1,) * (scatter.ndim - 1))
    return scatter / rows / square
