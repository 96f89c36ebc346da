"""Models of the exponential family for FedEM, one a file: two functions and a feasible set each."""

from unpooled.maths.families.base import Family, Sum
from unpooled.maths.families.bernoulli import BernoulliMixture
from unpooled.maths.families.categorical import CategoricalMixture
from unpooled.maths.families.common import CommonCovariance
from unpooled.maths.families.factor import FactorAnalysis
from unpooled.maths.families.gaussian import GaussianMixture
from unpooled.maths.families.lowrank import LowRank
from unpooled.maths.families.poisson import PoissonMixture
from unpooled.maths.families.regression import RegressionMixture

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
