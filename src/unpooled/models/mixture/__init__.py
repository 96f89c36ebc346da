"""Gaussian mixtures fitted by exact federated EM: one SUM of sufficient statistics per round.

Read in this order: `gaussian_mixture` (the estimator), `em` (what a round asks, the fits that share rounds, and which of them is the
result), `starts`, `checks`, `inference` (densities, clusters and imputation with a fitted mixture, and weights of single clients).
Imported only where they are asked for: `few_rows` (in a study), `progress` (verbose), `stochastic` (other solvers) and, for
`accelerate=True`, `race` (several paths in the same rounds), `acceleration` (one path) and `whitening` (its coordinates). The
mathematics of one E-step and M-step is in `unpooled.maths.mixture`; where a fit starts is in `models.initialization`.
"""

from unpooled.models.mixture.checks import warn_of_left_out
from unpooled.models.mixture.em import collapsed, narrow, reseed, weights_id
from unpooled.models.mixture.gaussian_mixture import GaussianMixture
from unpooled.models.mixture.inference import KEPT, Conditional, MixtureFace, PersonalWeights

__all__ = [
    "KEPT",
    "Conditional",
    "GaussianMixture",
    "MixtureFace",
    "PersonalWeights",
    "collapsed",
    "narrow",
    "reseed",
    "warn_of_left_out",
    "weights_id",
]
