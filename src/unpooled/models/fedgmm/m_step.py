"""What the server makes of a round's sums: new Gaussians and learners of each candidate of FedGMM. Nothing is sent."""

from __future__ import annotations

import numpy as np

from unpooled import tree
from unpooled.arrays import Array, like, to_numpy
from unpooled.learners import newton
from unpooled.learners.mixing import average
from unpooled.maths import mixture
from unpooled.maths.mixture import Params, Stats
from unpooled.models.fedgmm import initialization
from unpooled.models.fedgmm.covariances import repaired, shrunk
from unpooled.models.fedgmm.initialization import Candidate
from unpooled.models.fedgmm.rounds import Joint, JointStats, NewtonUp, SgdUp, second_moments
from unpooled.models.fedgmm.trial import CandidateTrial, State
from unpooled.models.mixture import reseed

LEAST_PRECISION = 1e-6  # of the prior on intercepts


class MSteps(CandidateTrial):
    """M-steps of FedGMM, by its parameters."""

    ridge: float | str
    reg_covar: float | str
    warmup_covariance: str

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
        auto = isinstance(self.reg_covar, str)
        params = mixture.m_step(
            params, stats, self.covariance_type, 0.0 if isinstance(self.reg_covar, str) else self.reg_covar
        )
        if auto:
            params = shrunk(params, stats, self.covariance_type, state.space.frame.scale)
        params = repaired(params, self.covariance_type, state.space.frame.scale)
        return reseed(params, stats, self.covariance_type)[0]

    def _warm_up_m_step(self, params: Params, stats: Stats, state: State) -> Params:
        """New Gaussians during the warm-up; few rows share one covariance."""
        moved = self._gaussian_m_step(params, stats, state)
        scarce = float(stats.rows) < params.covs.size
        share = self.warmup_covariance == "shared" or (self.warmup_covariance == "auto" and scarce)
        return initialization.with_shared_covariance(moved, self.covariance_type) if share else moved
