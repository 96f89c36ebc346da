"""The base class of all models, with scikit-learn's interface: an algorithm is `init` and `step`; the loop, history and
saving are here.

`State` (what a step returns first) is a Tree and carries everything to the next round; `Info` (second) is only
reported. So a checkpoint is the state, the history and the round, and a resumed run ends with the same bits.
"""

from __future__ import annotations

import inspect
import secrets
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data

from unpooled import parameters
from unpooled.arrays import is_frame
from unpooled.errors import BadData, BadParameter
from unpooled.federation import Federation, find_layer
from unpooled.tree import Tree, message

Info = dict[str, Any]


@message("estimator.Moment")
class Moment(NamedTuple):
    """A checkpoint: everything that a run needs to continue after a round."""

    state: Tree
    history: list[Info]
    seed: int
    round: int  # the federation's, which counts every exchange
    clients: Tree  # state of clients and layers in this process
    done: bool


class Estimator(BaseEstimator):
    """Base class: `__init__` stores parameters unchanged, fitted attributes end in `_`; subclasses give `init`, `step`
    and `finish`.
    """

    max_iter: int
    random_state: Any
    encoding = "numbers"  # what rows of mixed columns look like to the model, see `data.tabled`
    scales_columns = False  # whether mixed columns are scaled by means and deviations over all clients
    minima: ClassVar[Mapping[str, float]] = {}  # numbers that parameters of this class may not fall below

    def __init_subclass__(cls, **options: Any) -> None:
        """Complete the signature of a subclass that passes `**parameters` on, for scikit-learn, help() and repr()."""
        super().__init_subclass__(**options)
        init: Any = vars(cls).get("__init__")
        if init is not None and any(p.kind is p.VAR_KEYWORD for p in inspect.signature(init).parameters.values()):
            init.__signature__ = _whole_signature(cls)

    def init(self, fed: Federation, rng: np.random.Generator) -> Tree:
        """The state before the first round."""
        raise NotImplementedError("abstract")

    def step(self, fed: Federation, state: Tree) -> tuple[Tree, Info]:
        """One round: the next state, and what to report."""
        raise NotImplementedError("abstract")

    def done(self, state: Tree, history: list[Info]) -> bool:
        """Whether to stop after the last round in `history`."""
        return False

    def finish(self, fed: Federation, state: Tree) -> None:
        """Set the learned attributes from the last state."""
        raise NotImplementedError("abstract")

    def check(self, fed: Federation) -> None:
        """Refuse parameters that cannot work, before any round is spent."""

    # ---- the loop ----

    def fit(self, X: Any, y: Any = None, *, by: Any = None, sample_weight: Any = None) -> Any:
        """Fit the model over clients.

        Parameters
        ----------
        X : dict, list, array, frame, path or Federation
            Anything that `federate` takes, or a federation; a plain array is one client.
        y : dict, list, array, str or None, default=None
            Labels: as `X`, or the name of a column.
        by : array-like, str or None, default=None
            The client of each row, or the column that holds it, where `X` is one table.
        sample_weight : dict, list, array, str or None, default=None
            Row weights: as `y`.

        Returns
        -------
        self
        """
        from unpooled.data.federate import as_federation

        fed = as_federation(X, y, by=by, sample_weight=sample_weight)
        for _ in self.rounds(fed):
            pass
        self._by_frame = is_frame(X)  # scikit-learn then expects the same columns in predict
        return self

    def rounds(self, fed: Federation, saved: Moment | None = None) -> Iterator[Moment]:
        """Fit, yielding a checkpoint after the start and after every round."""
        schema = getattr(fed, "schema", None)
        if schema is None or schema.plain:
            yield from self._rounds(fed, saved)
        else:
            yield from self._encoded_rounds(fed, schema, saved)
        if self.columns_ is not None and not hasattr(self, "schema_"):
            self.feature_names_in_ = np.asarray(self.columns_, dtype=object)

    def _encoded_rounds(self, fed: Federation, schema: Any, saved: Moment | None) -> Iterator[Moment]:
        """The rounds over mixed columns, encoded as the model takes them."""
        from unpooled.data.tabled import describe_table, tabled

        with tabled(self, fed) as seen:
            yield from self._rounds(seen, saved)
            describe_table(self, schema, seen)

    def _rounds(self, fed: Federation, saved: Moment | None) -> Iterator[Moment]:
        """Yield the moment after the start and after every round, then set the fitted attributes."""
        self._check_all(fed)
        moment = self._start(fed) if saved is None else self._continue(fed, saved)
        self._describe(fed)
        if saved is None:
            yield moment
        while not moment.done:
            moment = self._next(fed, moment)
            yield moment
        self.history_ = moment.history
        self.n_iter_ = len(moment.history)
        self.finish(fed, self.last_state(moment))

    def last_state(self, moment: Moment) -> Any:
        """The state that the learned attributes are set from, once a run has stopped."""
        return moment.state

    def _check_all(self, fed: Federation) -> None:
        """The model's own checks, whose messages say more, then the checks of types."""
        try:
            self.check(fed)
        except TypeError:  # a string compared with a number
            self._check_values()
            raise
        self._check_values()

    def _check_values(self) -> None:
        """Refuse parameters of the wrong type, by the annotations of the constructor, and numbers that are too small anywhere."""
        given = self.get_params(deep=False)
        parameters.check_types(given, parameters.annotations_of(type(self)))
        parameters.check_least(given, {**parameters.LEAST, **self.minima})

    def _start(self, fed: Federation) -> Moment:
        """Seed the journal, let clients forget earlier fits, and make the first state."""
        for name in ("max_iter", "random_state"):
            if not hasattr(self, name):
                raise BadParameter(f"{type(self).__name__} has no {name}: keep one in __init__, or give the class one")
        seed = _seed(self.random_state)
        fed.journal.begin(seed)
        fed.restore({})
        design = find_layer(fed, "find_moments")
        if design is not None:
            design.find_moments(fed)
        state = self.init(fed, np.random.default_rng(seed))
        return Moment(state, [], seed, fed.journal.round, fed.snapshot(), self.max_iter <= 0)

    def _continue(self, fed: Federation, saved: Moment) -> Moment:
        """Go on from a saved moment: the same seed, round and client states."""
        fed.journal.begin(saved.seed, saved.round)
        fed.restore(saved.clients)
        return saved

    def _next(self, fed: Federation, before: Moment) -> Moment:
        """One round: a new state, a line of history, and whether it was the last."""
        mark = len(fed.journal.exchanges)
        start = time.perf_counter()
        state, info = self._stepped(fed, before.state)
        history = [*before.history, _row(len(before.history) + 1, fed, mark, start) | info]
        done = len(history) >= self.max_iter or self.done(state, history)
        return Moment(state, history, before.seed, fed.journal.round, fed.snapshot(), done)

    def _stepped(self, fed: Federation, state: Any) -> tuple[Any, Info]:
        """One step, refused if it does not give (state, info)."""
        found = self.step(fed, state)
        if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[1], Mapping):
            raise TypeError(
                f"{type(self).__name__}.step should return (state, info): the new state, and a dict of numbers"
            )
        return found

    def _describe(self, fed: Federation) -> None:
        """Note the columns of the fit and forget those of an earlier one."""
        columns = fed.columns
        self.columns_ = None if columns is None else [str(c) for c in columns]
        self._by_frame = False
        for stale in ("feature_names_in_", "schema_", "design_columns_"):
            if hasattr(self, stale):
                delattr(self, stale)

    @property
    def takes_missing(self) -> bool:
        """Whether rows may have missing values."""
        return False

    def __sklearn_tags__(self):
        """scikit-learn's tags."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.takes_missing
        return tags

    # ---- saving ----

    def save(self, folder: str | Path) -> Path:
        """Write the fitted model into a folder as JSON and arrays, without pickle; `unpooled.load` reads it."""
        from unpooled.saving import save

        return save(self, Path(folder))

    def to_sklearn(self) -> Any:
        """The fitted scikit-learn estimator that predicts the same; for mixtures, linear and logistic regression."""
        from unpooled.export import to_sklearn

        return to_sklearn(self)

    def to_json(self) -> str:
        """The fitted model as JSON: its class, its parameters and its fitted numbers."""
        from unpooled.export import to_json

        return to_json(self)


def rows_of(model: Any, X: Any, **options: Any) -> np.ndarray:
    """New rows for a fitted model, checked as scikit-learn does; columns of a frame are taken by name, in the model's
    order, and encoded as those of the fit were.
    """
    one_table(model, X)
    try:
        return _checked_rows(model, X, options)
    except ValueError as error:
        if "contains NaN" not in str(error):
            raise
        remedy = "fill them in first (MixtureImputer does), or leave these rows out"
        text = f"X contains NaN, a missing value, and {type(model).__name__} needs complete rows: {remedy}"
        raise BadData(text) from None


def one_table(model: Any, X: Any) -> None:
    """Refuse a dict of clients, or a federation, where new rows are expected."""
    if isinstance(X, Mapping) or hasattr(X, "journal"):
        raise BadData(
            f"{type(model).__name__} takes new rows as one table and not as clients: call it for each client, such as X['north']"
        )


def _checked_rows(model: Any, X: Any, options: dict[str, Any]) -> np.ndarray:
    """The rows of `rows_of`; missing values are refused in scikit-learn's words, which are those of its own models."""
    if hasattr(model, "schema_"):
        from unpooled.data.tabled import encoded_rows

        return validate_data(model, encoded_rows(model, X), reset=False, **options)
    names = getattr(model, "columns_", None)
    by_frame = getattr(model, "_by_frame", False)
    if names is None or by_frame:  # scikit-learn's own rules
        return validate_data(model, X, reset=False, **options)
    if is_frame(X):
        from unpooled.data.frames import columns_of, fitted_with, matrix

        columns, named = columns_of(X, "the data")
        X = matrix(fitted_with(names, columns, "the data"), "the data") if named else X
    X = check_array(X, input_name="X", estimator=model, **options)
    if X.shape[1] != model.n_features_in_:
        text = f"X has {X.shape[1]} features, but {type(model).__name__} is expecting {model.n_features_in_} features as input"
        raise BadData(text)
    return X


