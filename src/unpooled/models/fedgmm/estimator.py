"""FedGMM: each client's rows and labels are a mixture of pairs of Gaussian and learner; one SUM per round.

p_c(x, y) = sum_kj pi_c(k, j) N(z(x); mean_k, cov_k) P_j(y | x). Gaussians and learners are shared; pi_c never leaves its
client. A run has `warmup` rounds of the mixture of inputs alone, one round for the start of linear learners, then rounds
of the joint model. Several starts, or several numbers of Gaussians and learners, are fitted in the same rounds until the
best one is chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np

from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.errors import BadParameter
from unpooled.estimator import Info
from unpooled.federation import Federation, find_layer, least_rows
from unpooled.learners import as_option
from unpooled.maths import gaussian
from unpooled.maths.mixture import Params
from unpooled.models.fedgmm import few_rows, initialization
from unpooled.models.fedgmm.embedding import fit_embedding
from unpooled.models.fedgmm.initialization import Candidate
from unpooled.models.fedgmm.m_step import MSteps
from unpooled.models.fedgmm.rounds import Down, Mixtures, NewtonUp, SgdUp, newton_round, sgd_round, warm_up
from unpooled.models.fedgmm.trial import State, weights_keys
from unpooled.models.initialization import frame as find_frame
from unpooled.models.initialization import warn_of_rounding
from unpooled.models.mixture import few_rows as crowds
from unpooled.models.mixture import warn_of_left_out
from unpooled.parameters import one_of

CHOICES = {  # the values that a parameter can have
    "covariance_type": gaussian.SHAPES,
    "optimizer": ("auto", "newton", "sgd"),
    "warmup_covariance": ("auto", "own", "shared"),
    "init_params": ("cells", "gather"),
    "novelty_rows": ("held-out", "leave-one-out"),
}
FLAT_ROUNDS = 3  # consecutive rounds with a change below `tol` before a run stops; one alone may be chance with SGD


class FedGMM(MSteps):
    """Personalised classification, densities and novelty detection under a joint mixture of inputs and labels.

    The rows and labels of every client are a mixture of pairs of Gaussian and learner. Gaussians and learners are shared,
    the weights of the pairs are each client's own and never leave it.

    Parameters
    ----------
    n_gaussians : int or "auto", default=3
        Number of Gaussians. "auto" tries 1, 2, 3, 4, 6 and 8; all are fitted in the same rounds, and the held-out joint likelihood
        chooses.
    n_learners : int or "auto", default="auto"
        Number of learners. "auto" tries one learner and one per Gaussian, in the same rounds, and the held-out likelihood of the
        labels chooses. With both numbers "auto" there are as many Gaussians as learners, or one of either.
    covariance_type : {"full", "tied", "diag", "spherical"}, default="full"
        As in scikit-learn's GaussianMixture.
    optimizer : {"auto", "newton", "sgd"}, default="auto"
        "newton" is one pooled Newton step per round, for linear learners; "sgd" is local epochs at the clients; "auto" is
        "newton" for linear learners, with a bound in place of second derivatives above 800 parameters; with `embedding`, SGD there.
    embedding : int or None, default=None
        Number of principal axes (one federated PCA) that the Gaussians see; None is all columns. Learners always see whole
        rows. 48 is enough for images given as features of `unpooled.datasets.encoder`.
    rest : bool, default=True
        Whether, with `embedding`, the Gaussians also see the length of the residual of the principal axes, which helps
        novelty detection.
    starts : sequence of {"tied", "untied"}, default=("tied", "untied")
        "tied" starts with one learner per Gaussian, "untied" with all learners everywhere. Of several starts the one with
        the higher likelihood is kept.
    warmup : int, default=3
        Rounds of the mixture of the inputs alone.
    warmup_covariance : {"auto", "own", "shared"}, default="auto"
        Whether Gaussians share one covariance during the warm-up, so that none becomes wide over rare rows. "auto" shares
        it where there are fewer rows than entries of the covariances.
    trial : int, default=10
        Rounds of the joint model before one candidate is chosen.
    whiten : bool, default=True
        Whether SGD on linear learners is preconditioned by the second moments of their rows.
    ridge : float or "auto", default="auto"
        Precision of the Gaussian prior on linear learners with Newton steps, per row and for standardised columns. "auto" is one
        divided by the number of rows: the penalty of scikit-learn's LogisticRegression with C=1.
    reg_covar : float or "auto", default="auto"
        A number is added to the diagonal of covariances. "auto" gives them the prior of Fraley and Raftery (2007), which is relative
        to the variances of the data and keeps a Gaussian of few rows wide. A covariance that is not positive definite nevertheless
        has its eigenvalues raised.
    init_params : {"cells", "gather"}, default="cells"
        Where the Gaussians start: "cells" is k-means over all rows by sums, from sums over small regions, the same however rows
        are split into clients; "gather" is one GATHER of local k-means centres.
    learner : str or callable, default="linear"
        "linear", "mlp", "cnn", "resnet18", "mobilenet_v2", or a function (inputs, classes) -> torch module.
    hidden : sequence of int, default=(64,)
        Widths of the hidden layers of an mlp.
    norm : {"group", "average", "local"}, default="group"
        What happens to BatchNorm in a torch module.
    local_epochs, batch_size : int, default=1 and 128
        Epochs per round at a client, and rows per minibatch (SGD).
    lr, momentum, weight_decay : float, default=0.1, 0.9 and 0.0
        Of SGD.
    schedule : {"constant", "cosine", "sqrt"}, default="constant"
        The learning rate over rounds (SGD).
    keep_momentum : bool, default=False
        Whether a client keeps its velocity from round to round (SGD).
    max_iter : int, default=100
        Maximum number of rounds. Networks for groups of clients, see `group_theta_`, take half as many again as the run took.
    novelty_rows : {"held-out", "leave-one-out"}, default="held-out"
        Where novelty thresholds come from: rows that the Gaussians never see (a tenth, or a fifth of fewer than 1,000 rows of a
        client; learners do see them), or leave-one-out densities of rows that they do.
    tol : float, default=1e-3
        Stop when one candidate is left and its joint log-likelihood per row has changed by less in each of three rounds; 0
        runs all rounds.
    classes : sequence or None, default=None
        All classes; None takes those of the clients.
    fraction : float, default=1.0
        Share of the clients that take part in a round.
    random_state : int or None, default=None
        Seed of all random draws.
    device : str or None, default=None
        A torch device; None is NumPy where possible.

    Attributes
    ----------
    means_ : ndarray of shape (k, d)
        Means of the Gaussians, in the embedded space if there is one.
    covariances_ : ndarray
        Covariances, in the shape that scikit-learn's GaussianMixture has for `covariance_type`.
    weights_ : ndarray of shape (k,)
        Weights of the Gaussians over all clients.
    shares_ : ndarray of shape (k, m)
        Weights of the pairs of Gaussian and learner over all clients.
    theta_ : ndarray of shape (m, p)
        Flat parameters of the learners.
    clients_ : dict of str to dict
        Local state of each client of this process: weights `pi` (k, m) and thresholds `novelty`.
    single_ : ndarray of shape (1, p) or (0, p)
        A single learner of all rows, which clients may choose where the mixture has several.
    start_ : str
        The chosen candidate, for instance "3x3 tied".
    lower_bound_ : float
        Joint log-likelihood per row.
    group_theta_ : ndarray of shape (groups, p)
        With networks, where clients' inputs differ: a network for each group of clients whose inputs look alike.
    novelty_levels_ : ndarray
        Thresholds of novelty scores over all clients, see `threshold`.
    embedding_mean_, embedding_axes_, embedding_residual_ : ndarray
        The map from rows to the space of the Gaussians.
    classes_, trainer_, personal_, n_features_in_, history_
        See `unpooled.learners.estimator.LearnerEstimator`.

    References
    ----------
    Wu, Zhang, Yu, Cui, Zhang and Chen (2023), Personalized Federated Learning under Mixture of Distributions, ICML.

    Examples
    --------
    Two groups of rows with opposite labelling, in different proportions at three clients.

    >>> import numpy as np
    >>> import unpooled as up
    >>> rng = np.random.default_rng(0)
    >>> def rows(share):
    ...     group = rng.random(200) < share
    ...     x = rng.normal(size=(200, 2)) + 6 * group[:, None]
    ...     above = x[:, 0] > 6 * group
    ...     return x, np.where(group, above, ~above).astype(int)
    >>> data = {name: rows(share) for name, share in {"a": 0.2, "b": 0.5, "c": 0.8}.items()}
    >>> model = up.FedGMM(2, 2, max_iter=15, random_state=0).fit(data)
    >>> model.predict([[1.0, 0.0], [7.0, 6.0]], client="a")
    array([0, 1])
    >>> model.is_novel([[0.0, 0.0], [30.0, -30.0]])
    array([False,  True])
    """

    def __init__(
        self,
        n_gaussians: int | str = 3,
        n_learners: int | str = "auto",
        *,
        covariance_type: str = "full",
        optimizer: str = "auto",
        embedding: int | None = None,
        rest: bool = True,
        starts: Sequence[str] = ("tied", "untied"),
        warmup: int = 3,
        warmup_covariance: str = "auto",
        trial: int = 10,
        whiten: bool = True,
        ridge: float | str = "auto",
        reg_covar: float | str = "auto",
        init_params: str = "cells",
        novelty_rows: str = "held-out",
        tol: float | str = 1e-3,
        **parameters: Any,
    ):
        super().__init__(tol=tol, **parameters)
        self.n_gaussians = n_gaussians
        self.n_learners = n_learners
        self.covariance_type = covariance_type
        self.optimizer = optimizer
        self.embedding = embedding
        self.rest = rest
        self.starts = starts
        self.warmup = warmup
        self.warmup_covariance = warmup_covariance
        self.trial = trial
        self.whiten = whiten
        self.ridge = ridge
        self.reg_covar = reg_covar
        self.init_params = init_params
        self.novelty_rows = novelty_rows

    # ---- the run ----

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        """Frame, embedding and first Gaussians."""
        trainer = self.trainer(fed)
        frame = find_frame(fed)
        warn_of_rounding(fed, frame.scale)
        space, cov = fit_embedding(fed, frame, self.embedding, self.rest)
        sizes = sorted({k for k, _ in self._sizes()})
        started = initialization.gaussians(fed, space, sizes, self.covariance_type, rng, self.init_params)
        mixtures = {str(k): params for k, params in zip(sizes, started)}
        cov = cov if self._takes_newton_steps(trainer) else np.zeros((0, 0))
        designed = find_layer(fed, "find_moments") is not None  # numbers are scaled; indicators stay as they are
        return State(trainer, space, np.ones_like(frame.scale) if designed else frame.scale, cov, mixtures, (), 0)

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        """A round of the warm-up, or of all candidates."""
        state = state._replace(round=state.round + 1)
        if state.round <= self.warmup:
            return self._warm_up(fed, state)
        if not state.candidates:
            state = state._replace(candidates=tuple(self._candidates(fed, state)))
            if self._linear:
                return state, {"candidates": len(state.candidates)}
        return self._joint_round(fed, self._after_trial(state))

    def done(self, state: State, history: list) -> bool:
        """Whether one candidate is left and its log-likelihood per row has been flat for FLAT_ROUNDS rounds.

        A run that looks for its learning rate stops by the held-out labels instead (see `learners.search`).
        """
        if self.lr == "auto" and "held_out_loglik" in history[-1]:
            return False
        loglik = [row["loglik"] for row in history[-FLAT_ROUNDS - 1 :] if "loglik" in row]
        flat = len(loglik) > FLAT_ROUNDS and bool((np.abs(np.diff(loglik)) < self.tol).all())
        return self._trial_is_over(state) and flat

    def finish(self, fed: Federation, state: State) -> None:
        """Choose the best candidate, set the fitted attributes and the novelty thresholds."""
        best = self._best(state)
        self.describe(fed, state.trainer, best.joint.theta, f"pi-{best.key}", "norm")
        self.clients_ = {name: _renamed(own, f"pi-{best.key}") for name, own in self.clients_.items()}
        self.set_joint(best.joint, state.space.embedding, self.covariance_type)
        self.start_ = best.key
        if lost := left_out(best):
            warn_of_left_out(lost, 5, "n_gaussians")
        self.lower_bound_ = float(best.loglik)
        self.n_effective_ = best.parameters or self.n_effective_
        self.set_thresholds(fed, float(state.space.frame.rows))
        single = self._single(state)
        self.single_ = self.theta_[:0] if single is None or single is best else to_numpy(single.joint.theta)
        self.fit_groups(fed, self.shares_.sum(0), **self._own_weights)
        self.choose_personal(fed, best, single)

    # ---- rounds ----

    def _warm_up(self, fed: Federation, state: State) -> tuple[State, Info]:
        """A round of EM of the mixtures of the inputs alone."""
        least = least_rows(fed)
        if least:
            state = state._replace(mixtures=self._mixtures_of_many(fed, state, least))
        down = Mixtures(tuple(state.mixtures.values()), state.space.embedding)
        options = self._options(weights_keys(state.mixtures))
        ask = warm_up.using(trainer=as_option(state.trainer), options=options._asdict())
        totals = tree.map(to_numpy, self.cohort(fed).sum(ask, down))
        kept = [few_rows.mixture_without(p, s.n, least, self.covariance_type) for p, s in zip(down.params, totals)]
        moved = [
            self._warm_up_m_step(p, s, state) if rest is p else rest for p, s, rest in zip(down.params, totals, kept)
        ]
        best = max(float(s.loglik / s.rows) for s in totals)
        return state._replace(mixtures=dict(zip(state.mixtures, moved))), {"loglik_x": best}

    def _joint_round(self, fed: Federation, state: State) -> tuple[State, Info]:
        """A round of EM of the joint model, for every candidate."""
        least = least_rows(fed)
        candidates = self._candidates_of_many(fed, state, least) if least else state.candidates
        question = newton_round if self._takes_newton_steps(state.trainer) else sgd_round
        bounded = self._is_bounded(state.trainer)
        options = self._options([c.key for c in candidates], candidates, not self._trial_is_over(state), bounded)
        trainer = self.at_round(state.trainer, state.round)
        down = Down(tuple(c.joint for c in candidates), state.space.embedding)
        totals = self.cohort(fed).sum(question.using(trainer=trainer, options=options._asdict()), down)
        moved = tuple(self._next_of(c, up, state, least) for c, up in zip(candidates, totals))
        best = self._best(state._replace(candidates=moved))
        info = {"loglik": best.loglik, "start": best.key, "candidates": len(moved)}
        if lost := left_out(best):
            info["left_out"] = lost
        chosen = totals[[c.key for c in moved].index(best.key)].stats
        if state.trainer.hold_out and float(chosen.held_out_rows) > 0:
            info["held_out_loglik"] = float(chosen.held_out_labels) / float(chosen.held_out_rows)
        return state._replace(candidates=moved), info

    # ---- without components of few rows, in a study ----

    def _mixtures_of_many(self, fed: Federation, state: State, least: float) -> dict[str, Params]:
        """The mixtures of the inputs without Gaussians of few rows, which are counted in one SUM where there may be some."""
        rows = float(state.space.frame.rows)
        first = state.round == 1
        mixtures = state.mixtures
        if not any(crowds.uncertain(params, rows, least, first).any() for params in mixtures.values()):
            return mixtures
        options = self._options(weights_keys(mixtures))
        ask = few_rows.class_rows.using(trainer=as_option(state.trainer), options=options._asdict())
        counts = self.cohort(fed).sum(ask, Mixtures(tuple(mixtures.values()), state.space.embedding))
        kept = [
            few_rows.mixture_without(params, to_numpy(found.n).sum(1), least, self.covariance_type)
            for params, found in zip(mixtures.values(), counts)
        ]
        return dict(zip(mixtures, kept))

    def _candidates_of_many(self, fed: Federation, state: State, least: float) -> tuple[Candidate, ...]:
        """The candidates without Gaussians and learners of few rows, which are counted in one SUM where there may be some."""
        rows = float(state.space.frame.rows)
        candidates = state.candidates
        if not any(few_rows.in_doubt(c, rows, least) for c in candidates):
            return candidates
        options = self._options([c.key for c in candidates], candidates, not self._trial_is_over(state))
        trainer = self.at_round(state.trainer, state.round)
        down = Down(tuple(c.joint for c in candidates), state.space.embedding)
        counts = self.cohort(fed).sum(few_rows.pair_rows.using(trainer=trainer, options=options._asdict()), down)
        return tuple(
            few_rows.kept_of(c, [n.gaussians], [n.learners], least, self.covariance_type)
            if few_rows.in_doubt(c, rows, least)
            else c
            for c, n in zip(candidates, counts)
        )

    def _next_of(self, c: Candidate, up: SgdUp | NewtonUp, state: State, least: float) -> Candidate:
        """A candidate after a round; where Gaussians or learners hold few rows, a study goes on without them from where it asked."""
        stats = tree.map(to_numpy, up.stats)
        kept = few_rows.kept_of(c, [stats.gaussians.n], [stats.pairs.sum(0)], least, self.covariance_type)
        return self._m_step(c, up, state) if kept is c else self._scored(kept, stats)

    # ---- bad parameters ----

    def check(self, fed: Federation) -> None:
        """Refuse parameters that do not exist or do not go together."""
        super().check(fed)
        for name, known in CHOICES.items():
            one_of(name, getattr(self, name), known)
        for name in ("n_gaussians", "n_learners"):
            value = getattr(self, name)
            if value != "auto" and (not isinstance(value, Integral) or value < 1):
                raise BadParameter(f"{name}={value!r} must be a whole number of at least 1, or 'auto'")
        for name in ("warmup", "trial", "ridge", "reg_covar"):
            value = getattr(self, name)
            if isinstance(value, str) and value != "auto":
                raise BadParameter(f"{name}={value!r} must be a number or 'auto'")
            if value != "auto" and value < 0:
                raise BadParameter(f"{name}={value!r} must be at least 0")
        if not self.starts or set(self.starts) - {"tied", "untied"}:
            raise BadParameter(f"starts={self.starts!r} must contain 'tied', 'untied' or both")
        if self.optimizer == "newton" and not self._linear:
            raise BadParameter(f"optimizer='newton' needs learner='linear', got {self.learner!r}: use optimizer='sgd'")
        if self.max_iter <= self.warmup + self._linear:
            text = f"max_iter={self.max_iter} leaves no joint round after warmup={self.warmup}: raise max_iter"
            raise BadParameter(text)


def left_out(c: Candidate) -> int:
    """How many Gaussians and learners fewer than its key says a candidate has."""
    k, m = c.key.split()[0].split("x")
    return int(k) + int(m) - len(c.joint.gaussians.weights) - len(c.joint.theta)


def _renamed(own: dict, key: str) -> dict:
    """A client's state with its weights under the name of the fitted model."""
    return {("pi" if name == key else name): value for name, value in own.items()}
