"""Gaussian mixture by federated EM: one SUM of sufficient statistics per round, equal to the pooled fit whatever the split.

A round sends the parameters down and, per component, a count, a sum and a packed second moment about the current mean up.
Several numbers of components, and several starts, ride in the same rounds.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import DensityMixin
from sklearn.exceptions import ConvergenceWarning

from unpooled import tree
from unpooled.arrays import Array, like, namespace, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.errors import BadParameter, suggest
from unpooled.estimator import Estimator, Info, Moment
from unpooled.federation import Federation
from unpooled.layers.private import find_private
from unpooled.maths import gaussian, mixture
from unpooled.maths.mixture import Params, Stats
from unpooled.models import initialization as start
from unpooled.models.mixture import race
from unpooled.models.mixture.collapse import collapsed
from unpooled.models.mixture.inference import MixtureFace
from unpooled.tree import message

AUTO = tuple(range(1, 11))
EMPTY = 0.1  # a component with fewer rows than this is re-seeded
MAX_RESEEDS = 3
KNOWN = {
    "covariance_type": gaussian.SHAPES,
    "init_params": ("cells", "gather", "random"),
    "solver": ("em", "fedem", "vr-fedem"),
}
LEAST = {"max_iter": 1, "n_init": 1, "tol": 0, "reg_covar": 0, "min_count": 0}


@message("mixture.Candidate")
class Candidate(NamedTuple):
    """One number of components from one start; several are fitted side by side."""

    params: Params
    asked: tuple[Params, ...]  # what the next round asks about: params, or where accelerated paths stand
    loglik: float  # per row, at the params before the last update
    gain: float
    reseeded: int
    converged: bool
    memory: Any  # the accelerated paths, or None


@message("mixture.State")
class State(NamedTuple):
    candidates: tuple[Candidate, ...]
    rows: float


# ---- questions ----


@client("mixture.e_step", SUM, adds=True)
def e_step(down: tuple[Params, ...], client: Client, *, shape: str) -> tuple[Stats, ...]:
    """Counts, sums and second moments of each component, weighted by how probable it is for each row."""
    return tuple(mixture.e_step(params, client.x, client.w, shape) for params in down)


@client("mixture.personal_e_step", SUM)
def personal_e_step(down: tuple[Params, ...], client: Client, *, shape: str, ids: list) -> tuple[Stats, ...]:
    """Counts, sums and second moments under the client's own weights, which it updates and keeps."""
    answers = []
    for i, params in zip(ids, down):
        mine = client.state.get(f"weights-{i}", params.weights)
        stats = mixture.e_step(params, client.x, client.w, shape, log_weights=_log(mine))
        client.state[f"weights-{i}"] = stats.n / stats.n.sum(-1)[..., None]
        answers.append(stats)
    return tuple(answers)


def _log(weights: Array) -> Array:
    xp = namespace(weights)
    return xp.log(xp.clip(weights, 1e-300, None))


# ---- the server ----


def reseed(params: Params, stats: Stats, shape: str) -> tuple[Params, int]:
    """Each empty component takes half of the widest heavy one, moved along its long axis; (params, how many)."""
    empty = np.flatnonzero(to_numpy(stats.n) < EMPTY)
    if not len(empty) or len(empty) == len(stats.n):
        return params, 0
    weights, means = np.array(to_numpy(params.weights)), np.array(to_numpy(params.means))
    covs = np.array(to_numpy(gaussian.full_covs(params, shape)))
    for k in empty:
        widest = int(np.argmax(weights * np.trace(covs, axis1=1, axis2=2)))
        values, vectors = np.linalg.eigh(covs[widest])
        step = np.sqrt(values[-1]) * vectors[:, -1]
        means[k], covs[k] = means[widest] + step, covs[widest]
        weights[k] = weights[widest] = weights[widest] / 2
    xp = namespace(params.means)
    packed = gaussian.pack_covs(covs if shape == "full" else gaussian.reshape_covs(covs, shape), shape)
    place = {} if xp is np else {"device": params.means.device}
    return Params(*(xp.asarray(a, **place) for a in (weights / weights.sum(), means, packed))), len(empty)


