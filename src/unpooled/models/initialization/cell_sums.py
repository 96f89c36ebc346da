"""Sums over cells: one question, and what the server makes of its totals.

A cell is a Gaussian kernel at a point that the server chose; a row counts for the cells near it, with weights that sum to one. With
very narrow kernels a row counts for the nearest point alone. A first SUM sends a count per cell; a second one sends, per cell that
holds enough rows at all clients together (`together.floored`), a count, a sum and second moments by shape.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.client import SUM, Client, client
from unpooled.federation import Federation
from unpooled.maths import gaussian, mixture
from unpooled.maths.mixture import Params, Stats
from unpooled.models.initialization import cell_mixture
from unpooled.models.initialization.cell_mixture import Cells
from unpooled.models.initialization.gathered import Frame, double
from unpooled.models.initialization.together import Answers, Counts, Search, count_rows, floored

NARROWEST = 1e-7  # the least eigenvalue of a kernel in the standardised frame
GRID = 1e-9  # totals per row are rounded to this share of a column's standard deviation
LEAST_ROWS = 0.5  # a cell that holds fewer is left out


class Kernels(NamedTuple):
    """Points in the standardised frame and one covariance for all, (d, d) or (d,)."""

    means: np.ndarray  # (m, d)
    cov: np.ndarray


@client("initialization.cells", SUM, adds=True, exact=True)
def cells(down: tuple[Params, ...], client: Client, *, shapes: list) -> tuple[Stats, ...]:
    """Counts, sums and second moments of the rows near each point, about the point; in float64 whatever the rows are."""
    x = double(client.x)
    return tuple(mixture.e_step(kernels, x, client.w, shape) for kernels, shape in zip(down, shapes))


@client("initialization.cell_counts", SUM, adds=True, exact=True)
def cell_counts(down: tuple[Params, ...], client: Client, *, shapes: list) -> tuple[Counts, ...]:
    """How many rows are near each point."""
    x = double(client.x)
    return tuple(count_rows(kernels, x, double(client.w), shape) for kernels, shape in zip(down, shapes))


def totals_of(fed: Federation) -> Answers:
    """How the searches of a start ask this federation."""
    return lambda down, shapes, counts: fed.sum((cell_counts if counts else cells).using(shapes=shapes), down)


# ---- a SUM of counts, a SUM of moments ----


def asked(frame: Frame, kernels: list[Kernels], shapes: list[str]) -> Search:
    """The cells around these points, standardised and rounded."""
    params = [_kernel_params(frame, some, shape) for some, shape in zip(kernels, shapes)]
    totals = yield from floored(params, shapes)
    return [_cells(frame, some, up, shape) for some, up, shape in zip(kernels, totals, shapes)]


def _cells(frame: Frame, kernels: Kernels, up: Stats, shape: str) -> Cells:
    n, x, xx = (to_numpy(a) for a in (up.n, up.x, up.xx))
    held = n >= LEAST_ROWS * min(1.0, n.sum() / len(n))
    moved = x / np.maximum(n, 1e-300)[:, None] / frame.scale
    covs = cell_covs(n, x, xx, frame, shape)
    return Cells(rounded(n[held]), rounded(kernels.means + moved)[held], rounded(covs)[held])


def _kernel_params(frame: Frame, kernels: Kernels, shape: str) -> Params:
    """The kernels as a mixture of equal weights in the clients' own units."""
    m = len(kernels.means)
    square = frame.scale**2 if kernels.cov.ndim == 1 else np.outer(frame.scale, frame.scale)
    kind = cell_mixture.kind_of("full" if kernels.cov.ndim == 2 else "diag")
    cov = kind.positive(kernels.cov, NARROWEST) * square
    covs = cov if shape == "tied" else np.tile(cov, (m,) + (1,) * cov.ndim)
    return Params(np.full(m, 1 / m), frame.mean + frame.scale * kernels.means, gaussian.pack_covs(covs, shape))


def cell_covs(n: np.ndarray, x: np.ndarray, xx: np.ndarray, frame: Frame, shape: str) -> np.ndarray:
    """Covariances within cells in the standardised frame; pooled ones are repeated for each cell."""
    scatter = gaussian.unpack_covs(xx - gaussian.mean_scatter(n, x, shape), shape)
    if shape == "tied":
        cov = scatter / n.sum() / np.outer(frame.scale, frame.scale)
        return np.broadcast_to(cov, (len(n), *cov.shape))
    square = frame.scale**2 if shape == "diag" else np.outer(frame.scale, frame.scale)
    return scatter / np.maximum(n, 1e-300).reshape((-1,) + (1,) * (scatter.ndim - 1)) / square


def steady(frame: Frame) -> Frame:
    """The frame with its last digits rounded."""
    mean, scale = to_numpy(frame.mean), to_numpy(frame.scale)
    scale = np.array([float(f"{s:.9e}") for s in scale])
    return Frame(rounded(mean / scale) * scale, scale, rounded(to_numpy(frame.rows)))


def rounded(a: np.ndarray) -> np.ndarray:
    return np.round(a / GRID) * GRID
