"""Kaplan-Meier curves and the log-rank test: SUMs of counts alone (a first look, 5 to 16 to find the steps of time, one of the steps)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.stats import chi2, norm
from sklearn.utils.validation import check_is_fitted

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.data.tabled import CODES
from unpooled.estimator import Estimator
from unpooled.federation import Federation, refuse_few
from unpooled.models.column_names import as_written, column_index
from unpooled.models.steady import Steady
from unpooled.models.survival import times as grid
from unpooled.models.survival.partial_likelihood import last_step
from unpooled.models.survival.rows import check_look, check_survival, columns_of, look, survival_rows
from unpooled.parameters import at_least, one_of, within
from unpooled.tree import message


@message("survival.Steps")
class Steps(NamedTuple):
    """Steps of time and values of the grouping column."""

    starts: Float[Array, "g"]
    levels: Float[Array, "k"]  # values of the grouping column


@message("survival.Exits")
class Exits(NamedTuple):
    """Who leaves in each step, by group."""

    died: Float[Array, "g k", ">=0 rows"]
    censored: Float[Array, "g k", ">=0 rows"]
    early: Float[Array, "k", ">=0 rows"]  # left before the first step


@message("survival.KaplanMeierState")
class State(NamedTuple):
    """Steps of time, and what was counted in them."""

    absent: int | None  # clients that did not answer: the others have to stay
    steps: Steps
    exits: Exits | None  # None before the one round


@client("survival.exits", SUM, adds=True, batched=False)
def exits(steps: Steps, client: Client, *, columns: dict) -> Exits:
    """How many die and how many are censored in each step of time, by group."""
    rows = survival_rows(client, columns)
    k = len(steps.levels)
    g = len(steps.starts)
    group = np.searchsorted(steps.levels, rows.group)
    step = last_step(steps.starts, rows.time)
    inside = step >= 0

    def table(which: np.ndarray) -> np.ndarray:
        """Rows (g, k) by step of time and group."""
        place = step[which] * k + group[which]
        return np.bincount(place, rows.w[which], g * k).reshape(g, k).astype(np.float64)

    early = np.bincount(group[~inside], rows.w[~inside], k).astype(np.float64)
    return Exits(table(inside & rows.died), table(inside & ~rows.died), early)


def _within(end: np.ndarray, survival: np.ndarray) -> np.ndarray:
    """Ends of intervals in [0, 1]; where survival is 0 or 1, so are they."""
    end = np.clip(end, 0.0, 1.0)
    end = np.where(survival <= 0, 0.0, end)
    return np.where(survival >= 1, 1.0, end)


class KaplanMeier(Estimator):
    """Survival curves of all clients' patients, with Greenwood's intervals and the log-rank test between groups.

    Parameters
    ----------
    duration, event : str, int or None, default=None
        Columns of the rows that hold the time and the event (1, or 0 for a censored patient); None: y is (time, event).
    by : str, int or None, default=None
        Column whose values group the patients: a curve each, and the log-rank test.
    unit : float or None, default=None
        Times are rounded to whole multiples of it first: 1 for days, 30 for months of a study in days. None: as they stand.
    times : sequence of float or None, default=None
        When the steps begin, agreed beforehand; None: they are the times of death, found by counts.
    min_count : int, default=1
        Least count: neighbouring steps are joined until in each of them, by group, those who die are nobody or at
        least so many, and those censored likewise. 1 gives the exact curve.
    coverage : float, default=0.95
        The share of intervals that should hold the true value.
    intervals : {"log-log", "plain"}, default="log-log"
        Intervals of log(-log S) transformed back, which stay within 0 and 1, or of S itself.
    missing : {"refuse", "drop"}, default="refuse"
        What to do with rows without a time, event or group.
    random_state : int or None, default=None
        Not used: nothing is random.

    Attributes
    ----------
    times_ : ndarray of shape (g,)
        When the steps begin.
    groups_ : ndarray of shape (k,)
        Values of the grouping column, strings where it holds texts; one 0 without it.
    at_risk_, events_, censored_ : ndarray of shape (k, g)
        Patients at risk, deaths and censored patients by group and step.
    survival_, lower_, upper_, variance_ : ndarray of shape (k, g)
        The curve from each step on, its interval, and Greenwood's variance.
    median_ : ndarray of shape (k,)
        The first time at which the curve is at or below one half; inf if it never is.
    logrank_ : dict or None
        `statistic`, `df` and `p_value` of the test that all groups have one curve; None with one group.

    References
    ----------
    Kaplan and Meier (1958), Journal of the American Statistical Association 53. Greenwood (1926), The natural duration of cancer.

    Examples
    --------
    >>> import numpy as np, unpooled as up
    >>> rows = np.array([[5.0, 1, 0], [8, 0, 0], [12, 1, 0], [3, 1, 1], [4, 1, 1], [9, 0, 1]])
    >>> km = up.KaplanMeier(duration=0, event=1, by=2).fit({"north": rows[::2], "south": rows[1::2]})
    >>> km.survival_at(4.5).round(3)
    array([[1.   ],
           [0.333]])
    """

    encoding = CODES

    max_iter = 1

    def __init__(
        self,
        *,
        duration: Any = None,
        event: Any = None,
        by: Any = None,
        unit: float | None = None,
        times: Any = None,
        min_count: int = 1,
        coverage: float = 0.95,
        intervals: str = "log-log",
        missing: str = "refuse",
        random_state: Any = None,
    ):
        self.duration = duration
        self.event = event
        self.by = by
        self.unit = unit
        self.times = times
        self.min_count = min_count
        self.coverage = coverage
        self.intervals = intervals
        self.missing = missing
        self.random_state = random_state

    def check(self, fed: Federation) -> None:
        """Refuse parameters that do not exist or do not go together."""
        check_survival(fed, self)
        at_least("min_count", self.min_count, 1)
        within("coverage", self.coverage, 0, 1, "the share of intervals that hold the truth")
        one_of("intervals", self.intervals, ("log-log", "plain"))

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        """A first look, then the steps of time and the groups."""
        steady = Steady(fed)
        columns = columns_of(fed, self, False)
        first = steady.sum(look.using(columns=columns), None)
        check_look(first, self.missing, fed)
        refuse_few(fed, {"the event": float(first.events)})
        levels = np.zeros(1) if self.by is None else grid.levels(steady, columns, float(first.rows))
        starts = grid.steps(steady, columns, float(first.events), self.times) if first.events else np.zeros(1)
        return State(steady.absent, Steps(starts, levels), None)

    def step(self, fed: Federation, state: State) -> tuple[State, dict]:
        """One SUM of deaths and censored patients; steps of few patients are joined."""
        up = Steady(fed, state.absent).sum(exits.using(columns=columns_of(fed, self, False)), state.steps)
        died, censored, early = (to_numpy(a) for a in up)
        if self.min_count > 1:
            first = grid.join(np.concatenate([died, censored], 1), self.min_count)
            died = np.add.reduceat(died, first)
            censored = np.add.reduceat(censored, first)
            state = state._replace(steps=state.steps._replace(starts=state.steps.starts[first]))
        return State(state.absent, state.steps, Exits(died, censored, early)), {"events": float(died.sum())}

    def finish(self, fed: Federation, state: State) -> None:
        """Set curves, intervals, medians and the log-rank test."""
        assert state.exits is not None
        self.times_ = state.steps.starts
        by = column_index(fed, "by", self.by)
        self.groups_ = as_written(fed, by, state.steps.levels)
        self.events_ = state.exits.died.T
        self.censored_ = state.exits.censored.T
        left = self.events_ + self.censored_
        self.at_risk_ = left[:, ::-1].cumsum(1)[:, ::-1]
        self.n_samples_ = float(left.sum() + state.exits.early.sum())
        self.survival_, self.variance_ = _curve(self.events_, self.at_risk_)
        self.lower_, self.upper_ = self._interval()
        self.median_ = self._medians()
        self.logrank_ = _logrank(self.events_, self.at_risk_) if len(self.groups_) > 1 else None

    def _interval(self) -> tuple[np.ndarray, np.ndarray]:
        """Greenwood's intervals, plain or of the log-log transform."""
        z = float(norm.ppf(0.5 + self.coverage / 2))
        s = self.survival_
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = np.sqrt(self.variance_) / s
            if self.intervals == "plain":
                lower = s - z * np.sqrt(self.variance_)
                upper = s + z * np.sqrt(self.variance_)
            else:
                away = z * relative / np.log(s)
                lower = np.exp(-np.exp(np.log(-np.log(s)) - away))
                upper = np.exp(-np.exp(np.log(-np.log(s)) + away))
        return _within(lower, s), _within(upper, s)

    def _medians(self) -> np.ndarray:
        """The first time at which half of a group has died, inf where that never happens."""
        reached = self.survival_ <= 0.5
        return np.where(reached.any(1), self.times_[reached.argmax(1)], np.inf)

    # ---- the face ----

    def survival_at(self, times: Any) -> np.ndarray:
        """The curve of each group at some times.

        Parameters
        ----------
        times : float or array-like of shape (n,)
            Times.

        Returns
        -------
        ndarray of shape (k, n)
            The share of each group without an event by then.
        """
        check_is_fitted(self)
        at = np.atleast_1d(np.asarray(times, dtype=np.float64))
        step = np.searchsorted(self.times_, at, side="right") - 1
        return np.where(step >= 0, self.survival_[:, np.maximum(step, 0)], 1.0)

    def to_frame(self) -> Any:
        """One row per group and step, as a frame of pandas."""
        check_is_fitted(self)
        import pandas as pd

        k, g = self.survival_.shape
        names = ("at_risk", "events", "censored", "survival", "lower", "upper")
        body = {name: getattr(self, f"{name}_").ravel() for name in names}
        return pd.DataFrame({"group": np.repeat(self.groups_, g), "time": np.tile(self.times_, k), **body})

    def __sklearn_is_fitted__(self) -> bool:
        """Whether curves have been estimated."""
        return hasattr(self, "survival_")


