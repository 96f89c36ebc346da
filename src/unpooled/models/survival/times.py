"""The steps of time that all clients agree on: some SUMs of counts (5 to 16), or none if the study names them with `times`.

Without `times` the steps are the times at which anybody dies, found from how many deaths lie at or below thresholds. With a least
count, steps are joined until those who die, and those who are censored, are nobody or enough in each.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, Int, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.errors import BadData, BadParameter
from unpooled.federation import Federation, refuse_few
from unpooled.maths import searching
from unpooled.maths.ordered import LOWEST, ZERO
from unpooled.models.survival.rows import survival_rows
from unpooled.tree import message

DEATHS, GROUPS = 0, 1  # the two lists of values: times of death, and values of the column that groups rows
MOST_STEPS = 50_000
MOST_GROUPS = 50


@message("survival.Thresholds")
class Thresholds(NamedTuple):
    """Times at which patients are counted, and for which list each is."""

    list: Int[Array, "q"]
    at: Float[Array, "q"]


@message("survival.Counts")
class Counts(NamedTuple):
    """Patients at or below each threshold."""

    rows: Float[Array, "q", ">=0 rows"]


@client("survival.below", SUM, adds=True, batched=False)
def below(thresholds: Thresholds, client: Client, *, columns: dict) -> Counts:
    """How many deaths lie at or below each time, and how many rows at or below each value of the grouping column."""
    rows = survival_rows(client, columns)
    lists = {DEATHS: np.sort(rows.time[rows.died]), GROUPS: np.sort(rows.group)}
    counts = np.zeros(len(thresholds.at))
    for which, values in lists.items():
        asked = thresholds.list == which
        counts[asked] = searching.rows_below(values, None, thresholds.at[asked])
    return Counts(counts)


def steps(fed: Federation, columns: dict, events: float, times: Any) -> np.ndarray:
    """Where each step begins, (g,), in order."""
    if times is not None:
        given = np.asarray(times, dtype=np.float64)
        return given if given[0] <= 0 else np.concatenate([[0.0], given])
    search = searching.everything(np.array([DEATHS]), np.array([events]), ZERO)
    return searching.values(_searched(fed, columns, search, MOST_STEPS))


def levels(fed: Federation, columns: dict, rows: float) -> np.ndarray:
    """The values of the grouping column, in order."""
    search = searching.everything(np.array([GROUPS]), np.array([rows]), LOWEST)
    found = _searched(fed, columns, search, MOST_GROUPS)
    values = searching.values(found)
    refuse_few(fed, {f"group {value:g} of by=": n for value, n in zip(values.tolist(), found.rows.tolist())})
    return values


def _searched(fed: Federation, columns: dict, search: searching.Ranges, most: int) -> searching.Ranges:
    """Ask for counts at thresholds until every different value is found."""
    ask = below.using(columns=columns)

    def count(lists: np.ndarray, at: np.ndarray) -> np.ndarray:
        """Rows at or below each threshold."""
        return to_numpy(fed.sum(ask, Thresholds(lists, at)).rows)

    while searching.is_open(search).any():
        search = searching.one_round(search, count)
        if len(search.low) > most:
            _refuse(search, most)
    return search


def _refuse(search: searching.Ranges, most: int) -> None:
    """Refuse too many groups or too many different times."""
    if search.list[0] == GROUPS:
        raise BadParameter(f"by= has more than {most} different values: name a column of few groups")
    raise BadData(
        f"there are more than {most} different times of death: round them with unit=, or name steps with times="
    )


def join(counts: np.ndarray, least: float) -> np.ndarray:
    """The first step of each joined step, given counts (g, c) by step: in every joined step each count is 0 or at least `least`."""
    first = [0]
    so_far = np.zeros(counts.shape[1])
    for step, row in enumerate(counts):
        so_far = so_far + row
        if so_far.any() and _enough(so_far, least):
            first.append(step + 1)
            so_far = np.zeros(counts.shape[1])
    while len(first) > 1 and (first[-1] == len(counts) or not _enough(counts[first[-1] :].sum(0), least)):
        first.pop()  # too few rows at the end join the step before
    return np.asarray(first, dtype=np.int64)


def _enough(counts: np.ndarray, least: float) -> bool:
    """Whether no count is between 0 and `least`."""
    return bool(((counts == 0) | (counts >= least)).all())
