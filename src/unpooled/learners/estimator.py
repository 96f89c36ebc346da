"""The base class of classifiers that train learners: parameters and their checks, classes, cohorts, predictions.

A subclass has `init`, `step` and `finish` as any estimator. At the start of a run one exchange finds the classes (see
`labels`): a SUM of rows per class, or a GATHER of label names over a network without `classes=`.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from unpooled.arrays import Array, to_numpy
from unpooled.data.tabled import DESIGN
from unpooled.errors import BadParameter, suggest
from unpooled.estimator import Estimator, Moment, rows_of
from unpooled.federation import Federation
from unpooled.learners import augment, exact, newcomers, newton, personal, registry, search
from unpooled.learners.labels import find_classes
from unpooled.learners.mixing import normalised
from unpooled.learners.personal import Shared, personalise
from unpooled.learners.trainer import SCHEDULES, Trainer, as_option, check_device, learning_rate
from unpooled.parameters import above, not_below_zero, one_of

AUTO_BATCH, GIVEN_BATCH = 32, 128  # rows per minibatch with lr="auto" and with a given rate
AUTO_EPOCHS = 2  # local epochs per round with lr="auto"
AUTO_TOL = 1e-3


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
    local_epochs : int or "auto", default="auto"
        Epochs over a client's rows per round. "auto" is 1 with a given `lr`, else as many as make about ten steps per round.
    batch_size : int or "auto", default="auto"
        Rows per minibatch. "auto" is 128 with a given `lr`, else 32.
    lr : float or "auto", default="auto"
        Learning rate of SGD. "auto" finds it in the rounds themselves (see `learners.search`); linear learners then need none: where
        the algorithm averages one model, they end at the optimum of all rows (see `learners.exact`).
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
    tol : float or "auto", default="auto"
        With lr="auto", the gain of the held-out log-likelihood, relative to it, that counts as one; "auto" is 1e-3. With a given
        rate the run stops when the log-likelihood per row changes by less than `tol` in a round; "auto" runs all `max_iter` rounds.
    classes : sequence or None, default=None
        All classes, also those that no client has; any other label is refused. None takes those of the clients. Over a
        network without it, the server collects each client's label names.
    fraction : float, default=1.0
        Share of the clients that take part in a round.
    random_state : int or None, default=None
        Seed of all random draws.
    device : str or None, default=None
        A torch device such as "cuda"; None is NumPy for linear and mlp, and torch on the CPU for the rest.
    C : float, default=1.0
        Inverse strength of the ridge penalty of linear learners with lr="auto", as in scikit-learn's LogisticRegression.
    personalize : {"auto", "none"}, default="auto"
        "auto": after the run each client chooses between the shared model, its own versions of it and local models, by its own
        held-out rows; nothing more leaves it. `predict(X, client=...)` then uses what the client keeps.
    augment : {"none", "crop-flip"}, default="none"
        "crop-flip": clients train on images moved by up to four pixels and mirrored at random, drawn anew for every minibatch.
    clip_norm : float, default=0.0
        Largest norm of the gradient of a learner in a step of SGD; 0 is no bound.

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
    gain_ : dict of str to float
        For each client of this process that made a choice: its held-out log-loss per row alone, minus that of what it keeps.
    comparison_ : dict of str to dict
        The same in full: "alone", "shared" and "kept" held-out log-losses per row, and the number of rows that chose.
    coef_, intercept_ : ndarray
        Of a single linear learner, as scikit-learn's LogisticRegression has them.
    converged_ : bool
        With lr="auto", whether the run stopped by itself.
    """

    encoding, scales_columns = DESIGN, True

    def __init__(
        self,
        *,
        learner: Any = "linear",
        hidden: Sequence[int] = (64,),
        norm: str = "group",
        local_epochs: int | str = "auto",
        batch_size: int | str = "auto",
        lr: float | str = "auto",
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        schedule: str = "constant",
        keep_momentum: bool = False,
        max_iter: int = 100,
        tol: float | str = "auto",
        classes: Sequence | None = None,
        fraction: float = 1.0,
        random_state: Any = None,
        device: str | None = None,
        C: float = 1.0,
        personalize: str = "auto",
        augment: str = "none",
        clip_norm: float = 0.0,
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
        self.C = C
        self.personalize = personalize
        self.augment = augment
        self.clip_norm = clip_norm

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
        for name, least in (("local_epochs", 1), ("batch_size", 1), ("max_iter", 0), ("lr", 0), ("tol", 0)):
            value = getattr(self, name)
            if isinstance(value, str) and value != "auto":
                raise BadParameter(f"{name}={value!r} must be a number or 'auto'")
            if value != "auto" and value < least:
                raise BadParameter(f"{name}={value!r} must be at least {least}")
        if self.lr == 0 or not 0 <= self.momentum < 1:
            raise BadParameter(f"lr={self.lr!r} must be above 0 and momentum={self.momentum!r} between 0 and 1")
        above("C", self.C, 0)
        one_of("personalize", self.personalize, ("auto", "none"))
        one_of("augment", self.augment, augment.KINDS)
        not_below_zero("clip_norm", self.clip_norm)

    def trainer(self, fed: Federation) -> Trainer:
        """How the learners of this run are made and trained; one exchange finds the classes."""
        known = None if self.classes is None else np.asarray(self.classes).tolist()
        labels, inputs = find_classes(fed, known, self.takes_missing)
        auto = self.lr == "auto"
        trainer = Trainer(
            registry.name_of(self.learner),
            inputs,
            labels,
            tuple(self.hidden),
            self.norm,
            (AUTO_EPOCHS if auto else 1) if self.local_epochs == "auto" else int(self.local_epochs),
            (AUTO_BATCH if auto else GIVEN_BATCH) if self.batch_size == "auto" else int(self.batch_size),
            search.FIRST_RATE if isinstance(self.lr, str) else self.lr,
            self.momentum,
            self.weight_decay,
            keep_momentum=self.keep_momentum,
            device=self.device,
            hold_out=self.learner != "linear" and (auto or self.personalize == "auto"),
            augment=self.augment,
            clip=self.clip_norm,
        )
        if self.augment != "none":
            augment.image_shape(inputs)  # refuses rows that are no images
        _ = trainer.net  # refuses a learner that does not fit the data
        return trainer

    @property
    def finds_optimum(self) -> bool:
        """Whether a single linear learner is fitted by Newton's method or L-BFGS."""
        return self.lr == "auto" and self.learner == "linear" and self.fraction == 1.0

    def at_round(self, trainer: dict | Trainer, round: int, **changes: Any) -> dict:
        """The trainer of a round (1, 2, ...) as an option: with the scheduled learning rate, and other changes."""
        trainer = trainer if isinstance(trainer, Trainer) else Trainer(**trainer)
        lr = learning_rate(trainer.lr, self.schedule, round, self.max_iter)
        return as_option(trainer, lr=lr, **changes)

    def cohort(self, fed: Federation) -> Federation:
        """The clients that take part in this round."""
        return fed if self.fraction == 1.0 else fed.sample(self.fraction, fed.journal.rng)

    def done(self, state: Any, history: list) -> bool:
        """With tol > 0: whether the log-likelihood per row changed by less than `tol` in the last round."""
        gains = [row["loglik"] for row in history[-2:] if "loglik" in row]
        tol = 0.0 if isinstance(self.tol, str) or self.lr == "auto" else float(self.tol)
        return tol > 0 and len(gains) == 2 and abs(gains[1] - gains[0]) < tol

    # ---- the learning rate ----

    def _start(self, fed: Federation) -> Moment:
        moment = super()._start(fed)
        searched = self.lr == "auto" and hasattr(moment.state, "trainer") and not isinstance(moment.state, exact.Path)
        return moment._replace(state=search.begin(moment.state)) if searched and self.searches else moment

    @property
    def searches(self) -> bool:
        """Whether rounds train by SGD, so that lr="auto" has a rate to find."""
        return True

    def _next(self, fed: Federation, before: Moment) -> Moment:
        if not isinstance(before.state, search.Search):
            return super()._next(fed, before)
        after = super()._next(fed, before._replace(state=before.state.inner))
        row = after.history[-1]
        tol = AUTO_TOL if isinstance(self.tol, str) else self.tol
        judged = row.get("held_out_loglik", row.get("loglik"))  # of labels alone, where `loglik` is of inputs too
        found = search.advance(before.state, after.state, judged, tol)
        row["lr"] = before.state.rate
        return after._replace(state=found, done=after.done or found.stopped)

    def last_state(self, moment: Moment) -> Any:
        """The best state of a search, or the last one; says so if the run did not stop by itself."""
        state = moment.state
        if isinstance(state, search.Search):
            self.converged_ = bool(state.stopped)
            self._warn_unless_converged()
            return state.best if np.isfinite(state.loglik) else state.inner
        if isinstance(state, exact.Path):
            self.converged_ = state.reached
            self._warn_unless_converged()
        return state

    def _warn_unless_converged(self) -> None:
        if not self.converged_:
            text = f"{type(self).__name__} still improved after max_iter={self.max_iter} rounds: raise max_iter, or tol"
            warnings.warn(text, ConvergenceWarning, stacklevel=5)

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
        self.n_effective_ = 0.5 * self.theta_.size * (1 - 1 / len(self.classes_))
        if len(self.theta_) == 1 and self.learner == "linear":
            self.coef_, self.intercept_ = exact.coefficients(self.theta_[0], len(self.classes_))

    def personalise(self, fed: Federation, shared_weights: Array | None = None, **own: Any) -> None:
        """Let each client choose what it keeps: one TELL. Call it after `describe`.

        `shared_weights` (k,) are those of the learners over all clients. `own` names the keys of the client's state that make a version of
        its own, see `personal.own_version`.
        """
        if self.personalize == "auto":
            k = len(self.theta_)
            shares = np.full(k, 1 / k) if shared_weights is None else to_numpy(shared_weights)
            epochs = self._epochs_alone if self.trainer_["hold_out"] else 0
            ask = personalise.using(trainer=self.trainer_, own=own, epochs=epochs)
            fed.tell(ask, Shared(self.theta_, shares, self._optimism(fed), *self._second_derivatives()))
        self._describe_choices(fed)

    @property
    def _epochs_alone(self) -> int:
        """Epochs of a network that a client trains alone: those of the run, within bounds."""
        return int(np.clip(self.trainer_["epochs"] * len(self.history_), 10, 60))

    def describe_parts(self, fed: Federation, weights: str, ids: Sequence[int] | None = None) -> None:
        """One SUM: how the inputs of each part look, for clients without labels. `weights` is the key of the clients' own."""
        places = list(range(len(self.theta_))) if ids is None else [int(i) for i in ids]
        total = fed.sum(newcomers.part_moments.using(weights=weights, ids=places), None)
        self.parts_ = tuple(map(to_numpy, newcomers.parts_of(total)))

    def adapt_to_inputs(self, X: Any, weights: str) -> Any:
        """The model of a new client without labels: the part that its inputs look like, or the shared model.

        `part_probabilities_` and `confidence_` of the result say how sure that is.
        """
        p = newcomers.probabilities(newcomers.Parts(*self.parts_), self._rows(X).astype(np.float64))
        sure = bool(p.max() >= newcomers.SURE)
        new = self.with_own({weights: np.eye(len(p))[p.argmax()]} if sure else {})
        new.part_probabilities_, new.confidence_ = p, float(p.max())
        return new

    def watch(self, X: Any, client: str | None = None) -> dict[str, Any]:
        """Whether new rows of a client have left what it was assigned to; needs a model of several parts.

        Parameters
        ----------
        X : array-like of shape (n, d)
            New rows, without labels.
        client : str or None, default=None
            Whose; None is this personal model.

        Returns
        -------
        dict
            "moved": whether they have left it; "distance" of their means from the part's, in standard deviations; "part" that the
            client has, and "nearest" to the rows.
        """
        own = self.private(client)
        if not hasattr(self, "parts_"):
            raise BadParameter(
                f"{type(self).__name__} has one model for all clients: there is no part that rows could leave"
            )
        parts = newcomers.Parts(*self.parts_)
        apart = newcomers.distance(parts, self._rows(X).astype(np.float64))
        part = int(np.argmax(self.part_weights(own)))
        nearest = int(apart.argmin())
        moved = bool(
            apart[part] > newcomers.FAR and (nearest != part or len(apart) == 1 or apart.min() > newcomers.FAR)
        )
        return {"moved": moved, "distance": float(apart[part]), "part": part, "nearest": nearest}

    def part_weights(self, own: Mapping[str, np.ndarray]) -> np.ndarray:
        """A client's weights of the parts."""
        return self.with_own(dict(own)).models(None)[1]

    def _second_derivatives(self) -> tuple[np.ndarray, np.ndarray]:
        """(inverse at the optimum, centre of the columns) of a linear learner that was fitted exactly, else empty."""
        return getattr(self, "optimum_", (np.zeros((0, 0, 0)), np.zeros(0)))

    def polish(
        self, fed: Federation, theta: Array, trainer: dict | Trainer, weights: str, ids: Sequence[int]
    ) -> np.ndarray:
        """Linear learners with lr="auto" at the optimum of their rows, with the clients' weights as they are; others as they were."""
        trainer = as_option(trainer) if isinstance(trainer, Trainer) else trainer
        small = newton.fits(trainer["inputs"], len(trainer["labels"]))
        if self.lr != "auto" or self.learner != "linear" or not small:
            return to_numpy(theta)
        theta, *optimum = exact.polish(fed, to_numpy(theta), trainer, weights, [int(i) for i in ids], self.C)
        self.optimum_ = tuple(optimum)
        return theta

    def _optimism(self, fed: Federation) -> np.ndarray:
        """Parameters per training row: by how much the log-likelihood of such a row exceeds that of a new one (Akaike).

        0 where rows were held out, and over a network, where the server need not know the number of rows.
        """
        if self.trainer_["hold_out"] or hasattr(self, "optimum_"):
            return np.asarray(0.0)
        rows = sum(float(to_numpy(c.w).sum()) for c in fed.here())
        return np.asarray(self.n_effective_ / rows if rows else 0.0)

    def _describe_choices(self, fed: Federation) -> None:
        """Set gain_ and comparison_, and add what clients of this process keep to clients_."""
        for c in fed.here():
            kept = _picked(c.state, personal.KEYS)
            if kept and c.name in self.clients_:
                self.clients_[c.name] |= kept
        self.comparison_ = {name: _compared(own) for name, own in self.clients_.items() if "kept_losses" in own}
        self.gain_ = {name: row["alone"] - row["kept"] for name, row in self.comparison_.items()}

    def report_figures(self) -> dict[str, str]:
        """The figures of a run's report, by title: what each client of this process has with and without the federation."""
        if not getattr(self, "comparison_", None):
            return {}
        return {
            "Held-out log-loss of each client, alone and with the federation": personal.gain_table(self.comparison_)
        }

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
        own = self.private(client)
        if "kept_mix" in own:
            return normalised(personal.predict(Trainer(**self.trainer_), own, self._columns(x), self._bases(x, own)))
        return normalised(np.exp(self._log_base(x, own)))

    def _bases(self, x: np.ndarray, own: dict) -> np.ndarray:  # (b, n, classes)
        """Log-probabilities of the shared model and, if the client has one, of its own version of it."""
        shared = self._log_base(x, {key: own[key] for key in ("norm",) if key in own})
        return np.stack([shared, self._log_base(x, own)] if self._has_version(own) else [shared])

    def _has_version(self, own: dict) -> bool:
        """Whether a client's state makes a version of the model of its own."""
        return bool(set(own) - {"norm"} - set(personal.KEYS))

    def _log_base(self, x: np.ndarray, own: dict) -> np.ndarray:  # (n, classes)
        """Log-probabilities of the model with the local state `own`, before any choice of the client."""
        theta, weights = self.with_own(own).models(None)
        return personal.average_log_proba(self.log_proba(x, theta), weights)

    def _columns(self, x: np.ndarray) -> np.ndarray:
        """Rows as learners take them."""
        return x

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


def _compared(own: Mapping[str, np.ndarray]) -> dict[str, float]:
    alone, shared, kept = map(float, own["kept_losses"])
    return {"alone": alone, "shared": shared, "kept": kept, "rows": float(own["kept_rows"])}


def _picked(state: Mapping[str, Any], keys: Sequence[str]) -> dict[str, np.ndarray]:
    return {key: to_numpy(state[key]) for key in keys if key in state}
