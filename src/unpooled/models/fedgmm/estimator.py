"""FedGMM: each client's rows and labels are a mixture of pairs of Gaussian and learner; one SUM per round.

p_c(x, y) = sum_kj pi_c(k, j) N(z(x); mean_k, cov_k) P_j(y | x). Gaussians and learners are shared; pi_c never leaves its
client. A run has `warmup` rounds of the mixture of inputs alone, one round for the start of linear learners, then rounds
of the joint model. Several starts, or several numbers of Gaussians and learners, are fitted in the same rounds until the
best one is chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from unpooled import tree
from unpooled.arrays import Array, like, to_numpy
from unpooled.errors import BadParameter
from unpooled.estimator import Info
from unpooled.federation import Federation
from unpooled.learners import Trainer, as_option, newton
from unpooled.learners.mixing import average
from unpooled.maths import gaussian, mixture
from unpooled.maths.mixture import Params, Stats
from unpooled.models.fedgmm import initialization
from unpooled.models.fedgmm.covariances import repaired, shrunk
from unpooled.models.fedgmm.embedding import EmbeddedFrame, fit_embedding
from unpooled.models.fedgmm.initialization import Candidate
from unpooled.models.fedgmm.prediction import JointModelPredictions
from unpooled.models.fedgmm.rounds import (
    Down,
    Joint,
    JointStats,
    LabelMeans,
    Mixtures,
    NewtonUp,
    RoundOptions,
    SgdUp,
    label_means,
    newton_round,
    second_moments,
    sgd_round,
    warm_up,
)
from unpooled.models.initialization import frame as find_frame
from unpooled.models.mixture import reseed
from unpooled.tree import message

AUTO_SIZES = (1, 2, 3, 4, 6, 8)
LEAST_PRECISION = 1e-6  # of the prior on intercepts
FLAT_ROUNDS = 3  # consecutive rounds with a change below `tol` before a run stops; one alone may be chance with SGD


@message("fedgmm.State")
class State(NamedTuple):
    trainer: Trainer
    space: EmbeddedFrame  # of the Gaussians
    scale: Array  # (d,) standard deviations of the columns
    cov: Array  # (d, d) of whole rows, where Gaussians see principal axes and learners take Newton steps; else (0, 0)
    mixtures: dict[str, Params]  # by number of Gaussians, during the warm-up
    candidates: tuple[Candidate, ...]
    round: int


class FedGMM(JointModelPredictions):
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
        "newton" where it is possible and its matrices are small.
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
        Maximum number of rounds.
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
        trainer = self.trainer(fed)
        frame = find_frame(fed)
        space, cov = fit_embedding(fed, frame, self.embedding, self.rest)
        sizes = sorted({k for k, _ in self._sizes()})
        started = initialization.gaussians(fed, space, sizes, self.covariance_type, rng, self.init_params)
        mixtures = {str(k): params for k, params in zip(sizes, started)}
        cov = cov if self._takes_newton_steps(trainer) else np.zeros((0, 0))
        return State(trainer, space, frame.scale, cov, mixtures, (), 0)

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
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
        best = self._best(state)
        self.describe(fed, state.trainer, best.joint.theta, f"pi-{best.key}", "norm")
        self.clients_ = {name: _renamed(own, f"pi-{best.key}") for name, own in self.clients_.items()}
        self.set_joint(best.joint, state.space.embedding, self.covariance_type)
        self.start_, self.lower_bound_ = best.key, float(best.loglik)
        self.n_effective_ = best.parameters or self.n_effective_
        self.set_thresholds(fed, float(state.space.frame.rows))
        single = self._single(state)
        self.single_ = self.theta_[:0] if single is None or single is best else to_numpy(single.joint.theta)
        self.choose_personal(fed, best, single)

    # ---- rounds ----

    def _warm_up(self, fed: Federation, state: State) -> tuple[State, Info]:
        """A round of EM of the mixtures of the inputs alone."""
        down = Mixtures(tuple(state.mixtures.values()), state.space.embedding)
        options = self._options(list(state.mixtures))
        ask = warm_up.using(trainer=as_option(state.trainer), options=options._asdict())
        totals = tree.map(to_numpy, self.cohort(fed).sum(ask, down))
        moved = [self._warm_up_m_step(p, s, state) for p, s in zip(down.params, totals)]
        best = max(float(s.loglik / s.rows) for s in totals)
        return state._replace(mixtures=dict(zip(state.mixtures, moved))), {"loglik_x": best}

    def _joint_round(self, fed: Federation, state: State) -> tuple[State, Info]:
        """A round of EM of the joint model, for every candidate."""
        candidates = state.candidates
        question = newton_round if self._takes_newton_steps(state.trainer) else sgd_round
        options = self._options([c.key for c in candidates], candidates, not self._trial_is_over(state))
        trainer = self.at_round(state.trainer, state.round)
        down = Down(tuple(c.joint for c in candidates), state.space.embedding)
        totals = self.cohort(fed).sum(question.using(trainer=trainer, options=options._asdict()), down)
        moved = tuple(self._m_step(c, up, state) for c, up in zip(candidates, totals))
        best = self._best(state._replace(candidates=moved))
        info = {"loglik": best.loglik, "start": best.key, "candidates": len(moved)}
        chosen = totals[[c.key for c in moved].index(best.key)].stats
        if state.trainer.hold_out and float(chosen.held_out_rows) > 0:
            info["held_out_loglik"] = float(chosen.held_out_labels) / float(chosen.held_out_rows)
        return state._replace(candidates=moved), info

    def _m_step(self, c: Candidate, up: SgdUp | NewtonUp, state: State) -> Candidate:
        """A candidate after a round."""
        stats = tree.map(to_numpy, up.stats)  # learners may stay on their device, the rest is small
        rows = float(stats.gaussians.rows)
        shares = (stats.pairs + 1e-12) / (stats.pairs + 1e-12).sum()
        joint = Joint(self._gaussian_m_step(c.joint.gaussians, stats.gaussians, state), c.joint.theta, shares)
        if isinstance(up, SgdUp):
            theta = average(up.theta, like(stats.pairs.sum(0), up.theta), c.joint.theta)
        else:
            prior = self._ridge(rows) * np.append(state.scale**2, 0.0 if self.ridge == "auto" else 1.0)
            prior[-1] = max(prior[-1], LEAST_PRECISION)
            second = self._second_moments(joint._replace(gaussians=c.joint.gaussians), state)
            centre = state.space.embedding.mean
            alike = isinstance(self.ridge, str)
            theta = newton.step(c.joint.theta, up.gradient, up.curvature, prior, second, centre, alike)
            c = c._replace(parameters=newton.effective_parameters(up.curvature, prior, alike))
            if len(theta) == 1:
                c = c._replace(curvature=newton.penalised(up.curvature, prior, alike))
        loglik = float(stats.gaussians.loglik) / rows
        held_out = float(self._judged(stats)) / max(float(stats.held_out_rows), 1.0)
        new = c._replace(joint=joint._replace(theta=theta), loglik=loglik, held_out=held_out)
        if not stats.held_out_rows > 0:
            return new
        gap = float(stats.trained_labels) / rows - float(stats.held_out_labels) / float(stats.held_out_rows)
        return new._replace(gap=gap)

    def _judged(self, stats: JointStats) -> Array:
        """What candidates are compared by: numbers of Gaussians by inputs and labels, numbers of learners by labels alone."""
        return stats.held_out if self.n_gaussians == "auto" else stats.held_out_labels

    def _ridge(self, rows: float) -> float:
        return 1.0 if isinstance(self.ridge, str) else self.ridge * rows

    def _single(self, state: State) -> Candidate | None:
        """The candidate of a single learner, if one is kept beside the chosen one or is the chosen one."""
        last = state.candidates[-1]
        return last if self._trial_is_over(state) and last.joint.theta.shape[0] == 1 and len(last.curvature) else None

    def _second_moments(self, joint: Joint, state: State) -> np.ndarray:
        """The mean of (x, 1)(x, 1)' about the mean over the rows of each learner, (m, d + 1, d + 1).

        Where Gaussians see principal axes only, that of all rows.
        """
        if self.embedding is None:
            return second_moments(joint, self.covariance_type, state.space.embedding.mean)
        of_all = np.eye(len(state.cov) + 1)
        of_all[:-1, :-1] = state.cov
        return np.tile(of_all, (joint.shares.shape[1], 1, 1))

    def _gaussian_m_step(self, params: Params, stats: Stats, state: State) -> Params:
        auto = isinstance(self.reg_covar, str)
        params = mixture.m_step(
            params, stats, self.covariance_type, 0.0 if isinstance(self.reg_covar, str) else self.reg_covar
        )
        if auto:
            params = shrunk(params, stats, self.covariance_type, state.space.frame.scale)
        params = repaired(params, self.covariance_type, state.space.frame.scale)
        return reseed(params, stats, self.covariance_type)[0]

    def _warm_up_m_step(self, params: Params, stats: Stats, state: State) -> Params:
        moved = self._gaussian_m_step(params, stats, state)
        scarce = float(stats.rows) < params.covs.size
        share = self.warmup_covariance == "shared" or (self.warmup_covariance == "auto" and scarce)
        return initialization.with_shared_covariance(moved, self.covariance_type) if share else moved

    def _options(self, keys: list[str], candidates: Sequence[Candidate] = (), trial: bool = False) -> RoundOptions:
        return RoundOptions(
            keys,
            {c.key: c.source for c in candidates},
            self.covariance_type,
            self._auto and trial,
            self.whiten and self._linear and self.embedding is None,
            self.novelty_rows == "held-out",
        )

    # ---- candidates ----

    def _candidates(self, fed: Federation, state: State) -> list[Candidate]:
        """Every size from every start; linear learners start from class means or as random hyperplanes."""
        rng = fed.journal.rng
        means = self._label_means(fed, state) if self._linear and self.embedding is None else {}
        out = []
        for k, m in self._sizes():
            alike = m == 1 and self._auto and self.n_gaussians != "auto"  # then one start is as good as the other
            for name in self.starts[:1] if alike else self.starts:
                params = state.mixtures[str(k)]
                owner = initialization.owners(params, m, self.covariance_type) if name == "tied" else None
                joint = initialization.first_joint(params, state.trainer.start(rng, m), owner)
                if str(k) in means:
                    joint = joint._replace(theta=self._first_learners(joint, means[str(k)], owner, rng))
                out.append(Candidate(f"{k}x{m} {name}", str(k), joint, -np.inf, -np.inf))
        return out

    def _label_means(self, fed: Federation, state: State) -> dict[str, LabelMeans]:
        options = self._options(list(state.mixtures))
        ask = label_means.using(trainer=as_option(state.trainer), options=options._asdict())
        totals = fed.sum(ask, Mixtures(tuple(state.mixtures.values()), state.space.embedding))
        return dict(zip(state.mixtures, totals))

    def _first_learners(
        self, joint: Joint, means: LabelMeans, owner: np.ndarray | None, rng: np.random.Generator
    ) -> np.ndarray:
        if owner is None:
            return initialization.random_hyperplanes(joint, means.n.shape[-1], self.covariance_type, rng)
        learners = joint.shares.shape[1]
        return initialization.discriminants(joint.gaussians, means, owner, learners, self.covariance_type)

    def _after_trial(self, state: State) -> State:
        """The best candidate once the trial is over, with the one of a single learner beside it for the clients' choices."""
        if len(state.candidates) == 1 or state.round != self._trial_end:
            return state
        best = self._chosen(state.candidates)
        single = [c for c in state.candidates if c.joint.theta.shape[0] == 1 and c.source == best.source]
        keep = single[:1] if self._auto and self.personalize == "auto" and best.joint.theta.shape[0] > 1 else []
        return state._replace(candidates=(best, *keep))

    @property
    def _trial_end(self) -> int:
        """The round before which one candidate is chosen."""
        return self.warmup + (2 if self._linear else 1) + self.trial

    def _trial_is_over(self, state: State) -> bool:
        return len(state.candidates) == 1 or state.round >= self._trial_end

    def _best(self, state: State) -> Candidate:
        """The candidate that was chosen or, during the trial, that would be."""
        return state.candidates[0] if self._trial_is_over(state) else self._chosen(state.candidates)

    def _chosen(self, candidates: Sequence[Candidate]) -> Candidate:
        return max(candidates, key=lambda c: c.held_out if self._auto else c.loglik)

    def _sizes(self) -> list[tuple[int, int]]:
        """(Gaussians, learners) of the candidates."""
        gaussians = AUTO_SIZES if self.n_gaussians == "auto" else (self.n_gaussians,)
        both = self.n_gaussians == self.n_learners == "auto"
        tried = AUTO_SIZES if both else sorted({1, *map(int, gaussians)})
        learners = tried if self.n_learners == "auto" else (self.n_learners,)
        return [(int(k), int(m)) for k in gaussians for m in learners if not both or k == m or 1 in (k, m)]

    @property
    def _auto(self) -> bool:
        return "auto" in (self.n_gaussians, self.n_learners)

    @property
    def takes_missing(self) -> bool:
        return self.embedding is None

    @property
    def _linear(self) -> bool:
        return self.learner == "linear"

    @property
    def searches(self) -> bool:
        return not self._linear or self.optimizer == "sgd"

    def _takes_newton_steps(self, trainer: Trainer) -> bool:
        small = newton.fits(trainer.inputs, len(trainer.labels))
        return self._linear and (self.optimizer == "newton" or (self.optimizer == "auto" and small))

    # ---- bad parameters ----

    def check(self, fed: Federation) -> None:
        super().check(fed)
        for name, known in {
            "covariance_type": gaussian.SHAPES,
            "optimizer": ("auto", "newton", "sgd"),
            "warmup_covariance": ("auto", "own", "shared"),
            "init_params": ("cells", "gather"),
            "novelty_rows": ("held-out", "leave-one-out"),
        }.items():
            if getattr(self, name) not in known:
                raise BadParameter(f"{name}={getattr(self, name)!r} is not known: use one of {', '.join(known)}")
        for name in ("n_gaussians", "n_learners"):
            value = getattr(self, name)
            if value != "auto" and (not isinstance(value, Integral) or value < 1):
                raise BadParameter(f"{name}={value!r} must be a whole number of at least 1, or 'auto'")
        for name in ("ridge", "reg_covar"):
            if isinstance(getattr(self, name), str) and getattr(self, name) != "auto":
                raise BadParameter(f"{name}={getattr(self, name)!r} must be a number or 'auto'")
        for name in ("warmup", "trial", "ridge", "reg_covar"):
            if getattr(self, name) != "auto" and getattr(self, name) < 0:
                raise BadParameter(f"{name}={getattr(self, name)!r} must be at least 0")
        if not self.starts or set(self.starts) - {"tied", "untied"}:
            raise BadParameter(f"starts={self.starts!r} must contain 'tied', 'untied' or both")
        if self.optimizer == "newton" and not self._linear:
            raise BadParameter(f"optimizer='newton' needs learner='linear', got {self.learner!r}: use optimizer='sgd'")
        if self.max_iter <= self.warmup + self._linear:
            text = f"max_iter={self.max_iter} leaves no joint round after warmup={self.warmup}: raise max_iter"
            raise BadParameter(text)


def _renamed(own: dict, key: str) -> dict:
    return {("pi" if name == key else name): value for name, value in own.items()}
