"""Sums over cells, from which EM is started: where cells lie, the questions to clients, and what follows from the totals.

A cell is a Gaussian kernel at a point that the server chose; a row counts for the cells near it, with weights that sum to one. With
very narrow kernels a row counts for the nearest point alone. A first SUM sends a count per cell; a second one sends, per cell that
holds enough rows at all clients together (`together.floored`), a count, a sum and second moments by shape.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.client import SUM, Client, client
from unpooled.federation import Federation
from unpooled.maths import gaussian, mixture
from unpooled.maths.mixture import Params, Stats
from unpooled.models.initialization import cell_mixture, cell_search
from unpooled.models.initialization.cell_mixture import Cells, Fit
from unpooled.models.initialization.gathered import Frame, double
from unpooled.models.initialization.together import Answers, Counts, Search, count_rows, floored, together

NARROWEST = 1e-7  # the least eigenvalue of a kernel in the standardised frame
GRID = 1e-9  # totals per row are rounded to this share of a column's standard deviation
LEAST_ROWS = 0.5  # a cell with fewer rows is left out
AROUND = 16  # cells around points, per component
LEAST_CELLS = 60  # of each kind, if there are enough rows
ROWS_PER_CELL = 8  # on average, at least
MAX_NUMBERS = 500_000  # in one answer: with many columns there are fewer cells
DIRECTIONS = 4  # along which cells are narrow, at most
WIDTH = 0.3  # covariance of a kernel, relative to the covariance within cells
ELSEWHERE = 30.0  # the same in all other directions


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
    """A function (kernels, covariance shapes, whether counts only) -> total over this federation: one SUM per call."""

    def total(down: tuple[Params, ...], shapes: list, counts: bool) -> Any:
        question = cell_counts if counts else cells
        return fed.sum(question.using(shapes=shapes), down)

    return total


# ---- a SUM of counts, a SUM of moments ----


def asked(frame: Frame, kernels: list[Kernels], shapes: list[str]) -> Search:
    """The cells around these points, standardised and rounded; a generator that yields what is to be asked (see `together`)."""
    params = [_kernel_params(frame, some, shape) for some, shape in zip(kernels, shapes)]
    totals = yield from floored(params, shapes)
    return [_cells(frame, some, up, shape) for some, up, shape in zip(kernels, totals, shapes)]


def _cells(frame: Frame, kernels: Kernels, up: Stats, shape: str) -> Cells:
    """Cells that hold enough rows, from their totals, in standardised units."""
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
    """The frame (means and scales of columns) with its last digits rounded, so that it is the same for every split of rows."""
    mean, scale = to_numpy(frame.mean), to_numpy(frame.scale)
    scale = np.array([float(f"{s:.9e}") for s in scale])
    return Frame(rounded(mean / scale) * scale, scale, rounded(to_numpy(frame.rows)))


def rounded(a: np.ndarray) -> np.ndarray:
    """Rounded to a grid, so that the order of a sum's terms does not matter."""
    return np.round(a / GRID) * GRID


# ---- where cells lie: around points, or narrow slabs along the few directions that separate components best ----


def first_points(m: int, unit: np.ndarray, rng: np.random.Generator) -> Kernels:
    """m points drawn from a normal distribution in the standardised frame."""
    d = len(unit)
    return Kernels(rng.normal(size=(m, d)), unit * m ** (-2 / d))


def finer_points(found: Cells, m: int, kind: Any, rng: np.random.Generator) -> Kernels:
    """Points drawn around the cells."""
    within = kind.positive(cell_mixture.within(found))
    return Kernels(_drawn(found, within, m, rng), WIDTH * within)


def _drawn(found: Cells, cov: np.ndarray, m: int, rng: np.random.Generator) -> np.ndarray:
    """m points, in each cell in proportion to its rows: the cell's mean for a single point, else drawn around it."""
    steps = (np.arange(m) + rng.random()) / m
    ends = np.cumsum(found.n) / found.n.sum()
    parent = np.searchsorted(ends, steps).clip(max=len(ends) - 1)
    alone = np.bincount(parent, minlength=len(ends))[parent] == 1
    draws = rng.normal(size=(m, found.means.shape[1]))
    shift = draws @ np.linalg.cholesky(cov).T if cov.ndim == 2 else draws * np.sqrt(cov)
    return found.means[parent] + np.where(alone[:, None], 0.0, shift)


