"""Gaussian mixtures fitted by exact federated EM: one SUM of sufficient statistics per round.

Read in this order: `gaussian_mixture` (the estimator), `questions` (what it asks), `candidates` (fits that share the rounds, and one step
of EM), `choice` (by BIC, without `collapse`d components), `starts`, `checks`, `inference` (densities, clusters and imputation with a
fitted mixture), `personal` (weights of a client's own), `progress` (verbose) and `stochastic` (other solvers); then, for
`accelerate=True`, `race` (several paths in the same rounds), `acceleration` (one path) and `whitening` (its coordinates). The
mathematics of one E-step and M-step is in `unpooled.maths.mixture`; where a fit starts is in `models.initialization`.
"""

from unpooled.models.mixture.candidates import reseed
from unpooled.models.mixture.collapse import collapsed
from unpooled.models.mixture.gaussian_mixture import GaussianMixture
from unpooled.models.mixture.inference import Conditional, MixtureFace

__all__ = ["Conditional", "GaussianMixture", "MixtureFace", "collapsed", "reseed"]
