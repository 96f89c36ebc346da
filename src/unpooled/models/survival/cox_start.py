"""What the Newton steps of `Cox` need beforehand: means and scales of covariates, the steps of time, and the deaths in each.

Sends a SUM of column sums, the search for times of death (`times`), and one SUM of counts and squares; stratified by site only the first
and the last of these.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.data.designed import refuse_rare_levels
from unpooled.errors import BadData
from unpooled.federation import Federation
from unpooled.models.column_names import called, names_of
from unpooled.models.steady import Steady
from unpooled.models.survival import cox_questions as questions
from unpooled.models.survival import times as grid
from unpooled.models.survival.cox_questions import Centred, Scale
from unpooled.models.survival.partial_likelihood import Deaths
from unpooled.models.survival.rows import Look
from unpooled.tree import message


@message("survival.Setting")
class Setting(NamedTuple):
    """What stays the same over the Newton steps."""

    absent: int | None  # number of clients that did not answer the first question; the others must answer to the end
    rows: float
    weight: float
    events: float
    scale: Scale
    starts: np.ndarray  # (g,) beginnings of the time steps
    died: np.ndarray  # (g,) deaths by step
    died_weight: np.ndarray  # (g,) their weights
    died_z: np.ndarray  # (k,) sum of z over those who die

    @property
    def deaths(self) -> Deaths:
        """Deaths by step, counted and weighted."""
        return Deaths(self.died, self.died_weight)


def begin(fed: Steady, model: Any, columns: dict, first: Look) -> Setting:
    """The setting of a model's Newton steps, after a first look."""
    weight = float(first.weight)
    mean = to_numpy(first.x) / weight
    names = covariates(fed, columns, len(mean))
    refuse_rare_levels(fed, names, weight, to_numpy(first.x))
    held = model.penalizer != 0
    if model.strata == "site":
        ask = questions.site_start.using(columns=columns)
        xx = to_numpy(fed.sum(ask, Scale(mean, np.ones_like(mean))).xx)
        scale = _scale(mean, xx, weight, names, held)
        steps = (np.zeros(0),) * 4
    else:
        scale, steps = _steps_of_time(fed, model, columns, first, mean, names)
    return Setting(fed.absent, float(first.rows), weight, float(first.events), scale, *steps)


def _steps_of_time(
    fed: Steady, model: Any, columns: dict, first: Look, mean: np.ndarray, names: list[str]
) -> tuple[Scale, tuple]:
    """(scale, (starts of the steps, deaths, weights of deaths, sums of z over deaths)); steps with too few rows are joined."""
    starts = grid.steps(fed, columns, float(first.events), model.times)
    up = fed.sum(questions.start.using(columns=columns), Centred(mean, starts))
    died, died_weight, censored, xx, died_x = (to_numpy(a) for a in up)
    if model.min_count > 1:
        joined = grid.join(np.stack([died, censored], 1), model.min_count)
        starts = starts[joined]
        died = np.add.reduceat(died, joined)
        died_weight = np.add.reduceat(died_weight, joined)
    scale = _scale(mean, xx, float(first.weight), names, model.penalizer != 0)
    return scale, (starts, died, died_weight, died_x / scale.scale)


def covariates(fed: Federation, columns: dict, k: int) -> list[str]:
    """The names of the k covariates."""
    taken = {columns["duration"], columns["event"]} - {None}
    names = names_of(fed, k + len(taken))
    return [name for j, name in enumerate(names) if j not in taken]


def _scale(mean: np.ndarray, xx: np.ndarray, weight: float, names: list[str], held: bool) -> Scale:
    """Means and standard deviations of the covariates; constant ones are refused where no penalty holds their coefficient."""
    scale = np.sqrt(xx / max(weight - 1, 1.0))
    constant = scale <= 1e-12 * np.abs(mean)
    if not held and constant.any():
        which = called(names, np.flatnonzero(constant))
        has, it = ("has", "it") if constant.sum() == 1 else ("have", "them")
        raise BadData(f"{which} {has} the same value in every row: leave {it} out, or give penalizer='auto'")
    return Scale(mean, np.where(constant, 1.0, scale))
