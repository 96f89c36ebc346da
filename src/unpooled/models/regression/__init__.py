"""Bayesian linear regression with calibrated intervals, in closed form: one SUM of second moments.

Read in this order: `scaling` (columns in units that all clients share), `last_layer` (the exact Bayesian layer, its SUM of statistics and
its predictions), `bayesian_regression` (the estimator). `grouping` and `group_effects` add a random effect for equal values,
`held_out_rows` says which rows are held out, `heavy_tails` compresses columns with far outliers. `FedBNR` builds on this room.
"""

from unpooled.models.regression.bayesian_regression import BayesianRegression
from unpooled.models.regression.group_effects import members
from unpooled.models.regression.grouping import check_group_by
from unpooled.models.regression.grouping import find as find_groups
from unpooled.models.regression.last_layer import Design, LastLayer, group_of, statistics
from unpooled.models.regression.scaling import (
    Scaling,
    bend_heavy,
    check_targets,
    standard,
    standard_rows,
    standardise,
)

__all__ = [
    "BayesianRegression",
    "Design",
    "LastLayer",
    "Scaling",
    "bend_heavy",
    "check_group_by",
    "check_targets",
    "find_groups",
    "group_of",
    "members",
    "standard",
    "standard_rows",
    "standardise",
    "statistics",
]
