"""How much each candidate counts: shares, 0 to 1, whose weighted mean has the least squared error on hidden cells. Nothing is sent.

Few cells say little of one column: its errors are joined by those of the other columns, and shares of levels are drawn towards equal ones,
since a mean of several classifiers names the right level more often than the one that won on some thirty cells.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls

CELLS = 200.0  # of all columns together that the errors of one column are joined by
EQUAL = 10.0  # cells that speak for equal shares in columns of levels
ALIKE = 1e-7  # of the mean squared error: candidates that differ by less have equal shares
LEAST = 0.1  # a candidate that counts less everywhere is dropped


def shares(
    gram: np.ndarray, cells: np.ndarray, usable: np.ndarray, of_levels: np.ndarray, known: np.ndarray | None = None
) -> np.ndarray:
    """Shares (d, c) of the candidates in each column, from sums (d, c, c) of products of their errors over cells (d,).

    `usable` (d, c) says which candidates a column has, `of_levels` (d,) which columns hold levels; columns that agree in both learn from
    each other. `known` (d, c, c) is added to the sums of each column, and to no other's.
    """
    own = gram if known is None else gram + known
    found = np.zeros(usable.shape)
    sorts = np.column_stack([of_levels, usable])
    for sort in np.unique(sorts, axis=0):
        alike = np.flatnonzero((sorts == sort).all(1))
        some = np.flatnonzero(sort[1:])
        equal = EQUAL * np.eye(len(some)) if sort[0] else 0.0
        everywhere = _among(gram, alike, some).sum(0) / max(cells[alike].sum(), 1.0)
        found[alike[:, None], some] = [simplex_least(g + CELLS * everywhere + equal) for g in _among(own, alike, some)]
    kept = found.max(0) >= LEAST
    kept[found.argmax(1)] = True
    found = np.where(kept, found, 0.0)
    return found / found.sum(1, keepdims=True)


def _among(gram: np.ndarray, columns: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """The sums of some columns and candidates."""
    return gram[columns][:, candidates[:, None], candidates]


def simplex_least(gram: np.ndarray) -> np.ndarray:
    """The point of the simplex with the least a' G a; where several are as good, the one of the most equal shares.

    For a = s p with p in the simplex, the least a' G a + (sum(a) - 1)^2 over a >= 0 has the p wanted, whatever s is: a problem of
    non-negative least squares. Candidates whose errors are nearly the same would otherwise have shares that rounding decides.
    """
    scaled = gram / max(np.diag(gram).mean(), 1e-300)
    values, vectors = np.linalg.eigh(scaled)
    root = vectors * np.sqrt(np.maximum(values, 0.0) + ALIKE)
    a, _ = nnls(np.vstack([root.T, np.ones(len(gram))]), np.append(np.zeros(len(gram)), 1.0))
    return a / a.sum()
