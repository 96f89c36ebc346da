"""New mixtures from the components of several: their union is fitted, then reduced to K components at the server. Nothing is sent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unpooled.maths import gaussian
from unpooled.maths.mixture import Params, Stats
from unpooled.models.initialization import cell_search
from unpooled.models.initialization.cell_mixture import Cells, Fit
from unpooled.models.initialization.cell_sums import cell_covs, rounded
from unpooled.models.initialization.gathered import Frame

NEW = 2  # mixtures
EQUAL = 1e-6  # of the range of each number over components: those that are nearer are one


def union(mixtures: Sequence[Params], shape: str) -> Params:
    """One mixture of all components of several.

    A component that several mixtures have is taken once: which of two equal ones a row is nearer to would be decided by rounding, and
    so by the split into clients.
    """
    weights = np.concatenate([p.weights for p in mixtures])
    means = np.concatenate([p.means for p in mixtures])
    covs = (
        np.stack([p.covs for p in mixtures]).mean(0) if shape == "tied" else np.concatenate([p.covs for p in mixtures])
    )
    first = _first_of_equals(means if shape == "tied" else np.column_stack([means, covs]))
    kept = np.unique(first)
    weights = np.bincount(first, weights)[kept]
    covs = covs if shape == "tied" else covs[kept]
    if shape == "spherical":
        covs = np.broadcast_to(covs[:, None], means[kept].shape)
    return Params(weights / weights.sum(), means[kept], covs)


def _first_of_equals(rows: np.ndarray) -> np.ndarray:  # (m, p) -> (m,)
    """For each row the place of the first row that is equal to it up to rounding."""
    sizes = np.ptp(rows, axis=0) + 1e-300
    apart = (np.abs(rows[:, None] - rows) / sizes).max(-1)  # (m, m)
    return (apart < EQUAL).argmax(1)


def recombined(asked: Params, up: Stats, k: int, frame: Frame, shape: str, rng: np.random.Generator) -> list[Params]:
    """Mixtures of k components for the cells that the union's components are."""
    cells = soft_cells(asked, up, frame, shape)
    if len(cells.n) < k:
        return []
    return [params_of(fit, frame, shape) for fit in cell_search.search(cells, k, shape, rng)[:NEW]]


def soft_cells(asked: Params, up: Stats, frame: Frame, shape: str) -> Cells:
    """The components that hold rows, as cells in the standardised frame."""
    held = up.n >= 2.0
    found = up.x / np.maximum(up.n, 1e-300)[:, None]
    means = (asked.means + found - frame.mean) / frame.scale
    covs = cell_covs(up.n, up.x, up.xx, frame, shape_of_union(shape))
    return Cells(rounded(up.n[held]), rounded(means[held]), rounded(covs)[held])


def shape_of_union(shape: str) -> str:
    """How the union's covariances are asked for."""
    return "diag" if shape == "spherical" else shape


def params_of(fit: Fit, frame: Frame, shape: str) -> Params:
    """A mixture of cells in the clients' own units."""
    square = frame.scale**2 if fit.covs.ndim == 2 else np.outer(frame.scale, frame.scale)
    covs = fit.covs * square
    if shape == "tied":
        covs = np.tensordot(fit.weights, covs, 1)
    if shape == "spherical":
        covs = covs.mean(-1)
    weights = np.maximum(fit.weights, 1e-6)
    return Params(weights / weights.sum(), frame.mean + frame.scale * fit.means, gaussian.pack_covs(covs, shape))
