"""Ablations of FedBNR in which the kernel or the last layer is local: local+local, local+global, avg+local, kd+local.

Sends one GATHER of a kernel per client, or of last-layer statistics per client.
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
    """The model of one client."""

    design: Design
    stats: Stats


@message("ablation.Kernels")
class Kernels(NamedTuple):
    """The state: the clients' models so far."""

    models: dict[str, Any]  # client -> Design; after the round client -> Own
    seed: int


class AblatedBNR(Estimator):
    """FedBNR whose kernel or last layer is local; every client has its own model.

    Parameters
    ----------
    kernel : {"local", "average", "distill"}, default="local"
        "local": each client trains alone; otherwise as in `FedBNR`.
    last_layer : {"local", "global"}, default="local"
        Fitted to each client's own rows, or to all rows under each client's kernel.
    settings : dict or None, default=None
        Other parameters of `FedBNR`; a client alone trains local_epochs * max_iter steps.
    random_state : int or None, default=None
        Seed of the features and the held-out rows.

    Attributes
    ----------
    personal_ : dict of str to Own
        The model of each client.

    References
    ----------
    The ablations in the paper of FedBNR, see `unpooled.FedBNR`.
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
        """Refuse unknown options, and the combination that is FedBNR itself."""
        check_targets(fed)
        one_of("kernel", self.kernel, ("local", "average", "distill"))
        mapping("settings", self.settings)
        one_of("last_layer", self.last_layer, ("local", "global"))
        if self.kernel != "local" and self.last_layer == "global":
            raise BadParameter(f"kernel={self.kernel!r} with last_layer='global' is FedBNR itself: use that")

    def init(self, fed: Federation, rng: np.random.Generator) -> Kernels:
        """The kernel of each client, trained alone or by the rounds of FedBNR."""
        fedbnr = self._whole(int(rng.integers(2**31)))
        if self.kernel == "local":
            design = fedbnr.init(fed, rng).design
            return Kernels(self._alone(fed, fedbnr, design), fedbnr.seed_)
        for _ in fedbnr.rounds(fed):
            pass
        return Kernels({name: fedbnr.design_ for name in fed.names}, fedbnr.seed_)

    def _whole(self, random_state: int | None = None) -> FedBNR:
        """The FedBNR that this ablation is derived from."""
        kernel = "average" if self.kernel == "local" else self.kernel
        return FedBNR(kernel, random_state=random_state, **(self.settings or {}))

    def _alone(self, fed: Federation, fedbnr: FedBNR, design: Design) -> dict[str, Design]:
        """The kernels that clients train alone, all from the same initial one."""
        first = tree.map(to_numpy, fed.sum(statistics.using(**fedbnr._asks()), design))
        d = len(design.scaling.x_mean)
        task = Task(design, posterior(first), np.asarray(FIRST_NOISE), np.asarray(FIRST_PRIOR), np.zeros((0, d)))
        epochs = int(fedbnr.local_epochs * fedbnr.max_iter)
        answers = fed.gather(own_kernel.using(**fedbnr._asks(), epochs=epochs, rate=float(fedbnr.local_rate)), task)
        found = {name: tree.map(to_numpy, answer.theta) for name, answer in answers.items()}
        return {name: design._replace(kernel=design.kernel._replace(theta=theta)) for name, theta in found.items()}

    def step(self, fed: Federation, state: Kernels) -> tuple[Kernels, dict]:
        """The last-layer statistics of each client's kernel: one SUM per kernel, or one GATHER for all."""
        fedbnr, designs = self._whole(), state.models
        fedbnr.seed_ = state.seed
        ask = statistics.using(**fedbnr._asks() | {"share": fedbnr._last_share()})
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
        """Set `personal_`."""
        self.personal_, self.seed_ = state.models, state.seed
        self.n_features_in_ = len(next(iter(state.models.values())).design.scaling.x_mean)

    def predict(self, X: Any, client: str, return_std: bool = False) -> Any:
        """Predict by the model of one client.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows to predict.
        client : str
            Name of the client.
        return_std : bool, default=False
            Whether to return the standard deviation of y too.

        Returns
        -------
        mean : array of shape (n_samples,) or (n_samples, n_outputs)
            Predictions.
        std : array of the same shape
            Only with `return_std=True`.
        """
        if client not in self.personal_:
            raise BadParameter(f"there is no client {client!r}: {suggest(client, self.personal_)}")
        own = self.personal_[client]
        view = self._whole().set_params(server_noise=True)
        view.single_output_ = len(own.design.scaling.y_mean) == 1
        view._settle(own.design, own.stats)
        return view.predict(X, return_std=return_std)

    def predict_each(self, X: Any) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """(mean, std) by each client's model, as a dict by client."""
        return {name: self.predict(X, name, return_std=True) for name in self.personal_}
