"""Several mixtures as one: the distribution of a gap is that of each, weighted by how much it counts in the column. Nothing is sent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unpooled.maths import imputation
from unpooled.maths.imputation import Laws
from unpooled.maths.mixture import Params


def joined(laws: Sequence[Laws], shares: np.ndarray) -> Laws:
    """One distribution per cell from those of several mixtures over the same cells; shares (cells, c)."""
    r = np.concatenate([law.r * shares[:, [i]] for i, law in enumerate(laws)], axis=1)
    means = np.concatenate([law.means for law in laws], axis=1)
    scales = np.concatenate([law.scales for law in laws], axis=1)
    return Laws(laws[0].rows, laws[0].columns, r, means, scales)


def laws(candidates: Sequence[Params], shares: np.ndarray, x: np.ndarray, column_of: np.ndarray) -> Laws:
    """The distribution of every gap of embedded rows (n, e), ordered by row and column; shares (d, c)."""
    found = [_ordered(imputation.laws(params, x)) for params in candidates]
    return joined(found, shares[column_of[found[0].columns]])


def _ordered(law: Laws) -> Laws:
    order = np.lexsort((law.columns, law.rows))
    return Laws(*(a[order] for a in law))
