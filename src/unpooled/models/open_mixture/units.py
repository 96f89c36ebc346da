"""Columns in units of their own standard deviation, so that the clusters do not depend on the units of the table.

Sends one SUM of moments (`tables.moments`) before the first description, and one of steps (see `few_values`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from unpooled.data.designed import mean_and_deviation, moments
from unpooled.federation import Federation
from unpooled.maths import gaussian
from unpooled.models.open_mixture.candidates import Candidate
from unpooled.models.open_mixture.few_values import find_steps
from unpooled.tree import message


@message("open_mixture.Units")
class Units(NamedTuple):
    """What clients divide their columns by."""

    scale: np.ndarray  # (d,)
    step: np.ndarray  # (d,) distance of neighbouring values, in these units; 0 where there are many
    values: np.ndarray  # (d,) how many values each column has, over all clients

    @property
    def option(self) -> list[list[float]]:
        """Scale and step, as questions take them."""
        return units_option(self.scale, self.step)

    @property
    def log_volume(self) -> float:
        """What the log-likelihood of all rows is larger by than in the units of the table."""
        return float(self.values @ np.log(self.scale))


def units_option(scale: np.ndarray, step: np.ndarray) -> list[list[float]]:
    """Scale and step, as questions take them."""
    return [scale.tolist(), step.tolist()]


def find_units(fed: Federation, n_columns: int, shapes: Sequence[str]) -> Units:
    """Standard deviations over all clients, 1 for constant columns, and for all columns where every covariance is to be spherical."""
    total = fed.sum(moments.using(levels=[0] * n_columns), None)
    deviation = mean_and_deviation(total)[1]
    keep = set(shapes) == {"spherical"}
    scale = np.ones(n_columns) if keep else deviation
    return Units(scale, find_steps(fed, scale), np.asarray(total.n, float))


def multiplied(c: Candidate, scale: np.ndarray) -> Candidate:
    """The candidate of columns that are multiplied by `scale`; if this differs, spherical covariances become diagonal ones."""
    params, shape = c.proposal.params, c.shape
    covs = params.covs
    if shape == "full":
        covs = covs * packed_products(scale)
    elif shape == "spherical" and np.ptp(scale) == 0:
        covs = covs * scale[0] ** 2
    else:
        covs = (covs[:, None] if shape == "spherical" else covs) * scale**2
        shape = "diag"
    moved = params._replace(means=params.means * scale, covs=covs)
    return c._replace(shape=shape, proposal=c.proposal._replace(params=moved))


def packed_products(scale: np.ndarray) -> np.ndarray:
    """What a packed covariance is multiplied by where columns are multiplied by `scale`."""
    return np.asarray(gaussian.pack_triangle(np.outer(scale, scale)))
