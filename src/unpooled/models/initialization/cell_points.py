"""Where cells lie: around points, or across the few directions that tell components apart best. Sends nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from unpooled.models.initialization import cell_mixture, cell_search
from unpooled.models.initialization.cell_mixture import Cells, Fit
from unpooled.models.initialization.cell_sums import Kernels, rounded

DIRECTIONS = 4  # to cut across, at most
WIDTH = 0.3  # of a kernel, as a share of the covariance within cells
ELSEWHERE = 30.0  # the same in the directions that are not cut across


def first_points(m: int, unit: np.ndarray, rng: np.random.Generator) -> Kernels:
    """Points drawn from the frame."""
    d = len(unit)
    return Kernels(rng.normal(size=(m, d)), unit * m ** (-2 / d))


def finer_points(found: Cells, m: int, kind: Any, rng: np.random.Generator) -> Kernels:
    """Points drawn around the cells."""
    within = kind.positive(cell_mixture.within(found))
    return Kernels(_drawn(found, within, m, rng), WIDTH * within)


def _drawn(found: Cells, cov: np.ndarray, m: int, rng: np.random.Generator) -> np.ndarray:
    """m points: a cell gets as many as its rows deserve, its mean if one, else drawn around it."""
    steps = (np.arange(m) + rng.random()) / m
    ends = np.cumsum(found.n) / found.n.sum()
    parent = np.searchsorted(ends, steps).clip(max=len(ends) - 1)
    alone = np.bincount(parent, minlength=len(ends))[parent] == 1
    draws = rng.normal(size=(m, found.means.shape[1]))
    away = draws @ np.linalg.cholesky(cov).T if cov.ndim == 2 else draws * np.sqrt(cov)
    return found.means[parent] + np.where(alone[:, None], 0.0, away)


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
    away = fit.means - fit.weights @ fit.means
    back = np.linalg.inv(np.linalg.cholesky(within))
    spread = (fit.weights[:, None] * away).T @ away
    r = max(min(len(fit.weights) - 1, DIRECTIONS), 1)
    axes = back.T @ np.linalg.eigh(back @ spread @ back.T)[1][:, ::-1][:, :r]
    return within, _signed(axes)


def _signed(axes: np.ndarray) -> np.ndarray:
    """Each column with its largest entry positive, and rounded: the sign and last digits of an eigenvector are a solver's."""
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
