"""Mixed rows as numbers: Gaussian columns, logarithms of counts, and a column of zeros and ones per level. Nothing is sent.

Where a mixed mixture starts is found among rows embedded so, by the same sums that a Gaussian mixture starts from.
"""

from __future__ import annotations

import numpy as np

from unpooled.models.initialization import Frame
from unpooled.models.mixed.columns import Columns
from unpooled.models.mixed.rows import gaussian_block

LEAST_SCALE = 1e-6  # of a column of zeros and ones


def embed(x: np.ndarray, columns: Columns) -> np.ndarray:
    """Rows (n, d) of an encoded table as (n, e); a missing level is missing in all its columns."""
    parts = [gaussian_block(x, columns)[0], np.log1p(x[:, columns.counts])]
    for j, size in zip(columns.discrete, columns.sizes):
        codes = x[:, j, None]
        known = (codes >= 0) & (codes < size)
        parts.append(np.where(known, codes == np.arange(size), np.nan))
    return np.concatenate(parts, axis=1)


def level_part(columns: Columns) -> slice:
    """Where the columns of levels lie among the embedded ones."""
    first = len(columns.gaussian) + len(columns.counts)
    return slice(first, first + columns.t)


def balanced(frame: Frame, columns: Columns) -> Frame:
    """The frame with one scale for all levels of a column, so that a column of levels weighs as much as a number."""
    scale = np.array(frame.scale)
    first = level_part(columns).start
    for part in columns.parts:
        mine = slice(first + part.start, first + part.stop)
        scale[mine] = max(np.sqrt((scale[mine] ** 2).sum()), LEAST_SCALE)
    return frame._replace(scale=scale)
