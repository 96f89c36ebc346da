"""Several mixtures as one: the distribution of a gap is that of each, weighted by how much it counts in the column. Nothing is sent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unpooled.maths import imputation
from unpooled.maths.imputation import Laws
from unpooled.maths.mixture import Params
from unpooled.models.mixture_imputer.embedding import Embedding

STRAY = 3.0  # standard deviations


def anchored(laws: Sequence[Laws]) -> list[Laws]:
    """Distributions in which no component strays far from what one Gaussian says, if one of the mixtures is a single Gaussian.

    A component that holds an outlier and few other rows foretells wild values; one Gaussian of all rows does not.
    """
    single = next((law for law in laws if law.means.shape[1] == 1), None)
    if single is None:
        return list(laws)
    low, high = single.means - STRAY * single.scales, single.means + STRAY * single.scales
    return [law._replace(means=np.clip(law.means, low, high)) for law in laws]


def joined(laws: Sequence[Laws], shares: np.ndarray) -> Laws:
    """One distribution per cell from those of several mixtures over the same cells; shares (cells, c)."""
    r = np.concatenate([law.r * shares[:, [i]] for i, law in enumerate(laws)], axis=1)
    means = np.concatenate([law.means for law in laws], axis=1)
    scales = np.concatenate([law.scales for law in laws], axis=1)
    return Laws(laws[0].rows, laws[0].columns, r, means, scales)


def by_candidate(candidates: Sequence[Params], x: np.ndarray) -> list[Laws]:
    """The distributions of every gap of embedded rows (n, e), ordered by row and column, under each mixture."""
    return anchored([_ordered(imputation.laws(params, x)) for params in candidates])


def cells(law: Laws, column: int, rows: np.ndarray | None = None) -> Laws:
    """The gaps of one embedded column, in ascending `rows` (all by default)."""
    mine = np.flatnonzero(law.columns == column)
    if rows is not None:
        mine = mine[np.searchsorted(law.rows[mine], rows)]
    return Laws(*(a[mine] for a in law))


def level_probabilities(law: Laws, j: int, embedding: Embedding, rows: np.ndarray | None = None) -> np.ndarray:
    """Probabilities (c, levels) of the gaps of column j under one mixture."""
    part = embedding.parts[j]
    return embedding.probabilities([cells(law, e, rows) for e in range(part.start, part.stop)], j)


def _ordered(law: Laws) -> Laws:
    """The distributions in the order of rows, then of columns."""
    order = np.lexsort((law.columns, law.rows))
    return Laws(*(a[order] for a in law))
