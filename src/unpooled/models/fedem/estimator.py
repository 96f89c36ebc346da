"""FedEM and VR-FedEM: EM in the space of statistics, over clients that come and go and send a few bits a number.

A round is one SUM: the params go down; up comes, from each client of the cohort, what its mean statistics differ from its memory,
quantised and entropy-coded. The memory V makes what quantisation loses come later, so unlike clients do no harm.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.choices import describe, resolve
from unpooled.client import Ask
from unpooled.errors import BadData, BadParameter
from unpooled.estimator import Estimator, Info
from unpooled.federation import Federation, cohort
from unpooled.layers.compression.quantisers import QUANTISERS, Dither, Identity, Sparsify, memory_step, usual_omega
from unpooled.models import initialization as start
from unpooled.models.fedem.client import Down, contribute, covariance, exact, inspect, receive, send, stats_of, target
from unpooled.models.fedem.families import FAMILIES, CommonCovariance
from unpooled.parameters import at_least, within
from unpooled.tree import Tree, message

MEMORIES = ("statistics", "field", "none")
COHORTS = ("bernoulli", "fixed")
HALVINGS = 12
STALE = 0.1  # the most that a step may change the params, times the share of rows not heard about them
CALM = 0.1  # a step of which less than this share is chance is EM's own, however long


@message("fedem.Turn")
class Turn(NamedTuple):
    """What has come in since the params moved."""

    move: int  # how often they have
    waited: int  # rounds
    known: float  # rows of the clients that were known when they did
    heard: float  # rows of those among them that have answered since
    memory: Tree  # as it was when they did, and of clients heard for the first time since
    change: Tree  # what the others have sent since


@message("fedem.State")
class State(NamedTuple):
    """The server's, from round to round; everything is in the family's frame."""

    params: Tree
    stats: Tree  # S
    memory: Tree  # sum over clients of rows x V
    rows: float  # of all clients heard so far
    shift: np.ndarray  # (d,)
    unit: np.ndarray  # (d,)
    round: int
    turn: Turn


class FedEM(Estimator):
    """EM with compressed statistics, partial participation and minibatches, for any family of `unpooled.models.fedem.families`.

    family : a family, its name, or {"name": ..., its numbers}.
    levels : steps each way of the random rounding of what clients send, more of them in the first rounds, while statistics change by much;
        None sends float64.
    quantiser : instead, any of `unpooled.layers.compression.quantisers`; omega= is short for sparsification of that variance.
    step_size : gamma in (0, 1], or "auto"; with `decay` it shrinks as (1 + round)^-decay.
    memory : V follows each client's "statistics", or the "field" h_c as in the paper (the server then sends S too), or "none".
    alpha : the memory's step, 1/(1 + omega) unless given, omega being what rounding usually loses.
    fraction, cohort : each client takes part with this probability ("bernoulli"), or that share of them does ("fixed").
    batch_size : rows a client looks at in a round; None for all.
    epoch : clients keep their statistics and add what a batch says has changed; after so many rounds each looks at all its rows again
        (VR-FedEM). None: every batch stands for itself.
    patience : where clients are absent, a step that would take the params far waits for answers about the params it leaves; so many rounds
        at most. Without, the first and longest steps rest on a few clients, and their noise decides to which optimum the rest leads.
    guard : a step that changes the params by more than this, and in which there is much noise, is halved; in logarithms and standard
        deviations. None: never.
    exact_every : every so many rounds one more SUM, uncompressed, for the true likelihood and |h|^2 in the history.
    params_init : params to start from, in the units of the data.
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
        for name, known in (("memory", MEMORIES), ("cohort", COHORTS)):
            if getattr(self, name) not in known:
                raise BadParameter(f"{name}={getattr(self, name)!r} is not known: use one of {', '.join(known)}")

    # ---- the start: rows are looked at, the frame is set, params are drawn ----

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        family = self._family()
        self._inspect(fed, family)
        frame = start.frame(fed)
        mean, scale = to_numpy(frame.mean), to_numpy(frame.scale)
        if family.supervised:
            y = fed.sum(target, None)
            y_mean = float(y.y / y.n)
            mean, scale = np.append(mean, y_mean), np.append(scale, np.sqrt(max(float(y.yy / y.n) - y_mean**2, 1e-300)))
        shift, unit = family.frame(mean, scale)
        if self.params_init is not None:
            params = family.unscale(self.params_init, -shift / unit, 1 / unit)
        else:
            params = self._first_params(fed, family, frame, (mean - shift) / unit, scale / unit, rng)
        if self.params_init is None and isinstance(family, CommonCovariance) and family.covariance == "implied":
            total = fed.sum(covariance, Down(params, None, shift, unit, np.asarray(0), np.asarray(0)))
            params = params._replace(total=to_numpy(total.xx) / float(total.n), centre=np.zeros_like(shift))
        params = tree.map(lambda a: np.asarray(a, np.float64), params)
        stats = family.moments(params)
        nothing = tree.map(np.zeros_like, stats)
        return State(params, stats, nothing, 0.0, shift, unit, 0, Turn(0, 0, 0.0, 0.0, nothing, nothing))

    def _inspect(self, fed: Federation, family: Any) -> None:
        """Every client says how many rows the family cannot take: a wrong table is named before any work."""
        found = fed.gather(inspect.using(family=describe(family, FAMILIES)), None)
        for name, (rows, bad) in found.items():
            if bad:
                raise BadData(
                    f"{float(bad):.0f} of {float(rows):.0f} rows of client {name!r} do not suit the family: it wants {family.wants}"
                )

    def _first_params(self, fed, family, frame, mean, scale, rng) -> Tree:
        if not hasattr(family, "from_clusters"):
            return family.start(mean, scale, rng)
        found = start.centres(fed, frame, family.n_components, 5)
        c = start.cluster_centres(found, family.n_components, rng)
        variances = scale**2 * (c.xx / c.n[:, None] + 1e-3)
        return family.from_clusters(c.n / c.n.sum(), mean + scale * c.x, variances)

    # ---- a round ----

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        family = self._family(state.unit)
        who = self._cohort(fed, state)
        total = who.sum(self._ask(fed, state), self._down(state))
        field, memory, turn = self._field(family, state, total)
        rows = state.rows + float(total.first_rows)
        exact_info = self._exact(fed, state, field)
        unheard = (turn.known - turn.heard) / rows
        gamma, halved, stats, params = self._move(family, state, field, unheard, len(who.names))
        if gamma:
            turn = Turn(turn.move + 1, 0, rows, 0.0, memory, tree.map(np.zeros_like, stats))
        info = {
            "loglik": float(total.loglik / total.rows),
            "field": float(np.sum(tree.flatten(field) ** 2)),
            **exact_info,
            "step_size": gamma,
            "halved": halved,
            "projected": int(family.project(stats)[1]),
            "work": float(total.work),
        }
        return State(params, stats, memory, rows, state.shift, state.unit, state.round + 1, turn), info

    def _cohort(self, fed: Federation, state: State) -> Federation:
        """Everyone in the first round, so that the server knows how many rows there are."""
        if state.round == 0 or self.fraction == 1:
            return fed
        rng = fed.journal.rng
        if self.cohort == "fixed":
            return fed.only(cohort(fed.names, self.fraction, rng))
        drawn = rng.random(len(fed.names)) < self.fraction
        if not drawn.any():
            drawn[rng.integers(len(drawn))] = True
        return fed.only([name for name, takes_part in zip(fed.names, drawn) if takes_part])

    def _down(self, state: State) -> Down:
        return Down(
            state.params,
            None if self.memory == "statistics" else state.stats,
            state.shift,
            state.unit,
            np.asarray(state.round // self._rounds_an_epoch() if self._reduces() else 0),
            np.asarray(state.turn.move),
        )

    def _ask(self, fed: Federation, state: State) -> Ask:
        family, quantiser = self._family(), self._quantiser()
        chosen = describe(family, FAMILIES)
        undo = receive(family, quantiser, state.params, fed.journal)
        ask = contribute.using(family=chosen, batch=self._batch(), reduce=self._reduces())
        how = {"family": chosen, "quantiser": describe(quantiser, QUANTISERS), "alpha": self._alpha(state)}
        return ask.then(send, undo=undo, undo_total=None, **how)

    def _alpha(self, state: State) -> float:
        """The memory's step; 0 keeps none."""
        if self.memory == "none":
            return 0.0
        return self.alpha or memory_step(self._quantiser(), tree.flatten(state.stats).size)

    def _batch(self) -> int | None:
        return self.batch_size

    def _rounds_an_epoch(self) -> int:
        """Of variance reduction; 0 for none."""
        return self.epoch or 0

    def _reduces(self) -> bool:
        return self._rounds_an_epoch() > 0

    def _field(self, family: Any, state: State, total: Any) -> tuple[Tree, Tree, Turn]:
        """(H, the memory's new sum, the turn so far): the others are taken to have changed as those heard about the params have."""
        turn, alpha = state.turn, self._alpha(state)
        rows, heard = state.rows + float(total.first_rows), turn.heard + float(total.heard)
        scale = turn.known / heard if heard else 1.0
        about = tree.map(lambda s: s if self.memory == "statistics" else 0.0 * s, state.stats)
        change, first = (stats_of(family, self._quantiser(), state.params, b) for b in (total.change, total.first))
        changed = tree.map(np.add, turn.change, change)
        field = tree.map(lambda t, c, f, s: (t + scale * c + f) / rows - s, turn.memory, changed, first, about)
        memory = tree.map(lambda v, c, f: v + alpha * c + (alpha > 0) * f, state.memory, change, first)
        before = tree.map(lambda t, f: t + (alpha > 0) * f, turn.memory, first)
        return field, memory, Turn(turn.move, turn.waited + 1, turn.known, heard, before, changed)

    def _move(
        self, family: Any, state: State, field: Tree, unheard: float, clients: int
    ) -> tuple[float, int, Tree, Tree]:
        """(gamma, times it was halved, S, params): 0 waits for more clients; the guard shortens a step that noise has made long."""
        gamma = self._gamma(state.round)
        stats, params = self._step(family, state, field, gamma)
        if self._waits(state) and unheard * family.change(state.params, params) > STALE:
            return 0.0, 0, state.stats, state.params
        guarded = state.round and self.guard is not None and self._chance(state, clients) + unheard > CALM
        halved = 0
        while guarded and halved < HALVINGS and family.change(state.params, params) > self.guard:
            gamma, halved = gamma / 2, halved + 1
            stats, params = self._step(family, state, field, gamma)
        return gamma, halved, stats, params

    def _chance(self, state: State, clients: int) -> float:
        """The share of a step that rounding makes up; all of it where what is sent is not a change of all rows."""
        if self._batch() is not None or (self.memory == "none" and self._noisy()):
            return 1.0
        return float(np.sqrt(usual_omega(self._quantiser(), tree.flatten(state.stats).size) / clients))

    def _waits(self, state: State) -> bool:
        """Without a memory what came in before is lost, and there is nothing to wait for."""
        return self.fraction < 1 and self.memory != "none" and state.turn.waited < self.patience

    def _step(self, family: Any, state: State, field: Tree, gamma: float) -> tuple[Tree, Tree]:
        stats = tree.map(lambda s, h: s + gamma * h, state.stats, field)
        return stats, family.maximize(stats, state.params)

    def _gamma(self, round: int) -> float:
        if self.step_size != "auto":
            return self.step_size * (1 + round) ** -self.decay
        if self._batch() is None or self._reduces():
            return 1.0
        return (1 + round) ** -0.6

    def _noisy(self) -> bool:
        """Whether anything is random: without, a round is a plain EM step and needs no guard."""
        return self.fraction < 1 or self._batch() is not None or not isinstance(self._quantiser(), Identity)

    def _exact(self, fed: Federation, state: State, field: Tree) -> Info:
        """|h(S)|^2 and the likelihood of all rows, at the params that this round was asked about."""
        if not self._noisy():
            return {"exact_field": float(np.sum(tree.flatten(field) ** 2))}
        if not self.exact_every or state.round % self.exact_every:
            return {}
        total = fed.sum(exact.using(family=describe(self._family(), FAMILIES)), self._down(state)._replace(stats=None))
        h = tree.map(lambda t, s: t / float(total.rows) - s, total.stats, state.stats)
        return {
            "exact_field": float(np.sum(tree.flatten(h) ** 2)),
            "exact_loglik": float(total.loglik / total.rows),
        }

    def done(self, state: State, history: list[Info]) -> bool:
        """The mean likelihood of a window of rounds has stopped rising."""
        window = 10 if self._noisy() else 1
        if len(history) < 2 * window or self.tol <= 0:
            return False
        seen = [row["loglik"] for row in history[-2 * window :]]
        return bool(np.mean(seen[window:]) - np.mean(seen[:window]) < self.tol * window)

    # ---- the result ----

    def finish(self, fed: Federation, state: State) -> None:
        self.params_, self.statistics_ = self.result(state), state.stats
        self.n_features_in_ = len(state.shift) - int(self._family().supervised)
        self.projections_ = sum(row["projected"] for row in self.history_)

    def result(self, state: State) -> Tree:
        """The params in the units of the data."""
        return self._family().unscale(state.params, state.shift, state.unit)

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log-likelihood of rows in this process."""
        check_is_fitted(self, "params_")
        rows = np.asarray(X, np.float64) if y is None else np.column_stack([X, y])
        return self._family().statistics(self.params_, rows, np.ones(len(rows))).loglik / len(rows)

    def _family(self, unit: np.ndarray | None = None) -> Any:
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
    """FedEM whose clients reduce the noise of their minibatches: each keeps its statistics and adds what a batch says has changed.

    Parameters are FedEM's; here batches are of 32 rows and an epoch is 20 rounds unless given.
    """

    def _batch(self) -> int | None:
        return self.batch_size or 32

    def _rounds_an_epoch(self) -> int:
        return self.epoch or 20
