"""The rounds of `Describe`: each is one SUM of counts at thresholds, until levels and quantiles are found; then two of moments."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from unpooled.arrays import to_numpy
from unpooled.data.tabled import CODES
from unpooled.errors import BadData, BadParameter
from unpooled.estimator import Estimator
from unpooled.federation import Federation
from unpooled.maths import searching
from unpooled.models.column_names import as_written, column_index, names_of, with_levels
from unpooled.models.describe import patterns, quantile_rules, questions, results, tables
from unpooled.models.describe.patterns import Patterns
from unpooled.models.describe.questions import Centres, Cuts, Moments, PairMoments, Prefixes, Slots, Sums
from unpooled.models.steady import Steady
from unpooled.parameters import at_least, flag, is_number, one_of
from unpooled.tree import message

COVERED = 0.95  # share of a column's values that its levels must hold together for it to be one of levels
MANY = 300  # columns above which correlations are left out unless asked for


@message("describe.State")
class State(NamedTuple):
    """What has been found so far, by stage."""

    absent: int | None  # clients that did not answer: the others have to stay
    stage: str  # levels, sums, quantiles, moments, done
    rows: float
    seen: np.ndarray  # (d,)
    patterns: Patterns
    search: searching.Ranges
    column: np.ndarray  # (l,) the levels found: whose it is,
    value: np.ndarray  # (l,) and its value
    sums: Sums | None = None
    moments: Moments | None = None
    pairs: PairMoments | None = None
    found: np.ndarray | None = None  # values of the ranks looked for
    bins: np.ndarray | None = None  # (d, bins) rows in each bin


class Describe(Estimator):
    """Counts, missing values, means, exact quantiles, levels and correlations of all clients' rows: a table one.

    Parameters
    ----------
    by : str, int or None, default=None
        Column whose values group the rows: everything is given for each group as well.
    sites : bool, default=False
        Whether everything is given for each site as well. It takes questions of their own, which a node may refuse.
    probabilities : sequence of float, default=(0.05, 0.25, 0.5, 0.75, 0.95)
        Quantiles wanted.
    method : str, default="linear"
        Rule for quantiles between two rows: any of NumPy's thirteen.
    min_count : int, default=5
        Least count: a quantile with fewer rows at or beyond it, a level, bin, pattern or pair with fewer rows is
        withheld (NaN, or counted as other). 1 withholds nothing, and `low` and `high` are the smallest and largest value.
    max_levels : int, default=20
        A column of numbers of at most so many different values is one of levels; a column of texts always is.
    bins : int, default=20
        Of the histograms, between `low` and `high`; 0 leaves them out.
    correlations : bool or None, default=None
        Whether to compute correlations of all pairs of columns; None: up to 300 columns.
    random_state : int or None, default=None
        Not used: nothing is random.

    Attributes
    ----------
    table_ : dict of str to ndarray of shape (d,)
        `n` and `missing` values, `mean`, `sd` (by n - 1), `low` and `high`: the min_count-th smallest and largest value.
        Levels without an order have none of the latter four, and no quantiles: NaN.
    quantiles_ : ndarray of shape (probabilities, d)
        To the last bit those of `numpy.quantile` of the pooled rows (without missing values), in float64.
    levels_ : dict of str to dict
        For columns of levels: `values`, `rows` of each, and rows of `other` values.
    histograms_ : dict of str to dict
        For other columns: `edges`, and `rows` in each bin; the first and last also hold what lies beyond.
    patterns_ : dict
        Patterns of missing values: `columns`, `missing` (patterns x columns, 1 is missing), `rows` of each, and `other` rows.
    correlation_, pair_rows_ : ndarray of shape (d, d) or None
        Correlations over the rows in which both columns are there, and how many these are.
    groups_, sites_ : dict of str to dict
        For each group and site `rows`, `table`, `quantiles` and `levels` as above.
    n_samples_ : float
        Rows.

    References
    ----------
    Hyndman and Fan (1996), Sample quantiles in statistical packages, The American Statistician 50.

    Examples
    --------
    >>> import numpy as np, unpooled as up
    >>> rng = np.random.default_rng(0)
    >>> x = np.column_stack([rng.normal(60, 9, 200).round(), rng.integers(0, 2, 200)])
    >>> about = up.Describe(by=1).fit(x, by=np.arange(200) % 3)
    >>> bool((about.quantiles_ == np.quantile(x, [0.05, 0.25, 0.5, 0.75, 0.95], axis=0)).all())
    True
    """

    encoding = CODES

    max_iter = 100  # more than it ever takes

    def __init__(
        self,
        *,
        by: Any = None,
        sites: bool = False,
        probabilities: Any = (0.05, 0.25, 0.5, 0.75, 0.95),
        method: str = "linear",
        min_count: int = 5,
        max_levels: int = 20,
        bins: int = 20,
        correlations: bool | None = None,
        random_state: Any = None,
    ):
        self.by = by
        self.sites = sites
        self.probabilities = probabilities
        self.method = method
        self.min_count = min_count
        self.max_levels = max_levels
        self.bins = bins
        self.correlations = correlations
        self.random_state = random_state

    def check(self, fed: Federation) -> None:
        """Refuse parameters that do not exist, and columns that are not there."""
        column_index(fed, "by", self.by)
        flag("sites", self.sites)
        one_of("method", self.method, quantile_rules.METHODS)
        at_least("min_count", self.min_count, 1)
        at_least("max_levels", self.max_levels, 1)
        at_least("bins", self.bins, 0)
        one_of("correlations", self.correlations, (None, True, False))
        wanted = np.atleast_1d(np.asarray(self.probabilities, dtype=object))
        if not len(wanted) or not all(is_number(p) and 0 <= p <= 1 for p in wanted):
            raise BadParameter(f"probabilities={self.probabilities!r} must be numbers from 0 to 1: [0.25, 0.5], say")

    # ---- the rounds ----

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        """One SUM: rows, and values that are not missing."""
        steady = Steady(fed)
        first = steady.sum(questions.overview, None)
        rows = float(first.rows)
        seen = to_numpy(first.seen)
        if rows == 0:
            raise BadData("all rows have weight 0: give some rows a weight")
        by = column_index(fed, "by", self.by)
        if by is not None and by >= len(seen):
            raise BadParameter(f"by={by} is not a column: rows have {len(seen)}, the first is 0")
        some = np.flatnonzero(seen >= self.min_count)
        search = searching.everything(some, seen[some])
        gaps = np.flatnonzero(seen < rows - searching.NOTHING)
        nothing = np.zeros(0, np.int64), np.zeros(0)
        return State(steady.absent, "levels", rows, seen, patterns.begin(gaps, rows), search, *nothing)

    def step(self, fed: Federation, state: State) -> tuple[State, dict]:
        """One round of the current stage."""
        stage = {"levels": self._levels, "sums": self._sums, "quantiles": self._quantiles, "moments": self._moments}
        new = stage[state.stage](Steady(fed, state.absent), state)
        return new, {"stage": state.stage, "open": int(searching.is_open(state.search).sum())}

    def done(self, state: State, history: list) -> bool:
        """Whether all stages are done."""
        return state.stage == "done"

    def _levels(self, fed: Federation, state: State) -> State:
        """One round of the search for levels; a column with too many levels, or too few rows in them, has no levels."""
        state = self._round(fed, state, np.zeros(0), self.min_count)
        search = state.search
        d = len(state.seen)
        many = np.bincount(search.list, minlength=d) > self.max_levels
        held = np.bincount(search.list, search.rows, d)
        by = column_index(fed, "by", self.by)
        grouping = np.arange(d) == by
        texts = _marked(with_levels(fed), d)
        many &= ~texts | grouping
        thin = (held < COVERED * state.seen) & ~texts & ~grouping
        search = searching.chosen(search, ~(many | thin)[search.list])
        if by is not None and not (search.list == by).any():
            raise BadParameter(
                f"by={self.by!r} has more than {self.max_levels} different values, or none with {self.min_count} rows: "
                "name a column of few groups, raise max_levels= or lower min_count="
            )
        if searching.is_open(search).any():
            return state._replace(search=search)
        return state._replace(stage="sums", search=search, column=search.list, value=searching.values(search))

    def _sums(self, fed: Federation, state: State) -> State:
        """Rows and sums by slot, and from them the ranks that quantiles need."""
        by, levels = self._groups(fed, state)
        ask = questions.sums_by_site.using(by=by, sites=fed.names) if self.sites else questions.sums.using(by=by)
        sums = Sums(*(to_numpy(a) for a in fed.sum(ask, Slots(levels))))
        lists, rows, ranks = self._targets(sums)
        return state._replace(stage="quantiles", sums=sums, search=searching.ranked(lists, rows, ranks))

    def _quantiles(self, fed: Federation, state: State) -> State:
        """One round of counts, until every quantile is found to its last bit."""
        _, levels = self._groups(fed, state)
        state = self._round(fed, state, levels)
        if searching.is_open(state.search).any() or patterns.digits(state.patterns):
            return state
        return state._replace(stage="moments", found=searching.values(state.search))

    def _moments(self, fed: Federation, state: State) -> State:
        """Second moments about the means, rows of each level, pairs of columns, histograms."""
        assert state.sums is not None
        by, levels = self._groups(fed, state)
        centres = Centres(levels, results.means(state.sums), state.column, state.value)
        ask = questions.moments_by_site.using(by=by, sites=fed.names) if self.sites else questions.moments.using(by=by)
        found = Moments(*(to_numpy(a) for a in fed.sum(ask, centres)))
        pairs = None
        if self.correlations or (self.correlations is None and len(state.seen) <= MANY):
            pairs = PairMoments(*(to_numpy(a) for a in fed.sum(questions.pair_moments, centres)))
        bins = self._histograms(fed, state) if self.bins else None
        return state._replace(stage="done", moments=found, pairs=pairs, bins=bins)

    def _round(self, fed: Federation, state: State, levels: np.ndarray, least: float = 0.0) -> State:
        """One SUM: counts at the thresholds of the search, and of the patterns as they go on."""
        more = patterns.digits(state.patterns)
        prefixes = Prefixes(state.patterns.columns, state.patterns.gone)
        seen: list[np.ndarray] = []

        def ask(lists: np.ndarray, at: np.ndarray) -> np.ndarray:
            """Counts at thresholds, with the patterns of missing values that ride along."""
            up = self._below(fed, state.stage, Cuts(levels, lists, at, prefixes), more)
            seen.append(to_numpy(up.patterns))
            return to_numpy(up.rows)

        search = searching.one_round(state.search, ask, least)
        longer = patterns.extended(state.patterns, seen[0], self.min_count) if more else state.patterns
        return state._replace(search=search, patterns=longer)

    def _below(self, fed: Federation, stage: str, cuts: Cuts, digits: int) -> Any:
        """Rows at or below thresholds, by site where that is asked for."""
        by = column_index(fed, "by", self.by)
        if self.sites and stage == "quantiles":
            return fed.sum(questions.below_by_site.using(by=by, digits=digits, sites=fed.names), cuts)
        return fed.sum(questions.below.using(by=by, digits=digits), cuts)

    def _histograms(self, fed: Federation, state: State) -> np.ndarray:
        """Rows in each bin of each column, (d, bins): one SUM."""
        edges = self._edges(state)  # (d, bins + 1)
        d = len(edges)
        inner = np.nextafter(edges[:, 1:-1], -np.inf)  # a bin holds its left edge, as NumPy's do
        lists = np.repeat(np.arange(d), inner.shape[1])
        nothing = Prefixes(np.zeros(0, np.int64), np.zeros((0, 0), np.int64))
        up = self._below(fed, state.stage, Cuts(np.zeros(0), lists, np.nan_to_num(inner.ravel()), nothing), 0)
        cumulated = np.column_stack([np.zeros(d), to_numpy(up.rows).reshape(inner.shape), state.seen])
        return np.diff(cumulated, axis=1)

    # ---- what is looked for, and where it is found ----

    def _groups(self, fed: Federation, state: State) -> tuple[int | None, np.ndarray]:
        """The grouping column and its values."""
        by = column_index(fed, "by", self.by)
        return by, state.value[state.column == by] if by is not None else np.zeros(0)

    def _targets(self, sums: Sums) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The ranks looked for, each once, ordered by list and rank: (lists, rows of the list, ranks)."""
        lists = np.arange(sums.seen.size)
        rows = sums.seen.ravel()
        wanted = self._places(rows)
        all_lists = np.repeat(lists, wanted.shape[1])
        known = np.isfinite(wanted.ravel())
        pairs = np.unique(np.stack([all_lists[known], wanted.ravel()[known]]), axis=1)
        chosen = pairs[0].astype(np.int64)
        return chosen, rows[chosen], pairs[1]

    def _places(self, rows: np.ndarray) -> np.ndarray:
        """Ranks (lists, 2 p + 2): lower and upper of every quantile, then of `low` and `high`; NaN where withheld."""
        p = np.atleast_1d(np.asarray(self.probabilities, dtype=np.float64))
        place = quantile_rules.places(rows[:, None], p, self.method)
        least = self.min_count
        ends = np.stack([np.full(len(rows), least - 1.0), rows - least], 1)
        ends = np.where(rows[:, None] >= 2 * least - 1, ends, np.nan)
        enough = (place.lower + 1 >= least) & (rows[:, None] - place.upper >= least) & (rows[:, None] >= 1)
        lower = np.where(enough, place.lower, np.nan)
        upper = np.where(enough, place.upper, np.nan)
        return np.concatenate([lower, upper, ends], 1)

    def _looked_up(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        """(quantiles (s, p, d), low and high (s, 2, d)) from the values found."""
        assert state.sums is not None
        assert state.found is not None
        rows = state.sums.seen.ravel()
        wanted = self._places(rows)
        values = np.full(wanted.shape, np.nan)
        for of_list, rank, value in zip(state.search.list, state.search.rank, state.found):
            values[int(of_list), wanted[int(of_list)] == rank] = value
        s, d = state.sums.seen.shape
        found = values.reshape(s, d, -1)
        p = np.atleast_1d(np.asarray(self.probabilities, dtype=np.float64))
        weight = quantile_rules.places(rows[:, None], p, self.method).weight.reshape(s, d, -1)
        m = len(p)
        quantiles = quantile_rules.between(found[..., :m], found[..., m : 2 * m], weight)
        return quantiles.swapaxes(1, 2), found[..., 2 * m :].swapaxes(1, 2)

    def _edges(self, state: State) -> np.ndarray:
        """Edges of the histograms' bins."""
        low, high = self._looked_up(state)[1][0]  # (d,) each
        return np.linspace(low, high, self.bins + 1, axis=1)

    # ---- what was learned ----

    def finish(self, fed: Federation, state: State) -> None:
        """Set tables, quantiles, levels and correlations."""
        while state.stage != "done":  # a rehearsal may stop early, and wants to see every question
            state, _ = self.step(fed, state)
        assert state.sums is not None
        assert state.moments is not None
        names = names_of(fed, len(state.seen))
        by, levels = self._groups(fed, state)
        self.names_, self.n_features_in_, self.n_samples_ = names, len(names), state.rows
        quantiles, ends = self._looked_up(state)
        texts = _marked(with_levels(fed), len(names))
        codes = _marked(with_levels(fed, "category"), len(names))
        found = results.Levels(names, state.column, state.value, texts, codes)
        slots = results.slots(state.sums, state.moments, found, quantiles, ends, self.min_count)
        self.table_ = slots[0]["table"]
        self.quantiles_ = slots[0]["quantiles"]
        self.levels_ = slots[0]["levels"]
        k = len(levels)
        groups = as_written(fed, by, levels)
        self.groups_ = {tables.called(v): slot for v, slot in zip(groups, slots[1 : k + 1])}
        self.sites_ = dict(zip(fed.names, slots[k + 1 :])) if self.sites else {}
        edges = self._edges(state) if self.bins else None
        self.histograms_ = results.histograms(edges, state.bins, found, self.min_count)
        self.patterns_ = results.pattern_table(state.patterns, state.rows, names)
        self.correlation_, self.pair_rows_ = results.correlations(state.pairs, self.min_count)

    # ---- the face ----

    def to_text(self) -> str:
        """Table one as text."""
        check_is_fitted(self, "table_")
        return tables.text(self)

    def to_html(self) -> str:
        """Table one as an HTML table."""
        check_is_fitted(self, "table_")
        return tables.html(self)

    def to_frame(self) -> Any:
        """One row per column, group and site with all its numbers, as a frame of pandas."""
        check_is_fitted(self, "table_")
        return tables.frame(self)

    def report_figures(self) -> dict[str, str]:
        """What the report of a run shows: table one, histograms, correlations."""
        return tables.figures(self)

    def __str__(self) -> str:
        """Table one as text."""
        return tables.text(self) if hasattr(self, "table_") else repr(self)


def _marked(columns: list[int], d: int) -> np.ndarray:
    """(d,) which of d columns these are."""
    found = np.zeros(d, bool)
    found[columns] = True
    return found
