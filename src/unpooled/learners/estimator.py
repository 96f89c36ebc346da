"""What every model that trains learners has in common: labels, parameters and their checks, cohorts, predictions.

A subclass gives `init`, `step` and `finish` as any estimator; its state has a field `trainer` (a `Trainer` as plain
JSON).
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from unpooled.arrays import Array, to_numpy
from unpooled.errors import BadParameter, suggest
from unpooled.estimator import Estimator, rows_of
from unpooled.federation import Federation
from unpooled.learners import registry
from unpooled.learners.rows import kinds
from unpooled.learners.trainer import SCHEDULES, Trainer, as_option, check_device, learning_rate


class LearnerEstimator(ClassifierMixin, Estimator):
    """A classifier of one or several learners. Parameters that all of them share:

    learner : "linear", "mlp", "cnn", "resnet18", "mobilenet_v2", or a function (inputs, classes) -> torch module
    over flat rows.
    hidden, norm : widths of an mlp; what becomes of BatchNorm ("group", "average", "local": see learners/modules.py).
    local_epochs, batch_size, lr, momentum, weight_decay : a client's own training in a round.
    schedule : "constant", "cosine" (to 0 at max_iter) or "sqrt" (lr / sqrt(round)).
    keep_momentum : whether a client keeps its velocity from round to round; default no.
    classes : all classes, where they are known, also those no client has seen: any other label is refused. None: those
    that clients have.
    fraction : the share of clients asked in a round.
    device : None (NumPy for linear and mlp, torch on the CPU for the rest) or a torch device such as "cuda".
    """

    def __init__(
        self,
        *,
        learner: Any = "linear",
        hidden: Sequence[int] = (64,),
        norm: str = "group",
        local_epochs: int = 1,
        batch_size: int = 128,
        lr: float = 0.1,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        schedule: str = "constant",
        keep_momentum: bool = False,
        max_iter: int = 100,
        tol: float = 0.0,
        classes: Sequence | None = None,
        fraction: float = 1.0,
        random_state: Any = None,
        device: str | None = None,
    ):
        self.learner = learner
        self.hidden = hidden
        self.norm = norm
        self.local_epochs = local_epochs
        self.batch_size = batch_size
        self.lr = lr
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.schedule = schedule
        self.keep_momentum = keep_momentum
        self.max_iter = max_iter
        self.tol = tol
        self.classes = classes
        self.fraction = fraction
        self.random_state = random_state
        self.device = device

    @property
    def takes_missing(self) -> bool:
        """Whether rows may have missing values, which something fills in before learners see them."""
        return False

    def __init_subclass__(cls, **options: Any) -> None:
        """A subclass names its own parameters and passes the rest on; scikit-learn, help() and repr() see all of them."""
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__.__signature__ = _whole_signature(cls)  # type: ignore[attr-defined]

    # ---- before and during a run ----

    def check(self, fed: Federation) -> None:
        registry.name_of(self.learner)
        check_device(self.device)
        if self.schedule not in SCHEDULES:
            raise BadParameter(f"schedule={self.schedule!r} is not known: use one of {', '.join(SCHEDULES)}")
        for name, least in (("local_epochs", 1), ("batch_size", 1), ("max_iter", 0)):
            if getattr(self, name) < least:
                raise BadParameter(f"{name}={getattr(self, name)!r} must be at least {least}")
        if self.lr <= 0 or not 0 <= self.momentum < 1:
            raise BadParameter(f"lr={self.lr!r} must be above 0 and momentum={self.momentum!r} between 0 and 1")

    def trainer(self, fed: Federation) -> Trainer:
        """How the learners of this run are made and trained; one GATHER finds the classes."""
        known = None if self.classes is None else np.asarray(self.classes).tolist()
        labels, inputs = kinds(fed, known, self.takes_missing)
        trainer = Trainer(
            registry.name_of(self.learner),
            inputs,
            labels,
            tuple(self.hidden),
            self.norm,
            self.local_epochs,
            self.batch_size,
            self.lr,
            self.momentum,
            self.weight_decay,
            keep_momentum=self.keep_momentum,
            device=self.device,
        )
        _ = trainer.net  # a learner that does not fit is refused here
        return trainer

    def at_round(self, trainer: dict, round: int, **changes: Any) -> dict:
        """The trainer as it travels in a round (1, 2, ...): with the scheduled rate, and other changes."""
        lr = learning_rate(self.lr, self.schedule, round, self.max_iter)
        return as_option(Trainer(**trainer), lr=lr, **changes)

    def cohort(self, fed: Federation) -> Federation:
        """Who is asked in this round."""
        return fed if self.fraction == 1.0 else fed.sample(self.fraction, fed.journal.rng)

    def done(self, state: Any, history: list) -> bool:
        """With tol > 0: whether the log-likelihood a row has risen by less than `tol` in the last round."""
        gains = [row["loglik"] for row in history[-2:] if "loglik" in row]
        return self.tol > 0 and len(gains) == 2 and abs(gains[1] - gains[0]) < self.tol

    def describe(self, fed: Federation, trainer: dict, theta: Array, *private: str) -> None:
        """Sets classes_, theta_, trainer_ and clients_: what the state of each client that lives here holds by these names."""
        self.trainer_, self.theta_ = trainer, to_numpy(theta)
        self.classes_, self.n_features_in_ = np.asarray(trainer["labels"]), trainer["inputs"]
        states = {c.name: c.state for c in fed.here()}
        kept = {name: _picked(states.get(name, {}), private) for name in fed.names}
        personal = set(private) - {"norm"}  # where there is more to a client than the shared model, it must be here
        self.clients_ = {name: own for name, own in kept.items() if own or not personal}
        self.own_: dict[str, np.ndarray] = {}

    # ---- with new rows, in this process ----

    def predict(self, X: Any, client: str | None = None) -> np.ndarray:
        """The most probable class of each row, for a client by name or for all."""
        best = self.predict_proba(X, client).argmax(-1)
        return self.classes_[best]

    def predict_proba(self, X: Any, client: str | None = None) -> np.ndarray:
        """P(class | x), (n, classes): the learners mixed by the client's weights."""
        x = self._rows(X)
        theta, weights = self.models(client)
        proba = np.exp(self.log_proba(x, theta))  # (k, classes, n)
        return np.einsum("k,kcn->nc", weights, proba)

    def models(self, client: str | None) -> tuple[np.ndarray, np.ndarray]:
        """(theta (k, p), weights (k,)) that speak for a client, or for all; here: the shared ones, equally."""
        theta = Trainer(**self.trainer_).merge(self.theta_, self.private(client).get("norm"))
        return theta, np.full(len(theta), 1 / len(theta))

    def log_proba(self, x: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """log P_k(class | x) as (k, classes, n), computed on the device and brought back."""
        trainer = Trainer(**self.trainer_)
        if trainer.net.needs_torch or trainer.device:
            import torch

            dtype = torch.float32 if trainer.net.needs_torch else None
            there = torch.as_tensor(x, dtype=dtype, device=trainer.device or "cpu")
            return to_numpy(trainer.log_proba(theta, there)).astype(np.float64)
        return trainer.log_proba(theta, x).astype(np.float64)

    # ---- personal models ----

    def private(self, client: str | None) -> dict[str, np.ndarray]:
        """What a client keeps, in this process; for a personal model itself, its own. One sentence if it is not here."""
        check_is_fitted(self)
        if client is None:
            return self.own_
        if client not in self.clients_:
            raise BadParameter(f"nothing personal is known here of client {client!r}: {suggest(client, self.clients_)}")
        return self.clients_[client]

    @property
    def personal_(self) -> Mapping[str, Any]:
        """Each client's own model, for the clients of this process: the shared parts with what the client keeps."""
        check_is_fitted(self)
        return {name: self.with_own(own) for name, own in self.clients_.items()}

    def with_own(self, own: dict[str, np.ndarray]) -> Any:
        """This model as it is for a client that keeps `own`."""
        personal = copy.copy(self)
        personal.own_ = own
        return personal

    def _rows(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        finite = "allow-nan" if self.takes_missing else True
        return rows_of(self, X, ensure_all_finite=finite, dtype=[np.float64, np.float32])


def _whole_signature(cls: type) -> inspect.Signature:
    """That of the constructor, with the parameters it passes on in place of **parameters."""
    mine, above = [vars(c)["__init__"] for c in cls.__mro__ if "__init__" in vars(c)][:2]
    given = [p for p in inspect.signature(mine).parameters.values() if p.kind is not p.VAR_KEYWORD]
    passed = inspect.signature(above).parameters.values()
    names = {p.name for p in given}
    return inspect.Signature([*given, *(p.replace(kind=p.KEYWORD_ONLY) for p in passed if p.name not in names)])


def _picked(state: Mapping[str, Any], keys: Sequence[str]) -> dict[str, np.ndarray]:
    return {key: to_numpy(state[key]) for key in keys if key in state}
