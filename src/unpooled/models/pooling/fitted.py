"""Methods of a fitted `Pooling`: predictions, an overview, a page for each site, its part of a report. Nothing is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from unpooled.data.tabled import DESIGN
from unpooled.errors import BadParameter
from unpooled.estimator import Estimator, rows_of
from unpooled.models.pooling import pages, small_glm


class FittedPooling(Estimator):
    """The part of `Pooling` that works on a fitted model."""

    encoding = DESIGN

    def predict(self, X: Any, client: str | None = None) -> np.ndarray:
        """Predict the mean of y at each row, by the model that all sites share or by the coefficients of one site.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows to predict.
        client : str or None, default=None
            Name of the site whose personalised coefficients are used; None for the shared model.

        Returns
        -------
        mean : ndarray of shape (n_samples,)
            Predicted means.
        """
        check_is_fitted(self, "coef_")
        x = rows_of(self, X, dtype=np.float64)
        intercept = self.intercept_
        coef = self.coef_
        if client is not None:
            own: Mapping[str, Any] = self.sites_.get(client, {})
            if "coef" not in own:
                raise BadParameter(f"there are no coefficients of client {client!r}: fit with sites=True and cv=5")
            intercept = own["intercept"]
            coef = own["coef"]
        return small_glm.mean(self.family, x @ coef + intercept)

    def to_text(self) -> str:
        """Tests, held-out losses and recommendation as text, and a line for each site."""
        check_is_fitted(self, "tests_")
        return pages.overview(self)

    def page(self, site: str) -> str:
        """What a site contributed, what it gained, and what would change without it, as text.

        Parameters
        ----------
        site : str
            Name of the site.
        """
        check_is_fitted(self, "tests_")
        if site not in self.sites_:
            raise BadParameter(
                f"there is nothing about site {site!r}: fit with sites=True, and give one of the sites' names"
            )
        return pages.site_page(self, site)

    def report_figures(self) -> dict[str, str]:
        """What the report of a run shows: the recommendation, the tests, partial pooling, and the sites."""
        return pages.figures(self)

    def __str__(self) -> str:
        """The overview as text."""
        return pages.overview(self) if hasattr(self, "tests_") else repr(self)
