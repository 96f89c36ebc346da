"""Bayesian linear regression with prediction intervals in closed form, over a fixed map from rows to features.

`BayesianRegression` is the estimator; `FedBNR` and the regression baselines build on this room.

What is sent, all of it as SUMs: counts, sums and squares of columns and targets (`regression.sums`, `regression.scatter`); with
`inputs="robust"` histograms of columns (`regression.spreads`); second moments of features and targets (`regression.statistics`), before
that sums of squares where features are put on a grid (`regression.squares`); with
`group_by` row counts per value of one column (`regression.count`); with `recalibrate` a histogram of left-out residuals
(`regression.residuals`, `regression.client_residuals`).

Read in this order:

- `held_out_rows`: which rows are held out, by a hash of their values
- `scaling`: means and scales over all clients; `heavy_tails`: columns with far outliers
- `group_effects`: rows with equal values of a column share an offset
- `design`: the map from rows to features, and the SUM of statistics
- `last_layer`: posterior, predictions, intervals; `updating`: adding and removing clients
- `left_out_rows`, `unseen_clients`: the SUMs of residuals that recalibrate intervals
- `bayesian_regression`: the estimator; `without_each`: the fit without each site, for `leave_one_site_out`

The formulas are in `unpooled.maths`: `bayes_linear` (posterior), `predictive` (intervals), `calibration` (recalibration).
"""

from unpooled.models.regression.bayesian_regression import BayesianRegression
from unpooled.models.regression.design import Design, group_of, put_on_grid, statistics, sum_statistics
from unpooled.models.regression.group_effects import check_group_by, check_group_name, find_groups, members
from unpooled.models.regression.heavy_tails import BINS, MAX_THINNING, MIDDLES
from unpooled.models.regression.last_layer import LastLayer
from unpooled.models.regression.scaling import (
    Scaling,
    check_targets,
    compress_heavy,
    histograms,
    standard,
    standard_rows,
    standardise,
)
from unpooled.models.regression.unseen_clients import check_clients

__all__ = [
    "BINS",
    "MAX_THINNING",
    "MIDDLES",
    "BayesianRegression",
    "Design",
    "LastLayer",
    "Scaling",
    "check_clients",
    "check_group_by",
    "check_group_name",
    "check_targets",
    "compress_heavy",
    "find_groups",
    "group_of",
    "histograms",
    "members",
    "put_on_grid",
    "standard",
    "standard_rows",
    "standardise",
    "statistics",
    "sum_statistics",
]
