"""pFedGP for regression: a shared deep kernel with shared inducing points, and a Gaussian process per client.

One SUM per round of networks weighted by rows. After the last round one GATHER of each client's sparse Gaussian process
(FITC, Gaussian kernel), m^2 + m numbers for m inducing points, which predictions need.
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
    """A client's sparse Gaussian process at the shared inducing points."""

    inner: Float[Array, "m m"]
    pull: Float[Array, "m"]


@client("pfedgp.personal", GATHER, batched=False)
def personal(network: Network, client: Client, *, spec: dict, share: float, seed: int) -> Personal:
    """The Gaussian process of this client's rows under the shared kernel."""
    from unpooled.maths.torch_training import sparse_fit

    known = sparse_fit(spec, network.leaves, standard_rows(network.scaling, client, share, seed)[:3])
    return Personal(to_numpy(known.inner), to_numpy(known.pull)[:, 0])


class PFedGP(FedAvgRegression):
    """Personal Gaussian processes with a shared deep kernel, learned by federated averaging.

    Parameters
    ----------
    hidden : tuple of int, default=(64, 64)
        Widths of the hidden layers.
    n_inducing : int, default=50
        Inducing points in the latent space, shared and learned.
    latent_dim : int, default=8
        Dimensions of the latent space.
    **parameters
        The other parameters of `FedAvgRegression`.

    Attributes
    ----------
    network_, best_round_, n_sums_
        As in `FedAvgRegression`.
    personal_ : dict of str to Personal
        The Gaussian process of each client.

    References
    ----------
    Achituve et al., Personalized federated learning with Gaussian processes, NeurIPS 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled.baselines import PFedGP
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(60, 2))
    >>> y = x[:, 0] + 0.1 * rng.normal(size=60)
    >>> model = PFedGP(n_inducing=5, max_iter=2, random_state=0).fit(x, y, by=np.arange(60) % 3)
    >>> model.predict(x, client="1").shape
    (60,)
    """

    loss = "fitc"

    def __init__(
        self, hidden: tuple[int, ...] = (64, 64), *, n_inducing: int = 50, latent_dim: int = 8, **parameters: Any
    ):
        super().__init__(hidden, latent_dim=latent_dim, **parameters)
        self.n_inducing = n_inducing

    def check(self, fed: Federation) -> None:
        """Refuse parameters out of range."""
        super().check(fed)
        at_least("n_inducing", self.n_inducing, 1)

    def _head(self, outputs: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Inducing points and log variances before the first round; one output only."""
        if outputs != 1:
            raise BadData(f"y has {outputs} outputs but pFedGP predicts one: fit one model for each")
        points = rng.standard_normal((self.n_inducing, self.latent_dim))
        return {"inducing": points, "log_signal": np.zeros(()), "log_noise": np.asarray(-1.0)}

    def _spec(self) -> dict:
        """The feature map: the network's outputs without an activation."""
        return super()._spec() | {"map": "latent"}

    def finish(self, fed: Federation, state: State) -> None:
        """Set the network, then one GATHER of the clients' Gaussian processes."""
        super().finish(fed, state)
        ask = personal.using(spec=self._spec(), share=float(self.validation_fraction), seed=self.seed_)
        self.personal_ = {name: tree.map(to_numpy, a) for name, a in fed.gather(ask, self.network_).items()}

    def predict_each(self, X: Any) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Predict by the Gaussian process of each client.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows to predict.

        Returns
        -------
        predictions : dict of str to tuple (mean, std)
            Arrays of shape (n_samples,) per client.
        """
        check_is_fitted(self, "personal_")
        X = rows_of(self, X, dtype=np.float64, ensure_all_finite="allow-nan")
        x = standard(self.network_.scaling, X)
        return {name: self._by(own, x) for name, own in self.personal_.items()}

    def _by(self, own: Personal, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(mean, std), (q,) each, by one client's Gaussian process at standardised rows x (q, d)."""
        mean, variance = predict_by(self._spec(), self.network_.leaves, own.inner, own.pull, x)
        scaling = self.network_.scaling
        return scaling.y_mean[0] + scaling.y_scale[0] * mean, scaling.y_scale[0] * np.sqrt(variance)

    def predict(self, X: Any, client: str | None = None, return_std: bool = False) -> Any:
        """Predict by the Gaussian process of one client, or by the mean over all.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows to predict.
        client : str or None, default=None
            Name of the client; None: the mean over all clients.
        return_std : bool, default=False
            Whether to return the standard deviation of y too.

        Returns
        -------
        mean : array of shape (n_samples,)
            Predictions.
        std : array of shape (n_samples,)
            Only with `return_std=True`.
        """
        each = self.predict_each(X)
        if client is not None and client not in each:
            raise BadParameter(f"there is no client {client!r}: {suggest(client, each)}")
        mean, std = each[client] if client is not None else (np.mean(v, axis=0) for v in zip(*each.values()))
        return (mean, std) if return_std else mean