class GaussianMixture(MixtureFace, DensityMixin, Estimator):
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
        EM stops when the log-likelihood per row gains less.
    reg_covar : float, default=1e-6
        Added to the diagonal of covariances.
    max_iter : int, default=100
        Rounds at most.
    n_init : int, default=1
        Number of starts; they share the rounds.
    init_params : {"cells", "gather", "random"}, default="cells"
        Where EM starts. "cells": sums over small regions, so that the start, and with it the fit, is the same however rows are
        split into clients. "gather": one GATHER of local k-means centres. "random": means drawn from the columns' ranges.
    weights_init, means_init, precisions_init : array-like, default=None
        Starting values, as in scikit-learn; they override `init_params`.
    random_state : int, RandomState or None, default=None
        Seed of the start and of cohorts.
    warm_start : bool, default=False
        Whether a further `fit` starts from the last result.
    solver : {"em", "fedem", "vr-fedem"}, default="em"
        "em" is exact. The others send less and bear clients that come and go: see `FedEM` and `VRFedEM`.
    solver_options : dict, default=None
        Further parameters of `FedEM` or `VRFedEM`: levels, batch_size, step_size and so on.
    personal_weights : bool, default=False
        Whether each client keeps mixing weights of its own, which never leave it; see `personal_` and `adapt`.
    accelerate : bool, default=False
        Fewer rounds on hard fits, safeguarded; such a round asks about up to five mixtures at once.
    min_count : float, default=5
        With `init_params="gather"`, a local cluster of fewer rows does not leave its client.
    fraction : float, default=1.0
        Share of the clients asked in a round.

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
        Whether EM stopped by `tol`.
    n_iter_ : int
        Number of rounds.
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
        self.solver = solver
        self.solver_options = solver_options
        self.personal_weights = personal_weights
        self.accelerate = accelerate
        self.min_count = min_count
        self.fraction = fraction

    # ---- fitting ----

    def rounds(self, fed: Federation, saved: Moment | None = None) -> Iterator[Moment]:
        """Fit, handing out what is needed to go on; with a `Private` layer in `fed`, by the private counterpart."""
        if find_private(fed) is None:
            return super().rounds(fed, saved)
        from unpooled.models.private import rounds_private

        return rounds_private(self, fed, saved)

    def init(self, fed: Federation, rng: np.random.Generator) -> Any:
        if self.solver != "em":
            return self._stochastic(fed, rng).init(fed, rng)
        frame = start.frame(fed)
        self._check_against(frame)
        warm = self.warm_start and hasattr(self, "means_")
        starts = [self.params()] if warm else self._starts(fed, frame, rng)
        return State(tuple(self._candidate(p) for p in starts), float(frame.rows))

    def step(self, fed: Federation, state: Any) -> tuple[Any, Info]:
        if self.solver != "em":
            return self._stochastic().step(fed, state)
        active = [i for i, c in enumerate(state.candidates) if not c.converged]
        cohort = fed if self.fraction == 1.0 else fed.sample(self.fraction, fed.journal.rng)
        asked = [state.candidates[i].asked for i in active]
        answers = iter(cohort.sum(self._question(active), tuple(params for some in asked for params in some)))
        found = [[next(answers) for _ in some] for some in asked]
        moved = dict(zip(active, (self._move(state.candidates[i], s) for i, s in zip(active, found))))
        candidates = tuple(moved.get(i, c) for i, c in enumerate(state.candidates))
        best = candidates[self._best(candidates, state.rows)]
        info = {"loglik": best.loglik, "candidates": len(active), "reseeded": sum(c.reseeded for c in candidates)}
        return State(candidates, state.rows), info

    def done(self, state: Any, history: list[Info]) -> bool:
        if self.solver != "em":
            return self._stochastic().done(state, history)
        return all(c.converged for c in state.candidates)

    def finish(self, fed: Federation, state: Any) -> None:
        if self.solver != "em":
            state = self._as_candidate(state)
        i = self._chosen(state.candidates, state.rows)
        best = state.candidates[i]
        self._set_params(best.params)
        self.converged_, self.lower_bound_ = bool(best.converged), float(best.loglik)
        self.lower_bounds_ = [row["loglik"] for row in self.history_]
        self.bic_, self.aic_ = (
            self._criterion(best, state.rows, np.log(state.rows)),
            self._criterion(best, state.rows, 2.0),
        )
        bics = [(len(c.params.weights), self._criterion(c, state.rows, np.log(state.rows))) for c in state.candidates]
        self.bics_ = {k: min(bic for size, bic in bics if size == k) for k, _ in bics}
        if self.personal_weights:
            key = f"weights-{i}"
            self.client_weights_ = {c.name: c.state[key] for c in fed.here() if key in c.state}
        self._warn(best)

    def _stochastic(self, fed: Federation | None = None, rng: np.random.Generator | None = None) -> Any:
        """The FedEM that does the rounds; given a federation, with the start that the user gave."""
        family = {
            "name": "gaussian",
            "n_components": self._sizes()[0],
            "shape": self.covariance_type,
            "reg": self.reg_covar,
        }
        kind = _stochastic_class(self.solver)
        settings = {
            "max_iter": self.max_iter,
            "tol": self.tol,
            "fraction": self.fraction,
            "init_params": self.init_params,
            "random_state": self.random_state,
        }
        given = None
        if fed is not None and rng is not None and self.means_init is not None:
            given = self._starts(fed, start.frame(fed), rng)[0]
        return kind(family, params_init=given, **{**settings, **(self.solver_options or {})})

    def _as_candidate(self, state: Any) -> State:
        """FedEM's last state as the exact solver would have left it."""
        solver, loglik = self._stochastic(), [row["loglik"] for row in self.history_]
        gain = loglik[-1] - loglik[-2] if len(loglik) > 1 else np.inf
        converged = solver.done(state, self.history_)
        params = solver.result(state)
        return State((Candidate(params, (params,), loglik[-1], gain, 0, converged, None),), state.rows)

    def _question(self, ids: list[int]) -> Any:
        if self.personal_weights:
            return personal_e_step.using(shape=self.covariance_type, ids=ids)
        return e_step.using(shape=self.covariance_type)

    def _move(self, c: Candidate, found: list[Stats]) -> Candidate:
        """One candidate after a round: plain EM, or what the accelerated paths propose."""
        if self.accelerate:
            return self._accelerated(c, found)
        (stats,), shape = found, self.covariance_type
        params = tree.map(lambda a: like(a, stats.x), c.params)  # where the clients' arrays live
        loglik = float(stats.loglik) / float(stats.rows)
        params = mixture.m_step(params, stats, shape, self.reg_covar)
        params = params._replace(covs=gaussian.project_positive(params.covs, shape, self.reg_covar))
        params, new = reseed(params, stats, shape) if c.reseeded < MAX_RESEEDS else (params, 0)
        gain = loglik - c.loglik
        return Candidate(params, (params,), loglik, gain, c.reseeded + new, not new and abs(gain) < self.tol, None)

    def _accelerated(self, c: Candidate, found: list[Stats]) -> Candidate:
        paths = race.advance(c.memory, found, self.covariance_type, self.reg_covar, self.tol)
        best = race.leader(paths)
        return Candidate(best.best, race.asked(paths), best.loglik, best.gain, 0, race.settled(paths), paths)

    def _candidate(self, params: Params) -> Candidate:
        departures = race.DEPARTURES[: 1 if self.personal_weights else None]  # clients keep weights for one path each
        paths = race.start(params, self.covariance_type, departures) if self.accelerate else None
        return Candidate(params, (params,), -np.inf, np.inf, 0, False, paths)

    # ---- the start ----

    def _sizes(self) -> tuple[int, ...]:
        if isinstance(self.n_components, str):
            return AUTO
        return tuple(np.atleast_1d(self.n_components).tolist())

    def _starts(self, fed: Federation, frame: start.Frame, rng: np.random.Generator) -> list[Params]:
        """One start for each number of components and each of n_init; what the user gave overrides it."""
        sizes = [k for k in self._sizes() for _ in range(self.n_init)]
        shape = self.covariance_type
        if self.means_init is not None:
            found = [start.wide(frame, np.asarray(self.means_init, dtype=float), shape)]
        elif self.init_params == "random":
            found = [start.wide(frame, start.random_means(frame, k, rng), shape) for k in sizes]
        elif self.init_params == "cells":
            found = start.cells_start(fed, frame, self._sizes(), self.n_init, shape, rng)
        else:
            centres = start.centres(fed, frame, max(sizes), self.min_count)
            found = [start.from_centres(frame, start.cluster_centres(centres, k, rng), shape) for k in sizes]
        return [start.override(p, self.weights_init, self.precisions_init, shape) for p in found]

    # ---- the result ----

    def _set_params(self, params: Params) -> None:
        shape = self.covariance_type
        self.weights_, self.means_ = params.weights, params.means
        self.covariances_ = gaussian.unpack_covs(params.covs, shape)
        self.precisions_cholesky_ = gaussian.precisions_cholesky(self.covariances_, shape)
        self.precisions_ = gaussian.precisions(self.precisions_cholesky_, shape)
        self.n_components_, self.n_features_in_ = (int(s) for s in params.means.shape)

    def _criterion(self, c: Candidate, rows: float, price: float) -> float:
        k, d = c.params.means.shape
        return float(-2 * c.loglik * rows + gaussian.n_parameters(k, d, self.covariance_type) * price)

    def _best(self, candidates: Sequence[Candidate], rows: float) -> int:
        return int(np.argmin([self._criterion(c, rows, np.log(rows)) for c in candidates]))

    def _chosen(self, candidates: Sequence[Candidate], rows: float) -> int:
        """The least BIC among candidates of which no component has collapsed; among all where each has such a component."""
        best = self._best(candidates, rows)
        shape, reg = self.covariance_type, self.reg_covar
        sound = [i for i, c in enumerate(candidates) if not collapsed(c.params, shape, reg).any()]
        if best in sound:
            return best
        text = f"a component of the fit with {len(candidates[best].params.weights)} components has no variance beyond reg_covar"
        if not sound:
            advice = "lower n_components, raise reg_covar, or leave out columns of few distinct values"
            warnings.warn(f"{text} in some direction: {advice}", ConvergenceWarning, stacklevel=4)
            return best
        chosen = sound[self._best([candidates[i] for i in sound], rows)]
        size = len(candidates[chosen].params.weights)
        warnings.warn(f"{text}, so that its BIC means nothing: {size} were chosen", ConvergenceWarning, stacklevel=4)
        return chosen

    def _warn(self, best: Candidate) -> None:
        if not best.converged and self.tol > 0:
            advice = (
                "raise max_iter or set accelerate=True"
                if self.solver == "em" and not self.accelerate
                else "raise max_iter"
            )
            text = f"the fit gained {best.gain:.2g} per row in round {self.n_iter_}, above tol={self.tol:g}: {advice}"
            warnings.warn(text, ConvergenceWarning, stacklevel=4)
        if best.reseeded:
            text = f"{best.reseeded} empty components were re-seeded: n_components={len(best.params.weights)} may be too many"
            warnings.warn(text, ConvergenceWarning, stacklevel=4)

    # ---- personal models ----

    @property
    def personal_(self) -> Mapping[str, GaussianMixture]:
        """Each client's own mixture: the shared components under its own weights."""
        if not hasattr(self, "client_weights_"):
            raise AttributeError("personal_ needs personal_weights=True, a fit, and clients in this process")
        return {name: self._with_weights(weights) for name, weights in self.client_weights_.items()}

    def adapt(self, X: Any, y: Any = None) -> GaussianMixture:
        """A personal model for a client never seen: EM on its weights alone, in this process, components frozen."""
        return self._with_weights(self.adapt_weights(X))

    def adapt_weights(self, X: Any) -> Array:
        """The mixing weights under which these rows are most likely, components frozen."""
        x, params = self._rows(X), self.params()
        log_joint = mixture.log_joint(
            params._replace(weights=namespace(params.weights).ones_like(params.weights)), x, self.covariance_type
        )
        return mixture.fit_weights(log_joint, params.weights)

    def _with_weights(self, weights: Array) -> GaussianMixture:
        personal = GaussianMixture(**self.get_params())
        for name in ("n_iter_", "history_", "converged_", "columns_", "feature_names_in_"):
            if hasattr(self, name):
                setattr(personal, name, getattr(self, name))
        personal._set_params(self.params()._replace(weights=weights))
        return personal

    def fit_predict(self, X: Any, y: Any = None, **how: Any) -> Array:
        """Fit to a plain array, and the component of each of its rows."""
        return self.fit(X, y, **how).predict(X)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    # ---- refusals ----

    def check(self, fed: Federation) -> None:
        for name, known in KNOWN.items():
            if getattr(self, name) not in known:
                raise BadParameter(f"{name}={getattr(self, name)!r} is not known: use one of {', '.join(known)}")
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise BadParameter(f"{name}={getattr(self, name)!r} must be at least {least}")
        if isinstance(self.n_components, str) and self.n_components != "auto":
            text = f"n_components={self.n_components!r} is not known: give a number, a list of numbers or 'auto'"
            raise BadParameter(text)
        if min(self._sizes(), default=0) < 1:
            raise BadParameter(f"n_components={self.n_components!r} must be at least 1")
        if self.solver != "em":
            self._check_stochastic(fed)

    def _check_stochastic(self, fed: Federation) -> None:
        if len(self._sizes()) > 1 or self.personal_weights or self.accelerate:
            text = "fits one n_components with shared weights: leave personal_weights and accelerate as they are"
            raise BadParameter(f"solver={self.solver!r} {text}")
        _known_options(self.solver_options or {}, _stochastic_class(self.solver))
        self._stochastic().check(fed)

    def _check_against(self, frame: start.Frame) -> None:
        """What can be refused only once the width and the number of rows are known."""
        k, d = max(self._sizes()), len(frame.mean)
        if float(frame.rows) < k:
            raise BadParameter(f"n_components={k} is more than n_samples={float(frame.rows):.0f}: lower it")
        covs = {"full": (k, d, d), "tied": (d, d), "diag": (k, d), "spherical": (k,)}[self.covariance_type]
        for name, wanted in {"weights_init": (k,), "means_init": (k, d), "precisions_init": covs}.items():
            given = getattr(self, name)
            if given is not None and (np.shape(given) != wanted or len(self._sizes()) > 1):
                raise BadParameter(
                    f"{name} has shape {np.shape(given)}, but n_components={self.n_components!r} needs {wanted}"
                )


def _stochastic_class(solver: str) -> type:
    """The estimator that does the rounds of solver="fedem" or "vr-fedem"; imported when it is used."""
    from unpooled.models.fedem import FedEM, VRFedEM

    return VRFedEM if solver == "vr-fedem" else FedEM


def _known_options(options: Mapping[str, Any], kind: Any) -> None:
    for name in options:
        if name not in kind._get_param_names():
            raise BadParameter(f"{kind.__name__} has no option {name!r}: {suggest(name, kind._get_param_names())}")
