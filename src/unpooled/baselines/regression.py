"""Regression by averaged networks (FedAvg, FedProx): a round is one SUM of networks weighted by rows. No uncertainty.

Costs one network down and one up; how well held-out rows are predicted rides along.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from unpooled import tree
from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.estimator import Estimator, rows_of
from unpooled.federation import Federation
from unpooled.maths.feature_maps import ACTIVATIONS, Kernel, Leaves, Spec, features, start
from unpooled.models.regression import Scaling, check_targets, standard, standard_rows, standardise
from unpooled.parameters import above, at_least, not_below_zero, one_of, share, widths
from unpooled.tree import message


@message("network_regression.Network")
class Network(NamedTuple):
    scaling: Scaling
    leaves: Leaves  # the layers, and `head` (k, o) with `offset` (o,)


@message("network_regression.Trained")
class Trained(NamedTuple):
    rows: Float[Array, "", ">=0 rows"]
    leaves: Leaves  # times rows
    held: Float[Array, "", ">=0 rows"]
    squares: Float[Array, ""]  # errors on rows held out, before training


@message("network_regression.State")
class State(NamedTuple):
    network: Network
    best: Leaves
    score: float
    best_round: int
    round: int
    seed: int  # chooses the rows held out


@client("network_regression.train_network", SUM)
def train_network(
    down: Network,
    client: Client,
    *,
    spec: dict,
    share: float,
    seed: int,
    epochs: int,
    rate: float,
    proximal: float,
    loss: str,
) -> Trained:
    """Local steps from the global network; `loss` is "squared", or "fitc" for a Gaussian process of this client on top."""
    from unpooled.maths.torch_training import descend

    x, y, w, held = standard_rows(down.scaling, client, share, seed)
    squares = ((predicted(spec, down, (x, y, w), loss) - y) ** 2).sum(-1)
    mine = descend(spec, down.leaves, {}, (x, y, w), loss=loss, epochs=epochs, rate=rate, proximal=proximal)
    rows = w.sum(-1)
    weighted = {k: v * rows.reshape(rows.shape + (1,) * (v.ndim - rows.ndim)) for k, v in mine.items()}
    return Trained(rows, weighted, held.sum(-1), (held * squares).sum(-1))


def predicted(spec: Spec, network: Network, rows: tuple[Array, Array, Array], loss: str) -> Array:
    """What the clients' models say of their own rows before training: (..., n, o)."""
    if loss == "squared":
        return outputs(spec, network.leaves, rows[0])
    from unpooled.maths.torch_training import sparse_fit, sparse_predict

    return sparse_predict(spec, network.leaves, sparse_fit(spec, network.leaves, rows), rows[0])[0][..., None]


def predict_by(spec: Spec, leaves: Leaves, inner: Array, pull: Array, x: Array) -> tuple[np.ndarray, np.ndarray]:
    """(mean, variance) (q,) at rows x (q, d) by the sparse process of a client, as it came over the wire."""
    import torch

    from unpooled.maths.fitc import Fit
    from unpooled.maths.torch_training import sparse_predict

    known = Fit(torch.as_tensor(inner), torch.as_tensor(pull)[:, None], torch.zeros(()))
    return sparse_predict(spec, leaves, known, x)


def outputs(spec: Spec, leaves: Leaves, x: Array) -> Array:  # (..., n, o)
    layers = {k: v for k, v in leaves.items() if k not in ("head", "offset")}
    return features(spec, Kernel(layers, {}), x) @ leaves["head"] + leaves["offset"]


