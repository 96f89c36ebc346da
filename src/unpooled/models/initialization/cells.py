"""Where a mixture starts, from sums alone: three SUMs over cells, K Gaussians found at the server, two SUMs of EM to choose.

A cell is a narrow Gaussian kernel at a point that the server chose; a row counts for the cells near it, with weights that sum to
one. A SUM sends, per cell, a count, a sum and, where asked for, a second moment. Rows are cut into cells in two ways. `around`
cuts in all columns: finely where components are many and apart. `across` cuts in the few directions that tell components apart
best: finely where components overlap and columns are many.

1. Cells around points drawn from the frame: a count and a sum per cell, one second moment for all. They give the covariance of
   all rows, and so its leading directions.
2. Cells around points drawn from those of 1, and cells across the leading directions.
3. Cells around points drawn from those of 2, and cells across the directions that discriminate best between K Gaussians fitted to
   the cells of 2. Mixtures are fitted to both kinds of cells (`cell_search`).
4. Two rounds of EM over all rows from the best of these fits, side by side: the likeliest are the starts.

Missing values are integrated out, as in EM. The totals do not depend on how rows are split into clients; they are rounded before
anything is decided by them, so that the order of additions decides nothing.

References
----------
Bradley, Fayyad, Reina (1998), Scaling clustering algorithms to large databases.
Vasconcelos, Lippman (1998), Learning mixture hierarchies.
Biernacki, Celeux, Govaert (2003), Choosing starting values for the EM algorithm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.client import SUM, Client, client
from unpooled.federation import Federation
from unpooled.maths import gaussian, mixture
from unpooled.maths.mixture import Params, Stats
from unpooled.models.initialization import cell_mixture, cell_search
from unpooled.models.initialization.cell_mixture import Cells, Fit
from unpooled.models.initialization.gathered import Frame, double, wide

AROUND = 16  # cells around points, for each component
ACROSS = 8  # cells across directions, for each component
LEAST_CELLS = 60  # of either kind, where rows are enough
ROWS_PER_CELL = 8  # on average, at least
MAX_NUMBERS = 500_000  # in one answer: cells are fewer where columns are many
MATRIX_COLUMNS = (
    100  # more columns, where variances alone are asked for: no covariance is sent, and nothing is cut across
)
DIRECTIONS = 4  # to cut across, at most
WIDTH = 0.3  # of a kernel, as a share of the covariance within cells
ELSEWHERE = 30.0  # the same in the directions that are not cut across
NARROWEST = 1e-7  # the least eigenvalue of a kernel in the standardised frame
MORE = 2  # fits of either kind that are compared, beyond those asked for
SHORT = 2  # rounds of EM after which the likeliest stay
RIDGE = 1e-5  # the least eigenvalue of a standardised covariance in those rounds
GRID = 1e-9  # totals per row are rounded to this share of a column's standard deviation
LEAST_ROWS = 0.5  # a cell that holds fewer is left out

Answers = Callable[
    [tuple[Params, ...], list[str]], tuple[Stats, ...]
]  # (mixtures, their shapes) -> totals over all rows


class Kernels(NamedTuple):
    """Points in the standardised frame and one covariance for all, (d, d) or (d,)."""

    means: np.ndarray  # (m, d)
    cov: np.ndarray


class Run(NamedTuple):
    """A mixture after a few rounds of EM."""

    params: Params
    loglik: float  # per row
    starved: bool  # whether a component has very few rows


class Found(NamedTuple):
    """Cells of both kinds; `across` is None where nothing was cut so."""

    around: Cells
    across: Cells | None


@client("initialization.cells", SUM, adds=True, exact=True)
def cells(down: tuple[Params, ...], client: Client, *, shapes: list) -> tuple[Stats, ...]:
    """Counts, sums and second moments of the rows near each point, about the point; in float64 whatever the rows are."""
    x = double(client.x)
    return tuple(mixture.e_step(kernels, x, client.w, shape) for kernels, shape in zip(down, shapes))


def cells_start(
    fed: Federation, frame: Frame, sizes: Sequence[int], n_init: int, shape: str, rng: np.random.Generator
) -> list[Params]:
    """Starts of mixtures, from five SUMs; one component alone needs none.

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
    return starts(lambda down, shapes: fed.sum(cells.using(shapes=shapes), down), frame, sizes, n_init, shape, rng)


