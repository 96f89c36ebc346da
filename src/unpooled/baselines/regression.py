"""Regression by averaged networks (FedAvg, FedProx): one SUM per round of networks weighted by rows. No uncertainty.

A round sends one network down and one up per client, together with the squared error on held-out rows.
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
from unpooled.data.tabled import DESIGN
from unpooled.estimator import Estimator, rows_of
from unpooled.federation import Federation
from unpooled.maths.feature_maps import ACTIVATIONS, Kernel, Leaves, Spec, features, start
from unpooled.models.regression import Scaling, check_targets, standard, standard_rows, standardise
from unpooled.parameters import above, at_least, not_below_zero, one_of, share, widths
from unpooled.tree import message


@message("network_regression.Network")
class Network(NamedTuple):
    """Down: how rows are standardised, and the weights."""

    scaling: Scaling
    leaves: Leaves  # the layers, and `head` (k, o) with `offset` (o,)


@message("network_regression.Trained")
class Trained(NamedTuple):
    """Up: locally trained weights times rows, and errors on held-out rows."""

    rows: Float[Array, "", ">=0 rows"]
    leaves: Leaves  # times rows
    held: Float[Array, "", ">=0 rows"]
    squares: Float[Array, ""]  # errors on rows held out, before training


@message("network_regression.State")
class State(NamedTuple):
    """The state between rounds: the current network and the best so far."""

    network: Network
    best: Leaves
    score: float
    best_round: int
    round: int
    seed: int  # of the held-out rows


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
    """Weights after local Adam steps from the global network, and its squared error on held-out rows.

    `loss` is "squared", or "fitc" for the client's own Gaussian process on top of the network.
    """
    from unpooled.maths.torch_training import descend

    x, y, w, held = standard_rows(down.scaling, client, share, seed)
    errors = predicted(spec, down, (x, y, w), loss) - y
    squares = (errors**2).sum(-1)
    mine = descend(spec, down.leaves, {}, (x, y, w), loss=loss, epochs=epochs, rate=rate, proximal=proximal)
    rows = w.sum(-1)
    weighted = {k: v * rows.reshape(rows.shape + (1,) * (v.ndim - rows.ndim)) for k, v in mine.items()}
    return Trained(rows, weighted, held.sum(-1), (held * squares).sum(-1))


def predicted(spec: Spec, network: Network, rows: tuple[Array, Array, Array], loss: str) -> Array:
    """Predictions (..., n, o) for the clients' own rows before training."""
    if loss == "squared":
        return outputs(spec, network.leaves, rows[0])
    from unpooled.maths.torch_training import sparse_fit, sparse_predict

    return sparse_predict(spec, network.leaves, sparse_fit(spec, network.leaves, rows), rows[0])[0][..., None]


def predict_by(spec: Spec, leaves: Leaves, inner: Array, pull: Array, x: Array) -> tuple[np.ndarray, np.ndarray]:
    """(mean, variance), (q,) each, at rows x (q, d) by a client's sparse Gaussian process as it was sent."""
    import torch

    from unpooled.maths.fitc import Fit
    from unpooled.maths.torch_training import sparse_predict

    known = Fit(torch.as_tensor(inner), torch.as_tensor(pull)[:, None], torch.zeros(()))
    return sparse_predict(spec, leaves, known, x)


def outputs(spec: Spec, leaves: Leaves, x: Array) -> Array:  # (..., n, o)
    """Outputs of the network at standardised rows x (..., n, d)."""
    layers = {k: v for k, v in leaves.items() if k not in ("head", "offset")}
    return features(spec, Kernel(layers, {}), x) @ leaves["head"] + leaves["offset"]


