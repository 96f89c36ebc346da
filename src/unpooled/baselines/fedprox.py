"""FedProx: FedAvg with a proximal term at the clients; the same messages as FedAvg."""

from __future__ import annotations

from typing import Any

from unpooled.baselines.fedavg import FedAvg
from unpooled.errors import BadParameter
from unpooled.federation import Federation


class FedProx(FedAvg):
    """Federated averaging with a proximal term that pulls clients towards the shared model.

    Parameters
    ----------
    mu : float, default=0.1
        Weight of half the squared distance to the shared model in a client's loss.
    **parameters
        The parameters of `FedAvg`.

    Attributes
    ----------
    classes_, theta_, clients_, history_, n_iter_
        As in `FedAvg`.

    References
    ----------
    Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith (2020), Federated optimization in heterogeneous networks, MLSys.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import baselines
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(80, 2))
    >>> y = (x.sum(axis=1) > 0).astype(int)
    >>> sites = {"north": (x[:40], y[:40]), "south": (x[40:], y[40:])}
    >>> model = baselines.FedProx(random_state=0).fit(sites)
    >>> bool(model.score(x, y) > 0.9)
    True
    """

    def __init__(self, mu: float = 0.1, **parameters: Any):
        super().__init__(**parameters)
        self.mu = mu

    def check(self, fed: Federation) -> None:
        """Refuse a negative weight."""
        super().check(fed)
        if self.mu < 0:
            raise BadParameter(f"mu={self.mu!r} must be 0 or more")

    def changes(self) -> dict[str, float]:
        """The proximal term."""
        return {"prox": self.mu}
