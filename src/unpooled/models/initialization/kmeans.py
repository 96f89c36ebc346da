"""Starts from centres of cells: k-means over all rows, k-means++ seeds, or cells drawn at random; SUMs only.

Rows never leave, so that a cell's mean stands for a row: `k-means++` and `random_from_data` draw among the means of cells, in
proportion to their rows. `kmeans` goes on with Lloyd's rounds over all rows: one SUM of counts, sums and variances of the rows
nearest to each centre, columns standardised. All depend on the totals and the seed alone, not on the split into clients.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unpooled.federation import Federation
from unpooled.maths.mixture import Params, Stats
from unpooled.models.initialization import cell_search
from unpooled.models.initialization.cell_mixture import Cells
from unpooled.models.initialization.cell_sums import cells, steady
from unpooled.models.initialization.cells import near_cells
from unpooled.models.initialization.clusters import lloyd
from unpooled.models.initialization.gathered import Frame, wide
from unpooled.models.initialization.together import together

LLOYD = 20  # rounds over all rows, at most


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

    def answers(down: tuple[Params, ...], shapes: list[str]) -> tuple[Stats, ...]:
        return fed.sum(cells.using(shapes=shapes), down)

    frame = steady(frame)
    if max(sizes) == 1:
        return [wide(frame, np.asarray(frame.mean)[None], shape)] * len(sizes)
    found = near_cells(answers, frame, max(sizes), rng)
    drawn = _at_random if how == "random_from_data" else _spread_out
    centres = [drawn(found, k, own) for k, own in zip(sizes, rng.spawn(len(sizes)))]
    if how == "kmeans":
        return together(answers, [lloyd(frame, [_settled(found, c) for c in centres], shape, LLOYD)])[0]
    return [wide(frame, frame.mean + frame.scale * c, shape) for c in centres]


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