class FedAvgRegression(RegressorMixin, Estimator):
    """A network for all, trained by federated averaging on squared error; the round that predicts held-out rows best is kept.

    Parameters: `hidden`, `latent_dim` (the last hidden layer), `activation`; `local_epochs` full-batch Adam steps of `local_rate`
    a round; `patience` rounds without gain stop it; `validation_fraction` of every client's rows is held out.
    """

    proximal = 0.0
    loss = "squared"

    def __init__(
        self,
        hidden: tuple[int, ...] = (64,),
        *,
        latent_dim: int = 64,
        activation: str = "relu",
        local_epochs: int = 10,
        local_rate: float = 0.003,
        max_iter: int = 100,
        patience: int = 5,
        validation_fraction: float = 0.1,
        missing: str = "impute",
        random_state: Any = None,
    ):
        self.hidden = hidden
        self.latent_dim = latent_dim
        self.activation = activation
        self.local_epochs = local_epochs
        self.local_rate = local_rate
        self.max_iter = max_iter
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.missing = missing
        self.random_state = random_state

    def check(self, fed: Federation) -> None:
        check_targets(fed)
        one_of("activation", self.activation, ACTIVATIONS)
        one_of("missing", self.missing, ("impute", "refuse"))
        for name, least in {"latent_dim": 1, "local_epochs": 1, "max_iter": 0, "patience": 1}.items():
            at_least(name, getattr(self, name), least)
        above("local_rate", self.local_rate, 0)
        widths("hidden", self.hidden)
        share("validation_fraction", self.validation_fraction)
        not_below_zero("proximal", self.proximal)

    def _spec(self) -> dict:
        hidden = [int(h) for h in self.hidden]
        return {"map": "network", "hidden": hidden, "latent": int(self.latent_dim), "activation": self.activation}

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        self.seed_ = int(rng.integers(2**31))
        scaling, _ = standardise(fed, self.validation_fraction, self.seed_, self.missing)
        leaves = start(self._spec(), len(scaling.x_mean), rng).theta
        leaves = leaves | self._head(len(scaling.y_mean), rng)
        return State(Network(scaling, leaves), leaves, math.inf, 0, 0, self.seed_)

    def _head(self, outputs: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        k = self.latent_dim
        return {"head": rng.uniform(-1, 1, (k, outputs)) / np.sqrt(k), "offset": np.zeros(outputs)}

    def step(self, fed: Federation, state: State) -> tuple[State, dict]:
        self.seed_ = state.seed
        ask = train_network.using(
            spec=self._spec(), share=float(self.validation_fraction), seed=self.seed_, epochs=int(self.local_epochs),
            rate=float(self.local_rate), proximal=float(self.proximal), loss=self.loss,
        )  # fmt: skip
        answer = tree.map(to_numpy, fed.sum(ask, state.network))
        score = float(answer.squares / answer.held) if answer.held > 0 else -float(state.round)
        state = state._replace(round=state.round + 1)
        if score < state.score:
            state = state._replace(best=state.network.leaves, score=score, best_round=state.round)
        mean = tree.map(lambda a: a / answer.rows, answer.leaves)
        return state._replace(network=state.network._replace(leaves=mean)), {"sums": 1, "val_mse": score}

    def done(self, state: State, history: list[dict]) -> bool:
        return state.round - state.best_round >= self.patience

    def finish(self, fed: Federation, state: State) -> None:
        self.seed_ = state.seed
        self.network_ = Network(state.network.scaling, state.best)
        self.best_round_, self.n_sums_ = state.best_round, 2 + len(self.history_)
        self.n_features_in_ = len(state.network.scaling.x_mean)

    def predict(self, X: Any) -> np.ndarray:
        """(n,) or, for many outputs, (n, o)."""
        check_is_fitted(self, "network_")
        X = rows_of(self, X, dtype=np.float64, ensure_all_finite="allow-nan")
        scaling = self.network_.scaling
        y = scaling.y_mean + scaling.y_scale * outputs(self._spec(), self.network_.leaves, standard(scaling, X))
        return y[:, 0] if y.shape[1] == 1 else y


class FedProxRegression(FedAvgRegression):
    """FedAvgRegression whose clients are held near the global network by half of `proximal` times the squared distance."""

    def __init__(
        self,
        hidden: tuple[int, ...] = (64,),
        *,
        proximal: float = 0.1,
        latent_dim: int = 64,
        activation: str = "relu",
        local_epochs: int = 10,
        local_rate: float = 0.003,
        max_iter: int = 100,
        patience: int = 5,
        validation_fraction: float = 0.1,
        missing: str = "impute",
        random_state: Any = None,
    ):
        super().__init__(
            hidden, latent_dim=latent_dim, activation=activation, local_epochs=local_epochs, local_rate=local_rate,
            max_iter=max_iter, patience=patience, validation_fraction=validation_fraction, missing=missing,
            random_state=random_state,
        )  # fmt: skip
        self.proximal = proximal
