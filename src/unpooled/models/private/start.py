"""Where a private mixture starts: two looks at cells, mixtures fitted to them at the server, and one look at which of them is best."""

from __future__ import annotations

import numpy as np

from unpooled.federation import Federation
from unpooled.models.private.cell_mixture import Mixture, distinct, fit_cells
from unpooled.models.private.cells import Cells, look_at_cells
from unpooled.models.private.choice import compare
from unpooled.models.private.frame import Columns

FIRST_SHARE, SECOND_SHARE, CHOICE_SHARE = 0.08, 0.12, 0.04  # of the budget
WIDTH = 1.2  # standard deviations about which public centres are drawn
STARTS = 40
CANDIDATES = 12


def find_start(fed: Federation, columns: Columns, k: int, budget: float, rng: np.random.Generator):
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
    """Cells about public random centres, then about the means that these have."""
    frame, d = columns.frame, len(columns.frame.mean)
    radius = np.sqrt(d) + 1
    first, second = FIRST_SHARE * budget, SECOND_SHARE * budget
    centres = WIDTH * rng.normal(size=(int(np.clip(columns.rows * np.sqrt(first) / 25, 4 * k, 300)), d))
    rough = look_at_cells(fed, frame, centres, radius, first)
    if len(rough.count) < k:
        rough = Cells(np.ones(len(centres)), centres, np.ones(len(centres)))
    most = int(np.clip(columns.rows * np.sqrt(second) / 40, 3 * k, 200))
    heaviest = np.argsort(-rough.count)[:most]
    fine = look_at_cells(fed, frame, rough.mean[heaviest], 0.8 * radius, second)
    if len(fine.count) < k:
        return Cells(np.ones(len(heaviest)), rough.mean[heaviest], np.full(len(heaviest), 0.5))
    return fine