def starts(
    answers: Answers, frame: Frame, sizes: Sequence[int], n_init: int, shape: str, rng: np.random.Generator
) -> list[Params]:
    """As `cells_start`, from any way of asking for totals."""
    settled = steady(frame)
    if max(sizes) == 1:
        return [wide(settled, np.asarray(settled.mean)[None], shape)] * (len(sizes) * n_init)
    found = collect(answers, settled, max(sizes), shape, rng)
    fits = [_candidates(found, k, n_init + MORE, shape, own) for k, own in zip(sizes, rng.spawn(len(sizes)))]
    ran = iter(_short_runs(answers, [_params(fit, settled, shape) for some in fits for fit in some], settled, shape))
    runs = [sorted([next(ran) for _ in some], key=_rank) for some in fits]
    return [some[i % len(some)].params for some in runs for i in range(n_init)]


# ---- three SUMs over cells ----


def collect(answers: Answers, frame: Frame, k: int, shape: str, rng: np.random.Generator) -> Found:
    """Cells of both kinds for up to k components, in the standardised frame."""
    rows, d = float(frame.rows), len(frame.mean)
    last = shape if shape in ("full", "tied") else "diag"
    m = how_many(AROUND * k, k, rows, d, last)
    kind = cell_mixture.kind_of(shape)
    if last == "diag" and d > MATRIX_COLUMNS:
        around = _first(m, np.ones(d), rng)
        for _ in range(2):
            around = _finer(_ask(answers, frame, [around], ["diag"])[0], m, kind, rng)
        return Found(_ask(answers, frame, [around], ["diag"])[0], None)
    side = "full" if shape == "full" else "tied"
    few = how_many(ACROSS * k, k, rows, d, side)
    (first,) = _ask(answers, frame, [_first(m, np.eye(d), rng)], ["tied"])
    matrices = cell_mixture.Matrices(False)
    whole = matrices.positive(cell_mixture.total(first, matrices), 1e-6)
    centre = cell_mixture.centre_of(first)
    across = _across_leading(centre, whole, k, few, rng)
    near, crossed = _ask(answers, frame, [_finer(first, m, matrices, rng), across], ["tied", side])
    across = _across_discriminants(crossed, centre, whole, k, few, rng)
    finest = _finer(near, m, matrices, rng)
    if last == "diag":
        finest = finest._replace(cov=np.diag(finest.cov))
    near, crossed = _ask(answers, frame, [finest, across], [last, side])
    return Found(near, crossed if shape in ("full", "tied") else crossed._replace(covs=matrices.diagonal(crossed.covs)))


def near_cells(answers: Answers, frame: Frame, k: int, rng: np.random.Generator) -> Cells:
    """Cells around points for up to k components, by two SUMs of counts, sums and variances."""
    d = len(frame.mean)
    m = how_many(AROUND * k, k, float(frame.rows), d, "diag")
    (first,) = _ask(answers, frame, [_first(m, np.ones(d), rng)], ["diag"])
    (near,) = _ask(answers, frame, [_finer(first, m, cell_mixture.kind_of("diag"), rng)], ["diag"])
    return near


