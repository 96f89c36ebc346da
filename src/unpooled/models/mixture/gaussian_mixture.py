"""Gaussian mixture by federated EM: one SUM of sufficient statistics per round, equal to the pooled fit whatever the split.

A round sends the parameters down and, per component, a count, a sum and a packed second moment about the current mean up.
Candidates with several numbers of components, and several starts, are fitted in the same rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import DensityMixin

from unpooled.arrays import Array
from unpooled.errors import BadParameter
from unpooled.estimator import Estimator, Info, Moment, one_table
from unpooled.federation import Federation, find_private, least_rows
from unpooled.maths import gaussian
from unpooled.maths.mixture import Params, Stats
from unpooled.models.mixture import checks, em
from unpooled.models.mixture.em import Candidate, Settings, State, advanced, candidate, e_step, personal_e_step
from unpooled.models.mixture.inference import MixtureFace, PersonalWeights

AUTO = tuple(range(1, 11))


class GaussianMixture(PersonalWeights, MixtureFace, DensityMixin, Estimator):
    """Gaussian mixture fitted by exact federated EM: density, soft clusters, anomaly scores, missing values.

    The fit equals the pooled one whatever the split of rows into clients. Parameters, attributes and methods follow
    `sklearn.mixture.GaussianMixture`; called with a plain array it is one client and behaves alike. NaN is a missing value.

    Parameters
    ----------
    n_components : int, list of int or "auto", default=1
        Number of components. The candidates of a list, or 1 to 10 for "auto", share the rounds; BIC chooses.
    covariance_type : {"full", "tied", "diag", "spherical"}, default="full"
        As in scikit-learn.
    tol : float, default=1e-3
        EM stops when the log-likelihood per row rises by less than this in a round.
    reg_covar : float, default=1e-6
        Added to the diagonal of covariances.
    max_iter : int, default=100
        Rounds at most; 0 returns the start.
    n_init : int, default=1
        Number of starts; they share the rounds.
    init_params : {"cells", "kmeans", "k-means++", "random_from_data", "random", "gather"}, default="cells"
        Where EM starts. "cells": sums over small regions, so that the start, and with it the fit, is the same however rows are
        split into clients. "kmeans": k-means over all rows, by sums, columns standardised. "k-means++" and "random_from_data": as in
        scikit-learn, with the mean of a small region in place of a row, since rows do not leave. "random": means drawn from the
        columns' means and spreads. "gather": one GATHER of local k-means centres.
    weights_init, means_init, precisions_init : array-like, default=None
        Starting values in any combination, as in scikit-learn; they override what `init_params` found. Without `means_init`, the
        components are put in the order that suits the given values best.
    random_state : int, RandomState or None, default=None
        Seed of the start and of cohorts.
    warm_start : bool, default=False
        Whether a further `fit` goes on from the last result.
    verbose : int, default=0
        1 prints a line every `verbose_interval` rounds; 2 adds the change of the log-likelihood and the time.
    verbose_interval : int, default=10
        Rounds between two lines.
    solver : {"em", "fedem", "vr-fedem"}, default="em"
        "em" is exact. The others send less and tolerate clients that come and go: see `FedEM` and `VRFedEM`. `FedEM` also does the
        rounds where the federation is `Compressed`.
    solver_options : dict, default=None
        Further parameters of `FedEM` or `VRFedEM`: levels, batch_size, step_size and so on.
    personal_weights : bool, default=False
        Whether each client keeps mixing weights of its own, which never leave it; see `personal_` and `adapt`.
    accelerate : bool, default=False
        Whether to extrapolate EM steps: fewer rounds where EM is slow, never more; a round evaluates up to two mixtures.
    min_count : float, default=5
        With `init_params="gather"`, a local cluster of fewer rows does not leave its client.
    fraction : float, default=1.0
        Share of the clients asked in a round. Below 1, `FedEM` does the rounds: plain EM over changing clients does not converge.

    Attributes
    ----------
    weights_, means_, covariances_, precisions_, precisions_cholesky_ : ndarray
        The fitted mixture, as in scikit-learn.
    n_components_ : int
        The number of components that was chosen.
    bic_, aic_ : float
        Criteria of the fitted mixture on the clients' rows; `bics_` has the BIC of every number of components that was tried.
    lower_bound_ : float
        Log-likelihood per row.
    converged_ : bool
        Whether EM stopped by `tol`, on the log-likelihood of all rows of all clients.
    n_iter_ : int
        Number of rounds.
    n_rows_ : float
        Number of rows, or the sum of their weights.
    history_ : list of dict
        One row per round: seconds, clients, bytes, log-likelihood.
    client_weights_ : dict of str to ndarray
        With `personal_weights`, the weights of clients in this process.

    References
    ----------
    Wu et al., Personalized federated learning under mixture of distributions (FedGMM), ICML 2023, algorithm 2; made exact.

    Examples
    --------
    >>> import numpy as np
    >>> import unpooled as up
    >>> rng = np.random.default_rng(0)
    >>> hospitals = {name: rng.normal(size=(100, 2)) + shift for name, shift in zip("abc", (0, 0, 8))}
    >>> gm = up.GaussianMixture(n_components=2, random_state=0).fit(hospitals)
    >>> gm.weights_.round(2)
    array([0.67, 0.33])
    >>> gm.predict(np.array([[0.0, 0.0], [8.0, 8.0]])).tolist()
    [0, 1]
    """

    takes_missing = True

    def __init__(
        self,
        n_components: int | Sequence[int] | str = 1,
        *,
        covariance_type: str = "full",
        tol: float = 1e-3,
        reg_covar: float = 1e-6,
        max_iter: int = 100,
        n_init: int = 1,
        init_params: str = "cells",
        weights_init: Any = None,
        means_init: Any = None,
        precisions_init: Any = None,
        random_state: Any = None,
        warm_start: bool = False,
        verbose: int = 0,
        verbose_interval: int = 10,
        solver: str = "em",
        solver_options: Mapping[str, Any] | None = None,
        personal_weights: bool = False,
        accelerate: bool = False,
        min_count: float = 5,
        fraction: float = 1.0,
    ):
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.tol = tol
        self.reg_covar = reg_covar
        self.max_iter = max_iter
        self.n_init = n_init
        self.init_params = init_params
        self.weights_init = weights_init
        self.means_init = means_init
        self.precisions_init = precisions_init
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.verbose_interval = verbose_interval
        self.solver = solver
        self.solver_options = solver_options
        self.personal_weights = personal_weights
        self.accelerate = accelerate
        self.min_count = min_count
        self.fraction = fraction

    # ---- fitting ----

    def fit(self, X: Any, y: Any = None, *, by: Any = None, sample_weight: Any = None) -> Any:
        """Fit the mixture over clients; where all rows are float32 arrays, so is the result.

        Parameters
        ----------
        X : dict, list, array, frame, path or Federation
            Anything that `federate` takes, or a federation; a plain array is one client.
        y : None
            Ignored.
        by : array-like, str or None, default=None
            The client of each row, or the column that holds it, where `X` is one table.
        sample_weight : dict, list, array, str or None, default=None
            Row weights.

        Returns
        -------
        self
        """
        super().fit(X, y, by=by, sample_weight=sample_weight)
        if checks.all_float32(X):
            self._set_params(Params(*(np.asarray(a, dtype=np.float32) for a in self.params())))
        return self

    def rounds(self, fed: Federation, saved: Moment | None = None) -> Iterator[Moment]:
        """Fit and yield, after each round, the state from which the fit can go on; private if `fed` has a `Private` layer."""
        if find_private(fed) is not None:
            from unpooled.models.private import rounds_private

            return rounds_private(self, fed, saved)
        moments = super().rounds(fed, saved)
        if not self.verbose:
            return moments
        from unpooled.models.mixture.progress import printed

        return printed(moments, self.verbose, self.verbose_interval)

    def init(self, fed: Federation, rng: np.random.Generator) -> Any:
        """Moments of the columns, then the starts of all candidates."""
        if not self._exact:
            return self._stochastic().start(self, fed, self._start_settings(), rng)
        from unpooled.models.initialization import frame as find_frame
        from unpooled.models.mixture.starts import starts

        frame = find_frame(fed)
        rows = float(frame.rows)
        checks.check_against_data(self, max(self._sizes()), len(frame.mean), rows)
        if self.warm_start and hasattr(self, "means_"):
            last = self.lower_bound_ if getattr(self, "n_rows_", None) == rows else -np.inf
            first = [candidate(self.params(), last)]
        else:
            found = starts(fed, frame, self._start_settings(), rng)
            sizes = [k for k in self._sizes() for _ in range(self.n_init)]
            first = [candidate(p)._replace(left_out=k - len(p.weights)) for k, p in zip(sizes, found)]
        return State(tuple(self._raced(c) for c in first), rows)

    def step(self, fed: Federation, state: Any) -> tuple[Any, Info]:
        """One round of EM for every candidate that has not converged, in one SUM."""
        if not self._exact:
            return self._stochastic().solver_of(self, self._sizes()[0]).step(fed, state)
        active = [i for i, c in enumerate(state.candidates) if not c.converged]
        least = least_rows(fed)
        candidates = self._without_few(fed, state, active, least) if least else list(state.candidates)
        asked = [params for i in active for params in candidates[i].asked]
        answers = iter(fed.sum(self._question(candidates, active), tuple(asked)))
        for i in active:
            candidates[i] = self._next_of(candidates[i], [next(answers) for _ in candidates[i].asked], least)
        best = candidates[em.best(candidates, state.rows, self.covariance_type)]
        info = {"loglik": best.loglik, "candidates": len(active), "reseeded": sum(c.reseeded for c in candidates)}
        if best.left_out:
            info["left_out"] = best.left_out
        return State(tuple(candidates), state.rows), info

    def _without_few(self, fed: Federation, state: State, active: list[int], least: float) -> list[Candidate]:
        """The candidates without components of few rows, which are counted in one SUM where there may be some."""
        from unpooled.models.mixture import few_rows

        candidates = list(state.candidates)
        doubts = {i: self._in_doubt(candidates[i], state.rows, least) for i in active}
        some = [i for i in active if doubts[i].any()]
        if not some:
            return candidates
        counts = iter(few_rows.counted(fed, [p for i in some for p in candidates[i].asked], self.covariance_type))
        for i in some:
            enough = few_rows.held([next(counts) for _ in candidates[i].asked], least)
            kept = enough | ~doubts[i]
            candidates[i] = candidates[i] if kept.all() else self._kept(candidates[i], kept)
        return candidates

    def _in_doubt(self, c: Candidate, rows: float, least: float) -> np.ndarray:
        """Which components of a candidate may hold few rows."""
        from unpooled.models.mixture import few_rows

        first = not np.isfinite(c.loglik)
        return np.any([few_rows.uncertain(params, rows, least, first) for params in c.asked], axis=0)

    def _next_of(self, c: Candidate, stats: list[Stats], least: float) -> Candidate:
        """One candidate after a round; where components hold few rows, a study goes on without them from where it asked."""
        if least:
            from unpooled.models.mixture import few_rows

            kept = few_rows.held([up.n for up in stats], least)
            if not kept.all():
                return self._kept(c, kept)
        return self._move(c, stats)

    def _kept(self, c: Candidate, kept: np.ndarray) -> Candidate:
        """The candidate without some components: it goes on from where it was asked about, as from a start."""
        from unpooled.models.initialization import without

        params = without(c.asked[0], kept, self.covariance_type)
        left_out = c.left_out + int((~kept).sum())
        return self._raced(candidate(params)._replace(reseeded=c.reseeded, left_out=left_out))

    def done(self, state: Any, history: list[Info]) -> bool:
        """Whether every candidate has converged."""
        if not self._exact:
            return self._stochastic().solver_of(self, self._sizes()[0]).done(state, history)
        return all(c.converged for c in state.candidates)

    def finish(self, fed: Federation, state: Any) -> None:
        """Choose among the candidates by BIC and set the fitted attributes."""
        if not self._exact:
            state = self._stochastic().as_exact(self, self._sizes()[0], state, self.history_)
        shape = self.covariance_type
        rows = state.rows
        candidates = state.candidates
        chosen = em.chosen(candidates, rows, shape, self.reg_covar, fed) if self.history_ else 0
        best = candidates[chosen]
        self._set_params(best.params)
        self.converged_ = bool(best.converged)
        self.lower_bound_ = float(best.loglik)
        self.lower_bounds_ = [row["loglik"] for row in self.history_]
        self.n_rows_ = rows
        self.bic_ = em.bic(best, rows, shape)
        self.aic_ = em.criterion(best, rows, 2.0, shape)
        bics = [(len(c.params.weights), em.bic(c, rows, shape)) for c in candidates]
        self.bics_ = {k: min(bic for size, bic in bics if size == k) for k, _ in bics}
        if self.personal_weights:
            key = f"weights-{em.weights_id(candidates, chosen)}"
            self.client_weights_ = {c.name: c.state[key] for c in fed.here() if key in c.state}
        checks.warn_of(self, best, self._exact)

    @property
    def _exact(self) -> bool:
        """Whether rounds are exact EM over all clients; FedEM or VR-FedEM otherwise."""
        return self.solver == "em" and self.fraction == 1.0 and not self._rounded

    # whether what clients send is compressed: EM would take rounding for moments, and be far off in columns of small units
    _rounded = False

    def _stochastic(self) -> Any:
        """The adapter to FedEM; imported when it is used."""
        from unpooled.models.mixture import stochastic

        return stochastic

    def _question(self, candidates: Sequence[Candidate], active: list[int]) -> Any:
        """The question of a round, for shared or for personal weights."""
        if self.personal_weights:
            return personal_e_step.using(shape=self.covariance_type, ids=[em.weights_id(candidates, i) for i in active])
        return e_step.using(shape=self.covariance_type)

    def _move(self, c: Candidate, stats: list[Stats]) -> Candidate:
        """One candidate after a round: plain EM, or what the accelerated paths propose."""
        if not self.accelerate:
            return advanced(c, stats[0], Settings(self.covariance_type, self.reg_covar, self.tol))
        from unpooled.models.mixture import race

        paths = race.advance(c.memory, stats, self.covariance_type, self.reg_covar, self.tol)
        best = race.leader(paths)
        found = Candidate(best.best, race.asked(paths), best.loglik, best.gain, 0, race.settled(paths), paths)
        return found._replace(left_out=c.left_out)

    def _raced(self, c: Candidate) -> Candidate:
        """The candidate, with the memory that accelerated EM needs if `accelerate` is set."""
        if not self.accelerate:
            return c
        from unpooled.models.mixture import race

        alone = self.personal_weights  # clients keep weights for one path only
        return c._replace(memory=race.start(c.params, self.covariance_type, alone))

    def _sizes(self) -> tuple[int, ...]:
        """The numbers of components to fit."""
        if isinstance(self.n_components, str):
            return AUTO
        return tuple(np.atleast_1d(self.n_components).tolist())

    def _start_settings(self) -> Any:
        """The parameters that the start needs."""
        from unpooled.models.mixture.starts import StartSettings

        return StartSettings(
            init_params=self.init_params,
            sizes=self._sizes(),
            n_init=self.n_init,
            shape=self.covariance_type,
            min_count=self.min_count,
            weights=self.weights_init,
            means=self.means_init,
            precisions=self.precisions_init,
            max_iter=self.max_iter,
        )

    # ---- the result ----

    def _set_params(self, params: Params) -> None:
        """Set the parameters under scikit-learn's names."""
        shape = self.covariance_type
        self.weights_ = params.weights
        self.means_ = params.means
        self.covariances_ = gaussian.unpack_covs(params.covs, shape)
        self.precisions_cholesky_ = gaussian.precisions_cholesky(self.covariances_, shape)
        self.precisions_ = gaussian.precisions(self.precisions_cholesky_, shape)
        self.n_components_, self.n_features_in_ = (int(s) for s in params.means.shape)

    def fit_predict(self, X: Any, y: Any = None, **fit_params: Any) -> Array:
        """Fit to a plain array and return the most probable component of each row.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.
        y : None
            Ignored.
        **fit_params
            As for `fit`.

        Returns
        -------
        labels : ndarray of shape (n,)
            Component of each row.
        """
        one_table(self, X)
        return self.fit(X, y, **fit_params).predict(X)

    def check(self, fed: Federation) -> None:
        """Refuse parameters that do not exist or do not go together."""
        if isinstance(self.n_components, str) and self.n_components != "auto":
            text = f"n_components={self.n_components!r} is not known: give a number, a list of numbers or 'auto'"
            raise BadParameter(text)
        checks.check_parameters(self, self._sizes())
        from unpooled.models.initialization import is_rounded

        self._rounded = is_rounded(fed)
        if not self._exact:
            self._stochastic().check(self, fed, self._sizes())
