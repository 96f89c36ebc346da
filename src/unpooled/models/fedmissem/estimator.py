"""FedMissEM: the missing cells of a table of sites by dates, from visits that are spread over clients; one SUM per round.

A row is a visit (site, date, value). Each round sends, for every site or, in the next round, for every date, a gradient and a small
curvature matrix of its coefficients; no visit leaves a client. The penalised likelihood is maximised by alternating Newton steps, for
all candidates in the same rounds. The paper's EM on completed tables is `FedEM(family=LowRank(...))`; its penalty differs, so the two
results may differ.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from unpooled.arrays import to_numpy
from unpooled.errors import BadData, BadParameter
from unpooled.estimator import Estimator, Info
from unpooled.federation import Federation
from unpooled.models.fedmissem import bilinear, families, selection
from unpooled.models.fedmissem.bilinear import Factors
from unpooled.models.fedmissem.questions import (
    Description,
    Fits,
    Held,
    Seen,
    Width,
    cell_moments,
    describe,
    judge,
    regress,
    seen,
    valid_visits,
)
from unpooled.models.fedmissem.selection import RANKS, Candidate, Model
from unpooled.models.fedmissem.smoothing import smooth
from unpooled.models.fedmissem.steps import in_own_unit, moved
from unpooled.models.fedmissem.table_size import find_size
from unpooled.parameters import at_least, one_of
from unpooled.tree import message

EFFECTS, APART, RANK, FINAL = range(4)  # stages of a fit
AUTO = ("poisson", "gaussian", "tweedie")  # families of non-negative values; the first is preferred
Z90 = 1.6448536269514722
MIN_ROUNDS = 4  # of the last stage: two per side
CHOICE_TOL = 1e-4  # relative decrease of the loss at which candidates are compared


@message("fedmissem.State")
class State(NamedTuple):
    """What a round carries on."""

    candidates: tuple[Candidate, ...]
    stage: int
    errors: np.ndarray  # (models,) root mean squared errors of the last choice
    round: int  # of the stage
    visits: float
    level: float  # mean of the values
    spread: float  # their standard deviation


class FedMissEM(Estimator):
    """Complete a table of sites by dates, most of whose cells are missing, by a low-rank model.

    The fit is the same in any unit of measurement: values are scaled by their mean or standard deviation over all clients. Family,
    penalty and rank are chosen on visits that clients hold back, with all candidates in the same rounds.

    Parameters
    ----------
    rank : int or None, default=None
        Rank of the interaction of sites and dates, beyond the effects of each. None chooses 0 to 3, at most half the
        number of sites or dates: the lowest rank that is not clearly worse than the best.
    family : {"auto", "gaussian", "poisson", "tweedie", "geometric", "binomial"}, default="auto"
        Distribution of a cell. "auto" chooses among "gaussian", "poisson" and "tweedie", or takes "gaussian" if values are negative.
        The variance of "poisson" is proportional to the mean, of "tweedie" to mean^1.5; both take any non-negative values.
        "geometric" has variance mean + mean^2 and takes counts. The dispersion is estimated.
    penalty : float or None, default=None
        Ridge penalty of the coefficients, relative to the dispersion and in units of the scaled values. Sites with few visits are
        shrunk to the mean site. None chooses it, apart for sites, dates and factors.
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
        Relative decrease of the loss at which a fit has converged.
    random_state : int, RandomState or None, default=0
        As in scikit-learn.

    Attributes
    ----------
    sites_ : ndarray of shape (n_sites, rank + 2)
        Effect, one, and factors of every site.
    dates_ : ndarray of shape (n_dates, rank + 2)
        One, effect, and factors of every date.
    family_ : str
        The family that was given or chosen.
    rank_ : int
        The rank that was given or chosen.
    penalty_ : Penalties
        The penalties of sites, of dates and of factors that were given or chosen.
    dispersion_ : float
        Estimated dispersion.
    totals_, totals_std_ : ndarray of shape (n_dates,)
        Total over sites by date, with missing cells at their means, and its standard error.
    held_errors_ : ndarray
        Root mean squared error on visits held back, by candidate of the last choice; empty if there was none.

    References
    ----------
    Dieuleveut, Fort, Moulines and Robin, Federated-EM with heterogeneity mitigation and variance reduction, NeurIPS 2021.

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
        one_of("family", self.family, ("auto", *families.FAMILIES))
        if self.rank is not None:
            at_least("rank", self.rank, 0)
        at_least("trials", self.trials, 1)
        at_least("n_folds", self.n_folds, 2)
        if self.penalty is not None and not self.penalty > 0:
            raise BadParameter(f"penalty={self.penalty!r} must be above 0: a site without visits needs it")

    # ---- fitting ----

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        found = fed.sum(describe.using(family=self.family, trials=self.trials), None)
        self._refuse(fed, found)
        n_sites, n_dates = find_size(fed, self.n_sites, self.n_dates)
        rows = max(float(found.rows), 1.0)
        level = float(found.value) / rows
        spread = float(np.sqrt(max(float(found.square) / rows - level**2, 0.0)))
        state = State((), EFFECTS, np.zeros(0), 0, rows, level, spread or abs(level) or 1.0)
        models = selection.effect_models(self._families(found), self.penalty)
        start = {f: families.link(self._scaled_level(f, state), f, self.trials) for f in {m.family for m in models}}
        made = {f: bilinear.begin(n_sites, n_dates, 0, theta, rng) for f, theta in start.items()}
        folds = self._folds(rows)
        candidates = [selection.fresh(m, fold, made[m.family]) for m in models for fold in folds]
        return self._skip(state._replace(candidates=tuple(candidates)))

    def _families(self, found: Description) -> tuple[str, ...]:
        if self.family != "auto":
            return (self.family,)
        return ("gaussian",) if float(found.negative) or not float(found.value) else AUTO

    def _folds(self, visits: float) -> range:
        return range(self.n_folds) if visits < selection.ALL_FOLDS else range(1)

    def _units(self, family: str, state: State) -> tuple[float, float]:
        return families.units(family, state.level, state.spread)

    def _scaled_level(self, family: str, state: State) -> float:
        centre, scale = self._units(family, state)
        return (state.level - centre) / scale

    def _refuse(self, fed: Federation, found: Description) -> None:
        """Refuse rows that are not visits; where clients are in this process, the first with such rows is named."""
        if not float(found.bad):
            return
        counts = {c.name: valid_visits(c, self.family, self.trials)[1] for c in fed.here()}
        who, bad, rows = "all clients together", float(found.bad), float(found.rows)
        for name, valid in counts.items():
            if not valid.all():
                who, bad, rows = f"client {name!r}", float((~valid).sum()), float(len(valid))
                break
        wants = {"auto": "a number", "gaussian": "a number", "binomial": f"a count up to trials={self.trials}"}
        wanted = wants.get(self.family, "a count" if self.family == "geometric" else "not below 0")
        raise BadData(
            f"{bad:.0f} of {rows:.0f} rows of {who} are not visits: "
            f"each is (site, date, value), sites and dates whole numbers from 0, the value {wanted}"
        )

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        if state.stage != FINAL and (state.round >= self.choose_iter or all(c.settled for c in state.candidates)):
            return self._choose(fed, state)
        side = ("right", "left")[state.round % 2]
        active = [i for i, c in enumerate(state.candidates) if state.stage == FINAL or not c.settled]
        asked = [state.candidates[i] for i in active]
        ask = regress.using(side=side, n_folds=self.n_folds, trials=self.trials, **_options(asked))
        found = fed.sum(ask, self._fits(state, asked, [c.factors for c in asked]))
        candidates = list(state.candidates)
        tol = self.tol if state.stage == FINAL else max(self.tol, CHOICE_TOL)
        for i, half in zip(active, found):
            candidates[i] = moved(candidates[i], side, half, tol, state.round)
        first, dispersion = found[0], candidates[active[0]].dispersion
        info = {"deviance": float(first.deviance / first.visits), "dispersion": dispersion}
        return state._replace(candidates=tuple(candidates), round=state.round + 1), info

    def _fits(self, state: State, candidates: list[Candidate], factors: list[Factors]) -> Fits:
        units = np.array([self._units(c.model.family, state) for c in candidates])
        return Fits(tuple(factors), units[:, 0], units[:, 1])

    def _choose(self, fed: Federation, state: State) -> tuple[State, Info]:
        """Judge the models of a stage by visits held back, and enter the next stage with the best."""
        models = list(dict.fromkeys(c.model for c in state.candidates))
        which = [models.index(c.model) for c in state.candidates]
        asked = list(state.candidates)
        ask = judge.using(n_folds=self.n_folds, trials=self.trials, models=which, **_options(asked))
        held = fed.sum(ask, self._fits(state, asked, [c.best for c in asked]))
        errors = np.sqrt(to_numpy(held.squares.total) / max(float(held.visits), 1e-300))
        chosen = models[self._best(held, models, state.stage)]
        kept = tuple(c for c in state.candidates if c.model == chosen)
        state = self._next_stage(state._replace(candidates=kept, errors=errors), fed.journal.rng)
        return state, {"held_error": float(errors.min())}

    def _best(self, held: Held, models: list[Model], stage: int) -> int:
        if stage == EFFECTS:
            return selection.best_family(held, models)
        return selection.simplest(held) if stage == RANK else selection.best_model(held, list(range(len(models))))

    def _next_stage(self, state: State, rng: np.random.Generator) -> State:
        """The candidates of the next stage, from those of the chosen model."""
        best, stage = state.candidates[0].model, state.stage + 1
        if stage == APART:
            models = selection.apart_models(best, self.penalty)
        elif stage == RANK:
            models = self._rank_models(state, best)
        else:
            first = state.candidates[0]
            last = first._replace(fold=-1, factors=first.best, loss=np.inf, settled=False)
            return state._replace(candidates=(last,), stage=FINAL, round=0)
        candidates = tuple(selection.widened(c, m, rng) for m in models for c in state.candidates)
        return self._skip(state._replace(candidates=candidates, stage=stage, round=0), rng)

    def _rank_models(self, state: State, best: Model) -> list[Model]:
        n_sites, n_dates = (len(side) for side in state.candidates[0].factors)
        wanted = RANKS if self.rank is None else (self.rank,)
        most = min(n_sites, n_dates) - 1
        ranks = tuple(r for r in wanted if r <= (most // 2 if self.rank is None else most)) or (most,)
        threshold = selection.noise_threshold(n_sites, n_dates, state.visits)
        return selection.rank_models(best, ranks, self.penalty, threshold)

    def _skip(self, state: State, rng: np.random.Generator | None = None) -> State:
        """Leave out a stage with a single model."""
        if len({c.model for c in state.candidates}) > 1:
            return state
        return self._next_stage(state, rng or np.random.default_rng(0))

    def done(self, state: State, history: list[Info]) -> bool:
        return state.stage == FINAL and state.round > MIN_ROUNDS and all(c.settled for c in state.candidates)

    # ---- the result ----

    def finish(self, fed: Federation, state: State) -> None:
        best = state.candidates[0]
        self.family_, self.rank_, self.penalty_ = best.model
        centre, scale = self._units(self.family_, state)
        self.sites_, self.dates_ = in_own_unit(best.best, self.family_, centre, scale)
        self.dispersion_ = best.dispersion * families.dispersion_scale(self.family_, scale)
        self.held_errors_ = state.errors
        self.n_features_in_ = 3
        width = Width(best.best, best.sites, best.dates, np.asarray(centre), np.asarray(scale))
        visited = fed.sum(seen.using(family=self.family_, trials=self.trials), width)
        total, std = self._totals(width, visited, best.dispersion)
        self.totals_, self.totals_std_ = len(self.sites_) * centre + scale * total, scale * std

    def _totals(self, width: Width, visited: Seen, dispersion: float) -> tuple[np.ndarray, np.ndarray]:
        """By date, of scaled values: what was seen plus the means of what was not, and the standard error."""
        n_sites, n_dates = len(self.sites_), len(self.dates_)
        sums = [np.zeros(n_dates), np.zeros(n_dates), np.zeros(n_dates), np.zeros_like(to_numpy(visited.pull))]
        for date in range(n_dates):  # one column of the table at a time
            here = cell_moments(width, np.arange(n_sites), np.full(n_sites, date), self.family_, self.trials)
            for total, part in zip(sums, here):
                total[date] = part.sum(axis=0)
        mean, noise, through, pull = sums
        unseen_noise = np.maximum(noise - to_numpy(visited.noise), 0.0)
        unseen_through = np.maximum(through - to_numpy(visited.sites), 0.0)
        unseen_pull = pull - to_numpy(visited.pull)
        by_date = np.einsum("lp,lpq,lq->l", unseen_pull, width.dates, unseen_pull)
        total = mean + to_numpy(visited.value) - to_numpy(visited.mean)
        return total, np.sqrt(dispersion * unseen_noise + unseen_through + np.maximum(by_date, 0.0))

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
        check_is_fitted(self, "sites_")
        x = self._cells(X)
        theta = bilinear.theta_at(Factors(self.sites_, self.dates_), x[:, 0], x[:, 1])
        return families.mean(theta, self.family_, self.trials)

    def _cells(self, X: Any) -> np.ndarray:
        """(n, 2) whole numbers: sites and dates that the table has."""
        x = np.asarray(X, np.float64)
        if x.ndim != 2 or x.shape[1] < 2:
            raise BadData(f"cells are rows of (site, date), got shape {x.shape}: give two columns")
        x, ends = x[:, :2], (len(self.sites_), len(self.dates_))
        bad = ~((x >= 0) & (x < ends) & (x == np.floor(x))).all(axis=1)
        if bad.any():
            site, date = x[bad.argmax()]
            raise BadData(
                f"row {bad.argmax()} is (site {site:g}, date {date:g}), no cell of the {ends[0]} sites and {ends[1]} dates: "
                "give whole numbers from 0"
            )
        return x.astype(np.int64)

    def table(self) -> np.ndarray:
        """The mean of every cell.

        Returns
        -------
        means : ndarray of shape (n_sites, n_dates)
        """
        return families.mean(self.sites_ @ self.dates_.T, self.family_, self.trials)

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
        low, high = (self.totals_ + sign * Z90 * self.totals_std_ for sign in (-1, 1))
        ax.fill_between(t, np.maximum(low, 0.0) if self.family_ != "gaussian" else low, high, alpha=0.25, lw=0)
        ax.plot(t, self.totals_, lw=0.8)
        ax.plot(t, smooth(t, self.totals_, share), lw=2)
        ax.set(xlabel="date", ylabel="total over sites")
        return ax


def visits(table: Any) -> np.ndarray:
    """(n, 3) visits of a (sites, dates) table with NaN in cells that were not visited."""
    table = np.asarray(table, np.float64)
    site, date = np.nonzero(~np.isnan(table))
    return np.column_stack([site, date, table[site, date]])


def _options(candidates: list[Candidate]) -> dict[str, list]:
    return {"families": [c.model.family for c in candidates], "folds": [c.fold for c in candidates]}
