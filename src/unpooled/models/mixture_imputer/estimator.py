"""Fill in a table's gaps by mixtures of Gaussians fitted over clients: one SUM of statistics a round, a mean and an interval a gap.

How many components, and how strong a prior, is decided by cells that every client hides from itself for the first rounds:
candidates are fitted side by side in the same rounds, then logistic regressions of columns of levels (one SUM of scores and curvature a
round); one SUM of products of their errors says how much each counts, one SUM of a histogram calibrates intervals, and those that count
are fitted to all cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.base import OneToOneFeatureMixin, TransformerMixin

from unpooled import tree
from unpooled.arrays import to_numpy
<<<<<<< HEAD
=======
from unpooled.data.frames import is_frame
from unpooled.data.schema import Schema
>>>>>>> main
from unpooled.errors import BadData, BadParameter
from unpooled.estimator import Estimator, Info, Moment
from unpooled.federation import Federation
from unpooled.layers.private import find_private
<<<<<<< HEAD
from unpooled.maths import gaussian
from unpooled.maths.mixture import Params, Stats
=======
from unpooled.maths import gaussian, imputation
from unpooled.maths.imputation import Laws
from unpooled.maths.mixture import Params
>>>>>>> main
from unpooled.models import initialization as start
from unpooled.models.column_names import n_columns
from unpooled.models.initialization import Centre, Frame
from unpooled.models.mixture_imputer import candidates as trying
from unpooled.models.mixture_imputer import choice, logistic
from unpooled.models.mixture_imputer.candidates import Candidate
from unpooled.models.mixture_imputer.embedding import Embedding
from unpooled.models.mixture_imputer.filling import Filling
from unpooled.models.mixture_imputer.questions import (
    BINS,
    Asked,
    Ensemble,
    calibrate,
    cell_counts,
    cells,
    e_step,
    judge,
    look,
    regress,
    spread,
)
from unpooled.models.mixture_imputer.state import (
    CHOSEN,
    ENDED,
    ENDING,
    FITTING,
    JUDGED,
    REGRESSING,
    State,
    layout,
    models,
    settled,
)
from unpooled.parameters import at_least, one_of, within

STARTS = ("cells", "random")
AFTER = 10  # rounds at most with all cells: what the hidden cells chose, and calibrated, is a mixture after choose_iter rounds
NEWTON = {
    REGRESSING: 10,
    ENDING: 4,
}  # rounds of Newton's method at most, from coefficients 0 and from those without hidden cells
STEADY = 30.0  # cells of a flat histogram that are added to what the hidden cells say of intervals: few say little
FLOOR = 1e-12  # a column's variance is never below this share of the largest


class MixtureImputer(Filling, OneToOneFeatureMixin, TransformerMixin, Estimator):
    """Fills gaps in tables of numbers and categories, federated: `fit` over clients, `transform` anywhere.

    A gap is filled by its mean given what is there of its row, a level by the most likely one, under mixtures of Gaussians; levels are
    foretold by logistic regressions on the other columns as well. With "auto", mixtures of several sizes are fitted. Each model counts as
    much in a column as the cells that clients hide from themselves say.
    Frames come back as frames, with their columns, order and types.

    Parameters
    ----------
    n_components : int, list of int or "auto", default="auto"
        Number of components, or several of which hidden cells choose one. "auto" weighs mixtures of 1 to 12 components.
    prior : float or None, default=None
        How many rows of uncorrelated columns the prior is worth; None tries one and ten times the number of columns.
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
    level_shares_ : ndarray of shape (n_columns, 3)
        How much the logistic regression on the other columns, the one with squares of numbers, and the overall shares of the levels count
        in each column of levels; 0 in columns of numbers. A row of `shares_` and one of `level_shares_` add up to 1.
    sizes_ : list of int
        The number of components of each kept mixture.
    hidden_rmse_ : ndarray
        Root mean squared error of every candidate on hidden cells, in standard deviations of the columns.
    central_ : ndarray
        Histogram by which intervals are calibrated.

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
    ):
        self.n_components = n_components
        self.prior = prior
        self.hide = hide
        self.choose_iter = choose_iter
        self.max_iter = max_iter
        self.tol = tol
        self.init_params = init_params
        self.random_state = random_state

    def check(self, fed: Federation) -> None:
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
        embedding = _embedding(fed)
        frame = _frame(fed, embedding)
        kinds = self._kinds(float(frame.rows), len(frame.mean))
        if self.hide == 0 and len(kinds) > 1:
            raise BadParameter("hide=0 leaves no cells to choose by: give n_components and prior as one number each")
        starts = self._starts(fed, frame, embedding, sorted({kind.k for kind in kinds}), rng)
        tried = tuple(Candidate(starts[kind.k], kind.prior, kind.pooled, -np.inf, False) for kind in kinds)
        d, c = len(embedding.kinds), len(kinds)
        equal = np.full((d, c), 1 / c)
        return State(
            candidates=tried,
            regressions=logistic.begin(embedding) if self.hide else (),
            margins=(),
            mean=frame.mean,
            scale=frame.scale,
            stage=FITTING if self.hide else CHOSEN,
            shares=equal,
            crossed=np.stack([equal] * 2),
            level_shares=np.zeros((d, len(logistic.VARIANTS) + 1)),
            central=np.full(BINS, 1 / BINS),
            errors=np.full(c, np.nan),
            kinds=tuple(embedding.kinds),
            levels=tuple(embedding.levels),
            rounds=0,
        )

    def _kinds(self, rows: float, e: int) -> list[trying.Kind]:
        if isinstance(self.n_components, str):
            return trying.automatic(rows, e, self.prior)
        return trying.asked_for(np.atleast_1d(self.n_components).tolist(), self.prior, e)

    def _starts(
        self, fed: Federation, frame: Frame, embedding: Embedding, sizes: list[int], rng: Any
    ) -> dict[int, Params]:
        """A mixture of each size; what is hidden is hidden from the start too."""
        frame = frame._replace(scale=embedding.balanced(frame.scale))
        if self.init_params == "random":
            draws = {k: start.random_means(frame, k, rng) if k > 1 else to_numpy(frame.mean)[None] for k in sizes}
            return {k: start.wide(frame, means, "full") for k, means in draws.items()}

        def totals(kernels: tuple[Params, ...], shapes: list[str], counts: bool) -> tuple[Any, ...]:
            question = cell_counts if counts else cells
            return fed.sum(question.using(hide=self.hide, shapes=shapes, columns=embedding.option), kernels)

        return dict(zip(sizes, start.starts(totals, frame, sizes, 1, "full", rng)))

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        if state.stage == FITTING and (settled(state) or state.rounds >= self.choose_iter):
            state = state._replace(stage=REGRESSING, rounds=0)
        if state.stage == JUDGED:
            return self._calibrate(fed, state)
        if state.stage in NEWTON and _regressing(state):
            return self._regress(fed, state)
        if state.stage == REGRESSING:
            return self._judge(fed, state)
        return self._em(fed, state)

    def _em(self, fed: Federation, state: State) -> tuple[State, Info]:
        """One round of EM of all mixtures that still move."""
        active = [i for i, c in enumerate(state.candidates) if not c.settled]
        hide = 0.0 if state.stage == CHOSEN else self.hide
        ask = e_step.using(hide=hide, columns=layout(state).option)
        found = fed.sum(ask, tuple(state.candidates[i].params for i in active))
        pairs = zip(active, found)
        moved = {i: trying.moved(state.candidates[i], up, state.mean, state.scale, self.tol) for i, up in pairs}
        tried = tuple(moved.get(i, c) for i, c in enumerate(state.candidates))
        leading = tried[int(np.argmax(state.shares.mean(0)))]
        state = state._replace(candidates=tried, rounds=state.rounds + 1)
        late = isinstance(self.n_components, str) and state.rounds >= AFTER
        if state.stage == CHOSEN and (settled(state) or (self.hide > 0 and late)):
            state = _ending(state)
        return state, {"loglik": leading.loglik, "candidates": len(active)}

    def _regress(self, fed: Federation, state: State) -> tuple[State, Info]:
        """One round of Newton's method of all regressions that still move."""
        active = [i for i, now in enumerate(state.regressions) if not now.settled]
        asked = models(state, tuple(state.regressions[i].coef for i in active))._replace(margins=())
        options = {"hide": 0.0 if state.stage == ENDING else self.hide, "columns": layout(state).option}
        ask = regress.using(**options, which=[state.regressions[i].column for i in active])
        found = dict(zip(active, tree.map(to_numpy, fed.sum(ask, asked))))
        if not state.margins:
            first = range(0, len(state.regressions), len(logistic.VARIANTS))
            state = state._replace(margins=tuple(logistic.margin(state.regressions[i], found[i]) for i in first))
        moved = [logistic.moved(now, found[i]) if i in found else now for i, now in enumerate(state.regressions)]
        state = state._replace(regressions=tuple(moved), rounds=state.rounds + 1)
        if state.stage == ENDING and not _regressing(state):
            state = state._replace(stage=ENDED)
        return state, {"candidates": len(active)}

    def _judge(self, fed: Federation, state: State) -> tuple[State, Info]:
        """How much each candidate counts; those that do not are dropped."""
        asked = Asked(tuple(c.params for c in state.candidates), state.scale, models(state, _coefs(state)))
        found = fed.sum(judge.using(hide=self.hide, columns=layout(state).option), asked)
        tried = len(state.candidates)
        state = choice.judged(state, to_numpy(found.gram), to_numpy(found.cells), isinstance(self.n_components, str))
        return state, {"candidates": tried, "hidden_rmse": float(np.nanmin(state.errors))}

    def _calibrate(self, fed: Federation, state: State) -> tuple[State, Info]:
        """How wide intervals must be, by where hidden numbers lie in their distributions.

        The shares that a half of the rows is looked at with are those of the other half, which have not seen its cells.
        """
        asked = Ensemble(tuple(c.params for c in state.candidates), state.crossed)
        central = to_numpy(fed.sum(calibrate.using(hide=self.hide, columns=layout(state).option), asked))
        central = central + STEADY * np.full(BINS, 1 / BINS)
        return state._replace(stage=CHOSEN, central=central), {"candidates": len(state.candidates)}

    def done(self, state: State, history: list[Info]) -> bool:
        return state.stage == ENDED

    def finish(self, fed: Federation, state: State) -> None:
        best = state.candidates[0]
        self.weights_, self.means_ = best.params.weights, best.params.means
        self.covariances_ = gaussian.unpack_triangle(best.params.covs)
        self.prior_, self.central_, self.hidden_rmse_ = best.prior, state.central, state.errors
        self.n_components_, self.n_features_in_ = len(self.weights_), len(state.kinds)
        self.mixtures_, self.shares_ = [c.params for c in state.candidates], state.shares
        self.sizes_ = [len(c.params.weights) for c in state.candidates]
        self.kinds_, self.n_levels_ = list(state.kinds), list(state.levels)
