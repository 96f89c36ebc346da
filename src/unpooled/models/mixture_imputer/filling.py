"""What a fitted imputer does with rows: fills gaps, with probabilities, draws, intervals and a sensitivity range. Nothing is sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from unpooled.arrays import is_frame
from unpooled.data.schema import Schema
from unpooled.errors import BadParameter
from unpooled.estimator import one_table, rows_of
from unpooled.maths import gaussian, imputation
from unpooled.maths.imputation import Laws
from unpooled.maths.mixture import Params
from unpooled.models.mixture_imputer import calibration, checked, ensemble, logistic, selection
from unpooled.models.mixture_imputer.embedding import Embedding
from unpooled.models.mixture_imputer.frames import like_given
from unpooled.models.mixture_imputer.sensitivity import Sensitivity, shifted_answers
from unpooled.parameters import at_least


class Filling(OneToOneFeatureMixin, TransformerMixin):
    """The part of an imputer that is about rows; a fit has set the attributes that it reads."""

    random_state: Any
    weights_: np.ndarray
    means_: np.ndarray
    covariances_: np.ndarray
    central_: np.ndarray
    missing_by_value_: np.ndarray
    shares_: np.ndarray
    level_shares_: np.ndarray
    n_features_in_: int

    # ---- filling in ----

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """Fit to one table, and transform it; a dict of clients is refused before the fit."""
        one_table(self, X)
        return super().fit_transform(X, y, **fit_params)

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
        filled = self._like(X, x, self._filled(x, self._laws(x)))
        if is_frame(filled) and self._renamed_by_scikit_learn():
            return filled[list(self.get_feature_names_out())]
        return filled

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns: those of the fit, also where some of them hold text."""
        if hasattr(self, "schema_") and not hasattr(self, "feature_names_in_"):
            return np.asarray([self._name(j) for j in range(self.n_features_in_)], dtype=object)
        return np.asarray(super().get_feature_names_out(input_features))

    def _renamed_by_scikit_learn(self) -> bool:
        """Whether set_output() or set_config() is used: scikit-learn then names columns in the order of the fit."""
        return bool(getattr(self, "_sklearn_output_config", {})) or get_config()["transform_output"] != "default"

    def probabilities(self, X: Any) -> dict[str, np.ndarray]:
        """Probabilities (n, levels) of every column of levels, by name or index; 1 for the level that is there."""
        x, layout = self._rows(X), self._layout()
        laws = self._laws(x)
        found = {}
        for j in layout.discrete:
            gaps, probs = self._level_probabilities(laws, x, j)
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
        laws = self._laws(x)
        levels = {j: self._level_probabilities(laws, x, j) for j in self._layout().discrete}
        moves = {j: self._moved(laws, j) for j in self._layout().numbers}
        return [self._like(X, x, self._drawn(x, levels, moves, rng)) for _ in range(n_draws)]

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
        laws = self._laws(x)
        histograms = np.broadcast_to(self.central_, (x.shape[1], np.shape(self.central_)[-1]))
        low = self._filled(x, laws)
        high = np.array(low)
        for j in layout.numbers:
            mine = self._numbers(laws, j)
            central = calibration.nominal(histograms[j], coverage)
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
        laws = self._laws(x)
        filled = self._filled(x, laws)
        spreads = np.zeros_like(filled)
        for j in set(wanted) & set(layout.numbers):
            mine = self._numbers(laws, j)
            spreads[mine.rows, j] = imputation.deviation(mine)

        def table(delta: float) -> Any:
            """The filled table if missing values lie `delta` standard deviations away."""
            moved = np.array(filled)
            for j in wanted:
                moved[:, j] = _shifted(filled[:, j], delta * spreads[:, j], layout.kinds[j])
            return self._like(X, x, moved)

        return shifted_answers(lambda delta: answer(table(delta)), threshold, deltas)

    # ---- distributions of gaps ----

    def _laws(self, x: np.ndarray) -> list[Laws]:
        """The distributions of all gaps of the embedded columns, under each mixture."""
        mixtures = self._mixtures()[0]
        return ensemble.by_candidate(mixtures, self._logs(len(mixtures)), x, self._layout())

    def _logs(self, n: int) -> list[bool]:
        """Which of n kept mixtures are of logarithms."""
        return list(getattr(self, "logs_", [False] * n))

    def _mixtures(self) -> tuple[list[Params], np.ndarray]:
        """The kept mixtures and their shares (d, c); after a private fit there is one."""
        if hasattr(self, "mixtures_"):
            return list(self.mixtures_), np.asarray(self.shares_)
        params = Params(self.weights_, self.means_, gaussian.pack_triangle(self.covariances_))
        return [params], np.ones((self.means_.shape[1], 1))

    def _numbers(self, laws: list[Laws], j: int) -> Laws:
        """The distributions of the gaps of column j, which holds numbers, in its embedded units."""
        law, known = self._joined(laws, j), getattr(self, "checked_", None)
        if known is None:
            return law
        effects = np.asarray(self.missing_by_value_)[self._layout().column_of]
        return selection.moved(checked.shrunk(law, known), effects, known.scale)

    def _joined(self, laws: list[Laws], j: int) -> Laws:
        """The same before they are drawn towards the mean, or moved because values are missing by their size."""
        mine = [ensemble.cells(law, self._layout().parts[j].start) for law in laws]
        shares = self._mixtures()[1][j]
        return ensemble.joined(mine, np.tile(shares, (len(mine[0].rows), 1)))

    def _moved(self, laws: list[Laws], j: int) -> np.ndarray:
        """How far the distribution of each gap of column j is moved in all."""
        return imputation.mean(self._numbers(laws, j)) - imputation.mean(self._joined(laws, j))

    def _level_probabilities(self, laws: list[Laws], x: np.ndarray, j: int) -> tuple[np.ndarray, np.ndarray]:
        """(rows with a gap in column j, probabilities of its levels there)."""
        layout = self._layout()
        shares = self._mixtures()[1][j]
        gaps = np.flatnonzero(np.isnan(x[:, j]))
        found = sum(share * ensemble.level_probabilities(law, j, layout) for share, law in zip(shares, laws))
        if hasattr(self, "logistic_") and self.level_shares_[j].any():
            more = logistic.probabilities(self.logistic_, x[gaps], j, layout)
            found = found + np.einsum("nvl,v->nl", more, self.level_shares_[j])
        return gaps, found / found.sum(axis=1, keepdims=True)

    def _filled(self, x: np.ndarray, laws: list[Laws]) -> np.ndarray:
        """The encoded table with every gap filled."""
        out, layout = np.array(x), self._layout()
        for j in layout.numbers:
            mine = self._numbers(laws, j)
            out[mine.rows, j] = layout.value(mine, j)
        for j in layout.discrete:
            gaps, probs = self._level_probabilities(laws, x, j)
            out[gaps, j] = probs.argmax(1)
        return out

    def _drawn(
        self,
        x: np.ndarray,
        levels: Mapping[int, tuple[np.ndarray, np.ndarray]],
        moves: Mapping[int, np.ndarray],
        rng: np.random.Generator,
    ) -> np.ndarray:
        """Numbers of a row drawn jointly from one of the mixtures and moved as their means are, levels from their probabilities."""
        layout, (mixtures, shares) = self._layout(), self._mixtures()
        out = np.array(x)
        embedded = np.array(layout.embed(x))
        plain = ~np.array(self._logs(len(mixtures)))  # draws of logarithms have no bounds
        weights = plain * shares[layout.numbers or slice(None)].mean(0)
        weights = weights if weights.any() else plain.astype(float)
        which = rng.choice(len(mixtures), size=len(x), p=weights / weights.sum())
        for c in np.unique(which):
            embedded[which == c] = imputation.draw(mixtures[c], embedded[which == c], rng)
        for j in layout.numbers:
            gaps = np.isnan(x[:, j])
            out[gaps, j] = layout.natural(embedded[gaps, layout.parts[j].start] + moves[j], j)
        for j, (rows, probs) in levels.items():
            ends = probs.cumsum(1)
            out[rows, j] = (ends[:, :-1] < rng.random((len(rows), 1))).sum(1)
        return out

    # ---- columns ----

    def _layout(self) -> Embedding:
        """How columns lie in the mixtures' embedding."""
        d = self.means_.shape[1]
        kinds = getattr(self, "kinds_", None) or ["real"] * d
        return Embedding(kinds, getattr(self, "n_levels_", None) or [0] * d, getattr(self, "skewed_", ()))

    def _like(self, given: Any, before: np.ndarray, filled: np.ndarray) -> Any:
        """The filled table as an array or as a frame, as it was given."""
        schema = Schema.from_list(self.schema_) if hasattr(self, "schema_") else None
        columns = None if schema is None else schema.names
        return like_given(given, before, filled, schema, columns or getattr(self, "columns_", None))

    def _column(self, column: int | str) -> int:
        """The place of a column given by name or by place."""
        names: Mapping[str, int] = {name: j for j, name in enumerate(getattr(self, "columns_", None) or [])}
        if isinstance(column, str) and column in names:
            return names[column]
        if isinstance(column, str) or not 0 <= column < self.n_features_in_:
            raise BadParameter(f"there is no column {column!r}: use one of {', '.join(names) or self.n_features_in_}")
        return int(column)

    def _name(self, j: int) -> str:
        """A column's name, its number where it has none."""
        names = getattr(self, "columns_", None)
        return names[j] if names else str(j)

    def _rows(self, X: Any) -> np.ndarray:
        """X as an array with the columns of the fit; NaN is allowed."""
        check_is_fitted(self, "means_")
        return rows_of(self, X, ensure_all_finite="allow-nan", dtype=np.float64, copy=True)


def _shifted(values: np.ndarray, by: np.ndarray, kind: str) -> np.ndarray:
    """Values moved by so many of their own standard deviations: of logarithms where they are positive."""
    if kind == "positive":
        return values * np.exp(by)
    return np.maximum(values + by, 0.0) if kind == "count" else values + by
