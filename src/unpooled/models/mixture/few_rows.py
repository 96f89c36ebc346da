"""Components of few rows in a study: a study does without them, so that no total of a fit goes on describing few people.

A component that holds fewer rows, at all sites together, than the study's `min_rows_per_component` is left out, and its rows count for
the others. That is seen in the total of a round. Where a component may hold few rows, whole rows are counted in a SUM of their own
before more is asked of them: in the first round, as a start may lie anywhere, and near components that held few rows a round before.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.federation import Federation
from unpooled.maths.mixture import Params

CROWDED = 10  # times the least rows: a component that held so many a round before is not counted first


def uncertain(params: Params, rows: float, least: float, first: bool) -> np.ndarray:
    """Which components have to be counted before more is asked of them, (k,) bool."""
    weights = to_numpy(params.weights)
    if len(weights) == 1 or least <= 0:
        return np.zeros(len(weights), bool)
    return (weights * rows < CROWDED * least) | first


def counted(fed: Federation, asked: Sequence[Params], shape: str) -> list[np.ndarray]:
    """How many rows belong most to each component of each mixture: one SUM of whole rows."""
    from unpooled.models.initialization import cell_counts

    return [to_numpy(up.n) for up in fed.sum(cell_counts.using(shapes=[shape] * len(asked)), tuple(asked))]


def held(counts: Sequence[np.ndarray], least: float) -> np.ndarray:
    """Which components hold enough rows in all of these counts, (k,) bool; the largest, if none does."""
    fewest = np.min([to_numpy(n) for n in counts], axis=0)
    enough = fewest >= least
    return enough if enough.any() else np.arange(len(fewest)) == fewest.argmax()
