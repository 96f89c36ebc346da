"""Mixed mixture by federated EM: one SUM of sufficient statistics per round, equal to the pooled fit whatever the split.

A round sends the parameters down and, per component, up: a count, a sum and a packed second moment of the Gaussian columns, a sum per
level, and 14 numbers per column of counts. Several numbers of components, and several starts, ride in the same rounds.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import DensityMixin
from sklearn.exceptions import ConvergenceWarning

from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.errors import BadParameter
from unpooled.estimator import Estimator, Info, one_table
from unpooled.federation import Federation, least_rows
from unpooled.maths import gaussian, mixture
from unpooled.models.column_names import n_columns, names_of
from unpooled.models.initialization import warn_of_rounding
from unpooled.models.mixed import acceleration, em
from unpooled.models.mixed import start as starting
from unpooled.models.mixed.columns import Columns, given_columns
from unpooled.models.mixed.fitted import FittedMixedMixture
from unpooled.models.mixed.messages import Params, Prior, Stats
from unpooled.models.mixed.questions import e_step, personal_e_step
from unpooled.models.mixture import KEPT, PersonalWeights, collapsed, few_rows, narrow, warn_of_left_out, weights_id
from unpooled.parameters import at_least, not_below_zero, one_of
from unpooled.tree import message

AUTO = tuple(range(1, 11))


@message("mixed.Candidate")
class Candidate(NamedTuple):
    """One number of components from one start; several are fitted side by side."""

    params: Params
    asked: Params  # what the next round asks about: params, or where acceleration looks
    objective: float  # log-likelihood and log prior per row, at the params before the last update
    loglik: float  # log-likelihood alone, per row
    gain: float
    converged: bool
    memory: Any  # of the acceleration, or None
    left_out: int = 0  # components of few rows that a study does without


@message("mixed.State")
class State(NamedTuple):
    """All candidates, and what the first look found."""

    candidates: tuple[Candidate, ...]
    rows: float
    prior: Prior
    scale: np.ndarray  # (g,), standard deviations of the Gaussian block's columns
    kinds: tuple[str, ...]
    levels: tuple[int, ...]


class MixedMixture(PersonalWeights, FittedMixedMixture, DensityMixin, Estimator):
    """Mixture for tables of numbers, categories, ordered categories, counts and binary columns, by exact federated EM.

    Within a component the kinds of columns are independent: real columns, and logarithms of positive ones, are Gaussian together; the
    levels of a category have probabilities; counts are negative binomial. The fit equals the pooled one whatever the split of rows into
    clients. NaN is a missing value, in any column. With real columns alone it is `GaussianMixture`.

    Parameters
    ----------
    n_components : int, list of int or "auto", default=1
        Number of components. The candidates of a list, or 1 to 10 for "auto", share the rounds; BIC chooses.
    kinds : list or dict of str, default=None
        The kind of each column, by index or name: "real", "positive", "date", "count", "binary", "category", "ordered", "ignored". None
        takes the kinds of the data's schema; columns of plain arrays are "real".
    levels : list or dict of int, default=None
        How many levels discrete columns have, where no schema says so; codes are 0, 1, ... None counts them.
    covariance_type : {"full", "tied", "diag", "spherical"}, default="full"
        Of the Gaussian columns, as in scikit-learn.
    smoothing : float, default=1.0
        How many rows, spread as all rows are, are added to each component's levels and counts, so that no probability is 0.
    tol : float, default=1e-3
        EM stops when the objective per row gains less.
    reg_covar : float, default=1e-6
        Added to the diagonal of covariances.
    max_iter : int, default=100
        Rounds at most.
    n_init : int, default=1
        Number of starts; they share the rounds.
    random_state : int, RandomState or None, default=None
        Seed of the start.
    personal_weights : bool, default=False
        Whether each client keeps mixing weights of its own, which never leave it; see `personal_` and `adapt`.
    accelerate : bool, default=False
        Fewer rounds on hard fits, safeguarded; a round costs what a plain one does.

    Attributes
    ----------
    weights_ : ndarray of shape (k,)
        Weights of the components.
    means_, covariances_ : ndarray
        Of the Gaussian columns, `gaussian_columns_`, in their order; of logarithms for positive ones.
    level_probabilities_ : dict of str to ndarray of shape (k, levels)
        Of every discrete column, by name or index.
    count_means_, count_dispersions_ : ndarray of shape (k, m)
        Of the columns of counts, `count_columns_`: the variance is mean + dispersion mean^2.
    kinds_, n_levels_ : list
        The kind of every column, and its number of levels.
    n_components_ : int
        The number of components that was chosen.
    bic_, aic_ : float
        Criteria of the fitted mixture on the clients' rows; `bics_` has the BIC of every number of components that was tried.
    lower_bound_ : float
        Log-likelihood and log prior of the smoothing, per row: it never falls from round to round.
    converged_, n_iter_, history_
        As in `GaussianMixture`.
    client_weights_ : dict of str to ndarray
        With `personal_weights`, the weights of clients in this process.

    References
    ----------
    Hunt and Jorgensen, Mixture model clustering for mixed data with missing information, CSDA 2003.
    McLachlan and Peel, Finite mixture models, 2000, chapter 5.

    Examples
    --------
    >>> import numpy as np
    >>> import unpooled as up
    >>> rng = np.random.default_rng(0)
    >>> def site(n, share):
    ...     ill = rng.random(n) < share
    ...     crp = np.exp(rng.normal(np.where(ill, 3.0, 0.5), 0.5))
    ...     ward = np.where(rng.random(n) < 0.9, ill, ~ill) + 0.0
    ...     return np.column_stack([crp, ward, rng.poisson(np.where(ill, 6, 1))])
    >>> sites = {"north": site(200, 0.2), "south": site(300, 0.6)}
    >>> model = up.MixedMixture(2, kinds=["positive", "binary", "count"], random_state=0).fit(sites)
    >>> model.count_means_.round().ravel().tolist()
    [6.0, 1.0]
    >>> model.impute(np.array([[25.0, np.nan, np.nan]])).round().tolist()
    [[25.0, 1.0, 6.0]]
    """

    encoding = "codes"
    takes_missing = True

    def __init__(
        self,
        n_components: int | Sequence[int] | str = 1,
        *,
        kinds: Sequence[str] | Mapping[Any, str] | None = None,
        levels: Sequence[int] | Mapping[Any, int] | None = None,
        covariance_type: str = "full",
        smoothing: float = 1.0,
        tol: float = 1e-3,
        reg_covar: float = 1e-6,
        max_iter: int = 100,
        n_init: int = 1,
        random_state: Any = None,
        personal_weights: bool = False,
        accelerate: bool = False,
    ):
        self.n_components = n_components
        self.kinds = kinds
        self.levels = levels
        self.covariance_type = covariance_type
        self.smoothing = smoothing
        self.tol = tol
        self.reg_covar = reg_covar
        self.max_iter = max_iter
        self.n_init = n_init
        self.random_state = random_state
        self.personal_weights = personal_weights
        self.accelerate = accelerate

    # ---- fitting ----

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        """Look at the columns, then start all candidates."""
        d = n_columns(fed)
        names = names_of(fed, d)
        given = given_columns(self.kinds, self.levels, getattr(fed, "schema", None), d, names)
        seen = starting.seen(fed, given, names)
        if float(seen.frame.rows) < max(self._sizes()):
            raise BadParameter(
                f"n_components={max(self._sizes())} is more than n_samples={float(seen.frame.rows):.0f}: lower it"
            )
        found = starting.starts(fed, seen, self._sizes(), self.n_init, self._settings(), rng)
        scale = np.asarray(starting.gaussian_frame(seen).scale)
        warn_of_rounding(fed, scale)
        sizes = [k for k in self._sizes() for _ in range(self.n_init)]
        candidates = tuple(
            self._candidate(p)._replace(left_out=max(k - len(p.gaussian.weights), 0)) for k, p in zip(sizes, found)
        )
        columns = seen.columns
        return State(candidates, float(seen.frame.rows), seen.prior, scale, columns.kinds, columns.levels)

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        """One round of EM for every candidate that has not converged, in one SUM."""
        active = [i for i, c in enumerate(state.candidates) if not c.converged]
        asked = tuple(state.candidates[i].asked for i in active)
        answers = fed.sum(self._question(state, active), asked)
        least = least_rows(fed)
        moved = {i: self._next_of(state, state.candidates[i], up, least) for i, up in zip(active, answers)}
        state = state._replace(candidates=tuple(moved.get(i, c) for i, c in enumerate(state.candidates)))
        best = state.candidates[self._best(state)]
        left_out = {"left_out": best.left_out} if best.left_out else {}
        return state, {"loglik": best.objective, "candidates": len(active), **left_out}

    def done(self, state: State, history: list[Info]) -> bool:
        """Whether every candidate has converged."""
        return all(c.converged for c in state.candidates)

    def finish(self, fed: Federation, state: State) -> None:
        """Choose by BIC and set the fitted attributes."""
        self.kinds_ = list(state.kinds)
        self.n_levels_ = list(state.levels)
        chosen = self._chosen(fed, state)
        best = state.candidates[chosen]
        self._set_params(best.params)
        self.converged_ = bool(best.converged)
        self.lower_bound_ = float(best.objective)
        self.bic_ = self._criterion(state, best, np.log(state.rows))
        self.aic_ = self._criterion(state, best, 2.0)
        bics = [(_size(c), self._criterion(state, c, np.log(state.rows))) for c in state.candidates]
        self.bics_ = {k: min(bic for size, bic in bics if size == k) for k, _ in bics}
        if self.personal_weights:
            key = f"weights-{weights_id(state.candidates, chosen)}"
            self.client_weights_ = {c.name: c.state[key] for c in fed.here() if key in c.state}
        if best.left_out:
            warn_of_left_out(best.left_out, 5)
        if not best.converged and self.tol > 0:
            text = f"the fit gained {best.gain:.2g} per row in round {self.n_iter_}, above tol={self.tol:g}: raise max_iter"
            warnings.warn(text, ConvergenceWarning, stacklevel=4)

    def _sizes(self) -> tuple[int, ...]:
        """The numbers of components to fit."""
        return AUTO if isinstance(self.n_components, str) else tuple(np.atleast_1d(self.n_components).tolist())

    def _settings(self) -> starting.Settings:
        """What an M-step has to know of the parameters."""
        return starting.Settings(self.covariance_type, self.reg_covar, self.smoothing)

    def _candidate(self, params: Params) -> Candidate:
        """A candidate that begins at these parameters."""
        memory = acceleration.begin(params) if self.accelerate else None
        return Candidate(params, params, -np.inf, -np.inf, np.inf, False, memory)

    def _question(self, state: State, ids: list[int]) -> Any:
        """The question of a round, for shared or for personal weights."""
        options = {"columns": _columns(state).option, "shape": self.covariance_type}
        if not self.personal_weights:
            return e_step.using(**options)
        return personal_e_step.using(**options, ids=[weights_id(state.candidates, i) for i in ids])

    def _move(self, state: State, c: Candidate, answer: Stats) -> Candidate:
        """One candidate after a round."""
        stats = tree.map(to_numpy, answer)
        image = em.m_step(c.asked, stats, state.prior, _columns(state), *self._settings())
        objective = starting.objective(c.asked, stats, state.prior, self.smoothing)
        loglik = float(stats.gaussian.loglik) / float(stats.gaussian.rows)
        if self.accelerate:
            return self._accelerated(state, c, image, objective, loglik)
        gain = objective - c.objective
        return Candidate(image, image, objective, loglik, gain, abs(gain) < self.tol, None)

    def _accelerated(self, state: State, c: Candidate, image: Params, objective: float, loglik: float) -> Candidate:
        """The candidate after an accelerated round."""
        frame = state.scale, _columns(state), self.covariance_type
        memory, asked = acceleration.advance(c.memory, c.asked, image, objective, *frame, self.tol)
        gain = memory.objective - c.objective
        accepted = loglik if memory.best is c.asked else c.loglik
        return Candidate(memory.image, asked, memory.objective, accepted, gain, memory.converged, memory)

    def _next_of(self, state: State, c: Candidate, answer: Stats, least: float) -> Candidate:
        """One candidate after a round; where components hold few rows, a study goes on without them from where it asked."""
        kept = few_rows.held([answer.gaussian.n], least)
        if kept.all():
            return self._move(state, c, answer)._replace(left_out=c.left_out)
        rest = em.without(c.asked, kept, self.covariance_type)
        return self._candidate(rest)._replace(left_out=c.left_out + int((~kept).sum()))

    # ---- the choice ----

    def _criterion(self, state: State, c: Candidate, price: float) -> float:
        """Minus twice the log-likelihood plus a price per free parameter."""
        free = em.n_parameters(_size(c), _columns(state), self.covariance_type)
        return float(-2 * c.loglik * state.rows + free * price)

    def _best(self, state: State) -> int:
        """The candidate with the least BIC."""
        return int(np.argmin([self._criterion(state, c, np.log(state.rows)) for c in state.candidates]))

    def _chosen(self, fed: Federation, state: State) -> int:
        """The least BIC among candidates of which no component has collapsed; among all where each has such a component."""
        best = self._best(state)
        sound = [i for i, c in enumerate(state.candidates) if not self._has_collapsed(c)]
        if best in sound:
            return best
        text = (
            f"a component of the fit with {_size(state.candidates[best])} components has no variance beyond reg_covar"
        )
        where = self._narrow(fed, state.candidates[best])
        if not sound:
            advice = f"lower n_components, raise reg_covar, or declare columns of few distinct values as categories ({where})"
            warnings.warn(f"{text} in some direction: {advice}", ConvergenceWarning, stacklevel=4)
            return best
        kept = state._replace(candidates=tuple(state.candidates[i] for i in sound))
        chosen = sound[self._best(kept)]
        size = _size(state.candidates[chosen])
        warnings.warn(
            f"{text}, so that its BIC means nothing: {size} were chosen ({where})", ConvergenceWarning, stacklevel=4
        )
        return chosen

    def _narrow(self, fed: Federation, c: Candidate) -> str:
        """In which columns a component has the least width, in words."""
        block = c.params.gaussian
        names = names_of(fed, len(self.kinds_))
        return narrow(block, self.covariance_type, self.reg_covar, [names[j] for j in self.table_columns.gaussian])

    def _has_collapsed(self, c: Candidate) -> bool:
        """Whether a Gaussian component has no width left."""
        block = c.params.gaussian
        return bool(block.means.shape[1]) and bool(collapsed(block, self.covariance_type, self.reg_covar).any())

    # ---- the result ----

    def _set_params(self, params: Params) -> None:
        """Set the parameters as fitted attributes."""
        block = params.gaussian
        kinds = self.table_columns
        self.weights_ = block.weights
        self.means_ = block.means
        self.covariances_ = (
            gaussian.unpack_covs(block.covs, self.covariance_type) if block.means.shape[1] else block.covs
        )
        self.probabilities_ = params.levels
        self.count_means_ = params.mean
        self.count_dispersions_ = params.dispersion
        self.n_components_ = len(block.weights)
        self.n_features_in_ = len(self.kinds_)
        self.gaussian_columns_ = [self._name(j) for j in kinds.gaussian]
        self.count_columns_ = [self._name(j) for j in kinds.counts]
        self.level_probabilities_ = {
            self._name(j): params.levels[:, part] for j, part in zip(kinds.discrete, kinds.parts)
        }

    # ---- personal models ----

    def adapt_weights(self, X: Any) -> np.ndarray:
        """The mixing weights (k,) under which these rows are most likely, components frozen."""
        joint = self._log_joint(X, None)
        with np.errstate(divide="ignore"):
            return mixture.fit_weights(joint - np.log(self.weights_), self.weights_)

    def _with_weights(self, weights: np.ndarray) -> MixedMixture:
        """A copy of the fitted model under other weights."""
        personal = MixedMixture(**self.get_params())
        for name in (*KEPT, "kinds_", "n_levels_", "schema_"):
            if hasattr(self, name):
                setattr(personal, name, getattr(self, name))
        params = self.params()
        personal._set_params(params._replace(gaussian=params.gaussian._replace(weights=weights)))
        return personal

    def fit_predict(self, X: Any, y: Any = None, **how: Any) -> np.ndarray:
        """Fit to a plain array or frame, and the component of each of its rows."""
        one_table(self, X)
        return self.fit(X, y, **how).predict(X)

    # ---- refusals ----

    def check(self, fed: Federation) -> None:
        """Refuse parameters that do not exist or do not go together."""
        if isinstance(self.n_components, str) and self.n_components != "auto":
            text = f"n_components={self.n_components!r} is not known: give a number, a list of numbers or 'auto'"
            raise BadParameter(text)
        for k in self._sizes():
            at_least("n_components", k, 1)
        one_of("covariance_type", self.covariance_type, gaussian.SHAPES)
        for name in ("smoothing", "tol", "reg_covar"):
            not_below_zero(name, getattr(self, name))
        at_least("max_iter", self.max_iter, 1)
        at_least("n_init", self.n_init, 1)
        if self.personal_weights and self.accelerate:
            raise BadParameter("accelerate=True looks at shared weights: leave it out with personal_weights=True")


def _size(c: Candidate) -> int:
    """The number of components of a candidate."""
    return len(c.params.gaussian.weights)


def _columns(state: State) -> Columns:
    """The columns by kind."""
    return Columns(state.kinds, state.levels)
