"""The rounds of `Pooling`: two looks, features, Newton's steps, how far sites lie apart, EM, held-out losses, each site left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.errors import BadData, BadParameter
from unpooled.estimator import Estimator, Info, rows_of
from unpooled.federation import Federation
from unpooled.maths import equal_laws, small_glm
from unpooled.maths.folds import FOLDS
from unpooled.maths.gaussian import unpack_triangle
from unpooled.models.column_names import called, names_of
from unpooled.models.pooling import mixtures, pages, path, questions, sites, verdict
from unpooled.models.pooling.mixtures import Ladder
from unpooled.models.pooling.path import Path
from unpooled.models.pooling.questions import Apart, At, Centre, Look, Shared
from unpooled.models.pooling.rows import Frame
from unpooled.models.pooling.sites import Compared, Fitted, Losses, Others
from unpooled.models.steady import Steady
from unpooled.parameters import at_least, flag, one_of, within
from unpooled.tree import message

MOST_STEPS = 40  # of Newton's method


@message("pooling.State")
class State(NamedTuple):
    absent: int | None  # clients that did not answer: the others have to stay
    stage: str  # newton, apart, em, without, done
    sites: float
    n: float
    frame: Frame
    tests: dict  # name -> kind -> (statistic, df, p-value)
    common: Path
    slopes: Path
    steps: int = 0  # of this stage
    rows: np.ndarray | None = None  # (v,) rows of each version
    apart: Apart | None = None
    ladder: Ladder | None = None
    loglik: np.ndarray | None = None  # (v, 2 c + 1) of groups, own weights and personal coefficients
    without: Path | None = None


class Pooling(Estimator):
    """Should these sites be pooled, and who gains: tests of shift, a ladder of models, and a page for each site.

    Parameters
    ----------
    family : {"normal", "binomial", "poisson"}, default="normal"
        The law of y given its mean, which is linear in the columns through the usual link.
    max_groups : int, default=3
        The most groups of sites, and laws that sites mix, that are tried; at least 2.
    cv : {2, 5, 10, None}, default=5
        Folds of every site's rows for held-out losses. None: tests and influence only, in about ten SUMs.
    sites : bool, default=True
        Whether each site's numbers are given: its losses, its share of the information, the fit without it. It takes questions that end
        in `_by_site`, which a node may refuse.
    level : float, default=0.05
        Of the tests that decide whether one law, or own intercepts, will do.
    missing : {"refuse", "drop"}, default="refuse"
        What to do with rows that have missing values.
    em_rounds : int, default=30
        The most rounds of EM.
    random_state : int or None, default=None
        Seed of the simulated targets that give a likelihood ratio its mean.

    Attributes
    ----------
    tests_ : dict of str to dict
        "P(x)", "P(y)" and "P(y | x)", each with "lr" and "score"; "intercepts" (own intercepts against one law) and "slopes" (own
        everything against own intercepts) with "lr". Each has `statistic`, `df` and `p_value`.
    ladder_ : dict of str to dict, or None
        For each rung its held-out `loss` (minus the log-likelihood per row), its `stderr` by site, its `difference` to the best and the
        `difference_stderr`. The rungs are "one law", "own intercepts", "groups" (each site has one of several laws), "own weights" (the
        sites mix the same laws in proportions of their own), "personalised" (own coefficients, drawn to a common mean) and
        "own everything".
    recommended_, model_, reason_ : str
        The simplest rung that no richer one beats clearly, what of this library fits it, and why, in a sentence.
    coef_ : ndarray (p,), intercept_ : float
        Of one law.
    sites_ : dict of str to dict
        For each site: `rows`, `information` (its share of all information on the coefficients), `losses` by rung, `gain` of each rung over
        the site alone and its `gain_stderr`, `group`, `coef` and `intercept` (personalised), `coef_without` and `intercept_without` (one
        law fitted without the site), `loss_without` (of its rows under that law) and `loss_with`.
    n_groups_ : int
        Groups of the rung "groups".
    n_sites_ : int, n_samples_ : float

    References
    ----------
    Rao (1948) and Bartlett (1937) for score tests and corrected likelihood ratios; Pillai (1955); DerSimonian and Laird (1986).

    Examples
    --------
    >>> import numpy as np, unpooled as up
    >>> rng = np.random.default_rng(0)
    >>> sites = {}
    >>> for i in range(6):
    ...     x = rng.normal(size=(80, 2))
    ...     sites[f"site {i}"] = (x, 2.0 * (i % 3) + x @ [1.0, -1.0] + rng.normal(size=80))
    >>> pooling = up.Pooling(random_state=0).fit(sites)
    >>> pooling.recommended_ in ("own intercepts", "personalised")
    True
    >>> bool(pooling.tests_["P(y | x)"]["lr"]["p_value"] < 0.01)
    True
    """

    max_iter = 1000  # more than it ever takes

    def __init__(
        self,
        family: str = "normal",
        *,
        max_groups: int = 3,
        cv: int | None = 5,
        sites: bool = True,
        level: float = 0.05,
        missing: str = "refuse",
        em_rounds: int = 30,
        random_state: Any = None,
    ):
        self.family = family
        self.max_groups = max_groups
        self.cv = cv
        self.sites = sites
        self.level = level
        self.missing = missing
        self.em_rounds = em_rounds
        self.random_state = random_state

    def check(self, fed: Federation) -> None:
        one_of("family", self.family, small_glm.FAMILIES)
        at_least("max_groups", self.max_groups, 2)
        at_least("em_rounds", self.em_rounds, 1)
        flag("sites", self.sites)
        one_of("missing", self.missing, ("refuse", "drop"))
        within("level", self.level, 0, 1, "the share of false alarms")
        if self.cv is not None and (isinstance(self.cv, bool) or self.cv not in FOLDS):
            raise BadParameter(f"cv={self.cv!r} must be {', '.join(map(str, FOLDS))} or None")
        if len(fed.names) < 2:
            raise BadParameter("there is only one site, so that there is nothing to compare: give two or more")
        _check_targets(fed)

    # ---- the start ----

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        fed = Steady(fed)
        first = _numpy(fed.sum(questions.look.using(family=self.family), None))
        self._check_look(first)
        frame = self._frame(fed, first)
        shift = _numpy(fed.sum(questions.shift.using(family=self.family), frame))
        n, count = float(first.n), float(first.sites)
        _check_independent(shift, names_of(fed, len(first.x)), len(first.x))
        tests = verdict.shift_tests(shift, n, count)
        p, v = len(first.x), (self.cv or 0) + 1
        start = np.zeros((v, p + 1))
        start[:, 0] = self._null_intercept(first)
        return State(
            fed.absent, "newton", count, n, frame, _told(tests), path.begin(start), path.begin(np.zeros((v, p)))
        )

    def _null_intercept(self, first: Look) -> float:
        mean = float(first.y / first.n)
        if self.family == "normal":
            return 0.0
        return float(np.log(mean / (1 - mean)) if self.family == "binomial" else np.log(mean))

    def _frame(self, fed: Federation, first: Look) -> Frame:
        """Means and standard deviations; constant columns are refused."""
        centre = Centre(first.x / first.n, first.y / first.n)
        second = _numpy(fed.sum(questions.squares, centre))
        sd, y_sd = np.sqrt(second.xx / first.n), np.sqrt(second.yy / first.n)
        constant = sd <= 1e-12 * np.abs(centre.x)
        if constant.any():
            which = called(names_of(fed, len(sd)), np.flatnonzero(constant))
            raise BadData(f"{which} has the same value in every row: leave it out")
        if not y_sd > 1e-12 * abs(centre.y):
            raise BadData(f"all targets are {float(centre.y):g}: there is nothing to learn from one outcome")
        return Frame(centre.x, sd, centre.y, y_sd)

    def _check_look(self, first: Look) -> None:
        if first.missing > 0 and self.missing == "refuse":
            raise BadData(
                f"{first.missing:g} rows have missing values: use missing='drop' to leave them out, or fill them in first "
                "with MixtureImputer"
            )
        if first.outside > 0:
            values = {"binomial": "from 0 to 1", "poisson": "counts 0, 1, 2, ...", "normal": "numbers"}[self.family]
            raise BadData(
                f"{first.outside:g} targets are not {values}, as family={self.family!r} needs them: correct them or choose another family"
            )
        if first.sites < 2:
            raise BadData("fewer than two sites have complete rows: there is nothing to compare")
        if first.n <= len(first.x) + 2:
            raise BadData(f"{first.n:g} rows cannot tell {len(first.x) + 1} coefficients: use fewer columns")

    # ---- the rounds ----

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        stage = {"newton": self._newton, "apart": self._apart, "em": self._em, "without": self._without}
        new = stage[state.stage](Steady(fed, state.absent), state)
        return new, {"stage": state.stage}

    def done(self, state: State, history: list[Info]) -> bool:
        return state.stage == "done"

    def _newton(self, fed: Federation, state: State) -> State:
        """One Newton step of one law and of common slopes, without each fold and in all."""
        up = _numpy(fed.sum(self._with_folds(questions.newton), At(state.frame, state.common.at, state.slopes.at)))
        common = path.advance(state.common, *up.common[1:])
        slopes = path.advance(state.slopes, *up.slopes)
        state = state._replace(common=common, slopes=slopes, steps=state.steps + 1, rows=up.common.n)
        if max(common.moved, slopes.moved) < path.RESTED or state.steps >= MOST_STEPS:
            return state._replace(stage="apart", steps=0)
        return state

    def _apart(self, fed: Federation, state: State) -> State:
        """How far sites lie from one law: the tests of P(y | x), and where EM starts."""
        assert state.rows is not None
        scale = self._scales(state.common.loss, state.rows)
        shared = Shared(state.frame, state.common.at, state.common.hessian / state.rows[:, None], scale)
        up = _numpy(fed.sum(self._with_folds(questions.apart), shared))
        q = state.common.at.shape[1]
        losses = float(state.common.loss[-1]), float(state.slopes.loss[-1])
        found = verdict.concept_tests(self.family, *losses, up, state.n, state.sites, q)
        state = state._replace(apart=up, tests={**state.tests, **_told(found)})
        if self.cv is None:
            return self._after_em(state)
        return state._replace(stage="em", ladder=self._ladder(state, shared, up), steps=0)

    def _ladder(self, state: State, shared: Shared, up: Apart) -> Ladder:
        information = unpack_triangle(np.asarray(shared.information))
        scatter = unpack_triangle(up.scatter) / np.asarray(state.rows)[:, None, None]
        begin = (state.common.at, shared.scale, scatter, information, self._sizes)
        moments = np.stack([up.precision, up.precision2, up.away, up.away2])
        personal = mixtures.begin_personal(state.common.at, shared.scale, moments, state.sites)
        return Ladder(state.frame, mixtures.begin(*begin, 1.0), mixtures.begin(*begin, 1.5), personal)

    def _em(self, fed: Federation, state: State) -> State:
        """One round of EM for groups, own weights and personal coefficients, all candidates and versions at once."""
        ladder = state.ladder
        assert ladder is not None
        assert state.rows is not None
        up = _numpy(fed.sum(self._with_folds(mixtures.e_step).using(sizes=self._sizes), ladder))
        loglik = np.column_stack([up.groups.loglik, up.weights.loglik, up.personal.loglik])
        change = np.inf if state.loglik is None else np.abs(loglik - state.loglik) / state.rows[:, None]
        ladder = Ladder(
            ladder.frame,
            mixtures.m_step(ladder.groups, up.groups, self.family, self._sizes),
            mixtures.m_step(ladder.weights, up.weights, self.family, self._sizes),
            mixtures.personal_m_step(ladder.personal, up.personal, self.family),
        )
        state = state._replace(ladder=ladder, loglik=loglik, steps=state.steps + 1)
        if np.max(change) < mixtures.RESTS or state.steps >= self.em_rounds:
            return self._after_em(state)
        return state

    def _after_em(self, state: State) -> State:
        if not self.sites:
            return state._replace(stage="done")
        return state._replace(stage="without", steps=0)

    def _without(self, fed: Federation, state: State) -> State:
        """One Newton step of the law without each site."""
        start = state.without or path.begin(np.tile(state.common.at[-1], (len(fed.names), 1)))
        ask = sites.without_each.using(family=self.family, sites=fed.names)
        up = _numpy(fed.sum(ask, Others(state.frame, start.at)))
        new = path.advance(start, *up[1:])
        rested = new.moved < path.RESTED or state.steps + 1 >= MOST_STEPS
        return state._replace(without=new, steps=state.steps + 1, stage="done" if rested else "without")

    def _with_folds(self, ask: Any) -> Any:
        return ask.using(family=self.family, cv=int(self.cv or 0))

    @property
    def _sizes(self) -> list[int]:
        return list(range(2, int(self.max_groups) + 1))

    def _scales(self, loss: np.ndarray, rows: np.ndarray, parameters: int = 0) -> np.ndarray:
        """(v,) the variance of the normal law, 1 for others."""
        if self.family != "normal":
            return np.ones_like(loss)
        return np.maximum(2 * loss / np.maximum(rows - parameters, 1.0), 1e-12)

    # ---- what was learned ----

    def finish(self, fed: Federation, state: State) -> None:
        while state.stage != "done":  # a rehearsal may stop early, and wants to see every question
            state, _ = self.step(fed, state)
        fed = Steady(fed, state.absent)
        self.names_ = names_of(fed, len(state.frame.mean))
        self.n_features_in_, self.n_samples_, self.n_sites_ = len(self.names_), state.n, int(state.sites)
        self.intercept_, self.coef_ = self._in_units(state.frame, state.common.at[-1])
        self.tests_ = {
            name: {kind: dict(zip(("statistic", "df", "p_value"), numbers)) for kind, numbers in kinds.items()}
            for name, kinds in state.tests.items()
        }
        fitted = self._fitted(state) if self.cv is not None else None
        self.n_groups_ = self._sizes[int(fitted.group_choice[-1])] if fitted else 0
        losses = self._held_out(fed, fitted) if fitted else None
        self.ladder_ = verdict.ladder(losses, state.sites) if losses else None
        self.recommended_ = verdict.recommended(losses, state.sites, self.tests_, self.level)
        self.model_ = verdict.model_for(self.recommended_, self.family, self.n_groups_)
        self.reason_ = verdict.reason(self.recommended_, self.ladder_, self.tests_, self.n_groups_)
        self.sites_ = self._by_site(fed, state, fitted) if self.sites else {}

    def _fitted(self, state: State) -> Fitted:
        assert state.ladder is not None
        assert state.loglik is not None
        assert state.rows is not None
        q, c = state.common.at.shape[1], len(self._sizes)
        best = [
            mixtures.criterion(part, self._sizes, q, state.rows, state.sites, by_row)
            for part, by_row in ((state.loglik[:, :c], False), (state.loglik[:, c : 2 * c], True))
        ]
        return Fitted(
            state.common.at,
            self._scales(state.common.loss, state.rows, q),
            state.slopes.at,
            self._scales(state.slopes.loss, state.rows, q - 1 + int(state.sites)),
            state.ladder,
            *best,
        )

    def _held_out(self, fed: Federation, fitted: Fitted) -> Losses:
        return _numpy(fed.sum(self._with_folds(sites.held_out).using(sizes=self._sizes), fitted))

    def _by_site(self, fed: Federation, state: State, fitted: Fitted | None) -> dict[str, dict]:
        """What each site gave and got: one SUM of influence, one of losses."""
        assert state.without is not None
        assert state.rows is not None
        others = Others(state.frame, state.without.at)
        common, scale = state.common, self._scales(state.common.loss, state.rows)[-1]
        down = Compared(others, common.at[-1], np.asarray(scale), common.hessian[-1])
        told = {"family": self.family, "sites": fed.names}
        seen = _numpy(fed.sum(sites.influence.using(**told), down))
        shift = np.log(state.frame.y_sd) if self.family == "normal" else 0.0
        found = {}
        for i, name in enumerate(fed.names):
            intercept, coef = self._in_units(state.frame, others.coef[i])
            found[name] = {
                "rows": float(seen.n[i]),
                "information": float(seen.information[i]),
                "coef_without": coef,
                "intercept_without": intercept,
                "loss_without": float(seen.own[i] + shift),
                "loss_with": float(seen.shared[i] + shift),
            }
        if fitted is None:
            return found
        losses = _numpy(
            fed.sum(self._with_folds(sites.held_out_by_site).using(sizes=self._sizes, sites=fed.names), fitted)
        )
        own = _numpy(fed.sum(sites.personal_by_site.using(**told), fitted.ladder))
        for i, name in enumerate(fed.names):
            intercept, coef = self._in_units(state.frame, own.coef[i])
            found[name] |= pages.gains(losses, i) | {"intercept": intercept, "coef": coef}
        return found

    def _in_units(self, frame: Frame, coef: np.ndarray) -> tuple[float, np.ndarray]:
        """(intercept, coefficients) of the columns as they came."""
        y_sd, y_mean = (float(frame.y_sd), float(frame.y_mean)) if self.family == "normal" else (1.0, 0.0)
        slopes = coef[1:] * y_sd / frame.sd
        return float(y_mean + coef[0] * y_sd - frame.mean @ slopes), slopes

    # ---- the face ----

    def predict(self, X: Any, client: str | None = None) -> np.ndarray:
        """The mean of y at each row: under one law, or with the personalised coefficients of a site.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows to predict.
        client : str or None, default=None
            Name of a site.

        Returns
        -------
        ndarray (n_samples,)
        """
        check_is_fitted(self, "coef_")
        x = rows_of(self, X, dtype=np.float64)
        intercept, coef = self.intercept_, self.coef_
        if client is not None:
            own: Mapping[str, Any] = self.sites_.get(client, {})
            if "coef" not in own:
                raise BadParameter(f"there are no coefficients of client {client!r}: fit with sites=True and cv=5")
            intercept, coef = own["intercept"], own["coef"]
        return small_glm.mean(self.family, x @ coef + intercept)

    def to_text(self) -> str:
        """Tests, ladder and recommendation as text, and a line for each site."""
        check_is_fitted(self, "tests_")
        return pages.overview(self)

    def page(self, site: str) -> str:
        """What a site gave, what it got, and what would change without it, as text.

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
        """What the report of a run shows: the recommendation, tests, the ladder, and sites."""
        return pages.figures(self)

    def __str__(self) -> str:
        return pages.overview(self) if hasattr(self, "tests_") else repr(self)


def _numpy(total: Any) -> Any:
    return tree.map(to_numpy, total)


def _told(tests: Mapping[str, Mapping[str, equal_laws.Result]]) -> dict:
    """Tests as a tree of numbers."""
    return {name: {kind: tuple(map(float, r)) for kind, r in kinds.items()} for name, kinds in tests.items()}


def _check_targets(fed: Federation) -> None:
    for c in fed.here():
        if c.y is None:
            raise BadData(f"client {c.name!r} has no targets: requires y to be passed, but the target y is None")
        y = to_numpy(c.y)
        if y.dtype.kind not in "fiub" or y.ndim != 1:
            raise BadData(
                f"client {c.name!r} has targets that are not one number per row: give numeric y, 0 and 1 for two classes"
            )


def _check_independent(shift: Any, names: list[str], p: int) -> None:
    """Refuse a column that is a combination of others."""
    total = unpack_triangle(shift.x.xx)[:p, :p]
    kept = equal_laws.independent(total)
    lost = np.setdiff1d(np.arange(p), kept)
    if len(lost):
        raise BadData(f"{called(names, lost)} is a combination of the columns before it: leave it out")
