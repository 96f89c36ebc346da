"""FedMissEM: the missing cells of a table of sites by dates, from visits that are spread over clients; one SUM per round.

A row is a visit (site, date, value). Each round sends, for every site or, in the next round, for every date, a gradient and a small
curvature matrix of its coefficients; no visit leaves a client. The penalised likelihood is maximised by alternating Newton steps, for
all candidates in the same rounds. The paper's EM on completed tables is `FedEM(family=LowRank(...))`; its penalty differs, so the two
results may differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from unpooled.errors import BadParameter
from unpooled.estimator import Estimator, Info
from unpooled.federation import Federation
from unpooled.models.fedmissem import bilinear, families, selection
from unpooled.models.fedmissem.bilinear import Factors
from unpooled.models.fedmissem.checks import cells_of, refuse_bad_visits
from unpooled.models.fedmissem.questions import Description, Width, Widths, describe, regress, seen
from unpooled.models.fedmissem.selection import Candidate, Fitted
from unpooled.models.fedmissem.smoothing import smooth
from unpooled.models.fedmissem.stages import EFFECTS, FINAL, State, choose, fits_of, next_stage, options
from unpooled.models.fedmissem.steps import dispersion_of, freedom, in_own_unit, moved
from unpooled.models.fedmissem.table_size import find_size
from unpooled.models.fedmissem.totals import totals
from unpooled.parameters import at_least, one_of

AUTO = ("poisson", "gaussian", "tweedie")  # families of non-negative values; the first is preferred
Z90 = 1.6448536269514722
MIN_ROUNDS = 4  # of the last stage: two per side
AFTER = 20  # rounds of the last stage at most, of models that were chosen: they were judged after choose_iter rounds
CHOICE_TOL = 1e-3  # relative decrease of the loss at which candidates are compared


class FedMissEM(Estimator):
    """Complete a table of sites by dates, most of whose cells are missing, by a low-rank model.

    The fit is the same in any unit of measurement: values are scaled by their mean or standard deviation over all clients. Models of
    several families, penalties and ranks, and models with a smooth curve per site, are fitted in the same rounds without visits that
    clients hold back. Predictions are an average of models of the best family, on the scale of the link, with the weights that predict
    visits held back best. It departs from an average of effects of sites and dates only as far as these visits support it.

    Parameters
    ----------
    rank : int or None, default=None
        Rank of the interaction of sites and dates, beyond the effects of each. None tries 0 to 3, at most half the
        number of sites or dates, and a smooth curve per site.
    family : {"auto", "gaussian", "poisson", "tweedie", "geometric", "binomial"}, default="auto"
        Distribution of a cell. "auto" chooses among "gaussian", "poisson" and "tweedie", or takes "gaussian" if values are negative.
        The variance of "poisson" is proportional to the mean, of "tweedie" to mean^1.5; both take any non-negative values.
        "geometric" has variance mean + mean^2 and takes counts. The dispersion is estimated.
    penalty : float or None, default=None
        Ridge penalty of the coefficients, relative to the dispersion and in units of the scaled values. Sites with few visits are
        shrunk to the mean site. None tries several, apart for sites, dates and factors.
    trials : int, default=1
        Number of trials of a binomial cell.
    n_sites, n_dates : int or None, default=None
        Size of the table. None takes the largest numbers in the visits, found by a few SUMs.
    n_folds : int, default=5
        Parts into which the cells are divided. With fewer than 2,000 visits each part is held back in turn, else the first alone.
    choose_iter : int, default=40
        Most rounds before each of the three choices.
    max_iter : int, default=300
        Most rounds.
    tol : float, default=1e-6
        Relative decrease of the loss at which a fit has converged; models that were chosen by visits held back take 20 rounds at most.
    random_state : int, RandomState or None, default=0
        As in scikit-learn.

    Attributes
    ----------
    models_ : tuple of Fitted
        The models that are averaged, that of the largest weight first: family, rank and penalties, coefficients of sites and dates.
    weights_ : ndarray of shape (n_models,)
        Their weights, of sum 1.
    sites_ : ndarray of shape (n_sites, rank + 2)
        Effect, one, and factors of every site in the first model.
    dates_ : ndarray of shape (n_dates, rank + 2)
        One, effect, and factors of every date in the first model; factors of curves are cosines of the date.
    family_, rank_ : str, int
        Family and rank of the first model.
    penalty_ : Penalties
        Its penalties of sites, of dates and of factors.
    dispersion_ : float
        Estimated dispersion of the average.
    totals_, totals_std_ : ndarray of shape (n_dates,)
        Total over sites by date, with missing cells at their means, and its standard error; that of an average counts how far its
        models differ.
    held_losses_ : ndarray
        Loss per visit held back of each model that was tried for the average, a squared error over a typical variance; empty if there
        was one model alone.

    References
    ----------
    Dieuleveut, Fort, Moulines and Robin, Federated-EM with heterogeneity mitigation and variance reduction, NeurIPS 2021.
    Breiman, Stacked regressions, Machine Learning 1996.

    Examples
    --------
    >>> import numpy as np
    >>> import unpooled as up
    >>> rng = np.random.default_rng(0)
    >>> site, date = np.repeat(np.arange(20), 6), np.tile(np.arange(6), 20)
    >>> counts = rng.poisson(np.exp(1 + 0.1 * site / 2 + 0.2 * date))
    >>> visits = np.column_stack([site, date, counts]).astype(float)[rng.random(120) < 0.6]
    >>> model = up.FedMissEM(rank=0, family="poisson").fit({"north": visits[::2], "south": visits[1::2]})
    >>> model.table().shape, bool(model.totals_[-1] > model.totals_[0])
    ((20, 6), True)
    """

    def __init__(
        self,
        rank: int | None = None,
        family: str = "auto",
        *,
        penalty: float | None = None,
        trials: int = 1,
        n_sites: int | None = None,
        n_dates: int | None = None,
        n_folds: int = 5,
        choose_iter: int = 40,
        max_iter: int = 300,
        tol: float = 1e-6,
        random_state: Any = 0,
    ):
        self.rank = rank
        self.family = family
        self.penalty = penalty
        self.trials = trials
        self.n_sites = n_sites
        self.n_dates = n_dates
        self.n_folds = n_folds
        self.choose_iter = choose_iter
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def check(self, fed: Federation) -> None:
        """Refuse parameters that do not exist or do not go together."""
        one_of("family", self.family, ("auto", *families.FAMILIES))
        if self.rank is not None:
            at_least("rank", self.rank, 0)
        at_least("trials", self.trials, 1)
        at_least("n_folds", self.n_folds, 2)
        if self.penalty is not None and not self.penalty > 0:
            raise BadParameter(f"penalty={self.penalty!r} must be above 0: a site without visits needs it")

    # ---- fitting ----

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        """Look at the visits, find the table's size, and begin with effects of sites and dates."""
        found = fed.sum(describe.using(family=self.family, trials=self.trials), None)
        refuse_bad_visits(fed, found, self.family, self.trials)
        n_sites, n_dates = find_size(fed, self.n_sites, self.n_dates)
        rows = max(float(found.rows), 1.0)
        level = float(found.value) / rows
        spread = float(np.sqrt(max(float(found.square) / rows - level**2, 0.0)))
        state = State((), (), np.ones(1), EFFECTS, np.zeros(0), 0, rows, level, spread or abs(level) or 1.0)
        models = selection.effect_models(self._families(found), self.penalty)
        start = {}  # family -> factors
        for family in dict.fromkeys(model.family for model in models):
            theta = families.link(self._scaled_level(family, state), family, self.trials)
            start[family] = bilinear.begin(n_sites, n_dates, 0, theta, rng)
        folds = self._folds(rows)
        candidates = [selection.fresh(model, fold, start[model.family]) for model in models for fold in folds]
        state = state._replace(candidates=tuple(candidates))
        return next_stage(self, state, rng) if len(models) == 1 else state

    def _families(self, found: Description) -> tuple[str, ...]:
        """The families to choose among."""
        if self.family != "auto":
            return (self.family,)
        return ("gaussian",) if float(found.negative) or not float(found.value) else AUTO

    def _folds(self, visits: float) -> range:
        """The folds of visits that are held back."""
        return range(self.n_folds) if visits < selection.ALL_FOLDS else range(1)

    def _units(self, family: str, state: State) -> tuple[float, float]:
        """The centre and scale that values are fitted in."""
        return families.units(family, state.level, state.spread)

    def _scaled_level(self, family: str, state: State) -> float:
        """The mean value in these units."""
        centre, scale = self._units(family, state)
        return (state.level - centre) / scale

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        """One SUM: regressions of one side of the table given the other, for all candidates."""
        if state.stage != FINAL and (state.round >= self.choose_iter or all(c.settled for c in state.candidates)):
            return choose(self, fed, state)
        side = ("right", "left")[state.round % 2]
        early = state.stage == FINAL and state.round <= MIN_ROUNDS
        active = [i for i, c in enumerate(state.candidates) if early or not c.settled]
        asked = tuple(state.candidates[i] for i in active)
        ask = regress.using(side=side, n_folds=self.n_folds, trials=self.trials, **options(asked))
        found = fed.sum(ask, fits_of(state, asked, [c.factors for c in asked]))
        candidates = list(state.candidates)
        tol = self.tol if state.stage == FINAL else max(self.tol, CHOICE_TOL)
        for i, half in zip(active, found):
            candidates[i] = moved(candidates[i], side, half, tol, state.round)
        first = found[0]
        dispersion = candidates[active[0]].dispersion
        info = {"deviance": float(first.deviance / first.visits), "dispersion": dispersion}
        return state._replace(candidates=tuple(candidates), round=state.round + 1), info

    def done(self, state: State, history: list[Info]) -> bool:
        """Whether the final fit has converged, or goes on from models that were judged for long enough."""
        if state.stage != FINAL or state.round <= MIN_ROUNDS:
            return False
        chosen = len(state.losses) > 0
        return (chosen and state.round >= AFTER) or all(c.settled for c in state.candidates)

    # ---- the result ----

    def finish(self, fed: Federation, state: State) -> None:
        """Set factors, dispersion and intervals in the values' own unit."""
        candidates = state.candidates[: len(state.weights)]  # the first alone if rounds ended before the last stage
        first = candidates[0]
        self.family_, self.rank_, self.penalty_ = first.model[:3]
        self.weights_ = state.weights
        self.held_losses_ = state.losses
        self.models_ = tuple(self._fitted(c, state) for c in candidates)
        self.sites_, self.dates_ = self.models_[0].factors
        self.n_features_in_ = 3
        self._set_totals(fed, candidates, state)

    def _fitted(self, c: Candidate, state: State) -> Fitted:
        """A candidate in the values' own unit."""
        centre, scale = self._units(c.model.family, state)
        return Fitted(c.model, in_own_unit(c.best, c.model.family, centre, scale))

    def _set_totals(self, fed: Federation, candidates: tuple[Candidate, ...], state: State) -> None:
        """Dispersion, totals by date and their standard errors: one SUM."""
        centre, scale = self._units(self.family_, state)
        models = tuple(Width(c.best, c.sites, c.dates) for c in candidates)
        widths = Widths(models, state.weights, np.asarray(centre), np.asarray(scale))
        visited = fed.sum(seen.using(family=self.family_, trials=self.trials), widths)
        fitted = float(state.weights @ [freedom(c) for c in candidates])
        dispersion = dispersion_of(float(visited.pearson), state.visits, fitted, self.family_)
        total, std = totals(widths, visited, dispersion, self.family_, self.trials)
        self.dispersion_ = dispersion * families.dispersion_scale(self.family_, scale)
        self.totals_ = len(self.sites_) * centre + scale * total
        self.totals_std_ = scale * std

    def predict(self, X: Any) -> np.ndarray:
        """The mean of cells.

        Parameters
        ----------
        X : array-like of shape (n, 2) or more columns
            Rows (site, date); further columns are ignored.

        Returns
        -------
        means : ndarray of shape (n,)
        """
        check_is_fitted(self, "models_")
        x = cells_of(X, (len(self.sites_), len(self.dates_)))
        return self._average(lambda factors: bilinear.theta_at(factors, x[:, 0], x[:, 1]))

    def table(self) -> np.ndarray:
        """The mean of every cell.

        Returns
        -------
        means : ndarray of shape (n_sites, n_dates)
        """
        check_is_fitted(self, "models_")
        return self._average(lambda factors: factors.left @ factors.right.T)

    def _average(self, theta: Callable[[Factors], np.ndarray]) -> np.ndarray:
        """Means from the average of the models' linear predictors."""
        average = sum(w * theta(m.factors) for w, m in zip(self.weights_, self.models_))
        return families.mean(average, self.family_, self.trials)

    def plot(self, times: Any = None, ax: Any = None, share: float = 0.3) -> Any:
        """Draw totals by date with their 90 % band and a smooth trend; needs matplotlib.

        Parameters
        ----------
        times : array-like of shape (n_dates,), default=None
            Positions of the dates; None numbers them.
        ax : matplotlib axes, default=None
            Where to draw; None makes a new figure.
        share : float, default=0.3
            Fraction of the dates that each point of the trend is fitted to.

        Returns
        -------
        ax : matplotlib axes
        """
        import matplotlib.pyplot as plt

        ax = ax or plt.subplots(figsize=(8, 4))[1]
        t = np.arange(len(self.totals_)) if times is None else np.asarray(times, float)
        low = self.totals_ - Z90 * self.totals_std_
        high = self.totals_ + Z90 * self.totals_std_
        if self.family_ != "gaussian":
            low = np.maximum(low, 0.0)
        ax.fill_between(t, low, high, alpha=0.25, lw=0)
        ax.plot(t, self.totals_, lw=0.8)
        ax.plot(t, smooth(t, self.totals_, share), lw=2)
        ax.set(xlabel="date", ylabel="total over sites")
        return ax


def visits(table: Any) -> np.ndarray:
    """(n, 3) visits of a (sites, dates) table with NaN in cells that were not visited."""
    table = np.asarray(table, np.float64)
    site, date = np.nonzero(~np.isnan(table))
    return np.column_stack([site, date, table[site, date]])
