"""pFedGP for regression: one deep kernel and inducing points for all, learned by averaging; each client predicts from its own rows.

A round is one SUM of networks weighted by rows; at the end each client's sparse Gaussian process (FITC, Gaussian kernel) is gathered,
m^2 + m numbers for m inducing points: they are what predictions are made with.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from unpooled import tree
from unpooled.arrays import Array, Float, to_numpy
from unpooled.baselines.regression import FedAvgRegression, Network, State, predict_by
from unpooled.client import GATHER, Client, client
from unpooled.errors import BadData, BadParameter, suggest
from unpooled.estimator import rows_of
from unpooled.federation import Federation
from unpooled.models.regression import standard, standard_rows
from unpooled.parameters import at_least
from unpooled.tree import message


@message("pfedgp.Personal")
class Personal(NamedTuple):
    """A client's process: what its rows say of the function at the inducing points."""

    inner: Float[Array, "m m"]
    pull: Float[Array, "m"]


@client("pfedgp.personal", GATHER, batched=False)
def personal(network: Network, client: Client, *, spec: dict, share: float, seed: int) -> Personal:
    """The process of this client's own rows under the shared kernel."""
    from unpooled.maths.torch_training import sparse_fit

    known = sparse_fit(spec, network.leaves, standard_rows(network.scaling, client, share, seed)[:3])
    return Personal(to_numpy(known.inner), to_numpy(known.pull)[:, 0])


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

    def check(self, fed: Federation) -> None:
        super().check(fed)
        at_least("n_inducing", self.n_inducing, 1)

    def _head(self, outputs: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        if outputs != 1:
            raise BadData(f"y has {outputs} outputs but pFedGP predicts one: fit one model for each")
        points = rng.standard_normal((self.n_inducing, self.latent_dim))
        return {"inducing": points, "log_signal": np.zeros(()), "log_noise": np.asarray(-1.0)}

    def _spec(self) -> dict:
        return super()._spec() | {"map": "latent"}

    def finish(self, fed: Federation, state: State) -> None:
        super().finish(fed, state)
        ask = personal.using(spec=self._spec(), share=float(self.validation_fraction), seed=self.seed_)
        self.personal_ = {name: tree.map(to_numpy, a) for name, a in fed.gather(ask, self.network_).items()}

    def predict_each(self, X: Any) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """(mean, std) of every client's own Gaussian process."""
        check_is_fitted(self, "personal_")
        X = rows_of(self, X, dtype=np.float64, ensure_all_finite="allow-nan")
        x = standard(self.network_.scaling, X)
        return {name: self._by(own, x) for name, own in self.personal_.items()}

    def _by(self, own: Personal, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(mean, std) of one client's process at standardised rows x."""
        mean, variance = predict_by(self._spec(), self.network_.leaves, own.inner, own.pull, x)
        scaling = self.network_.scaling
        return scaling.y_mean[0] + scaling.y_scale[0] * mean, scaling.y_scale[0] * np.sqrt(variance)

    def predict(self, X: Any, client: str | None = None, return_std: bool = False) -> Any:
        """By the Gaussian process of one client; of none, the mean of all."""
        each = self.predict_each(X)
        if client is not None and client not in each:
            raise BadParameter(f"there is no client {client!r}: {suggest(client, each)}")
        mean, std = each[client] if client is not None else (np.mean(v, axis=0) for v in zip(*each.values()))
        return (mean, std) if return_std else mean
