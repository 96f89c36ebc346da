"""`Pooling`, the estimator: its parameters, and what is learned when the rounds are over."""

from __future__ import annotations

from typing import Any

import numpy as np

from unpooled.errors import BadParameter
from unpooled.estimator import Info
from unpooled.federation import Federation
from unpooled.maths.folds import FOLDS
from unpooled.models.column_names import names_of
from unpooled.models.pooling import results, rounds, small_glm, verdict
from unpooled.models.pooling.checks import check_sites, check_targets
from unpooled.models.pooling.fitted import FittedPooling
from unpooled.models.pooling.rounds import Plan, State
from unpooled.models.steady import Steady
from unpooled.parameters import at_least, flag, one_of, within


class Pooling(FittedPooling):
    """Should these sites be pooled, and who gains: tests of shift, a comparison of pooling strategies, and a page for each site.

    Parameters
    ----------
    family : {"normal", "binomial", "poisson"}, default="normal"
        The distribution of y given its mean, which is linear in the columns through the usual link.
    max_groups : int, default=3
        The most groups of sites, and components that sites mix, that are tried; at least 2.
    cv : {2, 5, 10, None}, default=5
        Folds of every site's rows for held-out losses. None: tests and influence only, in about ten SUMs.
    sites : bool, default=True
        Whether each site's numbers are given: its losses, its share of the information, the fit without it. It takes questions that end
        in `_by_site`, which a node may refuse.
    level : float, default=0.05
        Of the tests that decide whether one model, or own intercepts, will do.
    missing : {"refuse", "drop"}, default="refuse"
        What to do with rows that have missing values.
    em_rounds : int, default=30
        The most rounds of EM, after five that choose where it starts.
    random_state : int or None, default=None
        Seed of the simulated targets that give a likelihood ratio its mean.

    Attributes
    ----------
    tests_ : dict of str to dict
        "P(x)", "P(y)" and "P(y | x)", each with "lr" and "score"; "intercepts" (own intercepts against one model) and "slopes"
        (own fit against own intercepts) with "lr". Each has `statistic`, `df` and `p_value`.
    losses_ : dict of str to dict, or None
        For each pooling strategy its held-out `loss` (minus the log-likelihood per row), its `stderr` by site, its `difference` to
        the best and the `difference_stderr`. The strategies are "one model" (complete pooling), "own intercepts", "groups" (each
        site has one of several models), "own weights" (sites mix the same models in proportions of their own), "personalised" (own
        coefficients, drawn to a common mean) and "own fit" (no pooling).
    recommended_, model_, reason_ : str
        The strategy of the least held-out loss, or of a simpler kind that is as good; what of this library fits it; and why.
    coef_ : ndarray (p,), intercept_ : float
        Of one model.
    sites_ : dict of str to dict
        For each site: `rows`, `information` (its share of all information on the coefficients), `losses` by strategy, `gain` of
        each strategy over the site's own fit and its `gain_stderr`, `group`, `coef` and `intercept` (personalised), `coef_without`
        and `intercept_without` (one model fitted without the site), `loss_without` (of its rows under that model) and `loss_with`.
    n_groups_ : int
        Groups of the strategy "groups".
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
        """Refuse parameters that do not exist or do not go together."""
        one_of("family", self.family, small_glm.FAMILIES)
        at_least("max_groups", self.max_groups, 2)
        at_least("em_rounds", self.em_rounds, 1)
        flag("sites", self.sites)
        one_of("missing", self.missing, ("refuse", "drop"))
        within("level", self.level, 0, 1, "the share of false alarms")
        if self.cv is not None and (isinstance(self.cv, bool) or self.cv not in FOLDS):
            raise BadParameter(f"cv={self.cv!r} must be {', '.join(map(str, FOLDS))} or None")
        check_sites(fed, self.sites)
        check_targets(fed)

    @property
    def _plan(self) -> Plan:
        """What the rounds have to know of the parameters."""
        sizes = list(range(2, int(self.max_groups) + 1))
        return Plan(self.family, int(self.cv or 0), sizes, int(self.em_rounds), bool(self.sites))

    # ---- rounds ----

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        """Two looks at all rows."""
        return rounds.begin(fed, self._plan, self.missing)

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        """One round of the current stage."""
        return rounds.step(fed, self._plan, state), {"stage": state.stage}

    def done(self, state: State, history: list[Info]) -> bool:
        """Whether all stages are done."""
        return state.stage == "done"

    # ---- what was learned ----

    def finish(self, fed: Federation, state: State) -> None:
        """Set the tests, the losses of every strategy, the recommendation, and what each site gave and got."""
        while state.stage != "done":  # a rehearsal may stop early, and wants to see every question
            state, _ = self.step(fed, state)
        fed = Steady(fed, state.absent)
        plan = self._plan
        self.names_ = names_of(fed, len(state.frame.mean))
        self.n_features_in_ = len(self.names_)
        self.n_samples_ = state.n
        self.n_sites_ = int(state.sites)
        self.intercept_, self.coef_ = results.in_units(self.family, state.frame, state.common.at[-1])
        self.tests_: dict[str, dict[str, dict[str, float]]] = {}
        for name, kinds in state.tests.items():
            self.tests_[name] = {kind: dict(zip(("statistic", "df", "p_value"), test)) for kind, test in kinds.items()}
        self.sites_ = results.given(fed, plan, state) if self.sites else {}
        self.n_groups_ = 0
        self.recommended_ = verdict.by_tests(self.tests_, self.level)
        self.losses_: dict[str, dict[str, float]] | None = None
        if plan.cv:
            self._compare_strategies(fed, plan, state)
        self.model_ = verdict.model_for(self.recommended_, self.family, self.n_groups_)
        self.reason_ = verdict.reason(self.recommended_, self.losses_, self.tests_, self.n_groups_)

    def _compare_strategies(self, fed: Federation, plan: Plan, state: State) -> None:
        """Held-out losses of every strategy, the recommendation, and what each site got."""
        found = results.fitted(plan, state)
        every = results.held_out(fed, plan, found)
        chosen = verdict.chosen(every, plan.sizes, state.sites)
        losses = verdict.only(every, chosen)
        self.n_groups_ = verdict.groups_of(chosen, plan.sizes)
        self.losses_ = verdict.by_strategy(losses, state.sites)
        self.recommended_ = verdict.recommended(losses, state.sites, self.tests_, self.level)
        if self.sites:
            got = results.gained(fed, plan, found, chosen)
            self.sites_ = {name: gave | got[name] for name, gave in self.sites_.items()}
