"""Gaussian mixtures fitted by exact federated EM: one SUM of sufficient statistics per round.

Read in this order: `gaussian_mixture` (the estimator and its questions), `inference` (densities, clusters and imputation with a fitted
mixture), then, for `accelerate=True`, `race` (several paths in the same rounds), `acceleration` (one path) and `whitening` (its
coordinates). The mathematics of one E-step and M-step is in `unpooled.maths.mixture`; where a fit starts is in `models.initialization`.
"""

from unpooled.models.mixture.collapse import collapsed
from unpooled.models.mixture.gaussian_mixture import GaussianMixture, reseed
from unpooled.models.mixture.inference import Conditional, MixtureFace

__all__ = ["Conditional", "GaussianMixture", "MixtureFace", "collapsed", "reseed"]
