"""Fill in a table's gaps by mixtures of Gaussians fitted over clients: one SUM of statistics a round, a mean and an interval a gap.

How many components, and how strong a prior, is decided by cells that every client hides from itself for the first rounds:
candidates are fitted side by side in the same rounds, then logistic regressions of columns of levels (one SUM of scores and curvature a
round); one SUM of products of their errors says how much each counts, those that count are fitted to all cells, and SUMs of histograms
calibrate intervals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.errors import BadParameter
from unpooled.estimator import Estimator, Info, Moment
from unpooled.federation import Federation, find_private, least_rows
from unpooled.maths import gaussian
from unpooled.maths.mixture import Params
from unpooled.models import initialization as start
from unpooled.models.column_names import n_columns
from unpooled.models.initialization import Frame, warn_of_rounding, without
from unpooled.models.mixture import few_rows
from unpooled.models.mixture_imputer import calibration, choice, logarithms, logistic, selection
from unpooled.models.mixture_imputer import candidates as trying
from unpooled.models.mixture_imputer.candidates import Candidate
from unpooled.models.mixture_imputer.embedding import Embedding
from unpooled.models.mixture_imputer.filling import Filling
from unpooled.models.mixture_imputer.logarithms import start_frame
from unpooled.models.mixture_imputer.questions import (
    Asked,
    Ensemble,
    calibrate,
    cell_counts,
    cells,
    count_gaps,
    e_step,
    gaps,
    judge,
    regress,
)
from unpooled.models.mixture_imputer.state import (
    CHOSEN,
    ENDED,
    ENDING,
    FITTING,
    JUDGED,
    REGRESSING,
    SETTLED,
    State,
    checks,
    layout,
    models,
    options,
    settled,
    single_gaussian,
)
from unpooled.parameters import at_least, one_of, within

STARTS = ("cells", "random")
AFTER = 10  # rounds at most with all cells: what the hidden cells chose, and calibrated, is a mixture after choose_iter rounds
# rounds of Newton's method at most, from coefficients 0 and from those without hidden cells
NEWTON = {REGRESSING: 10, ENDING: 4}


class MixtureImputer(Filling, Estimator):
    """Fills gaps in tables of numbers and categories, federated: `fit` over clients, `transform` anywhere.

    A gap is filled by its mean given what is there of its row, a level by the most likely one, under mixtures of Gaussians; levels are
    foretold by logistic regressions on the other columns as well. With "auto", mixtures of several sizes are fitted, some of them to
    logarithms of skewed columns. Each model counts as much in a column as the cells that clients hide from themselves say.
    Frames come back as frames, with their columns, order and types.

    Parameters
    ----------
    n_components : int, list of int or "auto", default="auto"
        Number of components, or several of which hidden cells choose one. "auto" weighs mixtures of 1 to 12 components.
    prior : float or None, default=None
        How many rows of uncorrelated columns the prior is worth; None tries from a thousandth to 100 times the number of columns.
    hide : float, default=0.1
        The share of cells that is held back to choose by, and to calibrate intervals with; 0 needs one candidate.
    choose_iter : int, default=30
        Rounds for the choice, at most.
    max_iter : int, default=100
        Rounds at most.
    tol : float, default=1e-4
        A candidate stops when its log-likelihood per row gains less.
    init_params : {"cells", "random"}, default="cells"
        Where mixtures of several components start: sums over small regions, or random points.
    random_state : int, RandomState or None, default=0
        Seed of the start, and of `draw`.
    not_at_random : bool, default=True
        Whether to find columns of numbers whose values are missing by their own size, such as large incomes, and to fill their gaps
        accordingly; False takes all values to be missing at random given the rest of their row.

    Attributes
    ----------
    weights_, means_, covariances_ : ndarray
        The mixture that counts most, over the embedded columns: one per level of a category, logarithms of positive columns.
    n_components_ : int
        Its number of components.
    prior_ : float
        The rows that its prior is worth.
    shares_ : ndarray of shape (n_columns, n_kept)
        How much each kept mixture counts in each column.
    level_shares_ : ndarray of shape (n_columns, 2)
        How much the logistic regression on the other columns, and the one with squares of numbers and a penalty for each column, count
        in each column of levels; 0 in columns of numbers. A row of `shares_` and one of `level_shares_` add up to 1.
    sizes_ : list of int
        The number of components of each kept mixture.
    skewed_ : list of int
        Columns of numbers above 0 that some mixtures take the logarithm of.
    logs_ : list of bool
        Which kept mixtures are of logarithms in these columns.
    hidden_rmse_ : ndarray
        Root mean squared error of every candidate on hidden cells, in standard deviations of the columns.
    checked_ : Checked
        Mean and standard deviation of every embedded column, the sum of squared predictions of hidden cells, and what share of them is
        error: predictions further out than hidden cells have checked are drawn towards the mean.
    missing_by_value_ : ndarray of shape (n_columns,)
        By how much the log-odds of a gap rise per standard deviation of the column's own value, as gaps are filled: 1 makes a value that is
        a standard deviation larger 2.7 times as likely to be missing. 0 unless that explains the gaps best.
    central_ : ndarray of shape (n_columns, n_bins)
        Histograms by which intervals are calibrated: where numbers of each column lie in their distributions, 0 in the middle.

    References
    ----------
    Ghahramani and Jordan, Supervised learning from incomplete data via an EM approach, NeurIPS 1993.
    Wolpert, Stacked generalization, Neural Networks 1992. Carpenter and Kenward, Multiple imputation and its application, 2013, chapter 10.

    Examples
    --------
    >>> import numpy as np, unpooled as up
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(200, 1)) + 0.1 * rng.normal(size=(200, 3))
    >>> gaps = np.where(rng.random(x.shape) < 0.1, np.nan, x)
    >>> imputer = up.MixtureImputer().fit({"north": gaps[:80], "south": gaps[80:]})
    >>> bool(np.abs(imputer.transform(gaps) - x).max() < 0.6)
    True
    >>> low, high = imputer.interval(np.array([[1.0, 1.0, np.nan]]))
    >>> bool(low[0, 2] < 1 < high[0, 2])
    True
    """

    encoding = "codes"

    def __init__(
        self,
        n_components: int | Sequence[int] | str = "auto",
        *,
        prior: float | None = None,
        hide: float = 0.1,
        choose_iter: int = 30,
        max_iter: int = 100,
        tol: float = 1e-4,
        init_params: str = "cells",
        random_state: Any = 0,
        not_at_random: bool = True,
    ):
        self.n_components = n_components
        self.prior = prior
        self.hide = hide
        self.choose_iter = choose_iter
        self.max_iter = max_iter
        self.tol = tol
        self.init_params = init_params
        self.random_state = random_state
        self.not_at_random = not_at_random

    def check(self, fed: Federation) -> None:
        """Refuse parameters that do not exist or do not go together."""
        if isinstance(self.n_components, str) and self.n_components != "auto":
            raise BadParameter(f"n_components={self.n_components!r} is not known: use a number, several, or 'auto'")
        for k in [] if isinstance(self.n_components, str) else np.atleast_1d(self.n_components).tolist():
            at_least("n_components", k, 1)
        if not 0 <= self.hide <= 0.5:
            raise BadParameter(
                f"hide={self.hide!r} must be from 0 to 0.5: it is the share of cells held back to choose by"
            )
        one_of("init_params", self.init_params, STARTS)
        if self.prior is not None:
            within("prior", self.prior, 0, np.inf, "how many rows the prior is worth")

    # ---- fitting: choose by hidden cells, then fit to all ----

    def rounds(self, fed: Federation, saved: Moment | None = None) -> Iterator[Moment]:
        """Fit, handing out what is needed to go on; with a `Private` layer in `fed`, by the private counterpart."""
        if find_private(fed) is None:
            return super().rounds(fed, saved)
        from unpooled.models.private import rounds_private

        return rounds_private(self, fed, saved)

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        """Moments of the columns, then the starts of all candidates on rows with hidden cells."""
        embedding = _embedding(fed)
        frame, seen = start_frame(fed, embedding)
        warn_of_rounding(fed, frame.scale)
        kinds = self._kinds(float(frame.rows), len(frame.mean))
        if self.hide == 0 and len(kinds) > 1:
            raise BadParameter("hide=0 leaves no cells to choose by: give n_components and prior as one number each")
        starts = self._starts(fed, frame, embedding, sorted({kind.k for kind in kinds}), rng)
        tried = tuple(Candidate(starts[kind.k], kind.prior, kind.pooled, -np.inf, False) for kind in kinds)
        by_choice = isinstance(self.n_components, str) and self.hide > 0
        skewed, log_frame = logarithms.skewed_columns(fed, embedding, frame, seen) if by_choice else ((), frame)
        tried += logarithms.candidates(kinds, starts, embedding, skewed, log_frame)
        d, c = len(embedding.kinds), len(tried)
        equal = np.full((d, c), 1 / c)
        return State(
            candidates=tried,
            regressions=logistic.begin(embedding) if self.hide else (),
            mean=frame.mean,
            scale=frame.scale,
            stage=FITTING if self.hide else CHOSEN,
            shares=equal,
            crossed=np.stack([equal] * 2),
            level_shares=np.zeros((d, len(logistic.VARIANTS))),
            checked=(np.zeros(d), np.zeros(d)),
            central=np.full((d, calibration.BINS), 1 / calibration.BINS),
            by_value=np.zeros(d),
            errors=np.full(c, np.nan),
            kinds=tuple(embedding.kinds),
            levels=tuple(embedding.levels),
            skewed=skewed,
            log_mean=log_frame.mean,
            log_scale=log_frame.scale,
            table=float(frame.rows),
            seen=seen,
            rounds=0,
        )

    def _kinds(self, rows: float, e: int) -> list[trying.Kind]:
        """Sizes and priors of the candidates."""
        if isinstance(self.n_components, str):
            return trying.automatic(rows, e, self.prior)
        return trying.asked_for(np.atleast_1d(self.n_components).tolist(), self.prior, e)

    def _starts(
        self, fed: Federation, frame: Frame, embedding: Embedding, sizes: list[int], rng: Any
    ) -> dict[int, Params]:
        """A mixture of each size; what is hidden is hidden from the start too. Of many rows a part is enough."""
        options: dict[str, Any] = {"hide": self.hide, "columns": embedding.option}
        if self.init_params != "random" and max(sizes) > 1:
            parameters = gaussian.n_parameters(max(sizes), len(frame.mean), "full")
            part = start.part_of(fed, frame, parameters)
            options |= {"every": part.every} if part.every > 1 else {}
            frame = frame._replace(rows=np.asarray(part.rows))
        frame = frame._replace(scale=embedding.balanced(frame.scale))

        def totals(kernels: tuple[Params, ...], shapes: list[str], counts: bool) -> tuple[Any, ...]:
            """Totals of regions, as counts of rows or as sums."""
            question = cell_counts if counts else cells
            return fed.sum(question.using(shapes=shapes, **options), kernels)

        if self.init_params == "random":
            draws = {k: start.random_means(frame, k, rng) if k > 1 else to_numpy(frame.mean)[None] for k in sizes}
            wide = {k: start.wide(frame, means, "full") for k, means in draws.items()}
            return wide if least_rows(fed) == 0 else _of_many(wide, totals, least_rows(fed))
        return dict(zip(sizes, start.starts(start.Totals(fed, totals), frame, sizes, 1, "full", rng)))

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        """One round of the current stage: fitting, regressing, judging or calibrating."""
        if state.stage == FITTING and (settled(state) or state.rounds >= self.choose_iter):
            state = state._replace(stage=REGRESSING, rounds=0)
        if state.stage == JUDGED:
            return self._calibrate(fed, state)
        if state.stage == SETTLED:
            return self._recalibrate(fed, state)
        if state.stage in NEWTON and _regressing(state):
            return self._regress(fed, state)
        if state.stage == REGRESSING:
            return self._judge(fed, state)
        return self._em(fed, state)

    def _em(self, fed: Federation, state: State) -> tuple[State, Info]:
        """One round of EM of all mixtures that still move."""
        active = [i for i, c in enumerate(state.candidates) if not c.settled]
        hide = 0.0 if state.stage == CHOSEN else self.hide
        asked = [state.candidates[i] for i in active]
        found = fed.sum(e_step.using(hide=hide, **options(state, asked)), tuple(c.params for c in asked))
        frames = {False: (state.mean, state.scale), True: (state.log_mean, state.log_scale)}
        least = least_rows(fed)
        moved = {i: trying.moved(c, up, *frames[c.logs], self.tol, least) for i, c, up in zip(active, asked, found)}
        tried = tuple(moved.get(i, c) for i, c in enumerate(state.candidates))
        leading = tried[int(np.argmax(state.shares.mean(0)))]
        state = state._replace(candidates=tried, rounds=state.rounds + 1)
        late = isinstance(self.n_components, str) and state.rounds >= AFTER
        if state.stage == CHOSEN and (settled(state) or (self.hide > 0 and late)):
            state = state._replace(stage=SETTLED) if self.hide else _ending(self._look_at_gaps(fed, state))
        phase = "choosing, some cells hidden" if hide else "final fit, all cells"
        return state, {"loglik": leading.loglik, "candidates": len(active), "phase": phase}

    def _regress(self, fed: Federation, state: State) -> tuple[State, Info]:
        """One round of Newton's method of all regressions that still move."""
        active = [i for i, now in enumerate(state.regressions) if not now.settled]
        asked = models(state, tuple(state.regressions[i].coef for i in active))
        hide = 0.0 if state.stage == ENDING else self.hide
        ask = regress.using(
            hide=hide, columns=layout(state).option, which=[state.regressions[i].column for i in active]
        )
        found = dict(zip(active, tree.map(to_numpy, fed.sum(ask, asked))))
        moved = [logistic.moved(now, found[i]) if i in found else now for i, now in enumerate(state.regressions)]
        state = state._replace(regressions=tuple(moved), rounds=state.rounds + 1)
        if state.stage == ENDING and not _regressing(state):
            state = state._replace(stage=ENDED)
        return state, {"candidates": len(active)}

    def _judge(self, fed: Federation, state: State) -> tuple[State, Info]:
        """How much each candidate counts; those that do not are dropped."""
        asked = Asked(tuple(c.params for c in state.candidates), state.scale, models(state, _coefs(state)))
        found = fed.sum(judge.using(hide=self.hide, **options(state, state.candidates)), asked)
        tried = len(state.candidates)
        state = choice.judged(state, tree.map(to_numpy, found), isinstance(self.n_components, str))
        return state, {"candidates": tried, "hidden_rmse": float(np.nanmin(state.errors))}

    def _calibrate(self, fed: Federation, state: State) -> tuple[State, Info]:
        """How wide intervals must be, by where hidden numbers lie in their distributions.

        The shares that a half of the rows is looked at with are those of the other half, which have not seen its cells.
        """
        central = self._histograms(fed, state, state.crossed, self.hide)
        return state._replace(stage=CHOSEN, central=central), {"candidates": len(state.candidates)}

    def _recalibrate(self, fed: Federation, state: State) -> tuple[State, Info]:
        """The same with more cells, where hidden ones are few, under the mixtures and shares that the fit ends with."""
        held = again = seen = state.central
        if held.sum() < calibration.ENOUGH:
            both = np.stack([state.shares] * 2)
            again = self._histograms(fed, state, both, self.hide)
            seen = self._histograms(fed, state, both, max(self.hide, calibration.SEEN))
        central = calibration.by_column(held, again, seen)
        state = self._look_at_gaps(fed, state._replace(central=central))
        return _ending(state), {"candidates": len(state.candidates)}

    def _histograms(self, fed: Federation, state: State, shares: np.ndarray, share: float) -> np.ndarray:
        """Where so many of the numbers lie in their distributions, (d, b)."""
        asked = Ensemble(tuple(c.params for c in state.candidates), shares, checks(state))
        return to_numpy(fed.sum(calibrate.using(hide=share, **options(state, state.candidates)), asked))

    def _look_at_gaps(self, fed: Federation, state: State) -> State:
        """Whether values are missing by their own size, in columns of numbers with enough gaps: two SUMs."""
        embedding = layout(state)
        of = embedding.column_of
        most_gaps = np.zeros(len(state.kinds))
        most_gaps[of] = state.table - state.seen
        which = [j for j in embedding.numbers if most_gaps[j] >= selection.LEAST_GAPS]
        if not self.not_at_random or not which or len(of) > selection.MOST_COLUMNS:
            return state
        counts = tree.map(to_numpy, fed.sum(count_gaps.using(which=which), None))
        few = np.minimum(counts.values, counts.gaps) < max(selection.LEAST_GAPS, least_rows(fed))
        which = np.array(which)[~few].tolist()
        if not which:
            return state
        single = single_gaussian(state)
        sums = fed.sum(gaps.using(columns=embedding.option, which=which), single)
        places = np.array([embedding.parts[j].start for j in which])
        scale = np.sqrt(np.diag(gaussian.unpack_triangle(single.covs)[0]))[places]
        found = np.zeros(len(state.kinds))
        found[which] = selection.effects(tree.map(to_numpy, sums), places) / scale * state.scale[places]
        return state._replace(by_value=found)

    def done(self, state: State, history: list[Info]) -> bool:
        """Whether the last stage is reached."""
        return state.stage == ENDED

    def finish(self, fed: Federation, state: State) -> None:
        """Set the mixtures, their shares by column and the calibration of intervals."""
        best = max(zip(state.shares.mean(0), state.candidates), key=lambda pair: (not pair[1].logs, pair[0]))[1]
        self.weights_ = best.params.weights
        self.means_ = best.params.means
        self.covariances_ = gaussian.unpack_triangle(best.params.covs)
        self.prior_ = best.prior
        self.central_ = state.central
        self.hidden_rmse_ = state.errors
        self.n_components_, self.n_features_in_ = len(self.weights_), len(state.kinds)
        self.mixtures_ = [c.params for c in state.candidates]
        self.shares_ = state.shares
        self.sizes_ = [len(c.params.weights) for c in state.candidates]
        self.checked_ = checks(state)
        self.missing_by_value_ = state.by_value
        self.kinds_, self.n_levels_ = list(state.kinds), list(state.levels)
        self.level_shares_ = state.level_shares
        self.skewed_ = list(state.skewed)
        self.logs_ = [c.logs for c in state.candidates]
        if state.level_shares.any():
            self.logistic_ = models(state, _coefs(state))
        selection.say_effects(state.by_value, [self._name(j) for j in range(len(state.kinds))])

    def __sklearn_tags__(self):
        """scikit-learn's tags: missing values are allowed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _regressing(state: State) -> bool:
    """Whether a regression still moves, and may."""
    return state.rounds < NEWTON[state.stage] and not all(now.settled for now in state.regressions)


def _ending(state: State) -> State:
    """The mixtures are fitted: what is left are the regressions that count, from where they are."""
    counts = [state.level_shares[now.column, i % len(logistic.VARIANTS)] > 0 for i, now in enumerate(state.regressions)]
    again = [
        now._replace(coef=now.best, loglik=-np.inf, settled=not used) for now, used in zip(state.regressions, counts)
    ]
    state = state._replace(regressions=tuple(again), stage=ENDING, rounds=0)
    return state if any(counts) else state._replace(stage=ENDED)


def _coefs(state: State) -> tuple[np.ndarray, ...]:
    """The best coefficients of all regressions."""
    return tuple(now.best for now in state.regressions)


def _embedding(fed: Federation) -> Embedding:
    """The kinds of the columns that the data has; numbers where it has no schema."""
    schema = getattr(fed, "schema", None)
    if schema is not None:
        return Embedding(schema.kinds, [c.n_levels for c in schema])
    d = n_columns(fed)
    return Embedding(["real"] * d, [0] * d)


def _of_many(starts: dict[int, Params], totals: Any, least: float) -> dict[int, Params]:
    """The starts without components that hold few rows: one SUM of counts, in a study."""
    counts = totals(tuple(starts.values()), ["full"] * len(starts), True)
    kept = [few_rows.held([found.n], least) for found in counts]
    return {k: without(params, some, "full") for (k, params), some in zip(starts.items(), kept)}
