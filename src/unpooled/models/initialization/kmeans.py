"""Starts from centres of cells: k-means over all rows, k-means++ seeds, or cells drawn at random; SUMs only.

Rows never leave, so that a cell's mean stands for a row: `k-means++` and `random_from_data` draw among the means of cells, in
proportion to their rows. `kmeans` goes on with Lloyd's rounds over all rows: one SUM of counts, sums and variances of the rows
nearest to each centre, columns standardised. All depend on the totals and the seed alone, not on the split into clients.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unpooled.federation import Federation
from unpooled.maths.mixture import Params
from unpooled.models.initialization import cell_search
from unpooled.models.initialization.cell_mixture import Cells
from unpooled.models.initialization.cell_sums import steady, totals_of
from unpooled.models.initialization.cells import near_cells
from unpooled.models.initialization.clusters import clustered, lloyd
from unpooled.models.initialization.gathered import Centres, Frame, wide
from unpooled.models.initialization.together import Answers, together

LLOYD = 20  # rounds over all rows, at most
SEEDS = 10  # of k-means of the cells, of which the best goes on


def centre_starts(
    fed: Federation, frame: Frame, sizes: Sequence[int], shape: str, how: str, rng: np.random.Generator
) -> list[Params]:
    """One start for each of `sizes`.

    Parameters
    ----------
    fed : Federation
    frame : Frame
        What `frame(fed)` gave.
    sizes : sequence of int
        The number of components of each start; all share the SUMs.
    shape : {"full", "tied", "diag", "spherical"}
        Of the covariances.
    how : {"kmeans", "k-means++", "random_from_data"}
    rng : numpy.random.Generator

    Returns
    -------
    list of Params
    """
    answers, frame = totals_of(fed), steady(frame)
    if max(sizes) == 1:
        return [wide(frame, np.asarray(frame.mean)[None], shape)] * len(sizes)
    found = near_cells(answers, frame, max(sizes), rng)
    drawn = _at_random if how == "random_from_data" else _spread_out
    centres = [drawn(found, k, own) for k, own in zip(sizes, rng.spawn(len(sizes)))]
    if how == "kmeans":
        return together(answers, [lloyd(frame, [_settled(found, c) for c in centres], shape, LLOYD)])[0]
    return [wide(frame, frame.mean + frame.scale * c, shape) for c in centres]


def k_means(answers: Answers, frame: Frame, sizes: Sequence[int], rng: np.random.Generator) -> list[Centres]:
    """The clusters of k-means over all rows, in the standardised frame: how many rows, centres and squares within.

    Parameters
    ----------
    answers : callable
        Asks for totals over cells.
    frame : Frame
        Mean and scale of the columns.
    sizes : sequence of int
        How many clusters; all sizes share the SUMs.
    rng : numpy.random.Generator

    Returns
    -------
    list of Centres
        One for each size.
    """
    frame = steady(frame)
    found = near_cells(answers, frame, max(sizes), rng)
    centres = [_best_of_many(found, k, own) for k, own in zip(sizes, rng.spawn(len(sizes)))]
    return together(answers, [clustered(frame, centres, LLOYD)])[0]


def _best_of_many(found: Cells, k: int, rng: np.random.Generator) -> np.ndarray:
    """The centres (k, d) of the best of several k-means of the cells' means."""
    tried = [_settled(found, _spread_out(found, k, rng)) for _ in range(SEEDS)]
    return tried[int(np.argmin([_inertia(found, centres) for centres in tried]))]


def _inertia(found: Cells, centres: np.ndarray) -> float:
    """The sum of squares of the cells' means about their nearest centres."""
    squares = ((found.means[:, None] - centres) ** 2).sum(-1)
    return float(found.n @ squares.min(1))


def _at_random(found: Cells, k: int, rng: np.random.Generator) -> np.ndarray:
    """k cells' means, none twice while there are enough cells."""
    m = len(found.n)
    few = rng.choice(m, size=min(k, m), replace=False, p=found.n / found.n.sum())
    return _enough(found.means[few], k, rng)


def _spread_out(found: Cells, k: int, rng: np.random.Generator) -> np.ndarray:
    """k cells' means, each next drawn by its squared distance to those before (k-means++)."""
    return _enough(cell_search.seeds(found.means, found.n, min(k, len(found.n)), rng), k, rng)


def _enough(centres: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """More centres than cells are drawn from the frame."""
    return np.concatenate([centres, rng.normal(size=(k - len(centres), centres.shape[1]))])


def _settled(found: Cells, centres: np.ndarray) -> np.ndarray:
    """k-means of the cells' means, from these centres."""
    return cell_search.lloyd(found.means, found.n, centres)[1]
