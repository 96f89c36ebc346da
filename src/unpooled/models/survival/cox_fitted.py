"""What a fitted Cox regression says: risks, survival, concordance of new rows, its table. Nothing is sent."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from unpooled.data.tabled import DESIGN
from unpooled.errors import BadParameter
from unpooled.estimator import Estimator, rows_of
from unpooled.models.survival import harrell
from unpooled.models.survival.cox_questions import SCORE_DECIMALS


class FittedCox(Estimator):
    """What `Cox` does once it is fitted."""

    encoding = DESIGN

    def predict(self, X: Any) -> np.ndarray:
        """Log hazard relative to a patient with mean covariates, (n,)."""
        check_is_fitted(self)
        return (rows_of(self, X, dtype=np.float64) - self.mean_) @ self.coef_

    def predict_survival(self, X: Any, times: Any) -> np.ndarray:
        """Probability of being alive at some times.

        Parameters
        ----------
        X : array-like or frame of shape (n, k)
            Covariates of the patients.
        times : float or array-like of shape (m,)
            Times since each patient's start.

        Returns
        -------
        ndarray of shape (n, m)
            Survival probabilities, by the common baseline hazard.
        """
        check_is_fitted(self)
        if self.baseline_times_ is None:
            raise BadParameter("there is no common baseline hazard: fit with baseline=True and strata=None")
        hazard = np.concatenate([[0.0], self.baseline_cumulative_hazard_])
        at = hazard[np.searchsorted(self.baseline_times_, np.atleast_1d(times), side="right")]
        return np.exp(-np.outer(np.exp(self.predict(X)), at))

    def score(self, X: Any, y: Any) -> float:
        """Harrell's concordance.

        Parameters
        ----------
        X : array-like or frame of shape (n, k)
            Covariates of the patients.
        y : array-like of shape (n, 2) or (n,)
            Time and event (1, or 0 for a censored patient); times alone are all events.

        Returns
        -------
        float
            The share of pairs whose order is predicted rightly, ties counted half.
        """
        risk = self.predict(X)
        y = np.asarray(y, dtype=np.float64).reshape(len(risk), -1)
        died = y[:, 1] == 1 if y.shape[1] > 1 else np.ones(len(risk), bool)
        return harrell.index(harrell.of_rows(y[:, 0], died, np.round(risk, SCORE_DECIMALS)))

    def to_frame(self) -> Any:
        """One row per covariate, as a frame of pandas."""
        check_is_fitted(self)
        import pandas as pd

        return pd.DataFrame(self._table(), index=self._labels())

    def summary(self) -> str:
        """The coefficients as a text table."""
        check_is_fitted(self)
        table = self._table()
        width = max(len(name) for name in (*self._labels(), "covariate"))
        lines = [f"{'covariate':<{width}}" + "".join(f"{name:>13}" for name in table)]
        for j, name in enumerate(self._labels()):
            lines.append(f"{name:<{width}}" + "".join(f"{column[j]:>13.4g}" for column in table.values()))
        known = "" if self.concordance_ is None else f", concordance {self.concordance_:.3f}"
        lines.append(
            f"{self.n_samples_:g} patients, {self.n_events_:g} events, log-likelihood {self.loglik_:.3f}{known}"
        )
        return "\n".join(lines)

    def _labels(self) -> list[str]:
        """Names of the covariates, numbers where they have none."""
        return self.columns_ or [str(j) for j in range(len(self.coef_))]

    def _table(self) -> dict[str, np.ndarray]:
        """The columns of the table of results."""
        low, high = np.exp(self.confidence_interval_).T
        return {
            "coef": self.coef_, "stderr": self.stderr_, "hazard ratio": self.hazard_ratio_, "lower": low, "upper": high,
            "p": self.p_value_,
        }  # fmt: skip
