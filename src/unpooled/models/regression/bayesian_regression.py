"""Bayesian linear regression on raw or polynomial features: two SUMs, and the fit is that of the pooled rows.

The first SUM is of means, the second of second moments about them; noise, prior and weights follow at the server. `group_by` adds one SUM
of row counts per value of a column, `recalibrate` one SUM of left-out residuals. NumPy only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.data.federate import as_federation
from unpooled.errors import BadParameter
from unpooled.estimator import Moment
from unpooled.federation import Federation, find_private
from unpooled.maths import bayes_linear, predictive
from unpooled.maths.bayes_linear import Axes, Posterior, Stats
from unpooled.maths.feature_maps import Kernel
from unpooled.models.regression.design import Design, statistics
from unpooled.models.regression.group_effects import check_group_by, check_group_name, find_groups
from unpooled.models.regression.last_layer import LastLayer
from unpooled.models.regression.scaling import check_targets, check_varies, standardise
from unpooled.models.regression.unseen_clients import check_clients
from unpooled.models.regression.without_each import Total, without_each
from unpooled.parameters import above, at_least, flag, one_of
from unpooled.tree import message


@message("regression.State")
class State(NamedTuple):
    """What a round carries on."""

    design: Design
    stats: Stats | None  # None before the one round


class BayesianRegression(LastLayer):
    """Bayesian linear or polynomial regression with prediction intervals; the fit equals that of the pooled rows.

    Weights have a normal prior; noise and prior variance are those of the largest evidence (type II maximum likelihood), found at the
    server from the same sums. Clients can be removed from the fit exactly (`forget`) and added to it (`partial_fit`).

    Parameters
    ----------
    degree : int, default=1
        Degree of the polynomial; 1 is linear.
    fit_intercept : bool, default=True
        Whether to fit an intercept, which has no prior.
    standardize : bool, default=True
        Whether features are divided by their standard deviation, so that one prior suits all of them.
    noise : float or None, default=None
        Variance of y about its mean. None: estimated. Give `noise` and `prior` together.
    prior : float or None, default=None
        Prior variance of a weight, in units of the (standardised) features. None: estimated.
    recalibrate : bool or "clients", default=False
        Whether `interval` uses quantiles of left-out residuals. True leaves out one row at a time and uses them as far as they differ
        from the model's own quantiles by more than chance; it suits new rows of the same clients. "clients" leaves out one client at a
        time, for clients never seen.
    group_by : str, int or None, default=None
        Name or index of a column whose equal values mark rows that belong together (a day, a visit). Rows of one value share a random
        offset (a linear mixed model). The server learns which values of this column occur, and sums over the rows of each value that has at
        least three.
    missing : {"impute", "refuse"}, default="impute"
        Whether missing values are replaced by the mean over all clients, with a warning, or refused.
    random_state : int or None, default=None
        Unused; the fit is not random.

    Attributes
    ----------
    coef_ : array of shape (n_features,) or (n_outputs, n_features)
        Posterior mean of the weights, per feature of the polynomial.
    intercept_ : float or array of shape (n_outputs,)
        Intercept of the polynomial about `design_.scaling.x_mean`, or about 0 if `degree=1`.
    noise_variance_ : array of shape (n_outputs,)
        Variance of y about its mean.
    log_marginal_likelihood_ : float
        Log evidence of the targets.
    stats_ : Stats
        The sums that everything follows from.
    histogram_ : array of shape (n_outputs, n_bins)
        Left-out standardised residuals, counted by bin; no bins without recalibration.
    design_effect_ : array of shape (n_outputs,)
        With `recalibrate="clients"`: how many rows tell as much as one row of a new client; 1 where clients are alike.

    References
    ----------
    MacKay, Bayesian interpolation, Neural Computation 1992.

    Examples
    --------
    >>> import numpy as np
    >>> import unpooled as up
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(60, 2))
    >>> y = 1 + x @ [2.0, -1.0] + 0.1 * rng.normal(size=60)
    >>> model = up.BayesianRegression().fit({"north": (x[:30], y[:30]), "south": (x[30:], y[30:])})
    >>> model.coef_.round(1)
    array([ 2., -1.])
    >>> lower, upper = model.interval(x[:1], coverage=0.9)
    >>> bool(lower[0] < y[0] < upper[0])
    True
    """

    max_iter = 1
    _simpler = ""

    def __init__(
        self,
        degree: int = 1,
        *,
        fit_intercept: bool = True,
        standardize: bool = True,
        noise: float | None = None,
        prior: float | None = None,
        recalibrate: bool | str = False,
        group_by: str | int | None = None,
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
        """Refuse parameters that do not exist or do not go together."""
        check_targets(fed)
        at_least("degree", self.degree, 1)
        if (self.noise is None) != (self.prior is None):
            raise BadParameter("noise= and prior= are variances to be given together, or both left to be learned")
        for name in ("noise", "prior") if self.noise is not None else ():
            above(name, getattr(self, name), 0)
        check_group_by(self.group_by)
        check_group_name(fed, self.group_by)
        flag("fit_intercept", self.fit_intercept)
        flag("standardize", self.standardize)
        one_of("missing", self.missing, ("impute", "refuse"))
        one_of("recalibrate", self.recalibrate, (True, False, "clients"))
        check_clients(self.recalibrate, fed)

    def rounds(self, fed: Federation, saved: Moment | None = None) -> Iterator[Moment]:
        """Fit, handing out what is needed to go on; with a `Private` layer in `fed`, by the private counterpart."""
        if find_private(fed) is None:
            return super().rounds(fed, saved)
        from unpooled.models.private import rounds_private

        return rounds_private(self, fed, saved)

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        """SUMs of means and squares, and the groups where they are asked for."""
        scaling, _ = standardise(fed, 0.0, 0, self.missing, scale=False)
        groups = find_groups(fed, self.group_by, len(scaling.x_mean))
        if not self.fit_intercept:  # without an intercept, rows must not be centred
            scaling = scaling._replace(x_mean=np.zeros_like(scaling.x_mean), y_mean=np.zeros_like(scaling.y_mean))
        return State(Design(scaling, Kernel({}, {}), groups), None)

    def step(self, fed: Federation, state: State) -> tuple[State, dict]:
        """One SUM of second moments: the fit is done."""
        ask = statistics.using(spec=self._spec(), share=0.0, seed=0)
        stats = tree.map(to_numpy, fed.sum(ask, state.design))
        offset = state.design.scaling.y_mean * stats.n
        check_varies(stats.yy - stats.y**2 / stats.n, stats.y + offset, float(stats.n))
        evidence = self._posterior(stats).log_evidence.sum()
        return State(state.design, stats), {"loglik": float(evidence / stats.n)}

    def finish(self, fed: Federation, state: State) -> None:
        """Set the posterior and recalibrate where asked."""
        assert state.stats is not None
        self.seed_ = 0  # no rows are held out
        self._remember(fed, state.design.scaling)
        self._settle(state.design, state.stats)
        self._calibrate(fed, self.recalibrate)

    def _settle(self, design: Design, stats: Stats) -> None:
        """Set the posterior, and coefficients in the columns' units."""
        super()._settle(design, stats)
        post = self.posterior
        scaling = design.scaling
        origin = post.feature_mean + (scaling.x_mean if self.degree == 1 else 0.0)  # monomials are those of x - x_mean
        offset = scaling.y_mean + post.intercept - origin @ post.weights
        self.coef_ = post.weights[:, 0] if self.single_output_ else post.weights.T
        self.intercept_ = float(offset[0]) if self.single_output_ else offset

    def leave_one_site_out(self, data: Any = None) -> dict[str, dict[str, Any]]:
        """The coefficients without each client, exactly those of a fit to the others: one SUM.

        Polynomials of degree 2 and more stay those about the mean of all rows, as in `forget`.

        Parameters
        ----------
        data : Federation, dict or None, default=None
            The clients of the fit; None: the federation of the last `fit`.

        Returns
        -------
        dict of str to dict
            For each client `coef` and `intercept` as fitted without it.
        """
        self._check_sums_kept()
        check_is_fitted(self, "stats_")
        if data is None and not hasattr(self, "_fed"):
            raise BadParameter("a loaded model does not know its clients: give the data= that it was fitted to")
        fed = self._fed if data is None else as_federation(data)
        ask = without_each.using(spec=self._spec(), settings=self._posterior_settings(), sites=fed.names)
        found = tree.map(to_numpy, fed.sum(ask, Total(self.design_, self.stats_)))
        scaling = self.design_.scaling
        origin = scaling.x_mean if self.degree == 1 else np.zeros(found.weights.shape[1])
        offsets = scaling.y_mean + found.offset - np.einsum("k,sko->so", origin, found.weights)
        coefs = found.weights[..., 0] if self.single_output_ else found.weights.swapaxes(1, 2)
        intercepts = offsets[:, 0].tolist() if self.single_output_ else offsets
        return {name: {"coef": c, "intercept": b} for name, c, b in zip(fed.names, coefs, intercepts)}

    def _spec(self) -> dict:
        """The feature map."""
        return {"map": "monomials", "degree": int(self.degree)}

    def _axes(self) -> Axes | None:
        """Axes of the posterior for its uncertainty in the prior's variance; None where it was given."""
        if self.noise is not None:
            return None
        ratio = float(self.posterior.group_ratio)
        return bayes_linear.axes(self.stats_, ratio, intercept=self.fit_intercept, standardize=self.standardize)

    def _tilts(self) -> tuple[float, ...]:
        """The columns are those of the table: few directions may carry what they tell."""
        return predictive.TILTS

    def _posterior(self, stats: Stats) -> Posterior:
        """The posterior of these sums."""
        return bayes_linear.posterior(stats, **self._posterior_settings())

    def _posterior_settings(self) -> dict[str, Any]:
        """The parameters that the posterior depends on."""
        variances = {"noise": self.noise, "prior": self.prior}
        return {"intercept": self.fit_intercept, "standardize": self.standardize, **variances}
