"""Cox regression: two SUMs per Newton step (risk sums by step of time, then one matrix), or one stratified by site.

Before: a first look, the steps of time (5 to 16 SUMs of counts, none if `times` names them), their counts. After: concordance.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import eigh
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning

from unpooled.arrays import to_numpy
from unpooled.errors import BadData, BadParameter
from unpooled.federation import Federation
from unpooled.maths import concordance, partial_likelihood
from unpooled.maths.partial_likelihood import Deaths, Sums, Terms
from unpooled.models.column_names import called, names_of
from unpooled.models.steady import Steady
from unpooled.models.survival import cox_questions as questions
from unpooled.models.survival import times as grid
from unpooled.models.survival.concordance import EXACT, all_pairs
from unpooled.models.survival.cox_face import CoxFace
from unpooled.models.survival.cox_questions import At, Centred, Hazard, Means, Scale, SiteAt, square
from unpooled.models.survival.rows import Look, check_look, check_survival, columns_of, look
from unpooled.parameters import at_least, flag, not_below_zero, one_of, within
from unpooled.tree import message

HALVINGS = 30
ENDLESS = 12.0  # a coefficient of a standardised covariate that only grows where no finite one is best
DEPENDENT = 1e-10  # the least eigenvalue of the information, relative to the largest, of columns that are independent


@message("survival.Setting")
class Setting(NamedTuple):
    """What stays the same over the Newton steps."""

    absent: int | None  # clients that did not answer: the others have to stay
    rows: float
    weight: float
    events: float
    scale: Scale
    starts: np.ndarray  # (g,)
    died: np.ndarray  # (g,) deaths by step
    died_weight: np.ndarray  # (g,)
    died_z: np.ndarray  # (k,) sum of z over those who die


@message("survival.CoxState")
class State(NamedTuple):
    setting: Setting
    coef: np.ndarray  # (k,) of standardised covariates
    loglik: float  # penalised
    null: float  # at coefficients 0
    information: np.ndarray  # (k, k) minus the second derivative, with the penalty
    move: np.ndarray  # (k,) the next Newton step
    size: float  # its size, in standard errors


class Value(NamedTuple):
    """The penalised log-likelihood at some coefficients, its gradient, and what the second derivative needs."""

    loglik: float
    gradient: np.ndarray
    sums: Sums | None = None  # over all clients, by step of time
    terms: Terms | None = None
    information: np.ndarray | None = None  # where it came with the rest


class Cox(CoxFace):
    """Proportional hazards: the maximum of the pooled partial likelihood, with standard errors and baseline hazard.

    Parameters
    ----------
    duration, event : str, int or None, default=None
        Columns of the rows that hold the time and the event (1, or 0 for a censored patient); None: y is (time, event).
    ties : {"efron", "breslow"}, default="efron"
        How several deaths in one step of time are counted.
    strata : {None, "site"}, default=None
        "site": every site has a baseline hazard of its own; risk sets are compared within sites and no time leaves one.
    penalizer : float, default=0.0
        Ridge penalty: rows * penalizer / 2 times the sum of squared coefficients of standardised covariates is taken off.
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
    converged_ : bool
        Whether the last step was short enough.

    References
    ----------
    Cox (1972), Regression models and life-tables, JRSS B 34. Efron (1977), JASA 72. Lin and Wei (1989), JASA 84.

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
        penalizer: float = 0.0,
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
        check_survival(fed, self)
        one_of("ties", self.ties, ("efron", "breslow"))
        one_of("strata", self.strata, (None, "site"))
        one_of("robust", self.robust, (False, "site"))
        not_below_zero("penalizer", self.penalizer)
        not_below_zero("tol", self.tol)
        at_least("min_count", self.min_count, 1)
        at_least("max_iter", self.max_iter, 1)
        flag("baseline", self.baseline)
        flag("concordance", self.concordance)
        within("coverage", self.coverage, 0, 1, "the share of intervals that hold the truth")
        if self.robust and len(fed.names) < 2:
            raise BadParameter("robust='site' compares sites but there is only one: leave it out")

    # ---- the start: what the Newton steps need ----

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        fed = Steady(fed)
        columns = columns_of(fed, self, True)
        first = fed.sum(look.using(columns=columns), None)
        check_look(first, self.missing)
        if not first.events:
            raise BadData(f"none of {float(first.rows):g} patients has an event: a Cox regression needs some")
        if not len(first.x):
            raise BadData("there is no covariate besides time and event: use KaplanMeier, or give covariates")
        names = self._names(fed, columns, len(first.x))
        setting = self._setting(fed, columns, first, names)
        begin = np.zeros(len(first.x))
        value = self._value(fed, setting, begin)
        state = State(setting, begin, value.loglik, value.loglik, np.zeros((0, 0)), begin, np.inf)
        return self._directed(fed, state, value, names)

    def _setting(self, fed: Steady, columns: dict, first: Look, names: list[str]) -> Setting:
        weight = float(first.weight)
        mean = to_numpy(first.x) / weight
        numbers = fed.absent, float(first.rows), weight, float(first.events)
        nothing = np.zeros(0)
        if self.strata == "site":
            begin = Scale(mean, np.ones_like(mean))
            xx = to_numpy(fed.sum(questions.site_start.using(columns=columns), begin).xx)
            return Setting(*numbers, self._scale(mean, xx, weight, names), nothing, nothing, nothing, nothing)
        starts = grid.steps(fed, columns, float(first.events), self.times)
        up = fed.sum(questions.start.using(columns=columns), Centred(mean, starts))
        died, died_weight, censored, xx, died_x = (to_numpy(a) for a in up)
        if self.min_count > 1:
            joined = grid.join(np.stack([died, censored], 1), self.min_count)
            starts, died, died_weight = (
                starts[joined],
                np.add.reduceat(died, joined),
                np.add.reduceat(died_weight, joined),
            )
        scale = self._scale(mean, xx, weight, names)
        return Setting(*numbers, scale, starts, died, died_weight, died_x / scale.scale)

    def _names(self, fed: Federation, columns: dict, k: int) -> list[str]:
        taken = {columns["duration"], columns["event"]} - {None}
        names = names_of(fed, k + len(taken))
        return [name for j, name in enumerate(names) if j not in taken]

    def _scale(self, mean: np.ndarray, xx: np.ndarray, weight: float, names: list[str]) -> Scale:
        """Means and standard deviations of the covariates; constant ones are refused where nothing holds their coefficient."""
        scale = np.sqrt(xx / max(weight - 1, 1.0))
        constant = scale <= 1e-12 * np.abs(mean)
        if self.penalizer == 0 and constant.any():
            which = called(names, np.flatnonzero(constant))
            raise BadData(f"{which} has the same value in every row: leave it out, or give penalizer=0.01, say")
        return Scale(mean, np.where(constant, 1.0, scale))

    # ---- Newton's steps ----

    def step(self, fed: Federation, state: State) -> tuple[State, dict]:
        fed, share = Steady(fed, state.setting.absent), 1.0
        for _ in range(HALVINGS):
            coef = state.coef + share * state.move
            value = self._value(fed, state.setting, coef)
            if value.loglik >= state.loglik - 1e-12 * abs(state.loglik):
                break
            share /= 2
        else:
            return state._replace(size=0.0), {"loglik": state.loglik / state.setting.rows, "step": 0.0}
        state = state._replace(coef=coef, loglik=max(value.loglik, state.loglik))
        state = self._directed(fed, state, value, None)
        return state, {"loglik": state.loglik / state.setting.rows, "step": state.size}

    def done(self, state: State, history: list) -> bool:
        return state.size < self.tol

    def _value(self, fed: Federation, setting: Setting, coef: np.ndarray) -> Value:
        """The penalised log-likelihood and its gradient: one SUM."""
        columns = columns_of(fed, self, True)
        ridge = self._ridge(setting)
        penalty = ridge / 2 * float(coef @ coef)
        if self.strata == "site":
            ask = questions.site_likelihood.using(columns=columns, ties=self.ties)
            up = fed.sum(ask, SiteAt(coef, setting.scale))
            information = square(to_numpy(up.zz), len(coef)) + ridge * np.eye(len(coef))
            gradient = to_numpy(up.gradient) - ridge * coef
            return Value(float(up.loglik) - penalty, gradient, information=information)
        up = fed.sum(questions.risk_sums.using(columns=columns), self._at(setting, coef))
        sums = Sums(*(to_numpy(a) for a in up[1:]))
        terms = partial_likelihood.terms(_deaths(setting), sums, self.ties)
        loglik = float(setting.died_z @ coef) + terms.loglik - penalty
        return Value(loglik, setting.died_z + terms.gradient - ridge * coef, sums, terms)

    def _directed(self, fed: Federation, state: State, value: Value, names: list[str] | None) -> State:
        """The state with the information at its coefficients, and the Newton step that follows."""
        information = value.information
        if information is None:
            hazard = self._hazard(state.setting, state.coef, value.terms)
            up = fed.sum(questions.curvature.using(columns=columns_of(fed, self, True)), hazard)
            assert value.terms is not None
            information = square(to_numpy(up.zz), len(state.coef)) - value.terms.outer
            information = information + self._ridge(state.setting) * np.eye(len(state.coef))
        if names is not None:
            _check_independent(information, names)
        move = np.linalg.lstsq(information, value.gradient, rcond=1e-14)[0]
        size = float(np.sqrt(max(move @ value.gradient, 0.0)))
        return state._replace(information=information, move=move, size=size)

    def _at(self, setting: Setting, coef: np.ndarray) -> At:
        tied = partial_likelihood.tied(_deaths(setting), self.ties)
        return At(coef, setting.scale, setting.starts, tied)

    def _hazard(self, setting: Setting, coef: np.ndarray, terms: Any) -> Hazard:
        return Hazard(self._at(setting, coef), np.cumsum(terms.hazard), terms.relief)

    def _ridge(self, setting: Setting) -> float:
        return setting.rows * float(self.penalizer)

    # ---- other rows ----

    def partial_loglik(self, fed: Federation) -> tuple[float, float]:
        """(log partial likelihood of a federation's rows at the fitted coefficients, events among them), for cross-validation.

        It takes the SUMs of a start: a look, the steps of time, one of risk sums; two where sites are strata.
        """
        fed = Steady(fed)
        columns = columns_of(fed, self, True)
        first = fed.sum(look.using(columns=columns), None)
        check_look(first, self.missing)
        if not first.events:
            return 0.0, 0.0
        setting = self._setting(fed, columns, first, self._names(fed, columns, len(first.x)))
        coef = self.coef_ * setting.scale.scale
        penalty = self._ridge(setting) / 2 * float(coef @ coef)
        return self._value(fed, setting, coef).loglik + penalty, float(first.events)

    # ---- what was learned ----

    def finish(self, fed: Federation, state: State) -> None:
        fed = Steady(fed, state.setting.absent)
        columns, setting = columns_of(fed, self, True), state.setting
        k, scale = len(state.coef), setting.scale.scale
        names = self._names(fed, columns, k)
        self.columns_ = names if self.columns_ is not None else None
        self.n_features_in_, self.n_samples_, self.n_events_ = k, setting.rows, setting.events
        self.mean_, self.scale_ = setting.scale.mean, scale
        self.coef_ = state.coef / scale
        self.loglik_ = state.loglik + self._ridge(setting) / 2 * float(state.coef @ state.coef)
        self.loglik_null_ = state.null
        self.converged_ = bool(state.size < self.tol)
        value = None if self.strata == "site" else self._value(fed, setting, state.coef)
        self._finish_errors(fed, columns, state, value)
        self._finish_baseline(setting, value)
        self._finish_concordance(fed, columns, state)
        self._warn(state, names)

    def _finish_errors(self, fed: Federation, columns: dict, state: State, value: Value | None) -> None:
        scale = state.setting.scale.scale
        inverse = np.linalg.pinv(state.information, hermitian=True)
        if self.robust == "site":
            inverse = inverse @ self._site_products(fed, columns, state, value) @ inverse
        self.covariance_ = inverse / np.outer(scale, scale)
        self.stderr_ = np.sqrt(np.maximum(np.diag(self.covariance_), 0.0))
        self.hazard_ratio_ = np.exp(self.coef_)
        self.z_ = self.coef_ / np.where(self.stderr_ > 0, self.stderr_, np.inf)
        self.p_value_ = 2 * norm.sf(np.abs(self.z_))
        away = norm.ppf(0.5 + self.coverage / 2) * self.stderr_
        self.confidence_interval_ = np.stack([self.coef_ - away, self.coef_ + away], 1)

    def _site_products(self, fed: Federation, columns: dict, state: State, value: Value | None) -> np.ndarray:
        """Sum over sites of the product of a site's score with itself: one SUM."""
        k = len(state.coef)
        if value is None or value.terms is None:
            ask = questions.site_scores.using(columns=columns, ties=self.ties)
            return square(to_numpy(fed.sum(ask, SiteAt(state.coef, state.setting.scale)).zz), k)
        terms = value.terms
        hazard = self._hazard(state.setting, state.coef, terms)
        means = Means(hazard, terms.mean, np.cumsum(terms.hazard_mean, 0), terms.relief_mean)
        return square(to_numpy(fed.sum(questions.scores_by_site.using(columns=columns), means).zz), k)

    def _finish_baseline(self, setting: Setting, value: Value | None) -> None:
        self.baseline_times_ = self.baseline_cumulative_hazard_ = None
        if self.baseline and value is not None and value.sums is not None:
            at_risk = value.sums.r[::-1].cumsum()[::-1]
            self.baseline_times_ = setting.starts
            self.baseline_cumulative_hazard_ = np.cumsum(setting.died_weight / at_risk)

    def _finish_concordance(self, fed: Federation, columns: dict, state: State) -> None:
        self.concordance_ = self.concordance_error_ = None
        if not self.concordance:
            return
        setting = state.setting
        if self.strata == "site":
            up = fed.sum(questions.site_pairs.using(columns=columns), SiteAt(state.coef, setting.scale))
            found, exact = concordance.Pairs(*(float(n) for n in up)), True
        else:
            found = all_pairs(fed, columns, state.coef, setting.scale, setting.starts, setting.rows)
            exact = setting.rows <= EXACT
        self.concordance_ = concordance.index(found)
        self.concordance_error_ = 0.0 if exact or not found.all else found.same / 2 / found.all

    def _warn(self, state: State, names: list[str]) -> None:
        endless = np.flatnonzero(np.abs(state.coef) > ENDLESS)
        if len(endless):
            text = f"{called(names, endless)} tells events apart so well that no finite coefficient is best"
            warnings.warn(f"{text}: leave it out, or give penalizer=0.01, say", ConvergenceWarning, stacklevel=2)
        elif not self.converged_:
            text = f"the last Newton step was {state.size:.2g} standard errors long"
            warnings.warn(f"{text}: raise max_iter= or tol=", ConvergenceWarning, stacklevel=2)


def _deaths(setting: Setting) -> Deaths:
    return Deaths(setting.died, setting.died_weight)


def _check_independent(information: np.ndarray, names: list[str]) -> None:
    """Refuse columns that are sums of others, which have no coefficients of their own."""
    values, vectors = eigh(information)
    if values[0] > DEPENDENT * max(values[-1], 1e-300):
        return
    involved = np.flatnonzero(np.abs(vectors[:, 0]) > 0.1)
    raise BadData(
        f"{called(names, involved)} cannot be told apart (one follows from the others among those at risk): "
        "leave one out, or give penalizer=0.01, say"
    )
