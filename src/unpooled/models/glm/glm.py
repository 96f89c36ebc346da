"""Generalised linear models by Newton's method: one SUM for means, one SUM per step, one SUM at the end.

An ordinary fit takes 5 to 8 SUMs in all; standard errors robust by site take one more. No row, label or single client's answer is needed.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning

from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.data.designed import refuse_rare_levels
from unpooled.data.tabled import DESIGN
from unpooled.errors import BadData, BadParameter
from unpooled.estimator import Estimator, Info
from unpooled.federation import Federation, refuse_few
from unpooled.maths.gaussian import unpack_triangle
from unpooled.models.glm import families, newton, questions
from unpooled.models.glm.checks import check_alpha, check_numeric_targets, check_seen, offset_index
from unpooled.models.glm.families import FAMILIES, SYNONYMS
from unpooled.models.glm.newton import Evaluated, Path, Penalty
from unpooled.models.glm.parts import GLMParts, State
from unpooled.models.glm.questions import Final, Look
from unpooled.parameters import above, at_least, flag, is_number, not_below_zero, one_of

MOST_HALVINGS = 30
COV_TYPES = ("nonrobust", "HC0", "site")


class GLM(GLMParts, RegressorMixin, Estimator):
    """A generalised linear model over clients: the fit, standard errors and deviance of the pooled rows.

    Parameters
    ----------
    family : {"normal", "binomial", "poisson", "gamma", "negative_binomial"}, default="normal"
        The law of y given its mean. "gaussian" is another name of "normal".
    link : {"identity", "log", "logit", "probit", "inverse"} or None, default=None
        What of the mean is linear in the columns. None takes that of statsmodels: identity, logit, log, inverse and log.
    fit_intercept : bool, default=True
        Whether there is a constant term. It is never penalised.
    offset : str, int or None, default=None
        The name or index of a column that is added to the linear predictor with coefficient 1, such as the logarithm of an exposure.
    alpha : float, default=0.0
        Strength of the penalty: deviance / (2 n) + alpha ((1 - l1_ratio) / 2 |coef|^2 + l1_ratio |coef|_1) is minimised.
        There are no standard errors with a penalty.
    l1_ratio : float, default=0.0
        0 is ridge, 1 is lasso, between them is the elastic net.
    nb_alpha : float or None, default=None
        Of the negative binomial, whose variance is mu + nb_alpha mu^2 (NB2); None estimates it by maximum likelihood together with the
        coefficients, as `statsmodels.api.NegativeBinomial` does.
    cov_type : {"nonrobust", "HC0", "site"}, default="nonrobust"
        Which standard errors. "HC0" is robust to a wrong variance of y, "site" to any dependence between rows of the same client as well;
        it needs many clients.
    missing : {"refuse", "drop"}, default="refuse"
        What to do with rows that have missing values.
    tol : float, default=1e-5
        Stop when a step changes the linear predictor by less than this (root mean square over rows, weighted by their curvature). The
        change that remains after it is about its square, and the last SUM makes up for that too.
    max_iter : int, default=100
        The most Newton steps, those that were halved included.
    random_state : int or None, default=None
        Not used: nothing is drawn.

    Attributes
    ----------
    coef_ : ndarray (p,), intercept_ : float
    stderr_ : ndarray (p,), intercept_stderr_ : float
        Standard errors; NaN with a penalty.
    cov_ : ndarray (q, q), the covariance of the estimates, the intercept first.
    deviance_, null_deviance_, pearson_chi2_, loglik_, aic_, bic_ : float
        The null deviance is that of the mean of all y, without offset.
    scale_ : float, the dispersion: Pearson's chi2 / df_resid_ for the normal and gamma families, else 1.
    n_rows_, df_resid_ : float, the sum of the weights of complete rows, and that less the number of coefficients.
    nb_alpha_, nb_alpha_stderr_ : float, of the negative binomial; the second is NaN unless it was estimated.
    names_ : list of str, of the coefficients, "intercept" first where there is one.
    converged_ : bool

    References
    ----------
    McCullagh and Nelder, Generalized Linear Models (1989). Liang and Zeger, Longitudinal data analysis using generalized linear models,
    Biometrika 73 (1986), for standard errors by site. Weights of rows are frequencies: a weight of 2 is the row twice.

    Examples
    --------
    >>> import numpy as np, unpooled as up
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(300, 2))
    >>> y = rng.poisson(np.exp(0.5 + x @ [0.3, -0.2]))
    >>> model = up.GLM(family="poisson").fit({"north": (x[:200], y[:200]), "south": (x[200:], y[200:])})
    >>> model.coef_.round(3), round(model.deviance_, 2)
    (array([ 0.332, -0.222]), 337.88)
    """

    encoding = DESIGN

    _penalise = "set alpha= for a ridge penalty"  # what to do, in words, where the likelihood has no maximum

    def __init__(
        self,
        family: str = "normal",
        *,
        link: str | None = None,
        fit_intercept: bool = True,
        offset: str | int | None = None,
        alpha: float = 0.0,
        l1_ratio: float = 0.0,
        nb_alpha: float | None = None,
        cov_type: str = "nonrobust",
        missing: str = "refuse",
        tol: float = 1e-5,
        max_iter: int = 100,
        random_state: Any = None,
    ):
        self.family = family
        self.link = link
        self.fit_intercept = fit_intercept
        self.offset = offset
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.nb_alpha = nb_alpha
        self.cov_type = cov_type
        self.missing = missing
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    # ---- before any round ----

    def check(self, fed: Federation) -> None:
        """Refuse parameters that do not exist or do not go together."""
        one_of("family", self.family, (*FAMILIES, *SYNONYMS))
        one_of("link", self.link, (None, *FAMILIES[self._family].links))
        flag("fit_intercept", self.fit_intercept)
        not_below_zero("alpha", self.alpha)
        if not (is_number(self.l1_ratio) and 0 <= self.l1_ratio <= 1):
            raise BadParameter(f"l1_ratio={self.l1_ratio!r} must be between 0 (ridge) and 1 (lasso)")
        if self.nb_alpha is not None:
            above("nb_alpha", self.nb_alpha, 0)
        one_of("cov_type", self.cov_type, COV_TYPES)
        one_of("missing", self.missing, ("refuse", "drop"))
        not_below_zero("tol", self.tol)
        at_least("max_iter", self.max_iter, 1)
        self._check_few_choices(fed)
        check_numeric_targets(fed)
        self._check_offset(fed)

    def _check_offset(self, fed: Federation) -> None:
        """Refuse an offset column that clients in this process do not have."""
        index = offset_index(self.offset, fed.columns)
        clients = fed.here()
        if clients and index >= clients[0].x.shape[-1]:
            raise BadParameter(f"offset={index} is no column of {clients[0].x.shape[-1]}: columns are counted from 0")

    def _check_few_choices(self, fed: Federation) -> None:
        """Refuse combinations for which there is no formula here."""
        if self._learns_alpha and self.alpha > 0:
            raise BadParameter("a penalty (alpha=) needs the negative binomial's own nb_alpha= to be given")
        if self.cov_type == "site" and len(fed.names) < 2:
            raise BadParameter("cov_type='site' compares clients but there is only one: use 'nonrobust' or 'HC0'")
        if self.cov_type != "nonrobust" and self._learns_alpha:
            raise BadParameter(f"cov_type={self.cov_type!r} needs the negative binomial's own nb_alpha= to be given")

    # ---- rounds ----

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        """One SUM of means and of rows that do not suit the family."""
        options = {"family": self._family, "offset": offset_index(self.offset, fed.columns)}
        seen = Look(*(np.asarray(to_numpy(a)) for a in fed.sum(questions.look.using(**options), None)))
        check_seen(self, seen, self._q(seen), fed)
        names = [name for j, name in enumerate(fed.columns or ()) if j != options["offset"]]
        refuse_rare_levels(fed, names, seen.n, seen.x)
        if self._family == "binomial":
            refuse_few(fed, {"outcome 1": float(seen.y), "outcome 0": float(seen.n - seen.y)})
        return State(seen, newton.begin(self._null(seen)), False)

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        """One SUM of score and curvature, then a Newton step that is halved when it does not help."""
        if not state.started:
            return self._first_step(fed, state)
        total = self._numpy(fed.sum(questions.newton.using(**self._options(fed)), self._point(state)))
        hessian = self._positive(total)
        objective = self._objective(total, state.path.at, state.seen)
        pen = self._penalty(state.seen)
        n = float(total.n)
        here = Evaluated(hessian, total.score, objective, n, self._unit(total, state.seen))
        path = newton.advance(state.path, here, pen)
        if path.halvings == 0 and self._may_separate and not pen.any:
            q = self._q(state.seen)
            newton.check_informed(hessian[:q, :q], path.first[:q, :q], n, self._names(fed, state.seen), self._penalise)
        if self._learns_alpha:
            check_alpha(self._alpha(path.at), state.seen)
        if path.halvings > MOST_HALVINGS and not np.isfinite(path.objective):
            raise BadData(
                f"no mean that link={self._link!r} gives fits family={self._family!r} in every row: use link='log'"
            )
        info = {"deviance": float(total.loss)} | ({"change": path.moved} if np.isfinite(path.moved) else {})
        return State(state.seen, path, True), info

    def _first_step(self, fed: Federation, state: State) -> tuple[State, Info]:
        """The first step, from means between each y and the mean of all."""
        options = {k: v for k, v in self._options(fed).items() if k != "learn_alpha"}
        total = self._numpy(fed.sum(questions.start.using(**options), self._point(state)))
        hessian = unpack_triangle(total.hessian)
        path = state.path
        pen = self._penalty(state.seen)
        if not pen.any:
            small = newton.rounding(hessian, self._mean(state.seen), self.fit_intercept)
            newton.check_independent(hessian, self._names(fed, state.seen), small, self._penalise)
        q = len(hessian)
        at = path.at.copy()
        at[:q] = newton.solve(hessian, total.score, np.zeros(q), Penalty(pen.ridge[:q], pen.absolute[:q]))
        exact = (self._family, self._link) == ("normal", "identity")
        objective = self._objective(total, path.at, state.seen) if not self._learns_alpha else float(np.inf)
        first = np.zeros((len(at), len(at)))
        first[:q, :q] = hessian
        path = Path(at, path.at, objective, float(total.n), 0, first, path.last, 0.0 if exact else float(np.inf))
        return State(state.seen, path, True), {"deviance": float(total.loss)}

    def done(self, state: State, history: list[Info]) -> bool:
        """Whether the coefficients hardly move, or no step lowers the deviance."""
        return state.path.moved < self.tol or state.path.halvings > MOST_HALVINGS

    # ---- the end ----

    def finish(self, fed: Federation, state: State) -> None:
        """One SUM at the optimum, for deviance, scale and standard errors."""
        path = state.path
        self.converged_ = bool(path.moved < self.tol)
        if not self.converged_:
            self._warn(path)
            state = state._replace(path=path._replace(at=path.base))
        total: Final = tree.map(to_numpy, fed.sum(questions.final.using(**self._options(fed)), self._point(state)))
        hessian = self._positive(total.step)
        found = newton.solve(hessian, total.step.score, state.path.at, self._penalty(state.seen))
        self._describe_fit(fed, state, total, found)
        self._describe_errors(fed, state, total, hessian)

    def _describe_fit(self, fed: Federation, state: State, total: Final, found: np.ndarray) -> None:
        """Set coefficients, deviances and information criteria."""
        seen = state.seen
        first = int(self.fit_intercept)
        n = float(total.step.n)
        q = self._q(seen)
        mean = self._mean(seen)
        self.names_ = self._names(fed, seen)
        self.n_features_in_ = len(seen.x) + (self.offset is not None)
        self.offset_index_ = offset_index(self.offset, fed.columns)
        self.coef_ = found[first:q]
        self.intercept_ = float(found[0] - mean @ self.coef_) if first else 0.0
        self.nb_alpha_ = self._alpha(found)
        self.n_rows_ = n
        self.df_resid_ = n - q
        self.deviance_ = float(total.deviance)
        self.null_deviance_ = float(total.null_deviance)
        self.pearson_chi2_ = float(total.pearson)
        self.scale_ = self.pearson_chi2_ / self.df_resid_ if FAMILIES[self._family].free_scale else 1.0
        self.loglik_ = self._loglik(total, n)
        parameters = q + self._learns_alpha
        self.aic_ = -2 * self.loglik_ + 2 * parameters
        self.bic_ = -2 * self.loglik_ + parameters * float(np.log(n))

    def _describe_errors(self, fed: Federation, state: State, total: Final, hessian: np.ndarray) -> None:
        """Set the covariance of the coefficients, for columns that are not centred."""
        q = self._q(state.seen)
        first = int(self.fit_intercept)
        cov = self._covariance(fed, state, total, hessian)
        self.nb_alpha_stderr_ = self.nb_alpha_ * float(np.sqrt(cov[q, q])) if self._learns_alpha else float("nan")
        turn = np.eye(q)
        if first:
            turn[0, 1:] = -self._mean(state.seen)
        self.cov_ = turn @ cov[:q, :q] @ turn.T
        errors = np.sqrt(np.diag(self.cov_))
        self.stderr_ = errors[first:]
        self.intercept_stderr_ = float(errors[0]) if first else float("nan")

    def _covariance(self, fed: Federation, state: State, total: Final, hessian: np.ndarray) -> np.ndarray:
        """Of the coefficients of columns about their means, and of log alpha where it is learned."""
        if self._penalty(state.seen).any:
            return np.full_like(hessian, np.nan)
        if self.cov_type != "nonrobust":
            return self._sandwich(fed, state, hessian)
        information = hessian if self._learns_alpha else unpack_triangle(total.expected)
        return newton.solve_scaled(information, np.eye(len(information))) * self.scale_

    def _sandwich(self, fed: Federation, state: State, hessian: np.ndarray) -> np.ndarray:
        """The covariance from how scores vary between clients, or between rows."""
        options = {k: v for k, v in self._options(fed).items() if k != "learn_alpha"}
        ask = questions.site_meat if self.cov_type == "site" else questions.row_meat
        meat = unpack_triangle(to_numpy(fed.sum(ask.using(**options), self._point(state)).outer))
        n = self.n_rows_
        q = self._q(state.seen)
        clients = fed.journal.exchanges[-1].answered
        correction = clients / max(clients - 1, 1) * (n - 1) / (n - q) if self.cov_type == "site" else 1.0
        bread = newton.solve_scaled(hessian, np.eye(q))
        return correction * bread @ meat @ bread

    def _loglik(self, total: Final, n: float) -> float:
        """The log-likelihood with all constants, as statsmodels has it."""
        if self._learns_alpha:
            return float(-0.5 * total.step.loss)
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = (float(total.deviance), float(total.best), n, self.scale_)
            return float(families.loglik(self._family, self._link, *parts))

    def _warn(self, path: Path) -> None:
        """Warn that the fit did not converge, and what to do."""
        why = "steps no longer lower the deviance" if path.halvings else f"the last change was {path.moved:.1e}"
        text = f"GLM did not converge in max_iter={self.max_iter} rounds ({why}): raise max_iter, or {self._penalise}"
        warnings.warn(text, ConvergenceWarning, stacklevel=6)
