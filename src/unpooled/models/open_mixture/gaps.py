"""Gaps in a client's own rows, filled in for the description it gives before the first round. Nothing is sent.

Rounds integrate missing values out, exactly; only the local mixture and k-means that a fit starts from need complete rows. A gap gets
its mean given the rest of its row, under a mixture of the client's own rows.
"""

from __future__ import annotations

import numpy as np

from unpooled.errors import BadData
from unpooled.maths import local_mixture, missing

MAX_COMPONENTS = 8
PASSES = 2  # of fitting a mixture to the filled rows, and filling them by it


def filled(x: np.ndarray, w: np.ndarray, name: str) -> np.ndarray:
    """Rows (n, d) with their gaps filled in; rows without gaps are returned as they are."""
    gaps = np.isnan(x)
    if not gaps.any():
        return x
    check_columns(x, name)
    means = np.where(gaps, 0.0, x * w[:, None]).sum(0) / (~gaps * w[:, None]).sum(0)
    whole = np.where(gaps, means, x)
    for _ in range(PASSES):
        found = local_mixture.fit(whole, w, np.random.default_rng(0), range(1, MAX_COMPONENTS + 1))
        whole = missing.impute(found.params, x, found.shape)
    return whole


def check_columns(x: np.ndarray, name: str) -> None:
    """Refuse a client that has no value in a column."""
    empty = np.flatnonzero(np.isnan(x).all(axis=0))
    if len(empty):
        raise BadData(
            f"client {name!r} has no value in column {empty[0]}: leave the column out, or fill it in with MixtureImputer first"
        )
