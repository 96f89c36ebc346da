"""Local training: every client trains alone and keeps its model; one SUM of two numbers per round, for the history."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, like
from unpooled.baselines.fedavg import FedAvg, Model, State, certain
from unpooled.baselines.rollback import keep_best
from unpooled.client import SUM, Client, client
from unpooled.errors import BadParameter
from unpooled.estimator import Info
from unpooled.federation import Federation
from unpooled.learners import Trainer, personal
from unpooled.tree import message


@message("local_only.Score")
class Score(NamedTuple):
    """Up: two numbers for the history."""

    loglik: Float[Array, ""]  # sum of log P(y | x) before training
    rows: Float[Array, "", ">=0 rows"]


@client("local_only.train_alone", SUM)
def train_alone(down: Model, client: Client, *, trainer: dict) -> Score:
    """Local epochs on the client's own model, which starts from the one that was sent.

    Where rows are held out, the client keeps its best model and returns to it when a later one has become much worse.
    """
    learner = Trainer(**trainer)
    rows = learner.rows(client)
    begin = like(
        client.state.get("theta", np.broadcast_to(down.theta, (*rows.w.shape[:-1], *down.theta.shape))), rows.x
    )
    loglik = learner.reported(learner.log_likelihood(begin, rows)[..., 0], client, rows)
    start = keep_best(client, begin, loglik) if learner.hold_out else begin
    client.state["theta"] = learner.train(start, client, rows, certain(rows))
    return Score(loglik, rows.w.sum(-1))


@client("local_only.regress_alone", SUM, batched=False)
def regress_alone(down: None, client: Client, *, trainer: dict) -> Score:
    """Logistic regression on the client's own rows, its penalty chosen by cross-validation; the client keeps it."""
    learner = Trainer(**trainer)
    rows = learner.rows(client)
    none = np.zeros((0, len(rows.y), len(learner.labels)))
    personal.keep(learner, [client], personal.judge([personal.evidence(learner, client, none, 0.0, rows.x)]))
    alone = float(client.state["kept_losses"][0])
    return Score(np.asarray(-alone * rows.w.sum()), rows.w.sum())


class LocalOnly(FedAvg):
    """No federation: each client trains a classifier on its own rows.

    Two sums per round leave a client, for the history. Predictions need `client=`.

    Parameters
    ----------
    **parameters
        The parameters of `FedAvg`.

    Attributes
    ----------
    classes_, theta_, clients_, history_, n_iter_
        As in `FedAvg`.

    References
    ----------
    The baseline "local" of the papers that the other classes implement.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import baselines
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(80, 2))
    >>> y = (x.sum(axis=1) > 0).astype(int)
    >>> sites = {"north": (x[:40], y[:40]), "south": (x[40:], y[40:])}
    >>> model = baselines.LocalOnly(random_state=0).fit(sites)
    >>> bool((model.predict(x[:40], client="north") == y[:40]).mean() > 0.9)
    True
    """

    @property
    def finds_optimum(self) -> bool:
        """False: there is no shared model."""
        return False

    @property
    def searches(self) -> bool:
        """Whether rounds train by SGD."""
        return not self._regresses

    @property
    def _regresses(self) -> bool:
        """Whether each client fits a logistic regression, in one round."""
        return self.lr == "auto" and self.learner == "linear"

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        """One SUM of two numbers; the models stay at the clients."""
        if self._regresses:
            total = fed.sum(regress_alone.using(trainer=state.trainer), None)
            return state._replace(round=state.round + 1), {"loglik": float(total.loglik / total.rows)}
        trainer = self.at_round(state.trainer, state.round + 1)
        total = self.cohort(fed).sum(train_alone.using(trainer=trainer), Model(state.theta))
        return state._replace(round=state.round + 1), {"loglik": float(total.loglik / total.rows)}

    def finish(self, fed: Federation, state: State) -> None:
        """Collect the models of clients in this process."""
        self.describe(fed, state.trainer, state.theta, "theta", "best", *personal.KEYS)
        self._describe_choices(fed)

    def done(self, state: State, history: list) -> bool:
        """After one round of regressions, or as in `FedAvg`."""
        return self._regresses or super().done(state, history)

    def _bases(self, x: np.ndarray, own: dict) -> np.ndarray:
        """No shared model: an empty array (0, n, classes)."""
        return np.zeros((0, len(x), len(self.classes_)))

    def models(self, client: str | None) -> tuple[np.ndarray, np.ndarray]:
        """The client's own model; BadParameter without a client."""
        own = self.private(client)
        if "theta" not in own:
            raise BadParameter("clients that trained alone share no model: give client=")
        return own.get("best", own["theta"]), np.ones(1)
