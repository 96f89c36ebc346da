"""Rows kept as columns between passes: turning them costs as much as a quarter of an E-step. Nothing is sent.

It takes one more copy of the rows in memory, as long as their client lives, and none of parts larger than LARGEST.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, is_torch
from unpooled.maths.kernel import cast, columns, has_nan
from unpooled.tree import message

LARGEST = 2**25  # numbers of a client, or of a stack of them: 128 MB in float32


@message("fedgmm.Standing")
class Standing(NamedTuple):
    centre: np.ndarray  # (d,), in the dtype of the rows
    z: np.ndarray  # (b, 1 + d, n), see maths.kernel


def standing(memo: dict[str, Any], x: Array, w: Array) -> Standing | None:
    """Rows x (..., n, d), weights w (..., n) as columns about their mean, kept in `memo`; None for tensors, missing
    values and too many numbers.

    They are about the rows' own mean, so that bits depend on the rows alone, not on how many passes there were before.
    """
    seen, found = memo.get("columns", (None, None))
    if seen is not x:
        found = None if is_torch(x) or x.size > LARGEST or has_nan(x) else _turned(x, w)
        memo["columns"] = x, found
    return found


def _turned(x: np.ndarray, w: np.ndarray) -> Standing:
    n, d = x.shape[-2:]
    mean = w.reshape(-1) @ x.reshape(-1, d) / max(w.sum(), 1e-30)
    centre, rows = cast(mean, x), x.reshape(-1, n, d)
    z = np.empty((len(rows), d + 1, n), x.dtype)
    for own, one in zip(z, rows):
        own[:] = columns(one[None], None, centre)[0]
    return Standing(centre, z)
