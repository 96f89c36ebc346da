"""Cross-validation and comparison of models: fits without each fold, then one SUM of held-out losses.

Read in this order: `comparison` (`cross_validate`, `compare`), `held_out` (sums of losses), `scores` (means and standard errors).
"""

from unpooled.validation.comparison import compare, cross_validate
from unpooled.validation.scores import Comparison, Score

__all__ = ["Comparison", "Score", "compare", "cross_validate"]
