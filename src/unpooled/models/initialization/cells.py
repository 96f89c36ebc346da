"""Where a mixture starts, from sums alone: three SUMs over cells, after the two of the frame; K Gaussians are found at the server.

A cell is a narrow Gaussian kernel at a point that the server chose; a row counts for the cells near it, with weights that sum to
one. The first two SUMs send, per cell, a count and a sum, and one second moment for all; the third also a second moment per cell.
Cells are drawn from the frame first, then from what the SUM before found: where rows are many, cells are many. Missing values are
integrated out, as in EM. The totals do not depend on how rows are split into clients; they are rounded before anything is decided
by them, so that the order of additions decides nothing.

References
----------
Bradley, Fayyad, Reina (1998), Scaling clustering algorithms to large databases.
Vasconcelos, Lippman (1998), Learning mixture hierarchies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.client import SUM, Client, client
from unpooled.federation import Federation
from unpooled.maths import gaussian, mixture
from unpooled.maths.mixture import Params, Stats
from unpooled.models.initialization import cell_mixture, cell_search
from unpooled.models.initialization.cell_mixture import Cells, Fit
from unpooled.models.initialization.gathered import Frame, double, wide

PER_COMPONENT = 16  # cells for each component
LEAST_CELLS = 60  # where rows are enough
ROWS_PER_CELL = 8  # on average, at least
MAX_NUMBERS = 500_000  # in one answer: cells are fewer where columns are many
WIDTH = 0.3  # of a kernel, as a share of the covariance within cells
GRID = 1e-9  # totals per row are rounded to this share of a column's standard deviation
LEAST_ROWS = 0.5  # a cell that holds fewer is left out

Answers = Callable[[Params, str], Stats]  # (kernels, shape of their covariances) -> their totals over all rows


class Kernels(NamedTuple):
    """Points in the standardised frame and one covariance for all, (d, d) or (d,)."""

    means: np.ndarray  # (m, d)
    cov: np.ndarray


@client("initialization.cells", SUM, adds=True)
def cells(kernels: Params, client: Client, *, shape: str) -> Stats:
    """Counts, sums and second moments of the rows near each point, about the point; in float64 whatever the rows are."""
    return mixture.e_step(kernels, double(client.x), client.w, shape)


def cells_start(
    fed: Federation, frame: Frame, sizes: Sequence[int], n_init: int, shape: str, rng: np.random.Generator
) -> list[Params]:
    """Starts of mixtures, from three SUMs; one component alone needs none.

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

    Returns
    -------
    list of Params
        `n_init` for the first size, best first, then for the next.
    """
    return starts(lambda kernels, how: fed.sum(cells.using(shape=how), kernels), frame, sizes, n_init, shape, rng)


def starts(
    answers: Answers, frame: Frame, sizes: Sequence[int], n_init: int, shape: str, rng: np.random.Generator
) -> list[Params]:
    """As `cells_start`, from any way of asking for totals."""
    steady = Frame(*_steady_frame(frame))
    if max(sizes) == 1:
        return [wide(steady, np.asarray(steady.mean)[None], shape)] * (len(sizes) * n_init)
    found = collect(answers, steady, max(sizes), shape, rng)
    draws = rng.spawn(len(sizes))
    return [params for k, own in zip(sizes, draws) for params in _starts(found, steady, k, n_init, shape, own)]


def collect(answers: Answers, frame: Frame, k: int, shape: str, rng: np.random.Generator) -> Cells:
    """The cells for up to k components, in the standardised frame: three SUMs."""
    early, last = {"full": ("tied", "full"), "tied": ("tied", "tied")}.get(shape, ("diag", "diag"))
    m, d = how_many(k, float(frame.rows), len(frame.mean), last), len(frame.mean)
    unit = np.eye(d) if early == "tied" else np.ones(d)
    kernels = Kernels(rng.normal(size=(m, d)), unit * m ** (-2 / d))
    for how in (early, early):
        found = _ask(answers, frame, kernels, how)
        kernels = _finer(found, m, shape, rng)
    return _ask(answers, frame, kernels, last)


def how_many(k: int, rows: float, d: int, shape: str) -> int:
    """Cells for k components, bounded by the rows and by the numbers in an answer; at least k."""
    numbers = 1 + d + (d * (d + 1) // 2 if shape == "full" else d)
    wanted = max(PER_COMPONENT * k, LEAST_CELLS)
    return int(max(min(wanted, rows // ROWS_PER_CELL, MAX_NUMBERS // numbers), k, 1))


# ---- one SUM ----


def _ask(answers: Answers, frame: Frame, kernels: Kernels, shape: str) -> Cells:
    """The cells around these points, standardised and rounded."""
    sent = _kernel_params(frame, kernels, shape)
    up = answers(sent, shape)
    n, x, xx = (to_numpy(a) for a in (up.n, up.x, up.xx))
    held = n >= LEAST_ROWS * min(1.0, n.sum() / len(n))
    safe = np.maximum(n, 1e-300)[:, None]
    moved = x / safe / frame.scale
    covs = _cell_covs(n, x, xx, frame, shape)
    return Cells(_rounded(n[held]), _rounded(kernels.means + moved)[held], _rounded(covs)[held])


def _kernel_params(frame: Frame, kernels: Kernels, shape: str) -> Params:
    """The kernels as a mixture of equal weights in the clients' own units."""
    m = len(kernels.means)
    square = frame.scale**2 if kernels.cov.ndim == 1 else np.outer(frame.scale, frame.scale)
    cov = kernels.cov * square
    covs = cov if shape == "tied" else np.tile(cov, (m,) + (1,) * cov.ndim)
    return Params(np.full(m, 1 / m), frame.mean + frame.scale * kernels.means, gaussian.pack_covs(covs, shape))


