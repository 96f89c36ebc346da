"""FedAvg: one model for all clients; a round is one SUM of models weighted by rows, after local epochs at each client.

Costs one model down and one up. FedProx and FedAvg+ build on it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, namespace
from unpooled.client import SUM, Client, client
from unpooled.estimator import Info
from unpooled.federation import Federation
from unpooled.learners import Rows, Trainer, as_option, exact, regularisation
from unpooled.learners.estimator import LearnerEstimator
from unpooled.learners.mixing import average
from unpooled.tree import message


@message("fedavg.Model")
class Model(NamedTuple):
    """Down: the shared model as a flat vector."""

    theta: Float[Array, "k p"]  # k is 1


@message("fedavg.Trained")
class Trained(NamedTuple):
    """Up: the model after local epochs, times the client's rows."""

    theta: Float[Array, "k p"]  # sum of rows x model
    weight: Float[Array, "k", ">=0 rows"]  # rows
    loglik: Float[Array, ""]  # sum of log P(y | x) before training


@message("fedavg.State")
class State(NamedTuple):
    """The training options, the shared model and the round."""

    trainer: dict
    theta: Array  # (1, p)
    round: int


@client("fedavg.local_epochs", SUM)
def local_epochs(down: Model, client: Client, *, trainer: dict) -> Trained:
    """The shared model after local epochs on the client's rows, weighted by their number."""
    learner = Trainer(**trainer)
    rows = learner.rows(client)
    begin = learner.with_own(down.theta, client, rows.x)
    loglik = learner.log_likelihood(begin, rows)[..., 0]  # (..., n)
    theta = learner.keep_own(learner.train(begin, client, rows, certain(rows)), client, down.theta)
    weight = rows.w.sum(-1)[..., None]
    return Trained(weight[..., None] * theta, weight, learner.reported(loglik, client, rows))


def certain(rows: Rows) -> Array:
    """Ones (..., n, 1): the responsibilities of a single model."""
    return namespace(rows.w).ones_like(rows.w)[..., None]


