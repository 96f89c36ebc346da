"""Which rows of a table are held out together: tenths that only the table itself can tell. Pure functions, nothing is sent.

The order of a hash of the rows decides, salted by a digest of all of them, so that who does not have the table cannot say where a row is.
It does not depend on the order of rows. Two and five folds are unions of tenths: no choice of folds sets fewer rows than a tenth apart.
"""

from __future__ import annotations

import numpy as np

from unpooled.maths.hashing import absorb, mix

FOLDS = (2, 5, 10)


def fold_of(x: np.ndarray, y: np.ndarray | None, folds: int) -> np.ndarray:  # (n,) int
    """The fold of each row of x (n, d) with labels y (n, ...) or None; sizes differ by one row at most for ten folds."""
    return tenths(x, y) % folds


def tenths(x: np.ndarray, y: np.ndarray | None) -> np.ndarray:  # (n,) int, 0 to 9
    """Rows dealt into ten heaps in the order of their hash."""
    hashes = _row_hashes(x, y)
    with np.errstate(over="ignore"):
        salt = mix(mix(hashes).sum(dtype=np.uint64))
    order = np.argsort(mix(hashes ^ salt), kind="stable")
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    return places % 10


def _row_hashes(x: np.ndarray, y: np.ndarray | None) -> np.ndarray:  # (n,) uint64
    state = absorb(np.full(len(x), mix(np.uint64(1))), x)
    return state if y is None else absorb(state, _numbers(y))


def _numbers(y: np.ndarray) -> np.ndarray:  # (n, o)
    """Labels as columns of numbers, words by their place in order."""
    y = np.asarray(y)
    if y.dtype.kind not in "fiub":
        y = np.unique(y.astype(str), return_inverse=True)[1].reshape(y.shape)
    return y.reshape(len(y), -1)
