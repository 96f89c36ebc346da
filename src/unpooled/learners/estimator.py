"""The base class of classifiers that train learners: parameters and their checks, classes, cohorts, predictions.

A subclass has `init`, `step` and `finish` as any estimator. At the start of a run one exchange finds the classes (see
`labels`): a SUM of rows per class, or a GATHER of label names over a network without `classes=`.
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
from unpooled.data.tabled import DESIGN
from unpooled.errors import BadParameter, suggest
from unpooled.estimator import Estimator, rows_of
from unpooled.federation import Federation
from unpooled.learners import registry
from unpooled.learners.labels import find_classes
from unpooled.learners.mixing import normalised
from unpooled.learners.trainer import SCHEDULES, Trainer, as_option, check_device, learning_rate


class LearnerEstimator(ClassifierMixin, Estimator):
    """Base class of classifiers made of one or several learners.

    Parameters
    ----------
    learner : str or callable, default="linear"
        "linear", "mlp", "cnn", "resnet18", "mobilenet_v2", the name of a registered learner, or a function
        (inputs, classes) -> torch module over flat rows.
    hidden : sequence of int, default=(64,)
        Widths of the hidden layers of an mlp.
    norm : {"group", "average", "local"}, default="group"
        What happens to BatchNorm in a torch module: replaced by GroupNorm, averaged over clients, or kept by each client.
    local_epochs : int, default=1
        Epochs over a client's rows per round.
    batch_size : int, default=128
        Rows per minibatch.
    lr : float, default=0.1
        Learning rate of SGD.
    momentum : float, default=0.9
        Momentum of SGD, at least 0 and below 1.
    weight_decay : float, default=0.0
        L2 penalty of SGD.
    schedule : {"constant", "cosine", "sqrt"}, default="constant"
        The learning rate over rounds: constant, cosine decay to 0 at `max_iter`, or lr / sqrt(round).
    keep_momentum : bool, default=False
        Whether a client keeps its velocity from round to round.
    max_iter : int, default=100
        Maximum number of rounds.
    tol : float, default=0.0
        The run stops when the log-likelihood per row changes by less than `tol` in a round; 0 runs all `max_iter` rounds.
    classes : sequence or None, default=None
        All classes, also those that no client has; any other label is refused. None takes those of the clients. Over a
        network without it, the server collects each client's label names.
    fraction : float, default=1.0
        Share of the clients that take part in a round.
    random_state : int or None, default=None
        Seed of all random draws.
    device : str or None, default=None
        A torch device such as "cuda"; None is NumPy for linear and mlp, and torch on the CPU for the rest.

    Attributes
    ----------
    classes_ : ndarray of shape (classes,)
        The classes in order.
    theta_ : ndarray of shape (k, p)
        Flat parameters of the k shared learners.
    trainer_ : dict
        The fields of `Trainer`.
    clients_ : dict of str to dict
        What each client of this process keeps for itself; empty over a network.
    personal_ : dict of str to estimator
        The model of each client of this process.
    n_features_in_ : int
        Number of columns.
    history_ : list of dict
        One entry per round.
    """

    encoding, scales_columns = DESIGN, True

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
        """Whether rows may have missing values."""
        return False

    def __init_subclass__(cls, **options: Any) -> None:
        """Complete the signature of a subclass by the parameters it passes on, for scikit-learn, help() and repr()."""
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__.__signature__ = _whole_signature(cls)  # type: ignore[attr-defined]

    # ---- before and during a run ----

    def check(self, fed: Federation) -> None:
        """Refuse parameters that cannot work, before any round."""
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
        """How the learners of this run are made and trained; one exchange finds the classes."""
        known = None if self.classes is None else np.asarray(self.classes).tolist()
        labels, inputs = find_classes(fed, known, self.takes_missing)
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
        _ = trainer.net  # refuses a learner that does not fit the data
        return trainer

    def at_round(self, trainer: dict | Trainer, round: int, **changes: Any) -> dict:
        """The trainer of a round (1, 2, ...) as an option: with the scheduled learning rate, and other changes."""
        lr = learning_rate(self.lr, self.schedule, round, self.max_iter)
        trainer = trainer if isinstance(trainer, Trainer) else Trainer(**trainer)
        return as_option(trainer, lr=lr, **changes)

    def cohort(self, fed: Federation) -> Federation:
        """The clients that take part in this round."""
        return fed if self.fraction == 1.0 else fed.sample(self.fraction, fed.journal.rng)

    def done(self, state: Any, history: list) -> bool:
        """With tol > 0: whether the log-likelihood per row changed by less than `tol` in the last round."""
        gains = [row["loglik"] for row in history[-2:] if "loglik" in row]
        return self.tol > 0 and len(gains) == 2 and abs(gains[1] - gains[0]) < self.tol

    def describe(self, fed: Federation, trainer: dict | Trainer, theta: Array, *private: str) -> None:
        """Set classes_, theta_, trainer_ and clients_; `private` are the names of client state that clients_ holds."""
        self.trainer_ = as_option(trainer) if isinstance(trainer, Trainer) else trainer
        self.theta_ = to_numpy(theta)
        self.classes_, self.n_features_in_ = np.asarray(self.trainer_["labels"]), self.trainer_["inputs"]
        states = {c.name: c.state for c in fed.here()}
        kept = {name: _picked(states.get(name, {}), private) for name in fed.names}
        personal = set(private) - {"norm"}  # if clients have state of their own, only those of this process are listed
        self.clients_ = {name: own for name, own in kept.items() if own or not personal}
        self.own_: dict[str, np.ndarray] = {}

    # ---- with new rows, in this process ----

    def predict(self, X: Any, client: str | None = None) -> np.ndarray:
        """The most probable class of each row.

        Parameters
        ----------
        X : array-like of shape (n, d)
        client : str or None, default=None
            Whose personal model predicts; None takes the shared one.

        Returns
        -------
        labels : ndarray of shape (n,)
        """
        best = self.predict_proba(X, client).argmax(-1)
        return self.classes_[best]

    def predict_proba(self, X: Any, client: str | None = None) -> np.ndarray:
        """Class probabilities: the learners' probabilities averaged by the client's weights.

        Parameters
        ----------
        X : array-like of shape (n, d)
        client : str or None, default=None
            Whose personal model predicts; None takes the shared one.

        Returns
        -------
        proba : ndarray of shape (n, classes)
            Within [0, 1]; rows sum to 1.
        """
        x = self._rows(X)
        theta, weights = self.models(client)
        proba = np.exp(self.log_proba(x, theta))  # (k, classes, n)
        return normalised(np.einsum("k,kcn->nc", weights, proba))

    def models(self, client: str | None) -> tuple[np.ndarray, np.ndarray]:
        """(theta (k, p), weights (k,)) used for a client, or for all if None; here the shared ones with equal weights."""
        theta = Trainer(**self.trainer_).merge(self.theta_, self.private(client).get("norm"))
        return theta, np.full(len(theta), 1 / len(theta))

    def log_proba(self, x: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """log P_k(class | x) as (k, classes, n), computed on the trainer's device."""
        trainer = Trainer(**self.trainer_)
        if trainer.net.needs_torch or trainer.device:
            import torch

            dtype = torch.float32 if trainer.net.needs_torch else None
            tensor = torch.as_tensor(x, dtype=dtype, device=trainer.device or "cpu")
            return to_numpy(trainer.log_proba(theta, tensor)).astype(np.float64)
        return trainer.log_proba(theta, x).astype(np.float64)

    # ---- personal models ----

    def private(self, client: str | None) -> dict[str, np.ndarray]:
        """The local state of a client of this process; with None, that of this personal model (empty for the shared one)."""
        check_is_fitted(self)
        if client is None:
            return self.own_
        if client not in self.clients_:
            raise BadParameter(
                f"this process has no local state for client {client!r}: {suggest(client, self.clients_)}"
            )
        return self.clients_[client]

    @property
    def personal_(self) -> Mapping[str, Any]:
        """The personal model of each client of this process: the shared parts with the client's local state."""
        check_is_fitted(self)
        return {name: self.with_own(own) for name, own in self.clients_.items()}

    def with_own(self, own: dict[str, np.ndarray]) -> Any:
        """A copy of this model with the local state `own`."""
        personal = copy.copy(self)
        personal.own_ = own
        return personal

    def _rows(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        finite = "allow-nan" if self.takes_missing else True
        return rows_of(self, X, ensure_all_finite=finite, dtype=[np.float64, np.float32])


def _whole_signature(cls: type) -> inspect.Signature:
    """The constructor's signature with the base class's parameters in place of **parameters."""
    mine, above = [vars(c)["__init__"] for c in cls.__mro__ if "__init__" in vars(c)][:2]
    given = [p for p in inspect.signature(mine).parameters.values() if p.kind is not p.VAR_KEYWORD]
    passed = inspect.signature(above).parameters.values()
    names = {p.name for p in given}
    return inspect.Signature([*given, *(p.replace(kind=p.KEYWORD_ONLY) for p in passed if p.name not in names)])


def _picked(state: Mapping[str, Any], keys: Sequence[str]) -> dict[str, np.ndarray]:
    return {key: to_numpy(state[key]) for key in keys if key in state}