class FedAvg(LearnerEstimator):
    """Federated averaging: one classifier for all clients.

    Each round a client trains the shared model on its own rows; the server averages the models, weighted by rows.

    Parameters
    ----------
    learner : str or callable, default="linear"
        The classifier: "linear", "mlp", "cnn", "resnet18", "mobilenet_v2", or a function (n_inputs, n_classes) that
        returns a torch module over flat rows.
    hidden : sequence of int, default=(64,)
        Widths of the hidden layers of "mlp".
    norm : {"group", "average", "local"}, default="group"
        What happens to BatchNorm: replaced by GroupNorm, averaged over clients, or kept by each client.
    local_epochs : int or "auto", default="auto"
        Epochs of SGD at a client per round; "auto" is 1 with a given `lr`, else 2.
    batch_size : int or "auto", default="auto"
        Rows per minibatch; "auto" is 128 with a given `lr`, else 32.
    lr : float or "auto", default="auto"
        Learning rate. With "auto" a linear learner is fitted exactly to all rows, by Newton's method or L-BFGS over
        sums, and needs no rate; for other learners the rate is found during the rounds, and the run stops by
        held-out log-loss.
    momentum : float, default=0.9
        Momentum of SGD, in [0, 1).
    weight_decay : float, default=0.0
        L2 penalty of SGD.
    schedule : {"constant", "cosine", "sqrt"}, default="constant"
        Learning rate over rounds: constant, cosine to 0 at `max_iter`, or lr / sqrt(round).
    keep_momentum : bool, default=False
        Whether a client keeps its velocity from round to round.
    max_iter : int, default=100
        Rounds at most.
    tol : float or "auto", default="auto"
        With lr="auto": the least relative gain of the held-out log-likelihood that counts as an improvement; "auto"
        is 1e-3. With a given rate: stop when the log-likelihood per row changes by less; "auto" and 0 run all
        rounds.
    classes : sequence or None, default=None
        All classes, including those that no client has; any other label is refused. None: the classes that clients
        hold.
    fraction : float, default=1.0
        Share of the clients asked per round.
    random_state : int, RandomState or None, default=None
        Seed of the first model and of the minibatches.
    device : str or None, default=None
        A torch device such as "cuda"; None is NumPy for "linear" and "mlp", torch on the CPU for the rest.
    C : float or "auto", default=1.0
        Inverse strength of the ridge penalty of a linear learner with lr="auto", as in scikit-learn's
        LogisticRegression, whose coefficients the shared model then has. "auto" chooses it by left-out rows, in some
        five times as many rounds; `C_` is what was chosen.
    personalize : {"auto", "none"}, default="auto"
        "auto": after the run each client chooses between the shared model, corrections of it and models of its own,
        by its own held-out rows. Sums of held-out log-losses leave it, to calibrate the shared model and as the prior
        of the other clients' choices; `predict(X, client=...)` uses its choice. Where columns have units of their own,
        what clients choose begins with a shared model whose penalty is of columns divided by their deviations.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes, sorted.
    theta_ : ndarray of shape (n_models, n_parameters)
        The shared models as flat vectors.
    clients_ : dict of str to dict
        What each client in this process keeps: its personal results, by name.
    history_ : list of dict
        One row per round: seconds, clients, bytes and `loglik`, the log-likelihood per row before the round.
    n_iter_ : int
        Rounds that were run.
    coef_, intercept_ : ndarray
        Of a linear learner, as scikit-learn's LogisticRegression has them.
    gain_ : dict of str to float
        For each client in this process, the held-out log-loss of a model trained alone minus that of the model it
        keeps. `comparison_` has both, and that of the shared model.
    C_ : float
        The C of a linear learner with lr="auto".
    converged_ : bool
        With lr="auto", whether the run stopped by itself.

    References
    ----------
    McMahan, Moore, Ramage, Hampson and Aguera y Arcas (2017), Communication-efficient learning of deep networks from
    decentralized data, AISTATS.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import baselines
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(80, 2))
    >>> y = (x.sum(axis=1) > 0).astype(int)
    >>> sites = {"north": (x[:40], y[:40]), "south": (x[40:], y[40:])}
    >>> model = baselines.FedAvg(random_state=0).fit(sites)
    >>> bool(model.score(x, y) > 0.9)
    True
    """

    @property
    def finds_optimum(self) -> bool:
        """Whether the model is linear and fitted by Newton's method or L-BFGS."""
        return self.lr == "auto" and self.learner == "linear" and self.fraction == 1.0

    @property
    def chooses_penalty(self) -> bool:
        """Whether C="auto" is possible."""
        return self.finds_optimum

    def init(self, fed: Federation, rng: np.random.Generator) -> Any:
        """A random model; for a linear learner with lr="auto", the start of the exact fit."""
        trainer = self.trainer(fed)
        if self.finds_optimum:
            option = as_option(trainer)
            return regularisation.begin(fed, option) if isinstance(self.C, str) else exact.begin(fed, option, self.C)
        return State(as_option(trainer), trainer.start(rng, 1), 0)

    def step(self, fed: Federation, state: Any) -> tuple[Any, Info]:
        """One SUM of the models after local epochs, or one step of the exact fit."""
        if isinstance(state, exact.Path):
            return exact.advance(fed, state)
        if isinstance(state, regularisation.PenaltySearch):
            return regularisation.advance(fed, state)
        trainer = self.at_round(state.trainer, state.round + 1, **self.changes())
        total = self.cohort(fed).sum(local_epochs.using(trainer=trainer), Model(state.theta))
        theta = average(total.theta, total.weight, state.theta)
        return State(state.trainer, theta, state.round + 1), {"loglik": float(total.loglik / total.weight[0])}

    def changes(self) -> dict[str, float]:
        """Training options that a variant changes."""
        return {}

    def done(self, state: Any, history: list) -> bool:
        """Whether the exact fit has converged, or the log-likelihood no longer changes."""
        return super().done(state, history) if isinstance(state, State) else state.reached

    def finish(self, fed: Federation, state: Any) -> None:
        """Set the shared model, then let each client choose what it keeps."""
        self.describe(fed, state.trainer, state.theta, "norm")
        self.keep_optimum(fed, state)
        self.personalise(fed)

    def keep_optimum(self, fed: Federation, state: Any) -> None:
        """Set `C_`, and `optimum_`, for leave-one-out predictions of a linear learner at the clients; one SUM at most."""
        if isinstance(state, exact.Path):
            self.C_ = state.C
            self.spread_ = state.spread
        if isinstance(state, exact.Path) and (self.personalize == "auto" or state.inverse.size):
            self.optimum_ = exact.at_optimum(fed, state)
