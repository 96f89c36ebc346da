"""Models whose fit is differentially private, over any federation with a `Private` layer.

A *look* is one SUM with Gaussian noise, of a question that has declared its sensitivity (`unpooled.privacy.sensitivity`); it is asked
through `unpooled.layers.private` and charged to the privacy budget as mu^2 = 1 / sigma^2. Nothing else is asked of clients.

Read in this order:

- `frame`: the columns' moments (`ColumnMoments`), and how rows are standardised.
- `cells`, `cell_mixture`, `choice`, `start`: where a mixture starts.
- `whiten`, `packing`, `clipped_moments`, `e_step`, `update`, `mixture`: its EM (`PrivateGaussianMixture`).
- `kmeans`: cluster centres (`PrivateKMeans`).
- `regression_questions`, `regression`: a line with intervals (`PrivateRegression`).
- `dispatch`: how `GaussianMixture`, `MixtureImputer` and `BayesianRegression` are fitted to a federation with a `Private` layer.

What is protected: one row, with all of its values and which of them are missing. Public: the bounds, the columns' names, the parameters of
the model, which clients take part.
"""

from unpooled.models.private.dispatch import fit_private, rounds_private
from unpooled.models.private.frame import ColumnMoments
from unpooled.models.private.kmeans import PrivateKMeans
from unpooled.models.private.mixture import PrivateGaussianMixture
from unpooled.models.private.regression import PrivateRegression

__all__ = [
    "ColumnMoments",
    "PrivateGaussianMixture",
    "PrivateKMeans",
    "PrivateRegression",
    "fit_private",
    "rounds_private",
]
