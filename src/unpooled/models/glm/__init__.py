"""Generalised linear models, exact over clients, by sums alone.

What is sent: one SUM of column sums (`questions.look`), one SUM of scores and curvature per Newton step (`start`, then `newton`), one SUM
at the end (`final`), and one more for robust standard errors (`site_meat`, `row_meat`). Classifiers send counts and curvature by class
(`classes.counts`, `classes.curvature`).

Read in this order: `families` (the laws of y, row by row), `questions` (what clients compute), `newton` and `parts` (what the server does
with sums), `glm` (the estimator; `checks` before a fit, `prediction` and `summary` after it), `classes`, `many_coefficients` and
`linear_models` (LogisticRegression and LinearRegression, as scikit-learn has them), `scoring` (losses of held-out rows, for
`unpooled.validation`), `grid` (many fits in the same rounds).
"""

from unpooled.models.glm.glm import GLM
from unpooled.models.glm.grid import GRIDS
from unpooled.models.glm.linear_models import LinearRegression, LogisticRegression
from unpooled.models.glm.scoring import METRICS, Fitted, Scores, held_out

__all__ = ["GLM", "GRIDS", "METRICS", "Fitted", "LinearRegression", "LogisticRegression", "Scores", "held_out"]
