"""Patterns of missing values, found column by column from counts: those with rows go on, those with too few are left."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, Int
from unpooled.tree import message

ROUNDS = 28  # patterns of all columns are known after about so many, alongside the rounds of levels and quantiles
LEAST_DIGITS = 4  # columns a round at least
MOST = 250  # patterns followed: the most frequent ones


@message("describe.Patterns")
class Patterns(NamedTuple):
    """Patterns of missing values found so far, with their rows."""

    columns: Int[Array, "c"]  # columns with missing values
    gone: Int[Array, "m a"]  # 1: missing, in the first a of them
    rows: Float[Array, "m"]


def begin(columns: np.ndarray, rows: float) -> Patterns:
    """One pattern of no column yet, which all rows have."""
    return Patterns(np.asarray(columns, np.int64), np.zeros((1, 0), np.int64), np.array([rows]))


def digits(found: Patterns) -> int:
    """How many columns the next round goes on by; 0 if all are known."""
    c = len(found.columns)
    known = found.gone.shape[1]
    return min(max(LEAST_DIGITS, -(-c // ROUNDS)), c - known)


def extended(found: Patterns, counts: np.ndarray, least: float) -> Patterns:
    """The patterns that are one round longer, given rows (m, 2^digits) of each by how it goes on."""
    more = digits(found)
    parent, code = np.nonzero(counts >= max(least, 1e-9))
    rows = counts[parent, code]
    kept = np.sort(np.argsort(-rows, kind="stable")[:MOST])
    parent = parent[kept]
    code = code[kept]
    rows = rows[kept]
    following = (code[:, None] >> np.arange(more)[::-1]) & 1
    return found._replace(gone=np.concatenate([found.gone[parent], following], 1), rows=rows)
