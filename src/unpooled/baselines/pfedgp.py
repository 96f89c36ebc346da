"""pFedGP for regression: one deep kernel and inducing points for all, learned by averaging; each client predicts from its own rows.

A round is one SUM of networks weighted by rows; predictions are made at the clients (FITC, Gaussian kernel) and gathered.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_array

from unpooled.arrays import Array, Float
from unpooled.baselines.regression import FedAvgRegression, Network, State
from unpooled.client import Client, client
from unpooled.errors import BadData
from unpooled.federation import Federation
from unpooled.models.last_layer import standard, standard_rows


class Query(NamedTuple):
    network: Network
    x: Float[Array, "q d"]


class Answer(NamedTuple):
    mean: Float[Array, "q"]
    variance: Float[Array, "q", ">=0"]


@client(batched=False)
def predict_here(query: Query, client: Client, *, spec: dict, share: float, seed: int) -> Answer:
    """What this client, from its own rows under the shared kernel, says of rows sent to it."""
    from unpooled.maths.torch_training import sparse_predict

    rows = standard_rows(query.network.scaling, client, share, seed)[:3]
    mean, variance = sparse_predict(spec, query.network.leaves, rows, standard(query.network.scaling, query.x))
    scaling = query.network.scaling
    return Answer(scaling.y_mean[0] + scaling.y_scale[0] * mean, scaling.y_scale[0] ** 2 * variance)


class PFedGP(FedAvgRegression):
    """Personal Gaussian processes with a shared deep kernel; `n_inducing` points of the latent space are shared and learned too."""

    loss = "fitc"

    def __init__(
        self,
        hidden: tuple[int, ...] = (64, 64),
        *,
        n_inducing: int = 50,
        latent_dim: int = 8,
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
        self.n_inducing = n_inducing

    def _head(self, outputs: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        if outputs != 1:
            raise BadData(f"y has {outputs} outputs but pFedGP predicts one: fit one model for each")
        points = rng.standard_normal((self.n_inducing, self.latent_dim))
        return {"inducing": points, "log_signal": np.zeros(()), "log_noise": np.asarray(-1.0)}

    def _spec(self) -> dict:
        return super()._spec() | {"map": "latent"}

    def finish(self, fed: Federation, state: State) -> None:
        super().finish(fed, state)
        self._fed = fed  # predictions are made where the rows are

    def predict_each(self, X: Any) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """(mean, std) of every client's own Gaussian process: one GATHER."""
        X = check_array(X, dtype=np.float64)
        ask = predict_here.using(spec=self._spec(), share=float(self.validation_fraction), seed=self.seed_)
        answers = self._fed.gather(ask, Query(self.network_, X))
        return {name: (a.mean, np.sqrt(a.variance)) for name, a in answers.items()}

    def predict(self, X: Any, client: str | None = None, return_std: bool = False) -> Any:
        """By the Gaussian process of one client; of none, the mean of all."""
        each = self.predict_each(X)
        mean, std = each[client] if client else (np.mean(v, axis=0) for v in zip(*each.values()))
        return (mean, std) if return_std else mean