<<<<<<< HEAD
        self.level_shares_ = state.level_shares
        if state.level_shares.any():
            self.logistic_ = models(state, _coefs(state))
=======

    # ---- filling in ----

    def transform(self, X: Any) -> Any:
        """X with every gap filled: a number by its mean, a level by the most likely one; a frame stays a frame.

        Parameters
        ----------
        X : array-like or frame of shape (n, d)
            Rows with gaps, in the columns of the fit.

        Returns
        -------
        array or frame
            As X; an array has the codes of levels.
        """
        x = self._rows(X)
        filled = self._like(X, x, self._filled(x))
        if is_frame(filled) and self._renamed_by_scikit_learn():
            return filled[list(self.get_feature_names_out())]
        return filled

    def _renamed_by_scikit_learn(self) -> bool:
        """Whether set_output() or set_config() is used: scikit-learn then names columns in the order of the fit."""
        return bool(getattr(self, "_sklearn_output_config", {})) or get_config()["transform_output"] != "default"

    def probabilities(self, X: Any) -> dict[str, np.ndarray]:
        """Probabilities (n, levels) of every column of levels, by name or index; 1 for the level that is there."""
        x, layout = self._rows(X), self._layout()
        law = self._laws(x)
        found = {}
        for j in self._discrete():
            gaps, probs = self._level_probabilities(law, x, j)
            whole = np.zeros((len(x), layout.levels[j]))
            there = np.flatnonzero(~np.isnan(x[:, j]))
            whole[there, x[there, j].astype(int)] = 1.0
            whole[gaps] = probs
            found[self._name(j)] = whole
        return found

    def draw(self, X: Any, n_draws: int = 5, random_state: Any = None) -> list[Any]:
        """Multiple imputation: X with its gaps drawn, several times."""
        at_least("n_draws", n_draws, 1)
        x = self._rows(X)
        given = self.random_state if random_state is None else random_state
        rng = np.random.default_rng(check_random_state(given).randint(2**31 - 1))
        law = self._laws(x)
        return [self._like(X, x, self._drawn(x, law, rng)) for _ in range(n_draws)]

    def interval(self, X: Any, coverage: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """(low, high) of every cell: an interval for a gap, widened or narrowed by how the hidden cells fared; else the value.

        Parameters
        ----------
        X : array-like or frame of shape (n, d)
            Rows with gaps.
        coverage : float, default=0.9
            The share of gaps that should lie inside, if values are missing at random; see `sensitivity` if they are not.

        Returns
        -------
        low, high : ndarray of shape (n, d)
            Encoded tables; both are the filled level in columns of levels.
        """
        if not 0 < coverage < 1:
            raise BadParameter(
                f"coverage={coverage!r} must be between 0 and 1: it is the share of gaps inside their interval"
            )
        x, layout = self._rows(X), self._layout()
        low, high = self._filled(x), self._filled(x)
        law, central = self._laws(x), self._calibrated(coverage)
        for j, part in enumerate(layout.parts):
            if j not in self._discrete():
                mine = _cells(law, part.start)
                low[mine.rows, j] = layout.natural(imputation.quantile(mine, (1 - central) / 2), j)
                high[mine.rows, j] = layout.natural(imputation.quantile(mine, (1 + central) / 2), j)
        return low, high

    def sensitivity(
        self,
        X: Any,
        answer: Callable[[Any], float],
        *,
        columns: Sequence[int | str] | None = None,
        threshold: float = 0.0,
        deltas: Sequence[float] | None = None,
    ) -> Sensitivity:
        """How far missing numbers must be off before an answer changes: for data that are not missing at random.

        Every gap is filled by its mean plus delta times its own standard deviation, for a range of deltas; delta = 0 is `transform`.

        Parameters
        ----------
        X : array-like or frame of shape (n, d)
            Rows with gaps.
        answer : callable
            What is concluded from a filled table: `lambda t: t["bmi"].mean() - 25`, say.
        columns : sequence of int or str, default=None
            Columns whose gaps may be off; None is all columns of numbers.
        threshold : float, default=0.0
            The answer changes where it crosses this number.
        deltas : sequence of float, default=None
            What is tried; None is -3 to 3 in steps of 0.25.

        Returns
        -------
        Sensitivity
            `deltas`, `answers`, and `tipping`: the delta nearest to 0 at which the answer crosses the threshold; NaN if none does.
        """
        x, layout = self._rows(X), self._layout()
        wanted = range(x.shape[1]) if columns is None else [self._column(c) for c in columns]
        law, filled = self._laws(x), self._filled(x)
        spreads = np.zeros_like(filled)
        for j in wanted:
            if j not in self._discrete():
                mine = _cells(law, layout.parts[j].start)
                spreads[mine.rows, j] = imputation.deviation(mine)

        def table(delta: float) -> Any:
            moved = np.array(filled)
            for j in wanted:
                moved[:, j] = _shifted(filled[:, j], delta * spreads[:, j], layout.kinds[j])
            return self._like(X, x, moved)

        return shifted_answers(lambda delta: answer(table(delta)), threshold, deltas)

    # ---- distributions of gaps ----

    def _laws(self, x: np.ndarray) -> Laws:
        layout = self._layout()
        return ensemble.laws(*self._mixtures(), layout.embed(x), layout.column_of)

    def _mixtures(self) -> tuple[list[Params], np.ndarray]:
        """The kept mixtures and their shares (d, c); after a private fit there is one."""
        if hasattr(self, "mixtures_"):
            return list(self.mixtures_), np.asarray(self.shares_)
        params = Params(self.weights_, self.means_, gaussian.pack_triangle(self.covariances_))
        return [params], np.ones((self.means_.shape[1], 1))

    def _filled(self, x: np.ndarray) -> np.ndarray:
        out, layout, law = np.array(x), self._layout(), self._laws(x)
        discrete = self._discrete()
        for j, part in enumerate(layout.parts):
            if j in discrete:
                gaps, probs = self._level_probabilities(law, x, j)
                out[gaps, j] = probs.argmax(1)
            else:
                mine = _cells(law, part.start)
                out[mine.rows, j] = layout.value(mine, j)
        return out

    def _level_probabilities(self, law: Laws, x: np.ndarray, j: int) -> tuple[np.ndarray, np.ndarray]:
        """(rows with a gap in column j, probabilities of its levels there)."""
        layout = self._layout()
        part = layout.parts[j]
        mine = [_cells(law, e) for e in range(part.start, part.stop)]
        return mine[0].rows, layout.probabilities(mine, j)

    def _drawn(self, x: np.ndarray, law: Laws, rng: np.random.Generator) -> np.ndarray:
        """Numbers of a row drawn jointly from one of the mixtures, levels from their probabilities."""
        layout, (mixtures, shares) = self._layout(), self._mixtures()
        out, embedded = np.array(x), np.array(layout.embed(x))
        which = rng.choice(len(mixtures), size=len(x), p=shares.mean(0))
        for c in np.unique(which):
            embedded[which == c] = imputation.draw(mixtures[c], embedded[which == c], rng)
        discrete = self._discrete()
        for j, part in enumerate(layout.parts):
            gaps = np.isnan(x[:, j])
            if j not in discrete:
                out[gaps, j] = layout.natural(embedded[gaps, part.start], j)
                continue
            rows, probs = self._level_probabilities(law, x, j)
            ends = probs.cumsum(1)
            out[rows, j] = (ends[:, :-1] < rng.random((len(rows), 1))).sum(1)
        return out

    def _calibrated(self, coverage: float) -> float:
        """The nominal coverage at which this share of the hidden cells was inside."""
        share = np.append(0.0, np.cumsum(self.central_) / self.central_.sum())
        return float(np.interp(coverage, share, np.linspace(0, 1, len(share))).clip(1e-6, 1 - 1e-6))

    # ---- columns ----

    def _layout(self) -> Embedding:
        d = self.means_.shape[1]
        kinds = getattr(self, "kinds_", None) or ["real"] * d
        return Embedding(kinds, getattr(self, "n_levels_", None) or [0] * d)

    def _discrete(self) -> list[int]:
        return [j for j, kind in enumerate(self._layout().kinds) if kind in ("binary", "category", "ordered")]

    def _like(self, given: Any, before: np.ndarray, filled: np.ndarray) -> Any:
        """The filled table as an array or as a frame, as it was given."""
        schema = Schema.from_list(self.schema_) if hasattr(self, "schema_") else None
        columns = None if schema is None else schema.names
        return like_given(given, before, filled, schema, columns or getattr(self, "columns_", None))

    def _column(self, column: int | str) -> int:
        names: Mapping[str, int] = {name: j for j, name in enumerate(getattr(self, "columns_", None) or [])}
        if isinstance(column, str) and column in names:
            return names[column]
        if isinstance(column, str) or not 0 <= column < self.n_features_in_:
            raise BadParameter(f"there is no column {column!r}: use one of {', '.join(names) or self.n_features_in_}")
        return int(column)

    def _name(self, j: int) -> str:
        names = getattr(self, "columns_", None)
        return names[j] if names else str(j)

    def _rows(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "means_")
        return rows_of(self, X, ensure_all_finite="allow-nan", dtype=np.float64, copy=True)
>>>>>>> main

    def __sklearn_tags__(self):
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
    return tuple(now.best for now in state.regressions)


def _embedding(fed: Federation) -> Embedding:
    """The kinds of the columns that the data has; numbers where it has no schema."""
    schema = getattr(fed, "schema", None)
    if schema is not None:
        return Embedding(schema.kinds, [c.n_levels for c in schema])
    d = n_columns(fed)
    return Embedding(["real"] * d, [0] * d)


def _frame(fed: Federation, embedding: Embedding) -> Frame:
    """Mean and standard deviation of every embedded column over all clients: two SUMs."""
    first = fed.sum(look.using(columns=embedding.option), None)
    seen = to_numpy(first.seen)
    held = np.array([seen[part].sum() for part in embedding.parts])
    if (held == 0).any():
        raise BadData(f"column {int(np.argmin(held))} holds no value at any client: drop it")
    mean = to_numpy(first.x) / np.maximum(seen, 1e-300)
    squares = to_numpy(fed.sum(spread.using(columns=embedding.option), Centre(mean)).xx)
    variance = squares / np.maximum(seen, 1e-300)
    floor = FLOOR * variance.max(initial=0.0) or 1.0
    return Frame(mean, np.sqrt(np.maximum(variance, floor)), np.asarray(float(first.rows)))
