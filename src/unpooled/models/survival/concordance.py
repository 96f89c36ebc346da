"""Harrell's concordance over all clients: SUMs that find cells of score, then one of counts by cell and step of time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.federation import Federation
from unpooled.maths import searching
from unpooled.models.survival.cox_questions import Scale, scores
from unpooled.models.survival.harrell import Pairs, pairs
from unpooled.models.survival.partial_likelihood import last_step
from unpooled.models.survival.rows import survival_rows
from unpooled.models.survival.times import Counts
from unpooled.tree import message

EXACT = 2_000  # patients up to which every score is a cell of its own
CELLS = 1_000  # cells of like many patients above that


@message("survival.Scoring")
class Scoring(NamedTuple):
    """Coefficients, and scores at which patients are counted."""

    coef: Float[Array, "k"]
    scale: Scale
    at: Float[Array, "q"]


@message("survival.Table")
class Table(NamedTuple):
    """Coefficients, steps of time and cells of score."""

    coef: Float[Array, "k"]
    scale: Scale
    starts: Float[Array, "g"]
    cells: Float[Array, "s"]  # the largest score of each cell


@message("survival.Leaving")
class Leaving(NamedTuple):
    """Patients who die or are censored, by step of time and cell of score."""

    died: Float[Array, "g s", ">=0 rows"]
    censored: Float[Array, "g s", ">=0 rows"]


@client("survival.scores_below", SUM, adds=True, batched=False)
def scores_below(asked: Scoring, client: Client, *, columns: dict) -> Counts:
    """How many patients have a score z'b at or below each threshold."""
    found = np.sort(scores(survival_rows(client, columns), asked.scale, asked.coef))
    return Counts(searching.rows_below(found, None, asked.at))


@client("survival.leaving", SUM, adds=True, batched=False)
def leaving(table: Table, client: Client, *, columns: dict) -> Leaving:
    """Deaths and censored patients by step of time and cell of score."""
    rows = survival_rows(client, columns)
    steps = len(table.starts)
    cells = len(table.cells)
    step = last_step(table.starts, rows.time)
    cell = np.minimum(np.searchsorted(table.cells, scores(rows, table.scale, table.coef)), cells - 1)
    inside = step >= 0

    def count(which: np.ndarray) -> np.ndarray:
        """Patients (steps, cells)."""
        place = step[which] * cells + cell[which]
        return np.bincount(place, rows.w[which], steps * cells).reshape(steps, cells).astype(float)

    return Leaving(count(inside & rows.died), count(inside & ~rows.died))


def all_pairs(fed: Federation, columns: dict, coef: np.ndarray, scale: Scale, starts: np.ndarray, rows: float) -> Pairs:
    """The pairs of all clients' patients."""
    cells = _cells(fed, columns, coef, scale, rows)
    up = fed.sum(leaving.using(columns=columns), Table(coef, scale, starts, cells))
    return pairs(to_numpy(up.died), to_numpy(up.censored))


def _cells(fed: Federation, columns: dict, coef: np.ndarray, scale: Scale, rows: float) -> np.ndarray:
    """The largest score of each cell, in order."""
    if rows <= EXACT:
        search = searching.everything(np.zeros(1), np.array([rows]))
    else:
        ranks = np.unique(np.floor(np.arange(1, CELLS + 1) * rows / CELLS) - 1)
        search = searching.ranked(np.zeros(len(ranks)), np.full(len(ranks), rows), ranks)
    ask = scores_below.using(columns=columns)

    def count(lists: np.ndarray, at: np.ndarray) -> np.ndarray:
        """Rows with a score at or below each threshold."""
        return to_numpy(fed.sum(ask, Scoring(coef, scale, at)).rows)

    while searching.is_open(search).any():
        search = searching.one_round(search, count)
    return np.unique(searching.values(search))
