"""Bayesian regression on raw or polynomial features: two SUMs in all, and the result is that of the pooled rows.

The first SUM is of means, the second of second moments about them; noise, prior and weights follow at the server.
`recalibrate` adds one SUM, of the residuals that each row would have had if it, or its client, had been left out; `group_by` adds one that
counts rows by value of a column, and three more if that column is to be found. NumPy only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.errors import BadParameter
from unpooled.estimator import Moment
from unpooled.federation import Federation
from unpooled.layers.private import find_private
from unpooled.maths import bayes_linear
from unpooled.maths.bayes_linear import Posterior, Stats
from unpooled.maths.feature_maps import Kernel
from unpooled.models.regression.grouping import check_group_by, find
from unpooled.models.regression.last_layer import Design, LastLayer, statistics
from unpooled.models.regression.scaling import check_targets, check_varies, standardise
from unpooled.parameters import above, at_least, flag, one_of
from unpooled.tree import message


@message("regression.State")
class State(NamedTuple):
    design: Design
    stats: Stats | None  # None before the one round


class BayesianRegression(LastLayer):
    """y = polynomial of x + noise, with the weights' posterior, honest intervals, and clients that can be forgotten.

    Parameters
    ----------
    degree : int, of the polynomial; 1 is linear.
    fit_intercept : bool, an offset without a prior.
    standardize : bool, one prior for all features whatever their unit.
    noise, prior : variances of y about its mean and of a weight, in the units of y and of the (standardised) features;
        None: those that make y most probable, found at the server.
    recalibrate : intervals from left-out residuals instead of the normal law: True leaves out one row at a time, for new rows of
        these clients; "clients" leaves out one client at a time, for clients never seen.
    group_by : a column whose very values mark rows as belonging together (a day, a visit): its index, or "auto", which finds out whether
        there is one. Rows of the same value then share an offset, of a variance learned from the same sums. What is sent grows by a sum for
        every value of at least three rows; see docs/explanation/what-leaves.md.
    missing : "impute" (by the mean over all clients, with a warning) or "refuse".
    """

    max_iter = 1

    def __init__(
        self,
        degree: int = 1,
        *,
        fit_intercept: bool = True,
        standardize: bool = True,
        noise: float | None = None,
        prior: float | None = None,
        recalibrate: bool | str = False,
        group_by: Any = None,
        missing: str = "impute",
        random_state: Any = None,
    ):
        self.degree = degree
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.noise = noise
        self.prior = prior
        self.recalibrate = recalibrate
        self.group_by = group_by
        self.missing = missing
        self.random_state = random_state

    def check(self, fed: Federation) -> None:
        check_targets(fed)
        at_least("degree", self.degree, 1)
        if (self.noise is None) != (self.prior is None):
            raise BadParameter("noise= and prior= are variances to be given together, or both left to be learned")
        for name in ("noise", "prior") if self.noise is not None else ():
            above(name, getattr(self, name), 0)
        check_group_by(self.group_by)
        flag("fit_intercept", self.fit_intercept)
        flag("standardize", self.standardize)
        one_of("missing", self.missing, ("impute", "refuse"))
        one_of("recalibrate", self.recalibrate, (True, False, "clients"))
        if self.recalibrate == "clients" and len(fed.names) < 2:
            raise BadParameter(
                "recalibrate='clients' leaves out one client at a time but there is only one: use True instead"
            )

    def rounds(self, fed: Federation, saved: Moment | None = None) -> Iterator[Moment]:
        """Fit, handing out what is needed to go on; with a `Private` layer in `fed`, by the private counterpart."""
        if find_private(fed) is None:
            return super().rounds(fed, saved)
        from unpooled.models.private import rounds_private

        return rounds_private(self, fed, saved)

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        scaling, _ = standardise(fed, 0.0, 0, self.missing, scale=self.group_by == "auto")
        groups, _ = find(fed, scaling, self.group_by, 0.0, 0)
        scaling = scaling._replace(x_scale=np.ones_like(scaling.x_scale), y_scale=np.ones_like(scaling.y_scale))
        if not self.fit_intercept:  # no offset makes up for a mean taken off
            scaling = scaling._replace(x_mean=np.zeros_like(scaling.x_mean), y_mean=np.zeros_like(scaling.y_mean))
        return State(Design(scaling, Kernel({}, {}), groups), None)

    def step(self, fed: Federation, state: State) -> tuple[State, dict]:
        ask = statistics.using(spec=self._spec(), share=0.0, seed=0)
        stats = tree.map(to_numpy, fed.sum(ask, state.design))
        offset = state.design.scaling.y_mean * stats.n
        check_varies(stats.yy - stats.y**2 / stats.n, stats.y + offset, float(stats.n))
        evidence = self._posterior(stats).evidence.sum()
        return State(state.design, stats), {"loglik": float(evidence / stats.n)}

    def finish(self, fed: Federation, state: State) -> None:
        assert state.stats is not None
        self.seed_ = 0  # nothing is held out
        self._remember(fed, state.design.scaling)
        self._settle(state.design, state.stats)
        self._calibrate(fed, self.recalibrate)

    def _settle(self, design: Design, stats: Stats) -> None:
        super()._settle(design, stats)
        post, scaling = self.posterior, design.scaling
        origin = post.centre + (scaling.x_mean if self.degree == 1 else 0.0)  # monomials are of x about its mean
        offset = scaling.y_mean + post.offset - origin @ post.weights
        self.coef_ = post.weights[:, 0] if self.single_output_ else post.weights.T
        self.intercept_ = float(offset[0]) if self.single_output_ else offset

    def _spec(self) -> dict:
        return {"map": "monomials", "degree": int(self.degree)}

    def _posterior(self, stats: Stats) -> Posterior:
        return bayes_linear.posterior(
            stats, intercept=self.fit_intercept, standardize=self.standardize, noise=self.noise, prior=self.prior
        )
