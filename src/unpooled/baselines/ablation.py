"""FedBNR with one of its two global steps taken away: the thesis's local+local, local+global, avg+local and kd+local.

Everything is gathered: a kernel of each client, or a last layer of each. That is what these baselines cost, and why they are none of ours.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.client import GATHER, client
from unpooled.errors import BadParameter, suggest
from unpooled.estimator import Estimator
from unpooled.federation import Federation
from unpooled.maths.bayes_linear import Stats, posterior
from unpooled.models.fedbnr import FIRST_NOISE, FIRST_PRIOR, FedBNR, Task, train
from unpooled.models.regression import Design, check_targets, statistics
from unpooled.parameters import mapping, one_of
from unpooled.tree import message

# the questions of FedBNR, asked of each client by itself
own_kernel = client("ablation.own_kernel", GATHER, batched=train.batched)(train.answer)
own_statistics = client("ablation.own_statistics", GATHER, batched=statistics.batched)(statistics.answer)


@message("ablation.Own")
class Own(NamedTuple):
    """A model of one client."""

    design: Design
    stats: Stats


@message("ablation.Kernels")
class Kernels(NamedTuple):
    models: dict[str, Any]  # a Design of each client, after the round an Own
    seed: int


class AblatedBNR(Estimator):
    """FedBNR whose kernel or last layer is not global; every client has a model of its own.

    Parameters
    ----------
    kernel : "local" (each client trains alone), "average" or "distill" (as in `FedBNR`).
    last_layer : "local" (each client's own rows) or "global" (all rows under this client's kernel).
    settings : dict, the other parameters of `FedBNR`; a client alone trains `local_epochs` times `max_iter` steps.
    """

    max_iter = 1

    def __init__(
        self, kernel: str = "local", last_layer: str = "local", *, settings: Any = None, random_state: Any = None
    ):
        self.kernel = kernel
        self.last_layer = last_layer
        self.settings = settings
        self.random_state = random_state

    def check(self, fed: Federation) -> None:
        check_targets(fed)
        one_of("kernel", self.kernel, ("local", "average", "distill"))
        mapping("settings", self.settings)
        one_of("last_layer", self.last_layer, ("local", "global"))
        if self.kernel != "local" and self.last_layer == "global":
            raise BadParameter(f"kernel={self.kernel!r} with last_layer='global' is FedBNR itself: use that")

    def init(self, fed: Federation, rng: np.random.Generator) -> Kernels:
        whole = self._whole(int(rng.integers(2**31)))
        if self.kernel == "local":
            design = whole.init(fed, rng).design
            return Kernels(self._alone(fed, whole, design), whole.seed_)
        for _ in whole.rounds(fed):
            pass
        return Kernels({name: whole.design_ for name in fed.names}, whole.seed_)

    def _whole(self, random_state: int | None = None) -> FedBNR:
        kernel = "average" if self.kernel == "local" else self.kernel
        return FedBNR(kernel, random_state=random_state, **(self.settings or {}))

    def _alone(self, fed: Federation, whole: FedBNR, design: Design) -> dict[str, Design]:
        """The kernels that clients find without each other, from the same start."""
        first = tree.map(to_numpy, fed.sum(statistics.using(**whole._asks()), design))
        d = len(design.scaling.x_mean)
        task = Task(design, posterior(first), np.asarray(FIRST_NOISE), np.asarray(FIRST_PRIOR), np.zeros((0, d)))
        epochs = int(whole.local_epochs * whole.max_iter)
        answers = fed.gather(own_kernel.using(**whole._asks(), epochs=epochs, rate=float(whole.local_rate)), task)
        found = {name: tree.map(to_numpy, answer.theta) for name, answer in answers.items()}
        return {name: design._replace(kernel=design.kernel._replace(theta=theta)) for name, theta in found.items()}

    def step(self, fed: Federation, state: Kernels) -> tuple[Kernels, dict]:
        whole, designs = self._whole(), state.models
        whole.seed_ = state.seed
        ask = statistics.using(**whole._asks() | {"share": whole._last_share()})
        if self.last_layer == "global":
            sums = {name: fed.sum(ask, design) for name, design in designs.items()}
        elif self.kernel == "local":
            sums = {name: fed.only([name]).sum(ask, design) for name, design in designs.items()}
        else:
            each = own_statistics.using(**ask.options)
            sums = fed.gather(each, next(iter(designs.values())))
        own = {name: Own(design, tree.map(to_numpy, sums[name])) for name, design in designs.items()}
        return Kernels(own, state.seed), {}

    def finish(self, fed: Federation, state: Kernels) -> None:
        self.personal_, self.seed_ = state.models, state.seed
        self.n_features_in_ = len(next(iter(state.models.values())).design.scaling.x_mean)

    def predict(self, X: Any, client: str, return_std: bool = False) -> Any:
        """By the model of one client."""
        if client not in self.personal_:
            raise BadParameter(f"there is no client {client!r}: {suggest(client, self.personal_)}")
        own = self.personal_[client]
        view = self._whole().set_params(server_noise=True)
        view.single_output_ = len(own.design.scaling.y_mean) == 1
        view._settle(own.design, own.stats)
        return view.predict(X, return_std=return_std)

    def predict_each(self, X: Any) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """(mean, std) by every client's model."""
        return {name: self.predict(X, name, return_std=True) for name in self.personal_}
