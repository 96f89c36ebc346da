"""`Describe`: table one of all clients' rows, from SUMs of counts and moments alone; 64 rounds at most.

What is sent, in the order of the files:

- `questions`: what clients are asked. Rows and missing values by column; how many rows lie at or below thresholds, by group; which
  missing values come together; sums, then second moments about the means; rows of each level.
- `patterns`: which patterns of missing values to ask for next. Nothing is sent there.
- `estimator`: the rounds. Levels are found first (5 to 16 rounds), then quantiles (5 to 16), then moments and histograms.
- `quantile_rules`: NumPy's quantile methods as ranks. Nothing is sent there.
- `results`: from totals to the numbers of the table. Nothing is sent there.
- `tables`: the result as text, HTML and frame. Nothing is sent there.
"""

from unpooled.models.describe.estimator import Describe

__all__ = ["Describe"]
