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
from unpooled.arrays import is_frame
from unpooled.choices import describe, resolve
from unpooled.client import Ask
from unpooled.estimator import Estimator, Info, rows_of
from unpooled.federation import Federation, cohort
from unpooled.layers.compression import Compressed, Identity, compression_of, memory_step
from unpooled.models.fedem import (
    compression,  # noqa: F401  # registers how answers are compressed
    server,
)
from unpooled.models.fedem.checks import check_compression, check_parameters, quantiser_of
from unpooled.models.fedem.client import Down, contribute
from unpooled.models.fedem.convergence import checked, exact_info
from unpooled.models.fedem.families import FAMILIES
from unpooled.models.fedem.server import State
from unpooled.models.fedem.start import first_state
from unpooled.models.fedem.steps import next_move, noise_of_step, size
from unpooled.tree import Tree


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
    warm_up : int, default=0
        Rounds at the beginning that use all rows, whatever `batch_size` is: the early, long steps decide which local optimum the
        fit ends in. `GaussianMixture(solver="vr-fedem")` takes 20.
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
        all rows of all clients: it has stopped rising, exact EM steps gain less than `tol`, and by the rate at which their gains fall
        all further steps together would gain at most a few times `tol`.
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
        warm_up: int = 0,
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
        self.warm_up = warm_up
        self.patience = patience
        self.guard = guard
        self.exact_every = exact_every
        self.init_params = init_params
        self.params_init = params_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def check(self, fed: Federation) -> None:
        """Refuse parameters that do not exist or do not go together."""
        check_parameters(self)
        check_compression(self, fed)

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        """Check and standardise rows, then choose the first parameters."""
        return first_state(self, fed, rng)

    # ---- a round ----

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        """One round: a SUM of changes of statistics, then a step of the server's statistics."""
        family = self._family(state.unit)
        asked, layer = self._compressed(self._cohort(fed, state), state)
        total = asked.sum(self._question(state), self._down(state))
        found = server.estimate(state, total, layer.alpha_for(size(state)), self._reference(state))
        noise = noise_of_step(self, layer.quantiser, state, len(asked.names))
        move = next_move(self, family, state, found, noise)
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
        exact = exact_info(self, fed, is_random, state, found.field)
        new, progress = checked(self, fed, family, is_random, new, total)
        answers = {"loglik": float(total.loglik / total.rows), "field": server.squared_norm(found.field)}
        moved = {"step_size": move.step_size, "halved": move.halvings, "projected": int(family.project(move.stats)[1])}
        return new, {**answers, **exact, **progress, **moved, "expectations": float(total.expectations)}

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
        alpha = self.alpha or memory_step(quantiser, size(state))
        layer = Compressed(fed, quantiser=quantiser, memory=self.memory != "none", alpha=alpha)
        return layer, layer

    def _question(self, state: State) -> Ask:
        """What clients are asked in this round."""
        family = describe(self._family(), FAMILIES)
        return contribute.using(family=family, batch=self._batch_now(state), reduce=self._reduces())

    def _down(self, state: State) -> Down:
        """What goes down in this round."""
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

    def _is_random(self, quantiser: Any) -> bool:
        """Whether rounds are random; otherwise each is a plain EM step."""
        return self.fraction < 1 or self._batch() is not None or not isinstance(quantiser, Identity)

    def _batch(self) -> int | None:
        """Rows per minibatch, None for all."""
        return self.batch_size

    def _batch_now(self, state: State) -> int | None:
        """The batch, doubled each time that noise has led the fit away from its best parameters.

        All rows in the first `warm_up` rounds.
        """
        batch = self._batch()
        if batch is None or state.round < self.warm_up:
            return None
        return batch * 2**state.progress.returns

    def _rounds_per_epoch(self) -> int:
        """Of variance reduction; 0 for none."""
        return self.epoch or 0

    def _reduces(self) -> bool:
        """Whether clients keep statistics and add changes, as VR-FedEM does."""
        return self._rounds_per_epoch() > 0

    def done(self, state: State, history: list[Info]) -> bool:
        """Whether exact EM steps over all clients hardly gain."""
        return state.progress.converged

    # ---- the result ----

    def finish(self, fed: Federation, state: State) -> None:
        """Set the fitted attributes, and warn of a fit that did not converge."""
        self.params_ = self.result(state)
        self.statistics_ = state.stats
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
        x = rows_of(self, X, dtype=np.float64, ensure_all_finite=False) if is_frame(X) else np.asarray(X, np.float64)
        rows = x if y is None else np.column_stack([x, y])
        return self._family().statistics(self.params_, rows, np.ones(len(rows))).loglik / len(rows)

    # ---- the parameters as objects ----

    def _family(self, unit: np.ndarray | None = None) -> Any:
        """The family; given `unit`, for standardised rows."""
        family = resolve(self.family, FAMILIES, "family")
        return family.scaled(unit) if unit is not None and hasattr(family, "scaled") else family

    def _quantiser(self) -> Any:
        """The quantiser that the parameters name."""
        return quantiser_of(self)
