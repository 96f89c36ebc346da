"""Where cells lie: around points, or as narrow slabs along the few directions that separate components best. Sends nothing.

A cell is a Gaussian kernel at a point; all kernels of a set have one covariance. A kernel that is narrow in all columns tells
components apart that are many and far from each other. A slab is narrow along a few directions only, and wide in all others: it tells
components apart that overlap, with far fewer cells.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.models.initialization import cell_mixture, cell_search
from unpooled.models.initialization.cell_mixture import Cells, Fit
from unpooled.models.initialization.column_frame import round_to_grid
from unpooled.models.initialization.covariance_kinds import CovarianceKind, Matrices

POINTS_PER_COMPONENT = 16  # cells around points
LEAST_CELLS = 60  # of each kind, if there are enough rows
ROWS_PER_CELL = 8  # on average, at least
MAX_NUMBERS = 500_000  # in one answer: with many columns there are fewer cells
DIRECTIONS = 4  # along which slabs are narrow, at most
WIDTH = 0.3  # covariance of a kernel, relative to the covariance within cells
ELSEWHERE = 30.0  # the same for a slab, in all other directions


class Kernels(NamedTuple):
    """Gaussian kernels of one covariance, in the standardised frame."""

    points: np.ndarray  # (m, d)
    cov: np.ndarray  # (d, d) or (d,)


def n_cells(wanted: int, k: int, rows: float, d: int, shape: str) -> int:
    """The number of cells: `wanted`, bounded by the rows and by the size of an answer; at least k."""
    numbers = 1 + d + (d * (d + 1) // 2 if shape == "full" else d)
    most = min(rows // ROWS_PER_CELL, MAX_NUMBERS // numbers)
    return int(max(min(max(wanted, LEAST_CELLS), most), k, 1))


# ---- around points ----


def first_kernels(m: int, unit: np.ndarray, rng: np.random.Generator) -> Kernels:
    """m kernels at points drawn from a standard normal distribution; `unit` is the identity, (d, d) or (d,)."""
    d = len(unit)
    return Kernels(rng.normal(size=(m, d)), unit * m ** (-2 / d))


def finer_kernels(cells: Cells, m: int, kind: CovarianceKind, rng: np.random.Generator) -> Kernels:
    """m kernels at points drawn around the cells."""
    within = kind.positive(cell_mixture.within(cells))
    return Kernels(_draw_points(cells, within, m, rng), WIDTH * within)


def _draw_points(cells: Cells, cov: np.ndarray, m: int, rng: np.random.Generator) -> np.ndarray:
    """m points, in each cell in proportion to its rows: the cell's mean for a single point, else drawn around it."""
    steps = (np.arange(m) + rng.random()) / m
    ends = np.cumsum(cells.n) / cells.n.sum()
    parent = np.searchsorted(ends, steps).clip(max=len(ends) - 1)
    alone = np.bincount(parent, minlength=len(ends))[parent] == 1
    draws = rng.normal(size=(m, cells.means.shape[1]))
    shift = draws @ np.linalg.cholesky(cov).T if cov.ndim == 2 else draws * np.sqrt(cov)
    return cells.means[parent] + np.where(alone[:, None], 0.0, shift)


# ---- slabs along a few directions ----


class Directions(NamedTuple):
    """A few directions, and the distribution of rows that points and slabs along them are made for."""

    axes: np.ndarray  # (d, r)
    centre: np.ndarray  # (d,)
    cov: np.ndarray  # (d, d)

    @property
    def cov_along(self) -> np.ndarray:
        """The covariance (r, r) of rows projected onto the axes."""
        return Matrices(False).positive(self.axes.T @ self.cov @ self.axes, 1e-9)

    def slabs(self, projected: np.ndarray, width: float) -> Kernels:
        """Slabs at the likeliest points (m, d) that project to `projected` (m, r); `width` is relative to `cov_along`."""
        cov_along = self.cov_along
        points = projected @ np.linalg.solve(cov_along, self.axes.T @ self.cov)
        narrow = self.axes @ np.linalg.inv(cov_along) @ self.axes.T / width
        wide = np.linalg.inv(self.cov) / ELSEWHERE
        return Kernels(self.centre + points, np.linalg.inv(narrow + wide))


def leading_slabs(centre: np.ndarray, cov: np.ndarray, k: int, m: int, rng: np.random.Generator) -> Kernels:
    """m slabs along the leading principal directions of all rows."""
    axes = _signed(np.linalg.eigh(cov)[1][:, ::-1][:, : min(k - 1, DIRECTIONS)])
    directions = Directions(axes, centre, cov)
    r = axes.shape[1]
    projected = rng.normal(size=(m, r)) @ np.linalg.cholesky(directions.cov_along).T
    return directions.slabs(projected, WIDTH * m ** (-2 / r))


def discriminant_slabs(
    cells: Cells, centre: np.ndarray, cov: np.ndarray, k: int, m: int, rng: np.random.Generator
) -> Kernels:
    """m slabs along the linear discriminants of k Gaussians fitted to these cells."""
    fit = cell_search.search(cells, min(k, len(cells.n)), "full", rng)[0]
    directions = _discriminants(fit, centre)
    projected = (_draw_points(cells, cov, m, rng) - centre) @ directions.axes
    return directions.slabs(projected, 4 * WIDTH * m ** (-2 / directions.axes.shape[1]))


def _discriminants(fit: Fit, centre: np.ndarray) -> Directions:
    """The directions in which the components' means differ most, in units of their mean covariance."""
    within = Matrices(False).positive(np.tensordot(fit.weights, fit.covs, 1), 1e-7)
    centred = fit.means - fit.weights @ fit.means
    whiten = np.linalg.inv(np.linalg.cholesky(within))
    between = (fit.weights[:, None] * centred).T @ centred
    r = max(min(len(fit.weights) - 1, DIRECTIONS), 1)
    eigenvectors = np.linalg.eigh(whiten @ between @ whiten.T)[1]
    axes = whiten.T @ eigenvectors[:, ::-1][:, :r]
    return Directions(_signed(axes), centre, within)


def _signed(axes: np.ndarray) -> np.ndarray:
    """Each column with its largest entry positive, and rounded: signs and last digits of eigenvectors depend on the solver."""
    largest = axes[np.abs(axes).argmax(0), np.arange(axes.shape[1])]
    return round_to_grid(axes * np.sign(largest))
