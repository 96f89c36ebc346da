"""Fill in gaps of tables by mixtures of Gaussians over embedded columns: one SUM of statistics per round and candidate.

Columns of levels have logistic regressions on the other columns as well: one SUM of scores and curvature per round. Read in this order:
`embedding` (mixed columns as numbers), `candidates` (which mixtures are tried, and their M-step), `leaps` (where steps of EM lead),
`logarithms` (which columns are skewed, and mixtures of their logarithms), `logistic` (regressions of levels), `questions` (what clients
are asked), `stacking` (how much each model counts), `evidence` (what all rows say of it), `choice` (the same for all columns), `checked`
(how far out predictions are trusted), `ensemble` (several mixtures as one) and `calibration` (how wide intervals are), `gap_sums` and
`selection` (values that are missing by their own size), `state` and `estimator` (rounds), `filling` (what a fitted imputer does with
rows), `frames` (the answer in the form of the question) and `sensitivity` (how answers change if values are not missing at random).
"""

from unpooled.models.mixture_imputer.estimator import MixtureImputer
from unpooled.models.mixture_imputer.sensitivity import Sensitivity

__all__ = ["MixtureImputer", "Sensitivity"]
