"""Cox regression: two SUMs per Newton step (risk sums by step of time, then one matrix), or one stratified by site.

Before: a first look, the steps of time (5 to 16 SUMs of counts, none if `times` names them), their counts. After: concordance. Read
`cox_start`, `cox_likelihood`, `cox_information`, then this, then `cox_fitted`.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning

from unpooled.errors import BadData, BadParameter
from unpooled.federation import Federation, refuse_few
from unpooled.models.column_names import called
from unpooled.models.steady import Steady
from unpooled.models.survival import cox_likelihood as likelihood
from unpooled.models.survival import cox_questions as questions
from unpooled.models.survival import cox_start, harrell
from unpooled.models.survival.concordance import EXACT, all_pairs
from unpooled.models.survival.cox_fitted import FittedCox
from unpooled.models.survival.cox_information import check_independent, diverging, most_probable
from unpooled.models.survival.cox_likelihood import Options, Value
from unpooled.models.survival.cox_questions import SiteAt
from unpooled.models.survival.cox_start import Setting
from unpooled.models.survival.rows import check_look, check_survival, columns_of, look
from unpooled.parameters import at_least, flag, not_below_zero, one_of, within
from unpooled.tree import message

HALVINGS = 30
AUTO = 0.1  # penalizer from which the search for the most probable one starts


@message("survival.CoxState")
class State(NamedTuple):
    """Coefficients and likelihood between two Newton steps."""

    setting: Setting
    coef: np.ndarray  # (k,) of standardised covariates
    ridge: float  # the penalty is ridge / 2 times the sum of squared coefficients
    loglik: float  # without the penalty
    null: float  # at coefficients 0
    information: np.ndarray  # (k, k) minus the second derivative, with the penalty
    first: np.ndarray  # (k, k) the information at coefficients 0
    move: np.ndarray  # (k,) the next Newton step
    size: float  # its size, in standard errors

    def penalised(self, loglik: float, coef: np.ndarray) -> float:
        """A log-likelihood less the penalty."""
        return loglik - self.ridge / 2 * float(coef @ coef)


class Cox(FittedCox):
    """Proportional hazards: the maximum of the pooled partial likelihood, with standard errors and baseline hazard.

    Parameters
    ----------
    duration, event : str, int or None, default=None
        Columns of the rows that hold the time and the event (1, or 0 for a censored patient); None: y is (time, event).
    ties : {"efron", "breslow"}, default="efron"
        How several deaths in one step of time are counted.
    strata : {None, "site"}, default=None
        "site": every site has a baseline hazard of its own; risk sets are compared within sites and no time leaves one.
    penalizer : float or "auto", default=0.0
        Ridge penalty: rows * penalizer / 2 times the sum of squared coefficients of standardised covariates is taken off.
        "auto" takes the penalty that makes the data most probable when coefficients have a normal prior of that precision
        (empirical Bayes); it takes no rounds of its own, and is meant for many covariates with few events.
    robust : {False, "site"}, default=False
        "site": standard errors that hold where patients of one site are alike.
    unit : float or None, default=None
        Times are rounded to whole multiples of it first; None: as they stand.
    times : sequence of float or None, default=None
        When the steps of time begin, agreed beforehand; None: they are the times of death, found by counts.
    min_count : int, default=1
        Least count: steps are joined until in each those who die are nobody or at least so many, and those censored
        likewise, so that no sum that leaves is over fewer. 1 gives the exact partial likelihood.
    baseline : bool, default=True
        Whether to keep the baseline hazard.
    concordance : bool, default=True
        Whether to compute Harrell's concordance of the rows fitted, which takes some SUMs more.
    coverage : float, default=0.95
        The share of intervals that should hold the true value.
    missing : {"refuse", "drop"}, default="refuse"
        What to do with rows that have missing values.
    max_iter : int, default=50
        Newton steps at most.
    tol : float, default=1e-9
        Stop when a Newton step is shorter than this many standard errors.
    random_state : int or None, default=None
        Not used: nothing is random.

    Attributes
    ----------
    coef_, stderr_, hazard_ratio_, z_, p_value_ : ndarray of shape (k,)
        Log hazard ratios, their standard errors, hazard ratios, and Wald's tests of each.
    confidence_interval_ : ndarray of shape (k, 2)
        Of the coefficients.
    covariance_ : ndarray of shape (k, k)
        Of the coefficients.
    loglik_, loglik_null_ : float
        Log partial likelihood at `coef_` and at 0.
    mean_ : ndarray of shape (k,)
        Means of the covariates, where the baseline hazard is.
    baseline_times_, baseline_cumulative_hazard_ : ndarray of shape (g,) or None
        The steps of time and Breslow's estimate of the cumulative hazard of a patient with mean covariates.
    concordance_, concordance_error_ : float or None
        Harrell's concordance of the rows fitted, and how far it can be off: 0 up to 2,000 patients.
    n_samples_, n_events_ : float
        Complete rows, and deaths among them.
    penalizer_ : float
        The penalty used.
    converged_ : bool
        Whether the last step was short enough.

    References
    ----------
    Cox (1972), Regression models and life-tables, JRSS B 34. Efron (1977), JASA 72. Lin and Wei (1989), JASA 84.
    MacKay (1992), Bayesian interpolation, Neural Computation 4, for penalizer="auto".

    Examples
    --------
    >>> import numpy as np, unpooled as up
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(300, 2))
    >>> time = np.ceil(rng.exponential(np.exp(-x @ [0.5, -1.0])) * 100)
    >>> y = np.column_stack([np.minimum(time, 200), time <= 200])
    >>> cox = up.Cox().fit(x, y, by=np.arange(300) % 3)
    >>> cox.coef_.round(1)
    array([ 0.6, -1.1])
    """

    def __init__(
        self,
        *,
        duration: Any = None,
        event: Any = None,
        ties: str = "efron",
        strata: str | None = None,
        penalizer: float | str = 0.0,
        robust: bool | str = False,
        unit: float | None = None,
        times: Any = None,
        min_count: int = 1,
        baseline: bool = True,
        concordance: bool = True,
        coverage: float = 0.95,
        missing: str = "refuse",
        max_iter: int = 50,
        tol: float = 1e-9,
        random_state: Any = None,
    ):
        self.duration = duration
        self.event = event
        self.ties = ties
        self.strata = strata
        self.penalizer = penalizer
        self.robust = robust
        self.unit = unit
        self.times = times
        self.min_count = min_count
        self.baseline = baseline
        self.concordance = concordance
        self.coverage = coverage
        self.missing = missing
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def check(self, fed: Federation) -> None:
        """Refuse parameters that do not exist or do not go together."""
        check_survival(fed, self)
        one_of("ties", self.ties, ("efron", "breslow"))
        one_of("strata", self.strata, (None, "site"))
        one_of("robust", self.robust, (False, "site"))
        if isinstance(self.penalizer, str):
            one_of("penalizer", self.penalizer, ("auto",))
        else:
            not_below_zero("penalizer", self.penalizer)
        not_below_zero("tol", self.tol)
        at_least("min_count", self.min_count, 1)
        at_least("max_iter", self.max_iter, 1)
        flag("baseline", self.baseline)
        flag("concordance", self.concordance)
        within("coverage", self.coverage, 0, 1, "the share of intervals that hold the truth")
        if self.robust and len(fed.names) < 2:
            raise BadParameter("robust='site' compares sites but there is only one: leave it out")

    # ---- the start ----

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        """Means, steps of time and the likelihood at coefficients 0."""
        fed, options = Steady(fed), self._options(fed)
        first = fed.sum(look.using(columns=options.columns), None)
        check_look(first, self.missing, fed)
        refuse_few(fed, {"the event": float(first.events)})
        if not first.events:
            raise BadData(f"none of {float(first.rows):g} patients has an event: a Cox regression needs some")
        if not len(first.x):
            raise BadData("there is no covariate besides time and event: use KaplanMeier, or give covariates")
        setting = cox_start.begin(fed, self, options.columns, first)
        begin = np.zeros(len(first.x))
        here = likelihood.value(fed, options, setting, begin)
        ridge = setting.rows * (AUTO if self.penalizer == "auto" else float(self.penalizer))
        nothing = np.zeros((0, 0))
        state = State(setting, begin, ridge, here.loglik, here.loglik, nothing, nothing, begin, np.inf)
        state = self._directed(fed, state, here)
        state = state._replace(first=state.information)
        check_independent(state.information, cox_start.covariates(fed, options.columns, len(begin)))
        return state

    def _options(self, fed: Federation) -> Options:
        """Which columns are time and event, how ties are treated, and whether sites are strata."""
        return Options(columns_of(fed, self, True), self.ties, self.strata)

    # ---- Newton's steps ----

    def step(self, fed: Federation, state: State) -> tuple[State, dict]:
        """A Newton step, halved until the penalised likelihood does not fall."""
        fed = Steady(fed, state.setting.absent)
        share = 1.0
        before = state.penalised(state.loglik, state.coef)
        for _ in range(HALVINGS):
            coef = state.coef + share * state.move
            here = likelihood.value(fed, self._options(fed), state.setting, coef)
            if state.penalised(here.loglik, coef) >= before - 1e-12 * abs(before):
                break
            share /= 2
        else:
            return state._replace(size=0.0), {"loglik": before / state.setting.rows, "step": 0.0}
        now = max(state.penalised(here.loglik, coef), before)  # rounding may lower it by its last digits
        state = self._directed(fed, state._replace(coef=coef, loglik=here.loglik), here)
        return state, {"loglik": now / state.setting.rows, "step": state.size}

    def done(self, state: State, history: list) -> bool:
        """Whether the last step was short in standard errors."""
        return state.size < self.tol

    def _directed(self, fed: Federation, state: State, here: Value) -> State:
        """The state with the penalty and the information at its coefficients, and the Newton step that follows."""
        coef, ridge = state.coef, state.ridge
        information = likelihood.information(fed, self._options(fed), state.setting, coef, here)
        if self.penalizer == "auto":
            ridge = most_probable(information, here.gradient, coef, state.setting.rows, ridge)
        information = information + ridge * np.eye(len(coef))
        gradient = here.gradient - ridge * coef
        move = np.linalg.lstsq(information, gradient, rcond=1e-14)[0]
        size = float(np.sqrt(max(move @ gradient, 0.0)))
        return state._replace(ridge=ridge, information=information, move=move, size=size)

    # ---- other rows ----

    def partial_loglik(self, fed: Federation) -> tuple[float, float]:
        """(log partial likelihood of a federation's rows at the fitted coefficients, events among them), for cross-validation.

        It takes the SUMs of a start: a look, the steps of time, one of risk sums; two where sites are strata.
        """
        fed, options = Steady(fed), self._options(fed)
        first = fed.sum(look.using(columns=options.columns), None)
        check_look(first, self.missing, fed)
        if not first.events:
            return 0.0, 0.0
        setting = cox_start.begin(fed, self, options.columns, first)
        here = likelihood.value(fed, options, setting, self.coef_ * setting.scale.scale)
        return here.loglik, float(first.events)

    # ---- what was learned ----

    def finish(self, fed: Federation, state: State) -> None:
        """Set coefficients in the covariates' units, their errors, the baseline and the concordance."""
        fed = Steady(fed, state.setting.absent)
        setting = state.setting
        options = self._options(fed)
        k = len(state.coef)
        names = cox_start.covariates(fed, options.columns, k)
        self.columns_ = names if self.columns_ is not None else None
        self.n_features_in_ = k
        self.n_samples_ = setting.rows
        self.n_events_ = setting.events
        self.mean_ = setting.scale.mean
        self.scale_ = setting.scale.scale
        self.coef_ = state.coef / self.scale_
        self.loglik_ = state.loglik
        self.loglik_null_ = state.null
        self.penalizer_ = state.ridge / setting.rows
        self.converged_ = bool(state.size < self.tol)
        here = None if self.strata == "site" else likelihood.value(fed, options, setting, state.coef)
        self._finish_errors(fed, options, state, here)
        self._finish_baseline(setting, here)
        self._finish_concordance(fed, options, state)
        self._warn(state, names)

    def _finish_errors(self, fed: Federation, options: Options, state: State, here: Value | None) -> None:
        """Set standard errors, by site where they are robust, p-values and intervals."""
        inverse = np.linalg.pinv(state.information, hermitian=True)
        if self.robust == "site":
            products = likelihood.products_by_site(fed, options, state.setting, state.coef, here)
            inverse = inverse @ products @ inverse
        self.covariance_ = inverse / np.outer(self.scale_, self.scale_)
        self.stderr_ = np.sqrt(np.maximum(np.diag(self.covariance_), 0.0))
        self.hazard_ratio_ = np.exp(self.coef_)
        self.z_ = self.coef_ / np.where(self.stderr_ > 0, self.stderr_, np.inf)
        self.p_value_ = 2 * norm.sf(np.abs(self.z_))
        away = norm.ppf(0.5 + self.coverage / 2) * self.stderr_
        self.confidence_interval_ = np.stack([self.coef_ - away, self.coef_ + away], 1)

    def _finish_baseline(self, setting: Setting, here: Value | None) -> None:
        """Set the cumulative baseline hazard; stratified fits have none in common."""
        self.baseline_times_ = self.baseline_cumulative_hazard_ = None
        if self.baseline and here is not None and here.sums is not None:
            at_risk = here.sums.r[::-1].cumsum()[::-1]
            self.baseline_times_ = setting.starts
            self.baseline_cumulative_hazard_ = np.cumsum(setting.died_weight / at_risk)

    def _finish_concordance(self, fed: Federation, options: Options, state: State) -> None:
        """Set Harrell's concordance and how far rounding of scores may have moved it."""
        self.concordance_ = self.concordance_error_ = None
        if not self.concordance:
            return
        setting = state.setting
        if self.strata == "site":
            up = fed.sum(questions.site_pairs.using(columns=options.columns), SiteAt(state.coef, setting.scale))
            found = harrell.Pairs(*(float(n) for n in up))
            exact = True
        else:
            found = all_pairs(fed, options.columns, state.coef, setting.scale, setting.starts, setting.rows)
            exact = setting.rows <= EXACT
        self.concordance_ = harrell.index(found)
        self.concordance_error_ = 0.0 if exact or not found.all else found.same / 2 / found.all

    def _warn(self, state: State, names: list[str]) -> None:
        """Warn of coefficients without a finite optimum, and of a fit that did not converge."""
        growing = diverging(state)
        if len(growing):
            tells, it = ("tell", "them") if len(growing) > 1 else ("tells", "it")
            text = f"{called(names, growing)} {tells} events apart so well that no finite coefficient is best"
            warnings.warn(f"{text}: leave {it} out, or give penalizer='auto'", ConvergenceWarning, stacklevel=2)
        elif not self.converged_:
            text = f"the last Newton step was {state.size:.2g} standard errors long"
            warnings.warn(f"{text}: raise max_iter= or tol=", ConvergenceWarning, stacklevel=2)
