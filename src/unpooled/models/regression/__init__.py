"""Bayesian linear regression with calibrated intervals, in closed form: one SUM of second moments.

Read in this order: `scaling` (columns in units that all clients share), `last_layer` (the exact Bayesian layer, its SUM of statistics and
its predictions), `bayesian_regression` (the estimator). `grouping` and `group_effects` add a random effect for equal values,
`held_out_rows` says which rows are held out, `heavy_tails` compresses columns with far outliers. `FedBNR` builds on this room.
"""

from unpooled.models.regression.bayesian_regression import BayesianRegression

__all__ = ["BayesianRegression"]
