"""Where a private mixture starts: two looks at cells, mixtures fitted to them at the server, and one look at which of them is best."""

from __future__ import annotations

import numpy as np

from unpooled.federation import Federation
from unpooled.models.private.cell_mixture import Mixture, distinct, fit_cells
from unpooled.models.private.cells import Cells, look_at_cells, nearest_seen
from unpooled.models.private.choice import compare
from unpooled.models.private.frame import Columns

FIRST_SHARE, SECOND_SHARE, CHOICE_SHARE = 0.08, 0.12, 0.04  # of the budget
WIDTH = 1.2  # standard deviations about which public centres are drawn
PUBLIC_POINTS = 4000  # drawn by the server where rows may lie
KMEANS_STEPS = 6  # by which centres are spread evenly over them
WITHIN = 0.9  # share of the rows that are not clipped in their cell
ROWS_PER_NOISE = (25, 40)  # rows per cell, in standard deviations of the noise, in the two looks
STARTS = 40
CANDIDATES = 12


def find_start(
    fed: Federation, columns: Columns, k: int, budget: float, rng: np.random.Generator
) -> tuple[Mixture, float]:
    """(mixture in the units of the frame, share of the budget used)."""
    d = len(columns.frame.mean)
    if k == 1:
        return Mixture(np.ones(1), np.zeros((1, d)), np.eye(d)[None]), 0.0
    cells = find_cells(fed, columns, k, budget, rng)
    found = distinct(fit_cells(cells, k, rng, STARTS), CANDIDATES)
    used = FIRST_SHARE + SECOND_SHARE
    if len(found) == 1:
        return found[0], used
    scores = compare(fed, columns.frame, found, columns.rows, CHOICE_SHARE * budget)
    return found[int(np.argmax(scores.per_row))], used + CHOICE_SHARE


def find_cells(fed: Federation, columns: Columns, k: int, budget: float, rng: np.random.Generator) -> Cells:
    """Cells about public centres that are spread as evenly as rows may be, then about the means that these have."""
    frame = columns.frame
    d = len(columns.frame.mean)
    first = FIRST_SHARE * budget
    second = SECOND_SHARE * budget
    public = rng.normal(size=(PUBLIC_POINTS, d))
    most = int(np.clip(columns.rows * np.sqrt(first) / ROWS_PER_NOISE[0], 4 * k, 300))
    centres = evenly(WIDTH * public, most)
    rough = look_at_cells(fed, frame, centres, cell_radius(centres, public), first)
    if len(rough.n) < k:
        rough = Cells(np.ones(most), centres, np.ones(most))
    most = int(np.clip(columns.rows * np.sqrt(second) / ROWS_PER_NOISE[1], 3 * k, 200))
    heaviest = np.argsort(-rough.n)[:most]
    rough = Cells(*(part[heaviest] for part in rough))
    fine = look_at_cells(fed, frame, rough.mean, cell_radius(rough.mean, drawn(rough, rng)), second)
    return fine if len(fine.n) >= k else Cells(np.ones(len(heaviest)), rough.mean, np.full(len(heaviest), 0.5))


def evenly(points: np.ndarray, m: int) -> np.ndarray:
    """Centres of m cells of public points, by a few steps of k-means."""
    centres = points[:m].copy()
    for _ in range(KMEANS_STEPS):
        label = nearest_seen(points, centres)
        count = np.bincount(label, minlength=m)
        sums = np.stack([np.bincount(label, column, m) for column in points.T], 1)
        centres = np.where(count[:, None] > 0, sums / np.maximum(count, 1)[:, None], centres)
    return centres


def cell_radius(centres: np.ndarray, points: np.ndarray) -> float:
    """The distance from its centre that nine rows in ten do not exceed, if rows lie as the points do."""
    deviations = points - centres[nearest_seen(points, centres)]
    return float(np.quantile(np.linalg.norm(deviations, axis=1), WITHIN))


def drawn(cells: Cells, rng: np.random.Generator) -> np.ndarray:
    """Points drawn as the cells say that rows lie."""
    which = rng.choice(len(cells.n), PUBLIC_POINTS, p=cells.n / cells.n.sum())
    noise = rng.normal(size=(PUBLIC_POINTS, cells.mean.shape[1]))
    return cells.mean[which] + np.sqrt(cells.variance[which])[:, None] * noise
