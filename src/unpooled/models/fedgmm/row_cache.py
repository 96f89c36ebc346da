"""Rows stored as columns between E-steps: the transposition costs a quarter of an E-step. Nothing is sent.

The cache is one more copy of a client's rows, kept as long as the client; arrays above MAX_NUMBERS are not cached.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, is_torch
from unpooled.maths.kernel import cast, columns, has_nan
from unpooled.tree import message

MAX_NUMBERS = 2**25  # of a client, or of a stack of clients: 128 MB in float32


@message("fedgmm.CachedColumns")
class CachedColumns(NamedTuple):
    """Rows as columns about a centre."""

    centre: np.ndarray  # (d,), in the dtype of the rows
    z: np.ndarray  # (b, 1 + d, n), see maths.kernel


def cached_columns(memo: dict[str, Any], x: Array, w: Array) -> CachedColumns | None:
    """Rows x (..., n, d) with weights w (..., n) as columns about their mean, cached in `memo`.

    None for tensors, missing values and arrays that are too large. The centre is the rows' own mean, so that results depend
    on the rows alone, and not on earlier calls.
    """
    rows, cached = memo.get("columns", (None, None))
    if rows is not x:
        unfit = is_torch(x) or x.size > MAX_NUMBERS or has_nan(x)
        cached = None if unfit else _as_columns(x, w)
        memo["columns"] = x, cached
    return cached


def _as_columns(x: np.ndarray, w: np.ndarray) -> CachedColumns:
    """Transpose a client's rows once."""
    n, d = x.shape[-2:]
    mean = w.reshape(-1) @ x.reshape(-1, d) / max(w.sum(), 1e-30)
    centre = cast(mean, x)
    rows = x.reshape(-1, n, d)
    z = np.empty((len(rows), d + 1, n), x.dtype)
    for transposed, one in zip(z, rows):
        transposed[:] = columns(one[None], None, centre)[0]
    return CachedColumns(centre, z)
