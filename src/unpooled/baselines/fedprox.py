"""FedProx: FedAvg whose clients are pulled back, by mu, to the model they were sent. Costs what FedAvg costs."""

from __future__ import annotations

from typing import Any

from unpooled.baselines.fedavg import FedAvg
from unpooled.errors import BadParameter
from unpooled.federation import Federation


class FedProx(FedAvg):
    """Federated optimisation in heterogeneous networks (Li et al. 2020).

    mu : weight of half the squared distance to the model that was sent. The other parameters: see `LearnerEstimator`.
    """

    def __init__(self, mu: float = 0.1, **parameters: Any):
        super().__init__(**parameters)
        self.mu = mu

    def check(self, fed: Federation) -> None:
        super().check(fed)
        if self.mu < 0:
            raise BadParameter(f"mu={self.mu!r} must be 0 or more")

    def changes(self) -> dict[str, float]:
        return {"prox": self.mu}
