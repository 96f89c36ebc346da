"""The M-step of FedGMM: new Gaussians and learners of each candidate, from a round's sums. Nothing is sent."""

from __future__ import annotations

import numpy as np

from unpooled import tree
from unpooled.arrays import Array, like, to_numpy
from unpooled.learners import newton
from unpooled.learners.mixing import average
from unpooled.maths import mixture
from unpooled.maths.mixture import Params, Stats
from unpooled.models.fedgmm import bounded, initialization
from unpooled.models.fedgmm.covariances import repaired, shrunk
from unpooled.models.fedgmm.initialization import Candidate
from unpooled.models.fedgmm.rounds import Joint, JointStats, NewtonUp, SgdUp, second_moments
from unpooled.models.fedgmm.trial import CandidateTrial, State
from unpooled.models.mixture import reseed

LEAST_PRECISION = 1e-6  # of the prior on intercepts
FALL = 1e-3  # of the log-likelihood per row, which rounding and priors on covariances do not explain
LEAST_DAMPING = 1e-3  # of Newton steps; a smaller damping is set to 0


class MSteps(CandidateTrial):
    """M-steps of FedGMM, by its parameters."""

    ridge: float | str
    reg_covar: float | str
    warmup_covariance: str

    def _m_step(self, c: Candidate, up: SgdUp | NewtonUp, state: State) -> Candidate:
        """A candidate after a round."""
        stats = tree.map(to_numpy, up.stats)  # learners may stay on their device, the rest is small
        shares = (stats.pairs + 1e-12) / (stats.pairs + 1e-12).sum()
        gaussians = self._gaussian_m_step(c.joint.gaussians, stats.gaussians, state)
        if isinstance(up, SgdUp):
            theta = average(up.theta, like(stats.pairs.sum(0), up.theta), c.joint.theta)
            moved = c._replace(joint=Joint(gaussians, theta, shares))
        else:
            move = self._bounded_m_step if self._is_bounded(state.trainer) else self._newton_m_step
            moved = move(c, up, shares, float(stats.gaussians.rows), state)
            moved = moved._replace(joint=moved.joint._replace(gaussians=gaussians))
        return self._scored(moved, stats)

    def _newton_m_step(self, c: Candidate, up: NewtonUp, shares: np.ndarray, rows: float, state: State) -> Candidate:
        """The candidate with learners after a Newton step, and the Gaussians as they were in the round."""
        prior = self._prior(rows, state)
        second = self._second_moments(c.joint._replace(shares=shares), state)
        centre = state.space.embedding.mean
        alike = isinstance(self.ridge, str)
        damping = self._damping(c, up.stats)
        curved = to_numpy(up.curvature)
        if damping:
            bound = bounded.all_classes(to_numpy(up.stats.pairs).sum(0), second, len(state.trainer.labels))
            curved = curved + damping * bound
        theta = newton.step(c.joint.theta, up.gradient, curved, prior, second, centre, alike)
        moved = c._replace(
            damping=damping,
            joint=c.joint._replace(theta=theta, shares=shares),
            parameters=newton.effective_parameters(up.curvature, prior, alike),
        )
        if len(theta) == 1:
            moved = moved._replace(curvature=newton.penalised(up.curvature, prior, alike))
        return moved

    def _damping(self, c: Candidate, stats: JointStats) -> float:
        """How much of the bound is added to second derivatives: all of it once the last step has lowered the likelihood, then less.

        Newton's method steps too far where a level or a label is rare. With the bound no step lowers the likelihood of the labels.
        """
        fell = c.loglik - float(stats.gaussians.loglik) / float(stats.gaussians.rows) > FALL
        if fell:
            return 1.0
        return 0.5 * c.damping if c.damping > LEAST_DAMPING else 0.0

    def _bounded_m_step(self, c: Candidate, up: NewtonUp, shares: np.ndarray, rows: float, state: State) -> Candidate:
        """The candidate with wide learners after a step by the bound of their second derivatives."""
        prior = self._prior(rows, state)
        second = self._second_moments(c.joint._replace(shares=shares), state)
        own_rows = to_numpy(up.stats.pairs).sum(0)
        theta = bounded.step(c.joint.theta, up.gradient, own_rows, prior, second, state.space.embedding.mean)
        count = bounded.effective_parameters(own_rows, prior, second, len(state.trainer.labels))
        return c._replace(joint=c.joint._replace(theta=theta, shares=shares), parameters=count)

    def _prior(self, rows: float, state: State) -> np.ndarray:
        """(d + 1,) the precision of the learners' coefficients and intercepts."""
        prior = self._ridge(rows) * np.append(state.scale**2, 0.0 if self.ridge == "auto" else 1.0)
        prior[-1] = max(prior[-1], LEAST_PRECISION)
        return prior

    def _scored(self, c: Candidate, stats: JointStats) -> Candidate:
        """The candidate with its log-likelihoods of rows that train and of rows held out."""
        rows = float(stats.gaussians.rows)
        held_out_rows = float(stats.held_out_rows)
        loglik = float(stats.gaussians.loglik) / rows
        c = c._replace(loglik=loglik, held_out=float(self._judged(stats)) / max(held_out_rows, 1.0))
        if not held_out_rows > 0:
            return c
        return c._replace(gap=float(stats.trained_labels) / rows - float(stats.held_out_labels) / held_out_rows)

    def _judged(self, stats: JointStats) -> Array:
        """The log-likelihood that candidates are compared by: of inputs and labels for numbers of Gaussians, of labels for learners."""
        return stats.held_out if self.n_gaussians == "auto" else stats.held_out_labels

    def _ridge(self, rows: float) -> float:
        """The ridge penalty of the learners."""
        return 1.0 if isinstance(self.ridge, str) else self.ridge * rows

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
        """New Gaussians, with covariances drawn to a prior, repaired, and empty ones seeded anew."""
        reg = 0.0 if isinstance(self.reg_covar, str) else self.reg_covar
        params = mixture.m_step(params, stats, self.covariance_type, reg)
        if self.reg_covar == "auto":
            params = shrunk(params, stats, self.covariance_type, state.space.frame.scale)
        params = repaired(params, self.covariance_type, state.space.frame.scale)
        return reseed(params, stats, self.covariance_type)[0]

    def _warm_up_m_step(self, params: Params, stats: Stats, state: State) -> Params:
        """New Gaussians during the warm-up; few rows share one covariance."""
        moved = self._gaussian_m_step(params, stats, state)
        scarce = float(stats.rows) < params.covs.size
        share = self.warmup_covariance == "shared" or (self.warmup_covariance == "auto" and scarce)
        return initialization.with_shared_covariance(moved, self.covariance_type) if share else moved