def across_leading(centre: np.ndarray, cov: np.ndarray, k: int, m: int, rng: np.random.Generator) -> Kernels:
    """Points along the leading principal directions of all rows."""
    axes = _signed(np.linalg.eigh(cov)[1][:, ::-1][:, : min(k - 1, DIRECTIONS)])
    r = axes.shape[1]
    points = rng.normal(size=(m, r)) @ np.linalg.cholesky(_seen_along(axes, cov)).T
    return Kernels(centre + _lifted(points, axes, cov), _slabs(axes, cov, WIDTH * m ** (-2 / r)))


def across_discriminants(
    found: Cells, centre: np.ndarray, cov: np.ndarray, k: int, m: int, rng: np.random.Generator
) -> Kernels:
    """Points along the linear discriminants of k Gaussians fitted to these cells."""
    fit = cell_search.search(found, min(k, len(found.n)), "full", rng)[0]
    within, axes = _discriminants(fit)
    r = axes.shape[1]
    points = (_drawn(found, cov, m, rng) - centre) @ axes
    return Kernels(centre + _lifted(points, axes, within), _slabs(axes, within, 4 * WIDTH * m ** (-2 / r)))


def _discriminants(fit: Fit) -> tuple[np.ndarray, np.ndarray]:
    """(mean covariance of the components, the directions (d, r) in which their means differ most in its units)."""
    within = cell_mixture.Matrices(False).positive(np.tensordot(fit.weights, fit.covs, 1), 1e-7)
    centred = fit.means - fit.weights @ fit.means
    whiten = np.linalg.inv(np.linalg.cholesky(within))
    between = (fit.weights[:, None] * centred).T @ centred
    r = max(min(len(fit.weights) - 1, DIRECTIONS), 1)
    eigenvectors = np.linalg.eigh(whiten @ between @ whiten.T)[1]
    axes = whiten.T @ eigenvectors[:, ::-1][:, :r]
    return within, _signed(axes)


def _signed(axes: np.ndarray) -> np.ndarray:
    """Each column with its largest entry positive, and rounded: signs and last digits of eigenvectors depend on the solver."""
    largest = axes[np.abs(axes).argmax(0), np.arange(axes.shape[1])]
    return rounded(axes * np.sign(largest))


def _seen_along(axes: np.ndarray, cov: np.ndarray) -> np.ndarray:
    """The covariance along the axes, kept positive."""
    return cell_mixture.Matrices(False).positive(axes.T @ cov @ axes, 1e-9)


def _lifted(points: np.ndarray, axes: np.ndarray, cov: np.ndarray) -> np.ndarray:
    """The likeliest points (m, d) that project to these (m, r)."""
    return points @ np.linalg.solve(_seen_along(axes, cov), axes.T @ cov)


def _slabs(axes: np.ndarray, cov: np.ndarray, width: float) -> np.ndarray:
    """A kernel that is narrow along the axes and wide elsewhere."""
    narrow = axes @ np.linalg.inv(_seen_along(axes, cov)) @ axes.T / width
    return np.linalg.inv(narrow + np.linalg.inv(cov) / ELSEWHERE)


def near_cells(answers: Answers, frame: Frame, k: int, rng: np.random.Generator) -> Cells:
    """Cells around points for up to k components, by two SUMs of counts, sums and variances."""
    d = len(frame.mean)
    m = how_many(AROUND * k, k, float(frame.rows), d, "diag")

    def search() -> Search:
        """Cells around points, then finer ones where rows are."""
        (first,) = yield from asked(frame, [first_points(m, np.ones(d), rng)], ["diag"])
        (near,) = yield from asked(frame, [finer_points(first, m, cell_mixture.kind_of("diag"), rng)], ["diag"])
        return near

    return together(answers, [search()])[0]


def how_many(wanted: int, k: int, rows: float, d: int, shape: str) -> int:
    """The number of cells: `wanted`, bounded by the rows and by the size of an answer; at least k."""
    numbers = 1 + d + (d * (d + 1) // 2 if shape == "full" else d)
    most = min(rows // ROWS_PER_CELL, MAX_NUMBERS // numbers)
    return int(max(min(max(wanted, LEAST_CELLS), most), k, 1))
