"""A Gaussian mixture per client, fitted to its own rows; one SUM of the numbers of components."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.data.checks import check_complete
from unpooled.errors import BadParameter, suggest
from unpooled.estimator import Estimator, Info, rows_of
from unpooled.federation import Federation
from unpooled.maths import local_mixture, mixture
from unpooled.maths.mixture import Params
from unpooled.parameters import one_of
from unpooled.tree import message


@message("local_em.Count")
class Count(NamedTuple):
    """Up: the number of components of the client's mixture."""

    k: Float[Array, "", ">=0"]


@client("local_em.fit_alone", SUM, batched=False)
def fit_alone(nothing: None, client: Client, *, sizes: dict, max_local: int) -> Count:
    """Fit a mixture to the client's rows, which it keeps; only its number of components is sent."""
    x = to_numpy(client.x).astype(float)
    w = to_numpy(client.w).astype(float)
    k = sizes.get(client.name)
    found = local_mixture.fit(x[w > 0], w[w > 0], client.rng, range(k, k + 1) if k else range(1, max_local + 1))
    client.state["alone"] = {"params": found.params, "shape": found.shape}
    return Count(np.asarray(float(len(found.params.weights))))


class LocalEM(Estimator):
    """No federation: each client fits a Gaussian mixture to its own rows.

    Clusters of different clients are different clusters. `predict` needs `client=`.

    Parameters
    ----------
    n_components : mapping of str to int or "auto", default="auto"
        Components at each client; "auto" chooses the number by BIC.
    max_local : int, default=10
        Components at most, with "auto".
    random_state : int, RandomState or None, default=None
        Seed of the fits.

    Attributes
    ----------
    models_ : dict of str to tuple
        (parameters, covariance type, number of its first cluster) of each client in this process.
    n_components_ : int
        Clusters of all clients together.
    labels_ : dict of str to ndarray of shape (n,)
        The cluster of each row, by client.

    References
    ----------
    The baseline "local" of the papers that the other classes implement.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import baselines
    >>> rng = np.random.default_rng(0)
    >>> sites = {name: rng.normal([[0, 0], [9, 9]] * 20) for name in ("north", "south")}
    >>> model = baselines.LocalEM(random_state=0).fit(sites)
    >>> model.n_components_
    4
    """

    max_iter = 1

    minima: ClassVar = {"max_local": 1}

    def __init__(
        self, n_components: Mapping[str, int] | str = "auto", *, max_local: int = 10, random_state: Any = None
    ):
        self.n_components = n_components
        self.max_local = max_local
        self.random_state = random_state

    def check(self, fed: Federation) -> None:
        """Refuse missing values, and a word other than "auto"."""
        if isinstance(self.n_components, str):
            one_of("n_components", self.n_components, ("auto",))
        check_complete(fed.here())

    def init(self, fed: Federation, rng: np.random.Generator) -> tuple:
        """An empty state."""
        return ()

    def step(self, fed: Federation, state: tuple) -> tuple[tuple, Info]:
        """One SUM of the numbers of components."""
        sizes = dict(self.n_components) if isinstance(self.n_components, Mapping) else {}
        total = fed.sum(fit_alone.using(sizes=sizes, max_local=self.max_local), None)
        return (), {"components": float(total.k)}

    def finish(self, fed: Federation, state: tuple) -> None:
        """Collect the mixtures of clients in this process and number their clusters."""
        kept = {c.name: c.state for c in fed.here() if "alone" in c.state}
        self.models_: dict[str, tuple[Params, str, int]] = {}
        first = 0
        for name in sorted(kept):
            params = kept[name]["alone"]["params"]
            self.models_[name] = (params, kept[name]["alone"]["shape"], first)
            first += len(params.weights)
        self.n_components_ = first
        here = fed.here()
        self.labels_ = {c.name: self._labels(to_numpy(c.x), c.name) for c in here}

    def predict(self, X: Any, client: str | None = None) -> np.ndarray:
        """The cluster of each row under the mixture of one client.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows.
        client : str
            Name of the client whose mixture is used.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Numbers of clusters, different for each client.
        """
        check_is_fitted(self, "models_")
        if client is None:
            raise BadParameter(f"LocalEM has a mixture for each client: give client=, one of {', '.join(self.models_)}")
        if client not in self.models_:
            raise BadParameter(f"LocalEM has no model for client {client!r}: {suggest(client, self.models_)}")
        return self._labels(rows_of(self, X), client)

    def _labels(self, x: np.ndarray, client: str) -> np.ndarray:
        """The cluster (n,) of each row x (n, d) under the mixture of a client."""
        params, shape, first = self.models_[client]
        return first + mixture.log_joint(params, np.asarray(x, dtype=float), shape).argmax(-1)
