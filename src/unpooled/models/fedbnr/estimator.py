"""FedBNR: a Gaussian process with a learned kernel over all clients, its last layer exact: two SUMs a round.

The first SUM of a round is of the last layer's statistics (`Stats`). It gives the server the global evidence, the best
noise and prior, and the posterior. The second depends on how the kernel is learned: `exact` sums the gradient of the
*global* evidence by theta, `average` sums kernels trained at the clients, `distill` sums their Gram matrices on the
server's own rows. How well held-out rows are predicted rides along in the second SUM. At the end a SUM of residual counts
makes the intervals honest, and one more takes the held-out rows into the last layer too.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.errors import TooFewClients
from unpooled.federation import Federation
from unpooled.maths import bayes_linear, descent
from unpooled.maths.bayes_linear import Posterior, Stats
from unpooled.maths.calibration import histogram
from unpooled.maths.feature_maps import Leaves, features, start
from unpooled.models.fedbnr.checks import check_module, check_parameters
from unpooled.models.fedbnr.held_out_clients import HeldClients, choose, warn_if_nothing_carries_over
from unpooled.models.fedbnr.kernel_learning import Checked, Question, Task, Trained, check_held, gradient, train
from unpooled.models.fedbnr.round_choice import SERVER_SHARE, Best, ServerRows, judge, server_rows
from unpooled.models.regression import (
    Design,
    LastLayer,
    bend_heavy,
    check_targets,
    find_groups,
    standardise,
    statistics,
)
from unpooled.tree import Tree, message

FIRST_NOISE, FIRST_PRIOR = -1.0, 1.0  # logs of variances that local training starts from


@message("fedbnr.State")
class State(NamedTuple):
    design: Design
    optimiser: Tree  # a descent.LBFGS or descent.Adam; () when clients train
    log_noise: float  # as averaged over clients; unused when the server finds them
    log_prior: float
    best: Best | None
    round: int
    seed: int  # chooses the rows held out
    spent: int  # SUMs before the first round


# ---- the estimator ----


class FedBNR(LastLayer):
    """Regression by a global Gaussian process with a learned kernel.

    Parameters
    ----------
    kernel : how it is learned: "exact" (gradient of the pooled evidence), "average" (FedAvg), "distill" (needs `server_data`).
    features : "ard", "rff", "deep", "residual" (inputs and network), "replicated", "exponential", "polynomial",
        or a torch module (n, d) -> (n, k).
    n_frequencies : random draws; waves give two features each.
    spectrum : "rbf", "matern12", "matern32", "matern52".
    frequencies : "fixed" as drawn, "free" (learned) or "shifted" (a small network turns normal draws into them).
    hidden, latent_dim, activation : the network of "deep", "residual" and "replicated".
    degree, constant : of "polynomial".
    optimizer : for "exact": "lbfgs", "adam", or "auto" (L-BFGS for kernels without a network).
    learning_rate, max_iter, patience : of the server's steps; `patience` rounds without gain on held-out rows stop it.
    weight_decay : for Adam at the server: how much of every weight a step of rate 1 would take away. A network that explains
        the fitted rows too well needs it; a kernel without a network has too few numbers to.
    local_epochs, local_rate : of training at the clients.
    server_noise : noise and prior from the global evidence (True) or as averaged over clients (False, as published).
    server_data : (X, y) at the server: needed to distil; otherwise its rows choose the best round.
    distill_weight, distill_steps, distill_rate : of the server's training when it distils.
    validation_fraction : share of every client's rows held out, to choose the best round and to recalibrate.
    recalibrate : intervals from held-out residuals instead of the normal law: True for new rows of these clients, "clients" for
        clients never seen. The latter holds out whole clients (a share `validation_fraction` of them, at least ten or a third),
        which also choose the round; it needs many clients, and costs accuracy where clients differ.
    refit : when the round is chosen, fit the last layer to the held-out rows too: one SUM. Intervals are recalibrated on
        them still, each (or each client) as if it were left out.
    group_by : a column whose very values mark rows as belonging together (a day, a visit): its index, None, or "auto", which finds out
        (only with `kernel="exact"`; two SUMs, three if there is one). Rows of the same value then share an offset, learned from the same
        sums. What is sent grows by a sum for every value of at least three rows; see docs/explanation/what-leaves.md.
    inputs : how columns are scaled: "robust" (a column with far outliers is bent: straight about its median, logarithmic far
        out; the others as in "standard"; one SUM more) or "standard" (by mean and standard deviation).
    missing : "impute" (by the mean over all clients, with a warning) or "refuse".
    device : where features are trained.
    """

    def __init__(
        self,
        kernel: str = "exact",
        *,
        features: Any = "ard",
        n_frequencies: int = 100,
        spectrum: str = "rbf",
        frequencies: str = "fixed",
        hidden: tuple[int, ...] = (128, 128),
        latent_dim: int = 8,
        activation: str = "tanh",
        degree: int = 2,
        constant: float = 1.0,
        optimizer: str = "auto",
        learning_rate: float = 0.03,
        weight_decay: float = 0.0,
        max_iter: int = 60,
        patience: int = 20,
        local_epochs: int = 10,
        local_rate: float = 0.003,
        server_noise: bool = True,
        server_data: Any = None,
        distill_weight: float = 1.0,
        distill_steps: int = 50,
        distill_rate: float = 0.003,
        validation_fraction: float = 0.1,
        recalibrate: bool | str = True,
        refit: bool = True,
        group_by: Any = "auto",
        inputs: str = "robust",
        missing: str = "impute",
        device: str = "cpu",
        random_state: Any = None,
    ):
        self.kernel = kernel
        self.features = features
        self.n_frequencies = n_frequencies
        self.spectrum = spectrum
        self.frequencies = frequencies
        self.hidden = hidden
        self.latent_dim = latent_dim
        self.activation = activation
        self.degree = degree
        self.constant = constant
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.max_iter = max_iter
        self.patience = patience
        self.local_epochs = local_epochs
        self.local_rate = local_rate
        self.server_noise = server_noise
        self.server_data = server_data
        self.distill_weight = distill_weight
        self.distill_steps = distill_steps
        self.distill_rate = distill_rate
        self.validation_fraction = validation_fraction
        self.recalibrate = recalibrate
        self.refit = refit
        self.group_by = group_by
        self.inputs = inputs
        self.missing = missing
        self.device = device
        self.random_state = random_state

    # ---- before any round ----

    _view: HeldClients | None = None

    def check(self, fed: Federation) -> None:
        check_targets(fed)
        check_parameters(self)

    def _spec(self) -> dict:
        name = self.features if isinstance(self.features, str) else _registered(self.features)
        return {
            "map": name,
            "m": int(self.n_frequencies),
            "spectrum": self.spectrum,
            "frequencies": self.frequencies,
            "hidden": [int(h) for h in self.hidden],
            "latent": int(self.latent_dim),
            "activation": self.activation,
            "degree": int(self.degree),
            "constant": float(self.constant),
            "device": self.device,
        }

    def _share(self) -> float:
        """Of every client's rows, held out; none where the server has rows of its own."""
        return 0.0 if self.server_data is not None else float(self.validation_fraction)

    def _asks(self) -> dict[str, Any]:
        return {"spec": self._spec(), "share": self._share(), "seed": self.seed_}

    # ---- rounds ----

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        self.seed_ = int(rng.integers(2**31))
        self._view = None  # another seed holds out other clients
        fed = self._seen(fed)
        scaling, _ = standardise(fed, self._share(), self.seed_, self.missing)
        if self.inputs == "robust":
            scaling = bend_heavy(fed, scaling, self._share(), self.seed_)
        kernel = start(self._spec(), len(scaling.x_mean), rng)
        check_module(self, kernel, len(scaling.x_mean))
        self._server_rows(Design(scaling, kernel))  # refused now rather than after a round
        by = self.group_by if self.kernel == "exact" else None
        groups, spent = find_groups(fed, scaling, by, self._share(), self.seed_)
        theta = tree.flatten(kernel.theta)
        optimiser: Tree = ()
        if self.kernel == "exact":
            optimiser = descent.lbfgs(theta) if self._uses_lbfgs() else descent.adam(theta)
        design = Design(scaling, kernel, groups)
        return State(
            design, optimiser, FIRST_NOISE, FIRST_PRIOR, None, 0, self.seed_, spent + 2 + (self.inputs == "robust")
        )

    def _seen(self, fed: Federation) -> Federation:
        """The federation as this model asks it: with whole clients held out, if intervals are to hold for clients never seen."""
        if self.recalibrate != "clients":
            return fed
        if self._view is None or self._view.inner is not fed:
            self._view = HeldClients(fed, choose(fed.names, self._share(), self.seed_))
        return self._view

    def _uses_lbfgs(self) -> bool:
        plain = ("rff", "ard", "exponential", "polynomial")
        return self.optimizer == "lbfgs" or (self.optimizer == "auto" and self.features in plain)

    def step(self, fed: Federation, state: State) -> tuple[State, dict]:
        self.seed_, state = state.seed, state._replace(round=state.round + 1)
        fed = self._seen(fed)
        try:
            stats = tree.map(to_numpy, fed.sum(statistics.using(**self._asks()), state.design))
        except TooFewClients:
            if not (isinstance(state.optimiser, descent.LBFGS) and _overflowed(fed)):
                raise
            return self._moved(state, descent.shorten(state.optimiser)), {"sums": 1}
        step = self._exact_step if self.kernel == "exact" else self._local_step
        return step(fed, state, stats)

    def _exact_step(self, fed: Federation, state: State, stats: Stats) -> tuple[State, dict]:
        post = bayes_linear.posterior(stats)
        value = -float(post.evidence.sum() / stats.n)
        info = {"loglik": -value, "noise": float(np.sqrt(post.noise.mean())), "sums": 2}
        opt = state.optimiser
        if isinstance(opt, descent.LBFGS) and not descent.wants_gradient(opt, value):
            return self._moved(state, descent.shorten(opt)), info | {"sums": 1}
        question = Question(state.design, post, bayes_linear.slopes(post))
        answer = tree.map(to_numpy, fed.sum(gradient.using(**self._asks()), question))
        down = -tree.flatten(answer.theta) / float(stats.n)
        state, seen = self._judged(state, stats, post, answer.held)
        if isinstance(opt, descent.LBFGS):
            opt = descent.keep(opt, value, down)
        else:
            rate = self.learning_rate * descent.warm_cosine(opt.taken, self.max_iter)
            opt = descent.adam_step(opt, down, rate, decay=self.weight_decay)
        return self._moved(state, opt), info | seen

    def _moved(self, state: State, optimiser: Tree) -> State:
        theta = tree.unflatten(optimiser.at, state.design.kernel.theta)
        return state._replace(design=_with_theta(state.design, theta), optimiser=optimiser)

    def _local_step(self, fed: Federation, state: State, stats: Stats) -> tuple[State, dict]:
        post = self._posterior(stats, state)
        info = {"loglik": float(post.evidence.sum() / stats.n), "noise": float(np.sqrt(post.noise.mean())), "sums": 2}
        rows, _ = self._server_rows(state.design)
        task = Task(state.design, post, np.asarray(state.log_noise), np.asarray(state.log_prior), rows.x)
        ask = train.using(**self._asks(), epochs=int(self.local_epochs), rate=float(self.local_rate))
        answer = tree.map(to_numpy, fed.sum(ask, task))
        state, seen = self._judged(state, stats, post, answer.held)
        state = self._distilled(state, answer) if self.kernel == "distill" else _averaged(state, answer)
        return state, info | seen

    def _distilled(self, state: State, answer: Trained) -> State:
        """Kernel, noise and prior that explain the server's rows and give them the clients' mean Gram matrix."""
        from unpooled.models.fedbnr.distillation import distil

        rows, _ = self._server_rows(state.design)
        leaves = {
            **state.design.kernel.theta,
            "log_noise": np.asarray(state.log_noise),
            "log_prior": np.asarray(state.log_prior),
        }
        found = distil(
            self._spec(), leaves, state.design.kernel.omega, (rows.x, rows.y), answer.gram / answer.clients,
            weight=self.distill_weight, steps=self.distill_steps, rate=self.distill_rate,
        )  # fmt: skip
        log_noise, log_prior = float(found.pop("log_noise")), float(found.pop("log_prior"))
        return state._replace(design=_with_theta(state.design, found), log_noise=log_noise, log_prior=log_prior)

    def _server_rows(self, design: Design) -> tuple[ServerRows, ServerRows]:
        """The server's rows to distil on, and those to choose the round with."""
        return server_rows(design, self.server_data, SERVER_SHARE if self.kernel == "distill" else 0.0)

    def _judged(self, state: State, stats: Stats, post: Posterior, held: Checked) -> tuple[State, dict]:
        """The state with its best round so far, and what rows not fitted say of this one."""
        kernel = state.design.kernel
        if self.server_data is not None:
            x, y, group = self._server_rows(state.design)[1]
            held = check_held(post, self._spec(), kernel, x, y, np.ones(len(x)), group)
        now = Best(kernel.theta, stats, state.log_noise, state.log_prior, math.inf, state.round)
        best, seen = judge(state.best, now, held, state.design.scaling.y_scale)
        return state._replace(best=best), seen

    def done(self, state: State, history: list[dict]) -> bool:
        since = state.round - state.best.round if state.best is not None and np.isfinite(state.best.score) else 0
        return since >= self.patience

    # ---- after the last round ----

    def finish(self, fed: Federation, state: State) -> None:
        self.seed_ = state.seed
        self._remember(fed, state.design.scaling)
        fed = self._seen(fed)
        self.n_sums_ = state.spent + sum(row["sums"] for row in self.history_)
        best = state.best
        if best is None:  # no round of learning: the last layer alone
            stats = tree.map(to_numpy, fed.sum(statistics.using(**self._asks()), state.design))
            best = Best(state.design.kernel.theta, stats, state.log_noise, state.log_prior, math.inf, 0)
            self.n_sums_ += 1
        self.best_round_, self.log_variances_ = best.round, (best.log_noise, best.log_prior)
        self._settle(_with_theta(state.design, best.theta), best.stats)
        if self.refit and self._share() > 0:
            self._settle(self.design_, self._ask(fed))
            self.n_sums_ += 1
        self.held_clients_ = fed.held.names if isinstance(fed, HeldClients) else []
        if self.held_clients_ and best.round > 0:
            warn_if_nothing_carries_over(self.history_[best.round - 1])
        self._calibrate(fed.held if isinstance(fed, HeldClients) else fed, self.recalibrate)

    def _last_share(self) -> float:
        return 0.0 if self.refit else self._share()

    def _calibrate(self, fed: Federation, wanted: bool | str) -> None:
        if not (wanted and self.server_data is not None):
            super()._calibrate(fed, wanted)
            self.n_sums_ += bool(wanted)
            return
        x, y, group = self._server_rows(self.design_)[1]
        mean, variance = bayes_linear.predict(self.posterior, features(self._spec(), self.design_.kernel, x), group)
        self.histogram_, self.n_clients_checked_ = histogram((y - mean) / np.sqrt(variance), np.ones(len(x))), 0

    def _posterior(self, stats: Stats, state: State | None = None) -> Posterior:
        if self.server_noise or self.kernel == "exact":
            return bayes_linear.posterior(stats)
        logs = self.log_variances_ if state is None else (state.log_noise, state.log_prior)
        return bayes_linear.posterior(stats, noise=np.exp(logs[0]), prior=np.exp(logs[1]))


def _with_theta(design: Design, theta: Leaves) -> Design:
    return design._replace(kernel=design.kernel._replace(theta=theta))


def _averaged(state: State, answer: Trained) -> State:
    """The plain mean over clients, as published: a client of ten rows counts as much as one of a thousand."""
    mean = tree.map(lambda a: a / answer.clients, answer)
    design = _with_theta(state.design, mean.theta)
    return state._replace(design=design, log_noise=float(mean.log_noise), log_prior=float(mean.log_prior))


def _overflowed(fed: Federation) -> bool:
    """Whether clients were refused in the last round because features were too large to be numbers."""
    last = [r.reason for r in fed.journal.refusals if r.round == fed.journal.round]
    return bool(last) and all("NaN" in reason or "infinite" in reason for reason in last)


def _registered(module: Any) -> str:
    from unpooled.maths.torch_training import register

    name = f"{type(module).__module__}.{type(module).__qualname__}"
    register(name, module)
    return name
