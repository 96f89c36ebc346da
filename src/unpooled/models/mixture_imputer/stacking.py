"""How much each candidate counts: shares, 0 to 1, whose weighted mean has the least squared error on hidden cells. Nothing is sent.

Few cells say little of one column: its errors are joined by those of the other columns, and shares of levels are drawn towards equal ones,
since a mean of several classifiers names the right level more often than the one that won on some thirty cells.
"""

from __future__ import annotations

import numpy as np

STEPS = 2000
CELLS = 200.0  # of all columns together that the errors of one column are joined by
EQUAL = 10.0  # cells that speak for equal shares in columns of levels
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
    """The point of the simplex with the least a' G a, by Frank and Wolfe's steps with exact line search, away steps included."""
    a = np.zeros(len(gram))
    a[int(np.argmin(np.diag(gram)))] = 1.0
    for _ in range(STEPS):
        slope = gram @ a
        best = int(np.argmin(slope))
        held = np.flatnonzero(a > 0)
        worst = int(held[np.argmax(slope[held])])
        gain = slope[worst] - slope[best]
        if gain <= 1e-12 * abs(a @ slope):
            break
        curvature = gram[best, best] - 2 * gram[best, worst] + gram[worst, worst]
        step = min(a[worst], gain / curvature) if curvature > 0 else a[worst]
        a[best] += step
        a[worst] = max(a[worst] - step, 0.0)
        if step == 0:
            break
    return a / a.sum()