def _curve(died: np.ndarray, at_risk: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The curve and Greenwood's variance of it, (k, g) each."""
    n = np.maximum(at_risk, 1e-300)
    survival = np.cumprod(np.where(at_risk > 0, 1 - died / n, 1.0), 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(died > 0, died / (n * np.maximum(n - died, 0.0)), 0.0)
    spread = np.cumsum(terms, 1)
    return survival, np.where(survival > 0, survival**2 * np.where(np.isfinite(spread), spread, 0.0), 0.0)


def _logrank(died: np.ndarray, at_risk: np.ndarray) -> dict[str, float]:
    """The log-rank test that all groups have one curve, from counts (k, g)."""
    n = at_risk.sum(0)
    d = died.sum(0)
    share = at_risk / np.maximum(n, 1e-300)
    excess = (died - share * d).sum(1)  # (k,) deaths above the expected ones
    variance = np.where(n > 1, d * (n - d) / np.maximum(n - 1, 1e-300), 0.0)
    covariance = np.diag((share * variance).sum(1)) - (share * variance) @ share.T
    inverse = np.linalg.pinv(covariance[1:, 1:], hermitian=True)
    statistic = float(excess[1:] @ inverse @ excess[1:])
    df = len(excess) - 1
    return {"statistic": statistic, "df": float(df), "p_value": float(chi2.sf(statistic, df))}