class FedAvgRegression(RegressorMixin, Estimator):
    """Network regression by federated averaging on squared error; the round with the smallest held-out error is kept.

    Parameters
    ----------
    hidden : tuple of int, default=(64,)
        Widths of the hidden layers.
    latent_dim : int, default=64
        Width of the last hidden layer.
    activation : {"tanh", "silu", "relu"}, default="relu"
        Activation of the network.
    local_epochs : int, default=10
        Full-batch Adam steps per client and round.
    local_rate : float, default=0.003
        Learning rate of these steps.
    max_iter : int, default=100
        Largest number of rounds.
    patience : int, default=5
        Rounds without a smaller error on held-out rows after which training stops.
    validation_fraction : float, default=0.1
        Fraction of rows held out to choose the round.
    missing : {"impute", "refuse"}, default="impute"
        Whether missing values are replaced by the mean over all clients, with a warning, or refused.
    random_state : int or None, default=None
        Seed of the network and the held-out rows.

    Attributes
    ----------
    network_ : Network
        Scaling and weights of the round kept.
    best_round_ : int
        That round.
    n_sums_ : int
        SUMs asked in all.

    References
    ----------
    McMahan et al., Communication-efficient learning of deep networks from decentralized data, AISTATS 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled.baselines import FedAvgRegression
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(60, 2))
    >>> y = x[:, 0] + 0.1 * rng.normal(size=60)
    >>> model = FedAvgRegression(max_iter=2, random_state=0).fit(x, y, by=np.arange(60) % 3)
    >>> model.predict(x).shape
    (60,)
    """

    encoding = DESIGN

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
        """Refuse unknown options and parameters out of range."""
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
        """The feature map that the hidden layers are."""
        hidden = [int(h) for h in self.hidden]
        return {"map": "network", "hidden": hidden, "latent": int(self.latent_dim), "activation": self.activation}

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        """Standardise the rows; a random network."""
        self.seed_ = int(rng.integers(2**31))
        scaling, _ = standardise(fed, self.validation_fraction, self.seed_, self.missing)
        leaves = start(self._spec(), len(scaling.x_mean), rng).theta
        leaves = leaves | self._head(len(scaling.y_mean), rng)
        return State(Network(scaling, leaves), leaves, math.inf, 0, 0, self.seed_)

    def _head(self, outputs: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The last layer before the first round."""
        k = self.latent_dim
        return {"head": rng.uniform(-1, 1, (k, outputs)) / np.sqrt(k), "offset": np.zeros(outputs)}

    def step(self, fed: Federation, state: State) -> tuple[State, dict]:
        """One SUM of the networks after local steps; remembers the network with the least held-out error."""
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
        """Whether `patience` rounds brought no smaller held-out error."""
        return state.round - state.best_round >= self.patience

    def finish(self, fed: Federation, state: State) -> None:
        """Keep the network of the best round."""
        self.seed_ = state.seed
        self.network_ = Network(state.network.scaling, state.best)
        self.best_round_ = state.best_round
        self.n_sums_ = 2 + len(self.history_)
        self.n_features_in_ = len(state.network.scaling.x_mean)

    def predict(self, X: Any) -> np.ndarray:
        """Predict y at each row.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows to predict.

        Returns
        -------
        y : array of shape (n_samples,) or (n_samples, n_outputs)
            Predictions.
        """
        check_is_fitted(self, "network_")
        X = rows_of(self, X, dtype=np.float64, ensure_all_finite="allow-nan")
        scaling = self.network_.scaling
        y = scaling.y_mean + scaling.y_scale * outputs(self._spec(), self.network_.leaves, standard(scaling, X))
        return y[:, 0] if y.shape[1] == 1 else y


class FedProxRegression(FedAvgRegression):
    """FedAvgRegression with a proximal term in the local loss.

    The term is proximal / 2 times the squared distance to the global network.

    Parameters
    ----------
    hidden : tuple of int, default=(64,)
        Widths of the hidden layers.
    proximal : float, default=0.1
        Weight of the proximal term.
    **parameters
        The parameters of `FedAvgRegression`.

    Attributes
    ----------
    network_, best_round_, n_sums_
        As in `FedAvgRegression`.

    References
    ----------
    Li et al., Federated optimization in heterogeneous networks, MLSys 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled.baselines import FedProxRegression
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(60, 2))
    >>> y = x[:, 0] + 0.1 * rng.normal(size=60)
    >>> model = FedProxRegression(max_iter=2, random_state=0).fit(x, y, by=np.arange(60) % 3)
    >>> model.predict(x).shape
    (60,)
    """

    def __init__(self, hidden: tuple[int, ...] = (64,), *, proximal: float = 0.1, **parameters: Any):
        super().__init__(hidden, **parameters)
        self.proximal = proximal
