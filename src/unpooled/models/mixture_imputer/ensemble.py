"""Several mixtures as one: the distribution of a gap is that of each, weighted by how much it counts in the column. Nothing is sent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unpooled.maths import imputation
from unpooled.maths.imputation import Laws
from unpooled.maths.mixture import Params
from unpooled.models.mixture_imputer.embedding import Embedding

STRAY = 3.0  # standard deviations
MAX_LOG = 300.0  # of a logarithm


def anchored(law: Laws, singles: Sequence[Laws]) -> Laws:
    """Distributions in which no component strays far from what the mixtures of one Gaussian say, if there are any.

    A component that holds an outlier and few other rows foretells wild values; one Gaussian of all rows does not. Where these
    differ, by their priors, anything between them is near: hidden cells say which prior is right. How far is near, the first of them says.
    """
    if not singles:
        return law
    means = [single.means for single in singles]
    room = STRAY * singles[0].scales
    return law._replace(means=np.clip(law.means, np.minimum.reduce(means) - room, np.maximum.reduce(means) + room))


def joined(laws: Sequence[Laws], shares: np.ndarray) -> Laws:
    """One distribution per cell from those of several mixtures over the same cells; shares (cells, c)."""
    r = np.concatenate([law.r * shares[:, [i]] for i, law in enumerate(laws)], axis=1)
    means = np.concatenate([law.means for law in laws], axis=1)
    scales = np.concatenate([law.scales for law in laws], axis=1)
    return Laws(laws[0].rows, laws[0].columns, r, means, scales)


def by_candidate(candidates: Sequence[Params], logs: Sequence[bool], x: np.ndarray, embedding: Embedding) -> list[Laws]:
    """The distributions of every gap of encoded rows (n, d), ordered by row and column, under each mixture."""
    plain = embedding.embed(x)
    curved = embedding.logarithmic.embed(x) if any(logs) else plain
    laws = [_ordered(imputation.laws(params, curved if log else plain)) for params, log in zip(candidates, logs)]
    singles = [law for law, log in zip(laws, logs) if not log and law.means.shape[1] == 1]
    first = singles[0] if singles else None
    own = [_from_logarithms(law, plain, embedding, first) if log else law for law, log in zip(laws, logs)]
    return [anchored(law, singles) for law in own]


def _from_logarithms(law: Laws, plain: np.ndarray, embedding: Embedding, single: Laws | None) -> Laws:
    """Normal distributions with the mean and standard deviation of the log-normal ones, in the columns' own units.

    No standard deviation is far above that of one Gaussian. A value that has no logarithm is a gap to the mixture, but none of the table.
    """
    law = Laws(*(a[np.isnan(plain[law.rows, law.columns])] for a in law))
    skewed = np.isin(law.columns, [embedding.parts[j].start for j in embedding.skewed])[:, None]
    mean = np.exp(np.minimum(law.means + law.scales**2 / 2, MAX_LOG))
    scale = mean * np.sqrt(np.expm1(np.minimum(law.scales**2, MAX_LOG)))
    if single is not None:
        scale = np.minimum(scale, STRAY * single.scales)
    return law._replace(means=np.where(skewed, mean, law.means), scales=np.where(skewed, scale, law.scales))


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