def how_many(wanted: int, k: int, rows: float, d: int, shape: str) -> int:
    """Cells where so many are wanted for k components, bounded by the rows and by the numbers in an answer; at least k."""
    numbers = 1 + d + (d * (d + 1) // 2 if shape == "full" else d)
    most = min(rows // ROWS_PER_CELL, MAX_NUMBERS // numbers)
    return int(max(min(max(wanted, LEAST_CELLS), most), k, 1))


# ---- where cells lie ----


def _first(m: int, unit: np.ndarray, rng: np.random.Generator) -> Kernels:
    """Points drawn from the frame."""
    d = len(unit)
    return Kernels(rng.normal(size=(m, d)), unit * m ** (-2 / d))


def _finer(found: Cells, m: int, kind: Any, rng: np.random.Generator) -> Kernels:
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


def _across_leading(centre: np.ndarray, cov: np.ndarray, k: int, m: int, rng: np.random.Generator) -> Kernels:
    """Points along the leading principal directions of all rows."""
    axes = _signed(np.linalg.eigh(cov)[1][:, ::-1][:, : min(k - 1, DIRECTIONS)])
    r = axes.shape[1]
    points = rng.normal(size=(m, r)) @ np.linalg.cholesky(_seen_along(axes, cov)).T
    return Kernels(centre + _lifted(points, axes, cov), _slabs(axes, cov, WIDTH * m ** (-2 / r)))


def _across_discriminants(
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
    return _rounded(axes * np.sign(largest))


def _seen_along(axes: np.ndarray, cov: np.ndarray) -> np.ndarray:
    return cell_mixture.Matrices(False).positive(axes.T @ cov @ axes, 1e-9)


def _lifted(points: np.ndarray, axes: np.ndarray, cov: np.ndarray) -> np.ndarray:
    """The likeliest points (m, d) that project to these (m, r)."""
    return points @ np.linalg.solve(_seen_along(axes, cov), axes.T @ cov)


def _slabs(axes: np.ndarray, cov: np.ndarray, width: float) -> np.ndarray:
    """A kernel that is narrow along the axes and wide elsewhere."""
    narrow = axes @ np.linalg.inv(_seen_along(axes, cov)) @ axes.T / width
    return np.linalg.inv(narrow + np.linalg.inv(cov) / ELSEWHERE)


# ---- one SUM ----


def _ask(answers: Answers, frame: Frame, kernels: list[Kernels], shapes: list[str]) -> list[Cells]:
    """The cells around these points, standardised and rounded."""
    sent = tuple(_kernel_params(frame, some, shape) for some, shape in zip(kernels, shapes))
    return [_cells(frame, some, up, shape) for some, up, shape in zip(kernels, answers(sent, shapes), shapes)]


def _cells(frame: Frame, kernels: Kernels, up: Stats, shape: str) -> Cells:
    n, x, xx = (to_numpy(a) for a in (up.n, up.x, up.xx))
    held = n >= LEAST_ROWS * min(1.0, n.sum() / len(n))
    moved = x / np.maximum(n, 1e-300)[:, None] / frame.scale
    covs = _cell_covs(n, x, xx, frame, shape)
    return Cells(_rounded(n[held]), _rounded(kernels.means + moved)[held], _rounded(covs)[held])


def _kernel_params(frame: Frame, kernels: Kernels, shape: str) -> Params:
    """The kernels as a mixture of equal weights in the clients' own units."""
    m = len(kernels.means)
    square = frame.scale**2 if kernels.cov.ndim == 1 else np.outer(frame.scale, frame.scale)
    kind = cell_mixture.kind_of("full" if kernels.cov.ndim == 2 else "diag")
    cov = kind.positive(kernels.cov, NARROWEST) * square
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


def steady(frame: Frame) -> Frame:
    """The frame with its last digits rounded."""
    mean, scale = to_numpy(frame.mean), to_numpy(frame.scale)
    scale = np.array([float(f"{s:.9e}") for s in scale])
    return Frame(_rounded(mean / scale) * scale, scale, _rounded(to_numpy(frame.rows)))


def _rounded(a: np.ndarray) -> np.ndarray:
    return np.round(a / GRID) * GRID


# ---- the server ----


def _candidates(found: Found, k: int, each: int, shape: str, rng: np.random.Generator) -> list[Fit]:
    """The best mixtures of k components for either kind of cells, without those that are alike."""
    kinds = [some for some in found if some is not None]
    fits = [fit for some in kinds for fit in cell_search.search(some, min(k, len(some.n)), shape, rng)[:each]]
    kind = cell_mixture.kind_of(shape)
    seen = cell_mixture.moments(found.around, kind)
    filled = [_filled(fit, k, rng) for fit in fits]
    placed = [fit._replace(shares=cell_mixture.responsibilities(seen, fit, kind)) for fit in filled]
    return cell_search.apart(placed, seen.n)


def _short_runs(answers: Answers, params: list[Params], frame: Frame, shape: str) -> list[Run]:
    """A few rounds of EM from each mixture, all in the same SUMs."""
    asked, totals = params, _totals(answers, params, shape)
    for _ in range(SHORT - 1):
        asked = [_m_step(before, up, frame, shape) for before, up in zip(asked, totals)]
        totals = _totals(answers, asked, shape)
    few = cell_search.least_rows(len(frame.mean), shape)
    logliks = [float(_rounded(up.loglik / up.rows)) for up in totals]
    return [Run(p, loglik, bool(up.n.min() < few)) for p, loglik, up in zip(asked, logliks, totals)]


def _totals(answers: Answers, params: list[Params], shape: str) -> list[Stats]:
    return [tree.map(to_numpy, up) for up in answers(tuple(params), [shape] * len(params))]


def _m_step(params: Params, up: Stats, frame: Frame, shape: str) -> Params:
    """The next mixture; in the standardised frame no eigenvalue is below RIDGE, so that no component collapses here."""
    found = mixture.m_step(params, up, shape, 0.0)
    unit = {"diag": frame.scale**2, "spherical": np.mean(frame.scale**2)}.get(shape, np.outer(frame.scale, frame.scale))
    standard = gaussian.unpack_covs(found.covs, shape) / unit
    covs = cell_mixture.kind_of(shape).positive(standard, RIDGE) * unit
    return found._replace(covs=gaussian.pack_covs(covs, shape))


def _rank(run: Run) -> tuple[bool, float]:
    return run.starved, -run.loglik


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
