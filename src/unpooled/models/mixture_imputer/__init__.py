"""Fill in gaps of tables by mixtures of Gaussians over embedded columns: one SUM of statistics per round and candidate.

Read in this order: `embedding` (mixed columns as numbers), `candidates` (what is tried, and its M-step), `questions` (what clients are
asked), `stacking` (how much each candidate counts) and `ensemble` (several as one), `estimator` (rounds, choice, filling in), `frames`
(the answer in the form of the question) and `sensitivity` (values that are not missing at random).
"""

from unpooled.models.mixture_imputer.estimator import MixtureImputer
from unpooled.models.mixture_imputer.sensitivity import Sensitivity

__all__ = ["MixtureImputer", "Sensitivity"]
