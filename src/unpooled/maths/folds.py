"""Which rows of a table are held out together: tenths of the rows, by a hash of their values. Sends nothing.

Rows are ordered by a hash that is salted with a digest of all rows. So the folds do not depend on the order of the
rows, and whoever does not have the table cannot tell in which fold a row is. Two and five folds are unions of tenths:
no choice of the number of folds separates fewer rows than a tenth.
"""

from __future__ import annotations

import numpy as np

from unpooled.maths.hashing import absorb, mix

FOLDS = (2, 5, 10)


def fold_of(x: np.ndarray, y: np.ndarray | None, folds: int) -> np.ndarray:  # (n,) int
    """The fold (n,) of each row of x (n, d) with labels y (n, ...) or None.

    Ten folds differ in size by one row at most.
    """
    return tenths(x, y) % folds


def tenths(x: np.ndarray, y: np.ndarray | None) -> np.ndarray:  # (n,) int, 0 to 9
    """A number from 0 to 9 per row, dealt out in the order of their hashes."""
    hashes = _row_hashes(x, y)
    with np.errstate(over="ignore"):
        salt = mix(mix(hashes).sum(dtype=np.uint64))
    order = np.argsort(mix(hashes ^ salt), kind="stable")
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    return places % 10


def _row_hashes(x: np.ndarray, y: np.ndarray | None) -> np.ndarray:  # (n,) uint64
    """A hash (n,) of each row and its label."""
    state = absorb(np.full(len(x), mix(np.uint64(1))), x)
    return state if y is None else absorb(state, _numbers(y))


def _numbers(y: np.ndarray) -> np.ndarray:  # (n, o)
    """Labels as columns of numbers (n, o); strings become their rank in sorted order."""
    y = np.asarray(y)
    if y.dtype.kind not in "fiub":
        y = np.unique(y.astype(str), return_inverse=True)[1].reshape(y.shape)
    return y.reshape(len(y), -1)