def _cell_covs(n: np.ndarray, x: np.ndarray, xx: np.ndarray, frame: Frame, shape: str) -> np.ndarray:
    """Covariances within cells in the standardised frame; pooled ones are repeated for each cell."""
    scatter = gaussian.unpack_covs(xx - gaussian.mean_scatter(n, x, shape), shape)
    if shape == "tied":
        cov = scatter / n.sum() / np.outer(frame.scale, frame.scale)
        return np.broadcast_to(cov, (len(n), *cov.shape))
    square = frame.scale**2 if shape == "diag" else np.outer(frame.scale, frame.scale)
    return scatter / np.maximum(n, 1e-300).reshape((-1,) + (1,) * (scatter.ndim - 1)) / square


def _finer(found: Cells, m: int, shape: str, rng: np.random.Generator) -> Kernels:
    """m points: a cell gets as many as its rows deserve, itself if one, else drawn around its mean."""
    kind = cell_mixture.kind_of(shape)
    within = kind.positive(cell_mixture.within(found))
    steps = (np.arange(m) + rng.random()) / m
    ends = np.cumsum(found.n) / found.n.sum()
    parent = np.searchsorted(ends, steps).clip(max=len(ends) - 1)
    alone = np.bincount(parent, minlength=len(ends))[parent] == 1
    draws = rng.normal(size=(m, found.means.shape[1]))
    root = kind.root(within)
    away = draws @ root.T if root.ndim == 2 else draws * root
    return Kernels(found.means[parent] + np.where(alone[:, None], 0.0, away), WIDTH * within)


def _steady_frame(frame: Frame) -> tuple[Any, Any, Any]:
    """The frame with its last digits rounded."""
    mean, scale = to_numpy(frame.mean), to_numpy(frame.scale)
    scale = np.array([float(f"{s:.9e}") for s in scale])
    return np.round(mean / scale / GRID) * GRID * scale, scale, np.asarray(_rounded(to_numpy(frame.rows)))


def _rounded(a: np.ndarray) -> np.ndarray:
    return np.round(a / GRID) * GRID


# ---- the server ----


def _starts(found: Cells, frame: Frame, k: int, n_init: int, shape: str, rng: np.random.Generator) -> list[Params]:
    """n_init mixtures of k components, the best first; where fewer end apart, they are used again."""
    fits = cell_search.search(found, min(k, len(found.n)), shape, rng)
    chosen = [fits[i % len(fits)] for i in range(n_init)]
    return [_params(_filled(fit, k, rng), frame, shape) for fit in chosen]


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


def _params(fit: Fit, frame: Frame, shape: str) -> Params:
    """The mixture in the clients' own units."""
    square = frame.scale**2 if fit.covs.ndim == 2 else np.outer(frame.scale, frame.scale)
    covs = fit.covs * square
    if shape == "tied":
        covs = np.tensordot(fit.weights, covs, 1)
    if shape == "spherical":
        covs = covs.mean(-1)
    weights = np.maximum(fit.weights, 1e-6)
    return Params(weights / weights.sum(), frame.mean + frame.scale * fit.means, gaussian.pack_covs(covs, shape))
