"""Exponential families for FedEM, one per file: `statistics`, `maximize` and a feasible set each. Nothing is sent from here.

Read `base` first (the protocol, and what families share), then `gaussian`, or `poisson` for the shortest one with `columns`. The others:
`common` (one covariance for all components), `bernoulli`, `categorical`, `regression` (mixtures of regressions), `factor` (factor analysis)
and `lowrank` (tables of low rank).
"""

from unpooled.models.fedem.families.base import Family, Sum
from unpooled.models.fedem.families.bernoulli import BernoulliMixture
from unpooled.models.fedem.families.categorical import CategoricalMixture
from unpooled.models.fedem.families.common import CommonCovariance
from unpooled.models.fedem.families.factor import FactorAnalysis
from unpooled.models.fedem.families.gaussian import GaussianMixture
from unpooled.models.fedem.families.lowrank import LowRank
from unpooled.models.fedem.families.poisson import PoissonMixture
from unpooled.models.fedem.families.regression import RegressionMixture

FAMILIES: dict[str, type] = {
    "gaussian": GaussianMixture,
    "common": CommonCovariance,
    "poisson": PoissonMixture,
    "bernoulli": BernoulliMixture,
    "categorical": CategoricalMixture,
    "regression": RegressionMixture,
    "factor": FactorAnalysis,
    "lowrank": LowRank,
}

__all__ = [
    "FAMILIES",
    "BernoulliMixture",
    "CategoricalMixture",
    "CommonCovariance",
    "FactorAnalysis",
    "Family",
    "GaussianMixture",
    "LowRank",
    "PoissonMixture",
    "RegressionMixture",
    "Sum",
]
