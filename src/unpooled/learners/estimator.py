"""The base class of classifiers that train learners: parameters and their checks, classes, cohorts, rates.

What follows a run is in `choices`, predictions are in `predictions`, new clients in `adapting`. A subclass has `init`, `step`
and `finish` as any estimator. At the start of a run one exchange finds the classes (see `labels`): a SUM of rows per class, or
a GATHER of label names over a network without `classes=`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from unpooled.data.tabled import DESIGN
from unpooled.errors import BadParameter
from unpooled.estimator import Moment
from unpooled.federation import Federation
from unpooled.learners import augment, exact, registry, regularisation, search
from unpooled.learners.choices import LearnerChoices
from unpooled.learners.labels import find_classes
from unpooled.learners.trainer import SCHEDULES, Trainer, as_option, check_device, learning_rate
from unpooled.parameters import above, not_below_zero, one_of, within

AUTO_BATCH, GIVEN_BATCH = 32, 128  # rows per minibatch with lr="auto" and with a given rate
NORMS = ("group", "average", "local")
AUTO_EPOCHS = 2  # local epochs per round with lr="auto"
AUTO_TOL = 1e-3
_EXACT = (exact.Path, regularisation.PenaltySearch)  # states of runs that need no rate


class LearnerEstimator(LearnerChoices):
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
    C : float or "auto", default=1.0
        Inverse strength of the ridge penalty of linear learners with lr="auto", as in scikit-learn's LogisticRegression. "auto" chooses
        it by left-out rows, see `learners.regularisation`; for one shared model only.
    personalize : {"auto", "none"}, default="auto"
        "auto": after the run one SUM of held-out log-losses calibrates the shared model, then each client chooses between it, its
        own versions of it and local models, by its own held-out rows; nothing of that leaves it. `predict(X, client=...)` then uses
        what the client keeps.
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
    calibration_ : tuple (temperature, floor)
        How probabilities are calibrated, see `learners.calibration`; (1, 0) leaves them as they are.
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
        C: float | str = 1.0,
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

    # ---- before and during a run ----

    def check(self, fed: Federation) -> None:
        """Refuse parameters that cannot work, before any round."""
        registry.name_of(self.learner)
        check_device(self.device)
        for name, least in (("local_epochs", 1), ("batch_size", 1), ("max_iter", 0), ("lr", 0), ("tol", 0)):
            value = getattr(self, name)
            if isinstance(value, str) and value != "auto":
                raise BadParameter(f"{name}={value!r} must be a number or 'auto'")
            if value != "auto" and value < least:
                raise BadParameter(f"{name}={value!r} must be at least {least}")
        if self.lr == 0 or not 0 <= self.momentum < 1:
            raise BadParameter(f"lr={self.lr!r} must be above 0 and momentum={self.momentum!r} between 0 and 1")
        within("fraction", self.fraction, 0, 1, "the share of the clients that take part in a round")
        if isinstance(self.C, str):
            self._check_auto_penalty()
        else:
            above("C", self.C, 0)
        one_of("schedule", self.schedule, SCHEDULES)
        one_of("norm", self.norm, NORMS)
        one_of("personalize", self.personalize, ("auto", "none"))
        one_of("augment", self.augment, augment.KINDS)
        not_below_zero("weight_decay", self.weight_decay)
        not_below_zero("clip_norm", self.clip_norm)

    def _check_auto_penalty(self) -> None:
        """Refuse a word other than "auto", or "auto" where several linear learners are fitted."""
        if self.C != "auto":
            raise BadParameter(f"C={self.C!r} must be a number above 0, or 'auto'")
        if not self.chooses_penalty:
            raise BadParameter(
                'C="auto" is for one linear learner fitted with lr="auto" to all clients: give C= a number'
            )

    def trainer(self, fed: Federation) -> Trainer:
        """How the learners of this run are made and trained; one exchange finds the classes."""
        self.__dict__.pop("optimum_", None)  # of an earlier run
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
    def chooses_penalty(self) -> bool:
        """Whether C="auto" is possible: see FedAvg."""
        return False

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
        """The first moment; with lr="auto" its state is wrapped in the search for a rate."""
        moment = super()._start(fed)
        searched = self.lr == "auto" and hasattr(moment.state, "trainer") and not isinstance(moment.state, _EXACT)
        return moment._replace(state=search.begin(moment.state)) if searched and self.searches else moment

    @property
    def searches(self) -> bool:
        """Whether rounds train by SGD, so that lr="auto" has a rate to find."""
        return True

    def _next(self, fed: Federation, before: Moment) -> Moment:
        """One round, after which the search keeps it or goes back to a smaller rate."""
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
        if isinstance(state, _EXACT):
            self.converged_ = state.reached
            self._warn_unless_converged()
        return state.best if isinstance(state, regularisation.PenaltySearch) else state

    def _warn_unless_converged(self) -> None:
        """Warn of a run that was still improving when it reached max_iter."""
        if not self.converged_:
            text = f"{type(self).__name__} still improved after max_iter={self.max_iter} rounds: raise max_iter, or tol"
            warnings.warn(text, ConvergenceWarning, stacklevel=5)
