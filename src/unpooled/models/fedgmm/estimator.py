"""FedGMM: each client's rows and labels are a mixture of Gaussian x learner pairs; one SUM a round, weights stay
private.

p_c(x, y) = sum_kj pi_c(k, j) N(z(x); mean_k, cov_k) P_j(y | x). Gaussians and learners are shared, pi_c never leaves
its client. Rounds: `warmup` of the mixture alone, one for the learners' start (linear ones), then the joint. Several
starts, or several numbers of Gaussians and learners, share the rounds until the better one is known.
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
from unpooled.maths import gaussian
from unpooled.maths.mixture import Params
from unpooled.models import initialization as start
from unpooled.models.fedgmm import initialization as begin
from unpooled.models.fedgmm.initialization import Candidate
from unpooled.models.fedgmm.prediction import FedGMMFace
from unpooled.models.fedgmm.rounds import (
    Curved,
    Down,
    Joint,
    Lens,
    Mixtures,
    Trained,
    label_means,
    newton_round,
    second_moments,
    sgd_round,
    warm_up,
)
from unpooled.models.mixture import reseed, update
from unpooled.tree import message

AUTO = (1, 2, 3, 4, 6, 8)


@message("fedgmm.State")
class State(NamedTuple):
    trainer: dict
    lens: Lens
    scale: Array  # (d,) of the columns
    cov: Array  # (d, d) of whole rows, where Gaussians see axes of them and learners take Newton steps; else (0, 0)
    mixtures: dict[str, Params]  # while they are fitted alone
    candidates: tuple[Candidate, ...]
    round: int


class FedGMM(FedGMMFace):
    """Personalised classification, densities and novelty under a joint mixture (Wu et al. 2023).

    n_gaussians, n_learners : numbers, or "auto" (1 to 8; where both are, as many of the one as of the other, or one of
    either): all share the rounds, held-out joint likelihood chooses.
    optimizer : "newton" (linear learners: one pooled step a round), "sgd", or "auto": newton where it fits.
    embedding : None, or how many principal axes (one federated PCA) the Gaussians see; learners always see whole rows.
    48 does for images, given as features of `unpooled.datasets.encoder`.
    rest : whether with axes they also see how long the rest of a row is, which tells much of what is novel.
    starts : "tied" begins with a learner for each Gaussian, "untied" with all learners everywhere; of several the
    likelier stays.
    warmup, trial : rounds of the mixture alone; joint rounds before the choice between starts.
    warmup_covariance : "own", "shared" (one for all Gaussians until the warm-up ends, so that none grows wide over what
    is rare), or "auto": shared where Gaussians have fewer rows than a covariance has entries.
    whiten : whether SGD on linear learners moves in whitened coordinates.
    ridge : precision of the prior on linear learners under Newton, per row and in standardised columns.
    aggregation : "exact", or "paper" for the printed update of covariances, which drops the scatter between clients.
    The other parameters: see `LearnerEstimator`.
    """

    def __init__(
        self,
        n_gaussians: int | str = 3,
        n_learners: int | str = 3,
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
        ridge: float = 1e-6,
        reg_covar: float = 1e-6,
        aggregation: str = "exact",
        **parameters: Any,
    ):
        super().__init__(**parameters)
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
        self.aggregation = aggregation

    # ---- the run ----

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        trainer = self.trainer(fed)
        frame = start.frame(fed)
        lens, inside, cov = begin.lens(fed, frame, self.embedding, self.rest)
        sizes = sorted({k for k, _ in self._sizes()})
        found = begin.gaussians(fed, begin.View(inside, lens), sizes, self.covariance_type, rng)
        mixtures = {str(k): params for k, params in zip(sizes, found)}
        cov = cov if self._newton(as_option(trainer)) else np.zeros((0, 0))
        return State(as_option(trainer), lens, frame.scale, cov, mixtures, (), 0)

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        state = state._replace(round=state.round + 1)
        if state.round <= self.warmup:
            return self._warm_up(fed, state)
        if not state.candidates:
            state = state._replace(candidates=tuple(self._candidates(fed, state)))
            if self._linear:
                return state, {"candidates": len(state.candidates)}
        return self._joint(fed, self._narrowed(state))

    def done(self, state: State, history: list) -> bool:
        """As for all learners, once one candidate is left: while there are several, the best may stand still and another rise."""
        return len(state.candidates) == 1 and super().done(state, history)

    def finish(self, fed: Federation, state: State) -> None:
        best = self._best(state.candidates)
        self.describe(fed, state.trainer, best.joint.theta, f"pi-{best.key}", "norm")
        self.clients_ = {name: _renamed(own, f"pi-{best.key}") for name, own in self.clients_.items()}
        self.set_joint(best.joint, state.lens, self.covariance_type)
        self.start_, self.lower_bound_ = best.key, float(best.loglik)
        self.set_thresholds(fed)

    # ---- rounds ----

    def _warm_up(self, fed: Federation, state: State) -> tuple[State, Info]:
        down = Mixtures(tuple(state.mixtures.values()), state.lens)
        ask = warm_up.using(trainer=state.trainer, plan=self._plan(list(state.mixtures)))
        found = tree.map(to_numpy, self.cohort(fed).sum(ask, down))
        moved = [self._move_alone(p, s) for p, s in zip(down.params, found)]
        best = max(float(s.loglik / s.rows) for s in found)
        return state._replace(mixtures=dict(zip(state.mixtures, moved))), {"loglik_x": best}

    def _joint(self, fed: Federation, state: State) -> tuple[State, Info]:
        candidates = state.candidates
        ask = newton_round if self._newton(state.trainer) else sgd_round
        ask = ask.using(trainer=self.at_round(state.trainer, state.round), plan=self._plan([], candidates))
        found = self.cohort(fed).sum(ask, Down(tuple(c.joint for c in candidates), state.lens))
        moved = tuple(self._moved(c, up, state) for c, up in zip(candidates, found))
        best = self._best(moved)
        info = {"loglik": best.loglik, "start": best.key, "candidates": len(moved)}
        return state._replace(candidates=moved), info

    def _moved(self, c: Candidate, up: Trained | Curved, state: State) -> Candidate:
        """A candidate after a round."""
        mixed = tree.map(to_numpy, up.mixed)  # learners may stay on their device, the rest is small
        counts = mixed.joint
        rows = float(mixed.gaussians.rows)
        shares = (counts + 1e-12) / (counts + 1e-12).sum()
        joint = Joint(self._move(c.joint.gaussians, mixed.gaussians), c.joint.theta, shares)
        if isinstance(up, Trained):
            theta = average(up.theta, like(counts.sum(0), up.theta), c.joint.theta)
        else:
            prior = self.ridge * rows * np.append(state.scale**2, 1.0)
            seen = self._seen(joint._replace(gaussians=c.joint.gaussians), state)
            theta = newton.step(c.joint.theta, up.gradient, up.curvature, prior, seen, state.lens.mean)
        held = float(mixed.held) / max(float(mixed.held_rows), 1.0)
        return c._replace(joint=joint._replace(theta=theta), loglik=float(mixed.gaussians.loglik) / rows, held=held)

    def _seen(self, joint: Joint, state: State) -> np.ndarray:
        """What each learner sees of (x, 1)(x, 1)' about the mean, (m, d + 1, d + 1): where Gaussians see axes only, that of
        all rows.
        """
        if self.embedding is None:
            return second_moments(joint, self.covariance_type, state.lens.mean)
        whole = np.eye(len(state.cov) + 1)
        whole[:-1, :-1] = state.cov
        return np.tile(whole, (joint.shares.shape[1], 1, 1))

    def _move(self, params: Params, stats: Any) -> Params:
        params = update(params, stats, self.covariance_type, self.reg_covar, self.aggregation)
        return reseed(params, stats, self.covariance_type)[0]

    def _move_alone(self, params: Params, stats: Any) -> Params:
        moved, scarce = self._move(params, stats), float(stats.rows) < params.covs.size
        share = self.warmup_covariance == "shared" or (self.warmup_covariance == "auto" and scarce)
        return begin.shared(moved, self.covariance_type) if share else moved

    def _plan(self, keys: list[str], candidates: Sequence[Candidate] = ()) -> dict:
        """What a question needs to know beside its trainer, as plain JSON."""
        return {
            "keys": keys or [c.key for c in candidates],
            "sources": {c.key: c.source for c in candidates},
            "shape": self.covariance_type,
            "held": self._auto and len(candidates) > 1,
            "paper": self.aggregation == "paper",
            "whiten": self.whiten and self._linear and self.embedding is None,
        }

    # ---- candidates ----

    def _candidates(self, fed: Federation, state: State) -> list[Candidate]:
        """Every size from every start; the learners of linear ones from class means or random hyperplanes."""
        rng, trainer = fed.journal.rng, Trainer(**state.trainer)
        labelled = self._labelled(fed, state) if self._linear and self.embedding is None else {}
        out = []
        for k, m in self._sizes():
            for name in self.starts:
                params = state.mixtures[str(k)]
                owner = begin.owners(params, m, self.covariance_type) if name == "tied" else None
                joint = begin.first_joint(params, trainer.start(rng, m), owner)
                if str(k) in labelled:
                    joint = joint._replace(theta=self._first_learners(joint, labelled[str(k)], owner, rng))
                out.append(Candidate(f"{k}x{m} {name}", str(k), joint, -np.inf, -np.inf))
        return out

    def _labelled(self, fed: Federation, state: State) -> dict[str, Any]:
        ask = label_means.using(trainer=state.trainer, plan=self._plan(list(state.mixtures)))
        found = fed.sum(ask, Mixtures(tuple(state.mixtures.values()), state.lens))
        return dict(zip(state.mixtures, found))

    def _first_learners(
        self, joint: Joint, found: Any, owner: np.ndarray | None, rng: np.random.Generator
    ) -> np.ndarray:
        if owner is None:
            return begin.random_hyperplanes(joint, found.n.shape[-1], self.covariance_type, rng)
        return begin.discriminants(joint.gaussians, found, owner, joint.shares.shape[1], self.covariance_type)

    def _narrowed(self, state: State) -> State:
        """After the trial, the best candidate alone."""
        first = self.warmup + (2 if self._linear else 1)
        if len(state.candidates) > 1 and state.round >= first + self.trial:
            return state._replace(candidates=(self._best(state.candidates),))
        return state

    def _best(self, candidates: Sequence[Candidate]) -> Candidate:
        return max(candidates, key=lambda c: c.held if self._auto and len(candidates) > 1 else c.loglik)

    def _sizes(self) -> list[tuple[int, int]]:
        gaussians = AUTO if self.n_gaussians == "auto" else (self.n_gaussians,)
        learners = AUTO if self.n_learners == "auto" else (self.n_learners,)
        both = self.n_gaussians == self.n_learners == "auto"
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

    def _newton(self, trainer: dict) -> bool:
        return self._linear and (
            self.optimizer == "newton"
            or (self.optimizer == "auto" and newton.fits(trainer["inputs"], len(trainer["labels"])))
        )

    # ---- refusals ----

    def check(self, fed: Federation) -> None:
        super().check(fed)
        for name, known in {
            "covariance_type": gaussian.SHAPES,
            "optimizer": ("auto", "newton", "sgd"),
            "warmup_covariance": ("auto", "own", "shared"),
            "aggregation": ("exact", "paper"),
        }.items():
            if getattr(self, name) not in known:
                raise BadParameter(f"{name}={getattr(self, name)!r} is not known: use one of {', '.join(known)}")
        for name in ("n_gaussians", "n_learners"):
            value = getattr(self, name)
            if value != "auto" and (not isinstance(value, Integral) or value < 1):
                raise BadParameter(f"{name}={value!r} must be a whole number of at least 1, or 'auto'")
        for name in ("warmup", "trial", "ridge", "reg_covar"):
            if getattr(self, name) < 0:
                raise BadParameter(f"{name}={getattr(self, name)!r} must be at least 0")
        if not self.starts or set(self.starts) - {"tied", "untied"}:
            raise BadParameter(f"starts={self.starts!r} must hold 'tied', 'untied' or both")
        if self.optimizer == "newton" and not self._linear:
            raise BadParameter(f"optimizer='newton' needs learner='linear', got {self.learner!r}: use optimizer='sgd'")
        if self.max_iter <= self.warmup + self._linear:
            text = f"max_iter={self.max_iter} leaves no joint round after warmup={self.warmup}: raise max_iter"
            raise BadParameter(text)


def _renamed(own: dict, key: str) -> dict:
    return {("pi" if name == key else name): value for name, value in own.items()}
