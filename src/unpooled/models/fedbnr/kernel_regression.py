"""Base class of FedBNR: its feature map, the rows it holds out, and the posterior of its last layer. Sends nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from unpooled.maths import bayes_linear
from unpooled.maths.bayes_linear import Axes, Posterior, Stats
from unpooled.models.fedbnr.budget import MAX_FREQUENCIES, Size, frequencies_to_learn_with
from unpooled.models.fedbnr.checks import registered
from unpooled.models.fedbnr.last_map import SCALED
from unpooled.models.fedbnr.state import State
from unpooled.models.regression import LastLayer

PLAIN = ("rff", "ard", "additive", "exponential", "polynomial")  # maps without a network


class KernelRegression(LastLayer):
    """Base class of a regression whose feature map is learned; the parameters are those of `FedBNR`."""

    kernel: str
    features: Any
    n_frequencies: int | str
    spectrum: str
    frequencies: str
    hidden: tuple[int, ...]
    latent_dim: int
    activation: str
    degree: int
    constant: float
    optimizer: str
    server_noise: bool
    server_data: Any
    validation_fraction: float
    refit: bool
    device: str
    log_variances_: tuple[float, float]

    def _spec(self) -> dict:
        """The feature map, as it travels with a question."""
        name = self._map_name() if isinstance(self.features, str) else registered(self.features)
        return {
            "map": name,
            "m": self._n_frequencies(),
            "spectrum": self.spectrum,
            "frequencies": self.frequencies,
            "hidden": [int(h) for h in self.hidden],
            "latent": int(self.latent_dim),
            "activation": self.activation,
            "degree": int(self.degree),
            "constant": float(self.constant),
            "device": self.device,
        }

    def _map_name(self) -> str:
        """The name of the feature map."""
        return getattr(self, "features_", "ard") if self.features == "auto" else self.features

    def _n_frequencies(self) -> int:
        """How many frequencies the map has."""
        return MAX_FREQUENCIES if self.n_frequencies == "auto" else int(self.n_frequencies)

    def _grows(self) -> bool:
        """Whether the kernel is learned with fewer frequencies than the last layer has."""
        plain = self.features in ("auto", *SCALED) and self.frequencies == "fixed" and self.kernel == "exact"
        return self.n_frequencies == "auto" and plain and self.refit and self._share() > 0

    def _sums_kernels(self) -> bool:
        """Whether the last layer has a sum of kernels."""
        return self.features == "auto" and self._grows()

    def _share(self) -> float:
        """The fraction of rows held out: none where the server has rows of its own."""
        return 0.0 if self.server_data is not None else float(self.validation_fraction)

    def _asks(self) -> dict[str, Any]:
        """Options that all questions share."""
        return {"spec": self._spec(), "share": self._share(), "seed": self.seed_}

    def _uses_lbfgs(self) -> bool:
        """Whether the kernel is learned by L-BFGS."""
        return self.optimizer == "lbfgs" or (self.optimizer == "auto" and self._map_name() in PLAIN)

    def _learning_spec(self, size: Size) -> dict:
        """The feature map while its kernel is learned."""
        if not self._grows():
            return self._spec()
        return self._spec() | {"m": frequencies_to_learn_with(size)}

    def _last_share(self) -> float:
        """The share of rows that the last layer leaves out."""
        return 0.0 if self.refit else self._share()

    def _residual_share(self) -> float:
        """The share of rows whose residuals recalibrate: all where length scales are learned, which hardly fit single rows."""
        return 0.0 if self._grows() else self._share()

    def _n_learned(self) -> float:
        """Degrees of freedom of learned length scales."""
        scales = self.design_.kernel.theta.get("log_scale", np.zeros(0))
        return min(float(scales.size), 0.25 * float(self.stats_.n))

    def _axes(self) -> Axes | None:
        """Axes of the posterior, where the server learns the noise."""
        if not (self.server_noise or self.kernel == "exact"):
            return None
        return bayes_linear.axes(self.stats_, float(self.posterior.group_ratio))

    def _posterior(self, stats: Stats, state: State | None = None) -> Posterior:
        """The posterior of these sums, with variances learned here or at the clients."""
        if self.server_noise or self.kernel == "exact":
            return bayes_linear.posterior(stats)
        logs = self.log_variances_ if state is None else (state.log_noise, state.log_prior)
        return bayes_linear.posterior(stats, noise=np.exp(logs[0]), prior=np.exp(logs[1]))
