"""Mixtures for mixed columns by exact federated EM: one SUM of sufficient statistics per round.

Before the first round: two SUMs for levels, means and scales, five over cells of embedded rows, one for the first statistics and four
short rounds from several starts. Read in this order: `columns` (kinds and blocks), `messages` (what is sent), `rows` (a table by block),
`levels` and `counts` (one kind of column each), `em` (E-step and M-step), `questions` (what clients are asked), `embedding` and `start`
(where a fit starts; `merging` reduces the number of components), `estimator` (the rounds and the choice), `fitted` and `conditionals`
(what a fitted mixture can do), then, for `accelerate=True`, `coordinates` and `acceleration`. The Gaussian block is that of
`unpooled.maths.mixture`.
"""

from unpooled.models.mixed import em, start
from unpooled.models.mixed.columns import Columns, given_columns
from unpooled.models.mixed.estimator import MixedMixture
from unpooled.models.mixed.messages import Params, Prior, Stats
from unpooled.models.mixed.questions import client_blocks, client_densities
from unpooled.models.mixed.start import Seen, Settings

__all__ = [
    "Columns", "MixedMixture", "Params", "Prior", "Seen", "Settings", "Stats", "client_blocks", "client_densities",
    "em", "given_columns", "start",
]  # fmt: skip
