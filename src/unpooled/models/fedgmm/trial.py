"""The candidates of a run of FedGMM: sizes and starts, which one is best, and when the others are dropped.

One SUM of rows and sums by Gaussian and class (`fedgmm.label_means`) for the start of linear learners.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array
from unpooled.federation import Federation, least_rows
from unpooled.learners import Trainer, as_option, newton
from unpooled.maths.mixture import Params
from unpooled.models.fedgmm import few_rows, initialization
from unpooled.models.fedgmm.embedding import EmbeddedFrame
from unpooled.models.fedgmm.initialization import Candidate
from unpooled.models.fedgmm.prediction import JointModelPredictions
from unpooled.models.fedgmm.rounds import Joint, LabelMeans, Mixtures, RoundOptions, label_means
from unpooled.tree import message

AUTO_SIZES = (1, 2, 3, 4, 6, 8)


@message("fedgmm.State")
class State(NamedTuple):
    """The run at the server: Gaussians during the warm-up, candidates after it."""

    trainer: Trainer
    space: EmbeddedFrame  # of the Gaussians
    scale: Array  # (d,) what the penalty of the learners divides columns by: their standard deviations, 1 where indicators are among them
    cov: Array  # (d, d) of whole rows, where Gaussians see principal axes and learners take Newton steps; else (0, 0)
    mixtures: dict[str, Params]  # by number of Gaussians, during the warm-up
    candidates: tuple[Candidate, ...]
    round: int


def weights_key(key: str, params: Params) -> str:
    """Under which name clients keep their weights of a mixture: another one once Gaussians of few rows are left out."""
    return key if len(params.weights) == int(key) else f"{key} of {len(params.weights)}"


def weights_keys(mixtures: dict[str, Params]) -> list[str]:
    """The names of clients' weights of these mixtures."""
    return [weights_key(key, params) for key, params in mixtures.items()]


class CandidateTrial(JointModelPredictions):
    """Candidates of FedGMM, by its parameters."""

    n_gaussians: int | str
    n_learners: int | str
    optimizer: str
    embedding: int | None
    starts: Sequence[str]
    warmup: int
    trial: int
    whiten: bool

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
                out.append(Candidate(f"{k}x{m} {name}", weights_key(str(k), params), joint, -np.inf, -np.inf))
        return out

    def _label_means(self, fed: Federation, state: State) -> dict[str, LabelMeans]:
        """One SUM of rows and sums by Gaussian and class."""
        asked: dict[str, Any] = {
            "trainer": as_option(state.trainer),
            "options": self._options(weights_keys(state.mixtures))._asdict(),
        }
        down = Mixtures(tuple(state.mixtures.values()), state.space.embedding)
        if least := least_rows(fed):
            asked["shown"] = [
                few_rows.shown(found.n, least) for found in fed.sum(few_rows.class_rows.using(**asked), down)
            ]
        return dict(zip(state.mixtures, fed.sum(label_means.using(**asked), down)))

    def _first_learners(
        self, joint: Joint, means: LabelMeans, owner: np.ndarray | None, rng: np.random.Generator
    ) -> np.ndarray:
        """The first linear learners: random, or from class means within Gaussians."""
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
        """Whether the candidates have been compared long enough."""
        return len(state.candidates) == 1 or state.round >= self._trial_end

    def _best(self, state: State) -> Candidate:
        """The candidate that was chosen or, during the trial, that would be."""
        return state.candidates[0] if self._trial_is_over(state) else self._chosen(state.candidates)

    def _chosen(self, candidates: Sequence[Candidate]) -> Candidate:
        """The candidate with the largest held-out log-likelihood, or log-likelihood."""
        return max(candidates, key=lambda c: c.held_out if self._auto else c.loglik)

    def _sizes(self) -> list[tuple[int, int]]:
        """(Gaussians, learners) of the candidates."""
        gaussians = AUTO_SIZES if self.n_gaussians == "auto" else (self.n_gaussians,)
        both = self.n_gaussians == self.n_learners == "auto"
        if both:  # as many Gaussians as learners, or one of either
            return [(k, m) for k in AUTO_SIZES for m in AUTO_SIZES if k == m or 1 in (k, m)]
        learners = sorted({1, *map(int, gaussians)}) if self.n_learners == "auto" else (self.n_learners,)
        return [(int(k), int(m)) for k in gaussians for m in learners]

    @property
    def _auto(self) -> bool:
        """Whether numbers are chosen by held-out rows."""
        return "auto" in (self.n_gaussians, self.n_learners)

    def _single(self, state: State) -> Candidate | None:
        """The candidate of a single learner, if one is kept beside the chosen one or is the chosen one."""
        last = state.candidates[-1]
        return last if self._trial_is_over(state) and last.joint.theta.shape[0] == 1 and len(last.curvature) else None

    @property
    def takes_missing(self) -> bool:
        """Whether rows may have missing values: not with an embedding."""
        return self.embedding is None

    @property
    def _linear(self) -> bool:
        """Whether learners are linear."""
        return self.learner == "linear"

    @property
    def searches(self) -> bool:
        """Whether a learning rate has to be found."""
        return not self._linear or self.optimizer == "sgd"

    def _takes_newton_steps(self, trainer: Trainer) -> bool:
        """Whether learners take Newton steps, or steps by a bound of their second derivatives, rather than SGD."""
        possible = self.embedding is None or newton.fits(trainer.inputs, len(trainer.labels))
        return self._linear and (self.optimizer == "newton" or (self.optimizer == "auto" and possible))

    def _is_bounded(self, trainer: Trainer) -> bool:
        """Whether second derivatives are too large to be sent, and a bound of them follows from the Gaussians."""
        wide = not newton.fits(trainer.inputs, len(trainer.labels))
        return self._linear and self.optimizer == "auto" and self.embedding is None and wide

    def _options(
        self, keys: list[str], candidates: Sequence[Candidate] = (), trial: bool = False, bounded: bool = False
    ) -> RoundOptions:
        """Options of a round's question."""
        return RoundOptions(
            keys,
            {c.key: c.source for c in candidates if not c.left_out},
            self.covariance_type,
            self._auto and trial,
            self.whiten and self._linear and self.embedding is None,
            self.novelty_rows == "held-out",
            bounded,
        )