def _row(number: int, fed: Federation, mark: int, start: float) -> Info:
    """The entries of a history row that every algorithm has."""
    new = fed.journal.exchanges[mark:]
    return {
        "round": number,
        "seconds": time.perf_counter() - start,
        "clients": max((e.answered for e in new), default=0),
        "bytes_up": sum(e.bytes_up for e in new),
        "bytes_down": sum(e.bytes_down for e in new),
    }


def _seed(random_state: Any) -> int:
    """The integer seed of a fit; from the system's secure generator if `random_state` is None."""
    if random_state is None:
        return secrets.randbits(63)
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool) and random_state >= 0:
        return int(random_state)
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    raise BadParameter(
        f"random_state={random_state!r} must be a non-negative whole number, a RandomState of NumPy, or None"
    )


def _whole_signature(cls: type) -> inspect.Signature:
    """The constructor's signature with the base class's parameters in place of **parameters."""
    mine, above = [vars(c)["__init__"] for c in cls.__mro__ if "__init__" in vars(c)][:2]
    given = [p for p in inspect.signature(mine).parameters.values() if p.kind is not p.VAR_KEYWORD]
    names = {p.name for p in given}
    passed_on = [p for p in inspect.signature(above).parameters.values() if p.name not in names]
    return inspect.Signature(given + [p.replace(kind=p.KEYWORD_ONLY) for p in passed_on])
