"""FedEM and VR-FedEM: EM in the space of statistics; one SUM per round, of a few bits per number.

The parameters go down. Up comes, from each client of the cohort, the difference between its mean statistics and its memory, quantised and
entropy-coded by the layer `Compressed`. The memories make up for what quantisation loses, so that clients may differ.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.choices import describe, resolve
from unpooled.client import Ask
from unpooled.errors import BadData, BadParameter
from unpooled.estimator import Estimator, Info
from unpooled.federation import Federation, cohort
from unpooled.layers.compression import (
    QUANTISERS,
    Compressed,
    Dither,
    Identity,
    Sparsify,
    compression_of,
    memory_step,
    usual_omega,
)
from unpooled.maths import gaussian
from unpooled.maths.mixture import Params
from unpooled.models import initialization
from unpooled.models.fedem import (
    compression,  # noqa: F401  # registers how answers are compressed
    server,
)
from unpooled.models.fedem.client import (
    Contribution,
    Down,
    contribute,
    covariance,
    exact,
    inspect,
    log_likelihood,
    target,
)
from unpooled.models.fedem.families import FAMILIES, CommonCovariance
from unpooled.models.fedem.server import Estimate, Move, Progress, State
from unpooled.parameters import at_least, one_of, within
from unpooled.tree import Tree

MEMORIES = ("statistics", "field", "none")
COHORTS = ("bernoulli", "fixed")
STARTS = ("cells", "gather", "random")
MAX_HALVINGS = 12
MAX_STALE_CHANGE = 0.1  # a longer step waits: change of the parameters times the fraction of rows missing from it
LOW_NOISE = 0.1  # a step with a smaller fraction of noise is EM's own and is never shortened
CHECK_EVERY = (
    10  # rounds: where they are random, the log-likelihood of all rows is asked for this often, and after the first
)
FALL = 1e-3  # per row: where the log-likelihood of all rows has fallen by more, the fit goes back; EM never lowers it, noise does
MOST_RETURNS = 6  # each doubles the batch


class FedEM(Estimator):
    """EM with compressed statistics, partial participation and minibatches, for any exponential family.

    Parameters
    ----------
    family : family, str or dict, default="gaussian"
        A family of `unpooled.models.fedem.families`, its name, or a dict of its name and its numbers:
        ``{"name": "poisson", "n_components": 3}``.
    levels : int, default=None
        Levels each way of the random rounding of what clients send, 1 to 127; more are used while statistics change quickly.
        None sends float64.
    quantiser : quantiser, str or dict, default=None
        Instead of `levels`, any quantiser of `unpooled.layers.compression`.
    omega : float, default=None
        Instead of `levels`, random sparsification with this relative variance.
    step_size : float or "auto", default="auto"
        Step gamma of the statistics, above 0 and at most 1. "auto" is 1, or (1 + round)^-0.6 for minibatches without variance
        reduction.
    decay : float, default=0.0
        The step shrinks as (1 + round)^-decay; 0 to 1.
    memory : {"statistics", "field", "none"}, default="statistics"
        What the memory V of each client follows: its statistics, the mean field h as in the paper (the server then sends S as
        well), or nothing.
    alpha : float, default=None
        Step of the memories. None is 1 / (1 + omega), with omega the usual relative variance of the quantiser.
    fraction : float, default=1.0
        Probability that a client takes part in a round ("bernoulli"), or the fraction of clients that do ("fixed").
    cohort : {"bernoulli", "fixed"}, default="bernoulli"
        How the clients of a round are drawn. The first round asks all of them.
    batch_size : int, default=None
        Rows that a client uses in a round; None for all.
    epoch : int, default=None
        Rounds between two passes over all rows of VR-FedEM, where clients keep their statistics and add their change on a batch.
        None uses each batch by itself.
    patience : int, default=6
        Where clients are absent, a step that would change the parameters a lot waits for more answers, at most this many rounds.
        Otherwise the first and longest steps would rest on few clients, and their noise would decide the local optimum.
    guard : float, default=3.0
        A noisy step that changes the parameters by more than this (logarithms and standard deviations) is halved. None: never.
    exact_every : int, default=0
        Every so many rounds one more SUM, uncompressed, for the exact log-likelihood and the squared norm of the mean field in
        `history_`; 0 for never.
    init_params : {"cells", "gather", "random"}, default="cells"
        The start of Gaussian families: sums over small regions, which give the same start however rows are split into clients; one
        GATHER of local k-means centres; or random means. Other families have random starts.
    params_init : params of the family, default=None
        Parameters to start from, in the units of the data. None chooses them from the data.
    max_iter : int, default=100
        Most rounds.
    tol : float, default=1e-5
        The fit has converged when an EM step gains less than this in log-likelihood per row. 0 runs all rounds.
    random_state : int, RandomState or None, default=None
        As in scikit-learn.

    Attributes
    ----------
    params_ : params of the family
        The fitted parameters, in the units of the data.
    statistics_ : statistics of the family
        The last mean statistics, standardised.
    converged_ : bool
        Whether the fit converged. Where rounds are random (cohorts, compression, minibatches), this needs the log-likelihood of
        all rows of all clients: it has stopped rising, and one exact EM step gains less than `tol`.
    n_iter_ : int
        Number of rounds.
    n_features_in_ : int
        Number of columns.
    projections_ : int
        Rounds in which noise pushed the statistics out of the feasible set.
    history_ : list of dict
        One dict per round: `loglik` (per row, of the cohort), `field` (squared norm of the estimated mean field), `step_size` (0 for
        a round that waited), `halved`, `projected`, `expectations` (computed), bytes and seconds.

    References
    ----------
    Dieuleveut, Fort, Moulines and Robin, Federated-EM with heterogeneity mitigation and variance reduction, NeurIPS 2021.

    Examples
    --------
    >>> import numpy as np
    >>> import unpooled as up
    >>> rng = np.random.default_rng(0)
    >>> sites = {name: rng.poisson(rng.choice([2.0, 9.0], size=(150, 1)), size=(150, 3)).astype(float) for name in "abcd"}
    >>> model = up.FedEM({"name": "poisson", "n_components": 2}, levels=7, random_state=0).fit(sites)
    >>> model.converged_
    True
    >>> np.sort(model.params_.rates.mean(axis=1)).round().astype(int).tolist()
    [2, 9]
    """

    def __init__(
        self,
        family: Any = "gaussian",
        *,
        levels: int | None = None,
        quantiser: Any = None,
        omega: float | None = None,
        step_size: float | str = "auto",
        decay: float = 0.0,
        memory: str = "statistics",
        alpha: float | None = None,
        fraction: float = 1.0,
        cohort: str = "bernoulli",
        batch_size: int | None = None,
        epoch: int | None = None,
        patience: int = 6,
        guard: float | None = 3.0,
        exact_every: int = 0,
        init_params: str = "cells",
        params_init: Any = None,
        max_iter: int = 100,
        tol: float = 1e-5,
        random_state: Any = None,
    ):
        self.family = family
        self.levels = levels
        self.quantiser = quantiser
        self.omega = omega
        self.step_size = step_size
        self.decay = decay
        self.memory = memory
        self.alpha = alpha
        self.fraction = fraction
        self.cohort = cohort
        self.batch_size = batch_size
        self.epoch = epoch
        self.patience = patience
        self.guard = guard
        self.exact_every = exact_every
        self.init_params = init_params
        self.params_init = params_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def check(self, fed: Federation) -> None:
        self._family(), self._quantiser()
        within("fraction", self.fraction, 0, 1, "the probability that a client takes part in a round")
        if self.step_size != "auto":
            within("step_size", self.step_size, 0, 1, "gamma, the share of the way to the new statistics")
        if self.alpha is not None:
            within("alpha", self.alpha, 0, 1, "the memory's step")
        for name in ("batch_size", "epoch"):
            if getattr(self, name) is not None:
                at_least(name, getattr(self, name), 1)
        at_least("patience", self.patience, 0)
        if self.guard is not None and not self.guard > 0:
            raise BadParameter(f"guard={self.guard!r} must be above 0, or None for no guard")
        if not 0 <= self.decay <= 1:
            raise BadParameter(f"decay={self.decay!r} must be from 0 (constant steps) to 1")
        one_of("memory", self.memory, MEMORIES)
        one_of("cohort", self.cohort, COHORTS)
        one_of("init_params", self.init_params, STARTS)
        self._check_compression(fed)

    def _check_compression(self, fed: Federation) -> None:
        """A Compressed around the federation and the parameters of this class must not say different things."""
        layer = compression_of(fed)
        if layer is None:
            return
        given = [name for name in ("levels", "quantiser", "omega", "alpha") if getattr(self, name) is not None]
        if given:
            raise BadParameter(
                f"{given[0]}= compresses what clients send, and so does the Compressed around the federation: give one of them"
            )
        if layer.memory != (self.memory != "none"):
            raise BadParameter(
                f"memory={self.memory!r} of {type(self).__name__} and memory={layer.memory} of Compressed disagree: "
                "set both to keep a memory, or neither"
            )

    # ---- the start: rows are checked and standardised, parameters are chosen ----

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        family = self._family()
        self._refuse_bad_rows(fed, family)
        frame = initialization.frame(fed)
        mean, scale = to_numpy(frame.mean), to_numpy(frame.scale)
        if family.supervised:
            mean, scale = self._with_target(fed, mean, scale)
        shift, unit = family.frame(mean, scale)
        if self.params_init is not None:
            params = family.unscale(self.params_init, -shift / unit, 1 / unit)
        else:
            params = self._first_params(fed, family, frame, (mean - shift) / unit, scale / unit, rng)
            params = self._with_total_covariance(fed, family, params, shift, unit)
        params = tree.map(lambda a: np.asarray(a, np.float64), params)
        return server.begin(params, family.moments(params), shift, unit)

    def _refuse_bad_rows(self, fed: Federation, family: Any) -> None:
        """Every client says how many rows do not suit the family, before any work."""
        ask = inspect.using(family=describe(family, FAMILIES))
        rows, bad = fed.sum(ask, None)
        if not bad:
            return
        whose = ""
        for c in fed.here():  # over a network nobody is named
            its_rows, its_bad = ask(None, c)
            if its_bad:
                rows, bad, whose = its_rows, its_bad, f" of client {c.name!r}"
                break
        raise BadData(
            f"{float(bad):.0f} of {float(rows):.0f} rows{whose} do not suit the family: it wants {family.wants}"
        )

    def _with_target(self, fed: Federation, mean: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(mean, scale) of the columns and, last, of the target."""
        y = fed.sum(target, None)
        y_mean = float(y.y / y.n)
        y_scale = np.sqrt(max(float(y.yy / y.n) - y_mean**2, 1e-300))
        return np.append(mean, y_mean), np.append(scale, y_scale)

    def _first_params(
        self,
        fed: Federation,
        family: Any,
        frame: Any,
        mean: np.ndarray,
        scale: np.ndarray,
        rng: np.random.Generator,
    ) -> Tree:
        """From clusters of the rows, where the family can use them; otherwise random."""
        if not hasattr(family, "from_clusters") or self.init_params == "random":
            return family.start(mean, scale, rng)
        if self.init_params == "cells" and getattr(family, "shape", "") in ("full", "tied"):
            (found,) = initialization.cells_start(fed, frame, [family.n_components], 1, family.shape, rng)
            return _in_units(found, frame, mean, scale, family.shape)
        weights, means, variances = self._clusters(fed, frame, family.n_components, rng)
        return family.from_clusters(weights, mean + scale * means, scale**2 * (variances + 1e-3))

    def _clusters(
        self, fed: Federation, frame: Any, k: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Weights (k,), means and variances (k, d) of standardised clusters."""
        if self.init_params == "cells":
            (found,) = initialization.cells_start(fed, frame, [k], 1, "diag", rng)
            return found.weights, (found.means - frame.mean) / frame.scale, found.covs / frame.scale**2
        centres = initialization.centres(fed, frame, k, 5)
        clusters = initialization.cluster_centres(centres, k, rng)
        return clusters.n / clusters.n.sum(), clusters.x, clusters.xx / clusters.n[:, None]

    def _with_total_covariance(
        self, fed: Federation, family: Any, params: Tree, shift: np.ndarray, unit: np.ndarray
    ) -> Tree:
        """CommonCovariance learns within-component covariance from that of all rows: one SUM."""
        if not (isinstance(family, CommonCovariance) and family.covariance == "implied"):
            return params
        found = fed.sum(covariance, Down(params, None, shift, unit, np.asarray(0), np.asarray(0)))
        return params._replace(total=to_numpy(found.xx) / float(found.n), centre=np.zeros_like(shift))

    # ---- a round ----

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        family = self._family(state.unit)
        asked, layer = self._compressed(self._cohort(fed, state), state)
        total = asked.sum(self._question(state), self._down(state))
        found = server.estimate(state, total, layer.alpha_for(_size(state)), self._reference(state))
        noise = self._noise(layer.quantiser, state, len(asked.names))
        move = self._move(family, state, found, noise)
        is_random = self._is_random(layer.quantiser)
        new = State(
            move.params,
            move.stats,
            found.memory,
            found.rows,
            state.shift,
            state.unit,
            state.round + 1,
            server.after_move(found) if move.step_size else found.collected,
            state.progress,
        )
        exact_info = self._exact_info(fed, is_random, state, found.field)
        progress, progress_info = self._progress(fed, family, is_random, new, total)
        info = {
            "loglik": float(total.loglik / total.rows),
            "field": server.squared_norm(found.field),
            **exact_info,
            **progress_info,
            "step_size": move.step_size,
            "halved": move.halvings,
            "projected": int(family.project(move.stats)[1]),
            "expectations": float(total.expectations),
        }
        return self._gone_back(family, new._replace(progress=progress)), info

    def _cohort(self, fed: Federation, state: State) -> Federation:
        """The clients of this round; all in the first one, so that the server knows how many rows there are."""
        if state.round == 0 or self.fraction == 1:
            return fed
        rng = fed.journal.rng
        if self.cohort == "fixed":
            return fed.only(cohort(fed.names, self.fraction, rng))
        drawn = rng.random(len(fed.names)) < self.fraction
        if not drawn.any():
            drawn[rng.integers(len(drawn))] = True
        return fed.only([name for name, takes_part in zip(fed.names, drawn) if takes_part])

    def _compressed(self, fed: Federation, state: State) -> tuple[Federation, Compressed]:
        """(the compressed federation, its layer): the user's own, or one with the quantiser of this class."""
        given = compression_of(fed)
        if given is not None:
            return fed, given
        quantiser = self._quantiser()
        alpha = self.alpha or memory_step(quantiser, _size(state))
        layer = Compressed(fed, quantiser=quantiser, memory=self.memory != "none", alpha=alpha)
        return layer, layer

    def _question(self, state: State) -> Ask:
        family = describe(self._family(), FAMILIES)
        return contribute.using(family=family, batch=self._batch_now(state), reduce=self._reduces())

    def _down(self, state: State) -> Down:
        return Down(
            state.params,
            None if self.memory == "statistics" else state.stats,
            state.shift,
            state.unit,
            np.asarray(state.round // self._rounds_per_epoch() + state.progress.returns if self._reduces() else 0),
            np.asarray(state.collected.version),
        )

    def _reference(self, state: State) -> Tree:
        """What memories are relative to."""
        return state.stats if self.memory == "statistics" else tree.map(np.zeros_like, state.stats)

    # ---- steps ----

    def _move(self, family: Any, state: State, found: Estimate, noise: float) -> Move:
        """The step of this round: none while it waits for more clients, shortened where noise made it long."""
        gamma = self._gamma(state.round)
        move = self._moved(family, state, found.field, gamma, 0)
        change = family.change(state.params, move.params)
        if self._may_wait(state) and found.missing * change > MAX_STALE_CHANGE:
            return Move(0.0, 0, state.stats, state.params)
        if state.round == 0 or not self._is_guarded(family, move, noise + found.missing):
            return move
        while move.halvings < MAX_HALVINGS and family.change(state.params, move.params) > self.guard:
            gamma = gamma / 2
            move = self._moved(family, state, found.field, gamma, move.halvings + 1)
        return move

    def _moved(self, family: Any, state: State, field: Tree, gamma: float, halvings: int) -> Move:
        stats = tree.map(lambda s, h: s + gamma * h, state.stats, field)
        return Move(gamma, halvings, stats, family.maximize(stats, state.params))

    def _gamma(self, round: int) -> float:
        if self.step_size != "auto":
            return self.step_size * (1 + round) ** -self.decay
        if self._batch() is None or self._reduces():
            return 1.0
        return (1 + round) ** -0.6

    def _may_wait(self, state: State) -> bool:
        """Without memories earlier answers are lost, and there is nothing to wait for."""
        return self.fraction < 1 and self.memory != "none" and state.collected.rounds < self.patience

    def _is_guarded(self, family: Any, move: Move, noise: float) -> bool:
        """Whether a long step is shortened: it is noisy, or noise has pushed it out of the feasible set."""
        if self.guard is None:
            return False
        return noise > LOW_NOISE or (noise > 0 and family.project(move.stats)[1])

    def _noise(self, quantiser: Any, state: State, n_clients: int) -> float:
        """The expected fraction of noise in a step; 1 where messages are not changes of the statistics of all rows."""
        whole_messages = self.memory == "none" and self._is_random(quantiser)
        if self._batch() is not None or whole_messages:
            return 1.0
        return float(np.sqrt(usual_omega(quantiser, _size(state)) / n_clients))

    def _is_random(self, quantiser: Any) -> bool:
        """Whether rounds are random; otherwise each is a plain EM step."""
        return self.fraction < 1 or self._batch() is not None or not isinstance(quantiser, Identity)

    def _batch(self) -> int | None:
        return self.batch_size

    def _batch_now(self, state: State) -> int | None:
        """The batch, doubled each time that noise has led the fit away from its best parameters."""
        batch = self._batch()
        return None if batch is None else batch * 2**state.progress.returns

    def _rounds_per_epoch(self) -> int:
        """Of variance reduction; 0 for none."""
        return self.epoch or 0

    def _reduces(self) -> bool:
        return self._rounds_per_epoch() > 0

    # ---- convergence: only the log-likelihood of the same rows can be compared ----

    def _progress(
        self, fed: Federation, family: Any, is_random: bool, state: State, total: Contribution
    ) -> tuple[Progress, Info]:
        """The log-likelihood of all rows, as far as it is known, and whether it has stopped rising."""
        if not is_random:
            progress = self._compared(state.progress, total, state.round, state.params)
            return progress._replace(best=progress.loglik, best_params=state.params), {}
        if self.tol <= 0 or (state.round > 1 and state.round % CHECK_EVERY):
            return state.progress, {}
        found = self._log_likelihood(fed, state, state.params)
        progress = self._compared(state.progress, found, state.round, state.params)
        complete = np.isclose(float(found.rows), state.rows, rtol=1e-9)
        near_best = progress.loglik > progress.best - self.tol
        may_stop = progress.converged and complete and near_best
        converged = bool(may_stop and self._em_step_gain(fed, family, state) < self.tol)
        return progress._replace(converged=converged), {"common_loglik": progress.loglik}

    def _gone_back(self, family: Any, state: State) -> State:
        """The same state, or one at the best parameters so far where noise has led away from them."""
        progress = state.progress
        if not self._has_fallen(progress, state.round):
            return state
        params = progress.best_params
        progress = progress._replace(loglik=progress.best, converged=False, returns=progress.returns + 1)
        return server.returned(state, params, family.moments(params))._replace(progress=progress)

    def _has_fallen(self, progress: Progress, round: int) -> bool:
        """Whether the last log-likelihood of all rows is well below the best one."""
        fallen = progress.loglik < progress.best - max(FALL, 10 * self.tol)
        return bool(progress.round == round and fallen and progress.returns < MOST_RETURNS)

    def _compared(self, last: Progress, found: Any, round: int, params: Tree) -> Progress:
        """Converged if the log-likelihood per row of the same rows rose by less than `tol` per round."""
        rows, loglik = float(found.rows), float(found.loglik / found.rows)
        same_rows = np.isclose(rows, last.rows, rtol=1e-9)
        gain = (loglik - last.loglik) / (round - last.round)
        converged = bool(self.tol > 0 and same_rows and gain < self.tol)
        if loglik < last.best:
            return last._replace(loglik=loglik, rows=rows, round=round, converged=converged)
        return Progress(loglik, rows, round, converged, loglik, params, last.returns)

    def _em_step_gain(self, fed: Federation, family: Any, state: State) -> float:
        """The size of the change in log-likelihood per row that one exact EM step over all clients makes: two SUMs."""
        before = self._exact(fed, state)
        stats = tree.map(lambda s: s / float(before.rows), before.stats)
        after = self._log_likelihood(fed, state, family.maximize(stats, state.params))
        if not np.isclose(float(after.rows), float(before.rows), rtol=1e-9):
            return np.inf
        return abs(float(after.loglik - before.loglik) / float(after.rows))

    def _log_likelihood(self, fed: Federation, state: State, params: Tree) -> Any:
        question = log_likelihood.using(family=describe(self._family(), FAMILIES))
        return fed.sum(question, self._down(state)._replace(params=params, stats=None))

    def _exact(self, fed: Federation, state: State) -> Any:
        question = exact.using(family=describe(self._family(), FAMILIES))
        return fed.sum(question, self._down(state)._replace(stats=None))

    def _exact_info(self, fed: Federation, is_random: bool, state: State, field: Tree) -> Info:
        """Squared norm of the exact mean field and exact log-likelihood, at the parameters that this round asked about."""
        if not is_random:
            return {"exact_field": server.squared_norm(field)}
        if not self.exact_every or state.round % self.exact_every:
            return {}
        total = self._exact(fed, state)
        exact_field = tree.map(lambda t, s: t / float(total.rows) - s, total.stats, state.stats)
        return {
            "exact_field": server.squared_norm(exact_field),
            "exact_loglik": float(total.loglik / total.rows),
        }

    def done(self, state: State, history: list[Info]) -> bool:
        return state.progress.converged

    # ---- the result ----

    def finish(self, fed: Federation, state: State) -> None:
        self.params_, self.statistics_ = self.result(state), state.stats
        self.converged_ = state.progress.converged
        self.n_features_in_ = len(state.shift) - int(self._family().supervised)
        self.projections_ = sum(row["projected"] for row in self.history_)
        if not self.converged_ and self.tol > 0:
            warnings.warn(
                f"the fit did not converge in {self.n_iter_} rounds: an EM step over all clients still gains tol={self.tol:g} "
                "or more per row, or not all clients answered; raise max_iter",
                ConvergenceWarning,
                stacklevel=4,
            )

    def result(self, state: State) -> Tree:
        """The parameters in the units of the data; where the fit has not converged, the best ones that are known."""
        known = self.tol > 0 and not state.progress.converged and np.isfinite(state.progress.best)
        params = state.progress.best_params if known else state.params
        return self._family().unscale(params, state.shift, state.unit)

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log-likelihood per row of rows in this process.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.
        y : array-like of shape (n,), default=None
            Targets, for a family of regressions.

        Returns
        -------
        float
        """
        check_is_fitted(self, "params_")
        rows = np.asarray(X, np.float64) if y is None else np.column_stack([X, y])
        return self._family().statistics(self.params_, rows, np.ones(len(rows))).loglik / len(rows)

    # ---- the parameters as objects ----

    def _family(self, unit: np.ndarray | None = None) -> Any:
        """The family; given `unit`, for standardised rows."""
        family = resolve(self.family, FAMILIES, "family")
        return family.scaled(unit) if unit is not None and hasattr(family, "scaled") else family

    def _quantiser(self) -> Any:
        given = [name for name in ("levels", "quantiser", "omega") if getattr(self, name) is not None]
        if len(given) > 1:
            raise BadParameter(f"{' and '.join(given)} are ways to say the same: give one of them")
        if self.omega is not None:
            if not self.omega >= 0:
                raise BadParameter(
                    f"omega={self.omega!r} must be at least 0: it is the relative variance of what is sent"
                )
            return Sparsify(1 / (1 + self.omega))
        if self.levels is not None:
            return resolve(Dither(self.levels), QUANTISERS, "quantiser")
        return resolve(self.quantiser or Identity(), QUANTISERS, "quantiser")


class VRFedEM(FedEM):
    """FedEM with variance reduction: each client keeps its statistics and adds their change on a minibatch.

    Parameters
    ----------
    batch_size : int, default=32
        Rows that a client uses in a round, between two passes over all its rows.
    epoch : int, default=20
        Rounds between two passes over all rows.
    **others
        The other parameters, and the attributes, are those of `FedEM`.

    References
    ----------
    Dieuleveut, Fort, Moulines and Robin, Federated-EM with heterogeneity mitigation and variance reduction, NeurIPS 2021.

    Examples
    --------
    >>> import numpy as np
    >>> import unpooled as up
    >>> rng = np.random.default_rng(0)
    >>> sites = {name: rng.normal(rng.choice([0.0, 8.0], size=(400, 1)), size=(400, 2)) for name in "abcd"}
    >>> model = up.VRFedEM({"name": "gaussian", "n_components": 2}, tol=1e-3, random_state=0).fit(sites)
    >>> model.converged_
    True
    >>> np.sort(model.params_.means[:, 0]).round().tolist()
    [0.0, 8.0]
    """

    def _batch(self) -> int | None:
        return self.batch_size or 32

    def _rounds_per_epoch(self) -> int:
        return self.epoch or 20


def _in_units(found: Params, frame: Any, mean: np.ndarray, scale: np.ndarray, shape: str) -> Params:
    """A mixture of the clients' own units as one of columns with this mean and scale."""
    ratio = scale / frame.scale
    covs = gaussian.unpack_covs(found.covs, shape) * np.outer(ratio, ratio)
    return Params(found.weights, mean + ratio * (found.means - frame.mean), gaussian.pack_covs(covs, shape))


def _size(state: State) -> int:
    """The number of numbers in the statistics."""
    return tree.flatten(state.stats).size
