"""What a fitted GLM says: means of new rows with intervals, confidence limits, a table of coefficients. Nothing is sent."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn.utils.validation import check_is_fitted

from unpooled.errors import BadParameter
from unpooled.estimator import rows_of
from unpooled.models.glm.families import FAMILIES, LINKS, SYNONYMS
from unpooled.models.glm.summary import figure, table
from unpooled.parameters import is_number


class FittedGLM:
    """The methods of a fitted `GLM`, which has these attributes."""

    family: str
    link: str | None
    fit_intercept: bool
    cov_type: str
    coef_: np.ndarray  # (p,)
    intercept_: float
    cov_: np.ndarray  # (q, q), the intercept first
    names_: list[str]  # (q,)
    offset_index_: int  # -1 for none
    n_rows_: float
    df_resid_: float
    deviance_: float
    null_deviance_: float
    loglik_: float
    aic_: float
    scale_: float
    nb_alpha_: float
    nb_alpha_stderr_: float
    n_iter_: int

    def predict(self, X: Any) -> np.ndarray:
        """The mean of y at each row, (n,); for the binomial family the probability of 1."""
        design, shift = self._design(X)
        return LINKS[self._link].mean(design @ self._all_coef() + shift)

    def interval(self, X: Any, coverage: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Confidence intervals of the mean of y: the ends of the linear predictor's interval, through the link.

        Parameters
        ----------
        X : array-like or frame of shape (n, d)
            Rows.
        coverage : float, default=0.95
            The share of intervals that should hold the mean.

        Returns
        -------
        lower, upper : ndarray of shape (n,)
            The ends of each interval.
        """
        design, shift = self._design(X)
        centre = design @ self._all_coef() + shift
        half = self._quantile(coverage) * np.sqrt(np.einsum("ni,ij,nj->n", design, self.cov_, design))
        ends = np.stack([LINKS[self._link].mean(centre - half), LINKS[self._link].mean(centre + half)])
        return ends.min(0), ends.max(0)

    def conf_int(self, coverage: float = 0.95) -> np.ndarray:
        """(q, 2) confidence limits of the coefficients, in the order of `names_`."""
        check_is_fitted(self, "coef_")
        half = self._quantile(coverage) * np.sqrt(np.diag(self.cov_))
        return np.stack([self._all_coef() - half, self._all_coef() + half], 1)

    def pvalues(self) -> np.ndarray:
        """(q,) two-sided p-values of each coefficient being 0, in the order of `names_`."""
        check_is_fitted(self, "coef_")
        with np.errstate(divide="ignore", invalid="ignore"):  # where targets are met exactly
            return 2 * self._law().sf(np.abs(self._all_coef()) / np.sqrt(np.diag(self.cov_)))

    def summary(self, coverage: float = 0.95) -> str:
        """A table of coefficients with standard errors and confidence limits, as text."""
        rows = self._rows(coverage)
        head = {
            "family": f"{self._family}, {self._link} link",
            "rows": f"{self.n_rows_:g}",
            "residual df": f"{self.df_resid_:g}",
            "deviance": f"{self.deviance_:.6g} (null {self.null_deviance_:.6g})",
            "log-likelihood": f"{self.loglik_:.6g}",
            "AIC": f"{self.aic_:.6g}",
            "dispersion": f"{self.scale_:.6g}",
            "standard errors": self.cov_type,
            "rounds": f"{self.n_iter_} of Newton",
        }
        if self._family == "negative_binomial":
            head["nb_alpha"] = f"{self.nb_alpha_:.6g} (standard error {self.nb_alpha_stderr_:.3g})"
        return table(
            type(self).__name__, head, self.names_, rows, coverage, statistic="z" if self._law() is norm else "t"
        )

    def report_figures(self) -> dict[str, str]:
        """What a run's report shows of the model: title -> HTML."""
        return {"Coefficients": figure(self.names_, self._rows(0.95))}

    def _rows(self, coverage: float) -> np.ndarray:
        """(q, 5): estimate, standard error, p and confidence limits of each coefficient."""
        check_is_fitted(self, "coef_")
        errors = np.sqrt(np.diag(self.cov_))
        return np.column_stack([self._all_coef(), errors, self.pvalues(), self.conf_int(coverage)])

    def _design(self, X: Any) -> tuple[np.ndarray, np.ndarray | float]:
        """The columns with their intercept, and the offset of each row."""
        check_is_fitted(self, "coef_")
        x = rows_of(self, X, dtype=np.float64)
        j = self.offset_index_
        shift = 0.0 if j < 0 else x[:, j]
        x = x if j < 0 else np.delete(x, j, 1)
        return (np.column_stack([np.ones(len(x)), x]) if self.fit_intercept else x), shift

    def _all_coef(self) -> np.ndarray:
        """The intercept, where there is one, and the coefficients."""
        return np.concatenate([[self.intercept_], self.coef_]) if self.fit_intercept else self.coef_

    def scoring(self) -> tuple[dict[str, Any], np.ndarray, float, float]:
        """What clients need to score the fitted model: (its kind, coefficients (1, q), dispersion, alpha); see `up.cross_validate`."""
        check_is_fitted(self, "coef_")
        kind = {"kind": "glm", "family": self._family, "link": self._link, "offset": self.offset_index_}
        return kind, np.concatenate([[self.intercept_], self.coef_])[None], self.scale_, self.nb_alpha_

    @property
    def _link(self) -> str:
        """The link that was given, or the family's usual one."""
        return self.link or FAMILIES[self._family].link

    @property
    def _family(self) -> str:
        """The family by its first name."""
        return SYNONYMS.get(self.family, self.family)

    def _law(self) -> Any:
        """The distribution of an estimate's error in standard errors: normal, as statsmodels' GLM has it."""
        return norm

    def _quantile(self, coverage: float) -> float:
        """The half width of a two-sided interval, in standard errors."""
        if not (is_number(coverage) and 0 < coverage < 1):
            raise BadParameter(f"coverage={coverage!r} must be a number between 0 and 1")
        return float(self._law().ppf(0.5 + 0.5 * coverage))
