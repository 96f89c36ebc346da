"""Base class of Bayesian regressions over a fixed feature map: statistics, predictions, intervals, forgetting.

Sends one SUM of second moments, k (k + 1) / 2 numbers for k features and k more per group; with recalibration one SUM of a histogram of
residuals.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_n_features, check_is_fitted

from unpooled import tree
from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.data.federate import as_federation, federate
from unpooled.data.tabled import DESIGN
from unpooled.errors import BadData, BadParameter, DataWarning
from unpooled.estimator import Estimator, rows_of
from unpooled.federation import Federation, is_federation
from unpooled.maths import bayes_linear, calibration, predictive
from unpooled.maths.bayes_linear import Axes, Posterior, Stats
from unpooled.maths.feature_maps import Kernel, features
from unpooled.models.regression.group_effects import Groups, members
from unpooled.models.regression.scaling import Scaling, check_targets, raw_rows, standard, standard_rows
from unpooled.parameters import at_least, is_number
from unpooled.tree import message

ENOUGH_CLIENTS = 9  # of n clients, one more has the largest residual with probability 1 / (n + 1)
MAX_RESIDUAL = 6.0  # standard deviations, when clients are compared: one row does not make a client different


@message("regression.Design")
class Design(NamedTuple):
    """How a client's rows become features."""

    scaling: Scaling
    kernel: Kernel
    groups: Groups | None = None  # values whose rows share an offset


@message("regression.Fitted")
class Fitted(NamedTuple):
    """A fitted model, as clients need it to judge their rows."""

    design: Design
    posterior: Posterior


@message("regression.Histogram")
class Histogram(NamedTuple):
    """Standardised residuals, counted by bin."""

    counts: Float[Array, "o b", ">=0 rows"]


@message("regression.ClientResiduals")
class ClientResiduals(NamedTuple):
    """Residuals of clients left out, and how they vary within and between clients: for r and for |r|."""

    counts: Float[Array, "o b", ">=0 rows"]
    clients: Float[Array, "", ">=0"]
    rows: Float[Array, "", ">=0 rows"]
    total: Float[Array, "2 o"]  # sum over rows
    squares: Float[Array, "2 o", ">=0"]  # sum of squares over rows
    between: Float[Array, "2 o", ">=0"]  # sum over clients of (the client's sum)^2 / its rows
    errors: Float[Array, "o", ">=0"]  # squared errors of standardised targets, summed over rows
    spread: Float[Array, "o", ">=0"]  # squared standardised targets: the errors of predicting the mean


# ---- questions; a fraction `share` of the rows is held out, chosen by `seed` ----


@client("regression.statistics", SUM, adds=True)
def statistics(design: Design, client: Client, *, spec: dict, share: float, seed: int) -> Stats:
    """Second moments of the features and targets of the rows that are fitted."""
    x, y, w, _ = standard_rows(design.scaling, client, share, seed)
    groups = 0 if design.groups is None else len(design.groups.keys)
    return bayes_linear.statistics(features(spec, design.kernel, x), y, w, group_of(design, client), groups)


@client("regression.residuals", SUM, adds=True)
def residuals(fitted: Fitted, client: Client, *, spec: dict, share: float, seed: int, inside: bool) -> Histogram:
    """Standardised residuals of the held-out rows, or of all if share is 0.

    With `inside`, these rows are part of the fit and each is judged as if it alone had been left out.
    """
    x, y, w, held = standard_rows(fitted.design.scaling, client, share, seed)
    z, group, post = features(spec, fitted.design.kernel, x), group_of(fitted.design, client), fitted.posterior
    mean, variance = bayes_linear.left_out(post, z, y, group) if inside else bayes_linear.predict(post, z, group)
    return Histogram(calibration.histogram((y - mean) / np.sqrt(variance), held if share > 0 else w))


@client("regression.client_residuals", SUM, batched=False)
def client_residuals(fitted: Fitted, client: Client, *, spec: dict) -> ClientResiduals:
    """Standardised residuals of all rows of a client, as if the whole client had not been fitted."""
    x, y, w, _ = standard_rows(fitted.design.scaling, client, 0.0, 0)
    z = features(spec, fitted.design.kernel, x)
    mean, variance = bayes_linear.left_out_together(fitted.posterior, z, y, group_of(fitted.design, client))
    residuals = (y - mean) / np.sqrt(variance)
    clipped = np.clip(residuals, -MAX_RESIDUAL, MAX_RESIDUAL)
    both, rows = np.stack([clipped, np.abs(clipped)]), w.sum()  # (2, n, o)
    total = w @ both
    present = np.asarray(float(rows > 0))
    counts = calibration.histogram(residuals, w)
    between = total**2 / max(rows, 1e-300)
    return ClientResiduals(counts, present, rows, total, w @ both**2, between, w @ (y - mean) ** 2, w @ y**2)


def group_of(design: Design, client: Client) -> np.ndarray | None:  # (..., n)
    """The group of each of the client's rows, -1 for none."""
    return members(design.groups, raw_rows(client))


def design_effect(seen: ClientResiduals) -> np.ndarray:  # (o,)
    """How many rows of the clients left out tell as much as one row of a new client: the F ratio of residuals by client.

    1 where clients are alike; where residuals within a client are all alike, the mean number of rows per client.
    """
    between = (seen.between - seen.total**2 / seen.rows) / max(seen.clients - 1, 1)
    within = (seen.squares - seen.between) / max(seen.rows - seen.clients, 1)
    ratio = (between / np.maximum(within, 1e-300)).max(0)
    return np.clip(ratio, 1.0, max(seen.rows / max(seen.clients, 1), 1.0))


def check_clients(recalibrate: bool | str, fed: Federation) -> None:
    """Refuse `recalibrate="clients"` with a single client."""
    if recalibrate == "clients" and len(fed.names) < 2:
        raise BadParameter(
            "recalibrate='clients' leaves out one client at a time but there is only one: use True instead"
        )


def _warn_if_no_better_than_the_mean(seen: ClientResiduals, scale: np.ndarray) -> None:
    error, spread = (float(np.sqrt((scale**2 * total / seen.rows).mean())) for total in (seen.errors, seen.spread))
    if error >= spread:
        warnings.warn(
            f"clients left out are predicted with an error of {error:.4g}, the mean of all targets has {spread:.4g}: "
            "the model does not generalise to clients never seen; try BayesianRegression, or leave out columns that identify clients",
            DataWarning,
            stacklevel=2,
        )


def _warn_if_few(clients: int) -> None:
    if clients < ENOUGH_CLIENTS:
        warnings.warn(
            f"intervals for clients never seen rest on {clients} clients: with fewer than {ENOUGH_CLIENTS}, how clients differ is "
            "not well known and the intervals may be too narrow; use more clients",
            DataWarning,
            stacklevel=2,
        )


# ---- the base class ----


class LastLayer(RegressorMixin, Estimator):
    """Base class of regressions with an exact Bayesian last layer.

    A subclass has `_spec`, `_posterior` and `_axes`, and calls `_remember`, `_settle` and `_calibrate` at the end of a fit.
    """

    encoding = DESIGN

    design_: Design
    stats_: Stats
    seed_: int  # chooses the rows held out
    histogram_: np.ndarray  # (o, b); empty without recalibration
    n_clients_checked_: int = 0  # clients left out that the histogram is of; 0 where rows were
    design_effect_: np.ndarray  # (o,) only where clients were left out
    single_output_: bool
    missing: str

    def _spec(self) -> dict:
        raise NotImplementedError("abstract")

    def _posterior(self, stats: Stats) -> Posterior:
        raise NotImplementedError("abstract")

    def _axes(self) -> Axes | None:
        """The sums along the eigenvectors of the Gram matrix; None where the variances were given."""
        raise NotImplementedError("abstract")

    def _share(self) -> float:
        """The fraction of rows held out while the kernel is learned and intervals are calibrated."""
        return 0.0

    def _last_share(self) -> float:
        """The fraction of rows held out of the last layer."""
        return self._share()

    def _residual_share(self) -> float:
        """The fraction of rows whose residuals recalibrate; 0 for all, each left out in closed form."""
        return self._share()

    def _n_learned(self) -> float:
        """Parameters of the kernel that were learned from the rows: each takes up about one degree of freedom."""
        return 0.0

    def _settle(self, design: Design, stats: Stats) -> None:
        """Set everything that follows from the sums."""
        self.__dict__.pop("posterior_", None)  # of an earlier private fit
        self.design_, self.stats_ = design, stats
        self._known = self._posterior(stats)
        self.n_features_in_ = len(design.scaling.x_mean)
        scale = design.scaling.y_scale
        self.log_marginal_likelihood_ = float(self.posterior.evidence.sum() - stats.n * np.log(scale).sum())
        self.noise_variance_ = self.posterior.noise * scale**2  # (o,) in the units of y

    @property
    def posterior(self) -> Posterior:
        """Posterior of the last layer, for standardised rows; it is computed from `stats_` and not saved."""
        if hasattr(self, "posterior_"):
            return self.posterior_
        check_is_fitted(self, "stats_")
        if not hasattr(self, "_known"):
            self._known = self._posterior(self.stats_)
        return self._known

    def _calibrate(self, fed: Federation, recalibrate: bool | str) -> None:
        """Residuals of rows left out, or of whole "clients" left out: one SUM."""
        self.histogram_, self.n_clients_checked_ = np.zeros((len(self.posterior.noise), 0)), 0
        if recalibrate == "clients":
            self._calibrate_for_clients(fed)
        elif recalibrate:
            inside = self._last_share() == 0
            ask = residuals.using(spec=self._spec(), share=self._residual_share(), seed=self.seed_, inside=inside)
            self.histogram_ = to_numpy(fed.sum(ask, Fitted(self.design_, self.posterior)).counts)

    def _calibrate_for_clients(self, fed: Federation) -> None:
        fitted = Fitted(self.design_, self.posterior)
        seen = tree.map(to_numpy, fed.sum(client_residuals.using(spec=self._spec()), fitted))
        self.histogram_, self.n_clients_checked_ = seen.counts, round(float(seen.clients))
        self.design_effect_ = design_effect(seen)
        _warn_if_no_better_than_the_mean(seen, self.design_.scaling.y_scale)
        _warn_if_few(self.n_clients_checked_)

    # ---- predictions ----

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict the mean of y at each row.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows to predict.
        return_std : bool, default=False
            Whether to return the standard deviation of y too, noise included.

        Returns
        -------
        mean : array of shape (n_samples,) or (n_samples, n_outputs)
            Posterior mean.
        std : array of the same shape
            Only with `return_std=True`.
        """
        mean, std = self._predict(X)
        return (self._shaped(mean), self._shaped(std)) if return_std else self._shaped(mean)

    def interval(self, X: Any, coverage: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Prediction intervals of y at each row.

        Without recalibration they are quantiles of the predictive distribution with noise and prior variance integrated out (a mixture of
        Student t distributions), which are wider than normal ones where rows are few. With `recalibrate=True`, quantiles of left-out
        residuals replace them if they have a better leave-one-out interval score; with "clients" they always do.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows to predict.
        coverage : float, default=0.9
            Probability that y lies in the interval, between 0 and 1.

        Returns
        -------
        lower, upper : arrays of shape (n_samples,) or (n_samples, n_outputs)
            The ends of the intervals.
        """
        if not (is_number(coverage) and 0 < coverage < 1):
            raise BadParameter(
                f"coverage={coverage!r} must be above 0 and below 1: the share of y inside the intervals"
            )
        p = np.array([0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage])
        ends = self._predictive_quantiles(X, p)  # (n, o, 2)
        for j in range(ends.shape[1]):
            z = self._recalibrated(j, p)
            if z is not None:
                mean, std = self._predict(X)
                ends[:, j] = mean[:, j, None] + std[:, j, None] * z
        return self._shaped(ends[..., 0]), self._shaped(ends[..., 1])

    def _recalibrated(self, output: int, p: np.ndarray) -> np.ndarray | None:
        """Quantiles p of the left-out residuals of an output; None where the model's own are better."""
        counts = self.histogram_[output]
        if counts.sum() < calibration.MIN_RESIDUALS:
            return None
        if self.n_clients_checked_ > 0:
            return calibration.quantile(counts[None], p, self.design_effect_[output])[0]
        if not calibration.improves(counts, p, norm.ppf(p)):
            return None
        n = float(self.stats_.n)
        wider = np.sqrt(n / (n - self._n_learned()))  # the kernel has seen the rows that are left out of the last layer alone
        return wider * calibration.quantile(counts[None], p)[0]

    def _predictive_quantiles(self, X: Any, p: np.ndarray) -> np.ndarray:  # (n, o, p)
        """Quantiles of y as the model has them: mixtures of t distributions, or normal where variances were given."""
        check_is_fitted(self, "design_")
        along = None if hasattr(self, "posterior_") else self._axes()  # a private fit has its posterior, and no sums
        scaling = self.design_.scaling
        if along is None:
            mean, std = self._predict(X)
            return mean[..., None] + std[..., None] * norm.ppf(p)
        along = along._replace(dof=along.dof - self._n_learned())
        found = predictive.quantiles(self.posterior, along, self._features(X), p, self._group(X))
        return scaling.y_mean[:, None] + scaling.y_scale[:, None] * found

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Draw y at the rows jointly from the posterior, noise included.

        Parameters
        ----------
        X : array of shape (n_samples_X, n_features)
            Rows to predict.
        n_samples : int, default=1
            Draws per row.
        random_state : int, RandomState or None, default=0
            Seed of the draws.

        Returns
        -------
        y : array of shape (n_samples_X, n_samples) or (n_samples_X, n_outputs, n_samples)
            The draws.
        """
        at_least("n_samples", n_samples, 1)
        z, group = self._features(X), self._group(X)
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
        scaling = self.design_.scaling
        draws = bayes_linear.draw(self.posterior, z, n_samples, rng, group)
        draws = scaling.y_mean[:, None] + scaling.y_scale[:, None] * draws
        return draws[:, 0] if self.single_output_ else draws

    def _predict(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        mean, variance = bayes_linear.predict(self.posterior, self._features(X), self._group(X))
        scaling = self.design_.scaling
        return scaling.y_mean + scaling.y_scale * mean, scaling.y_scale * np.sqrt(variance)

    def _features(self, X: Any) -> np.ndarray:
        return features(self._spec(), self.design_.kernel, standard(self.design_.scaling, self._checked(X)))

    def _group(self, X: Any) -> np.ndarray | None:
        return members(self.design_.groups, self._checked(X))

    def _checked(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "design_")
        finite = "allow-nan" if self.missing == "impute" else True
        return rows_of(self, to_numpy(X) if hasattr(X, "detach") else X, dtype=np.float64, ensure_all_finite=finite)

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        return values[:, 0] if self.single_output_ else values

    # ---- adding and removing rows: map and scaling stay, the last layer is exact ----

    def partial_fit(self, data: Any, y: Any = None, *, by: Any = None, sample_weight: Any = None) -> Any:
        """Add rows of new clients to the last layer: one SUM.

        The first call is `fit`. Features, scaling and recalibration stay as they are.

        Parameters
        ----------
        data : dict, list, frame, folder, Federation or array
            Rows as in `fit`.
        y : array, optional
            Targets, where `data` is an array.
        by : array, optional
            Client of each row, where `data` is an array.
        sample_weight : array, optional
            Weight of each row.

        Returns
        -------
        self : object
            The updated estimator.
        """
        self._check_sums_kept()
        if not hasattr(self, "stats_"):
            return self.fit(data, y, by=by, sample_weight=sample_weight)
        fed = as_federation(data, y, by=by, sample_weight=sample_weight)
        check_targets(fed)
        for c in fed.here()[:1]:  # all have the same columns
            _check_n_features(self, c.x, reset=False)
        self._settle(self.design_, tree.add(self.stats_, self._ask(fed)))
        return self

    def forget(self, client: str, data: Any = None) -> Any:
        """Remove a client's rows from the last layer, as if they had not been fitted: one SUM of that client alone.

        Features, scaling and recalibration stay as they are.

        Parameters
        ----------
        client : str
            Name of the client.
        data : tuple (X, y), Federation or None, default=None
            The client's rows, or a federation it is part of; None: the federation of the last `fit`.

        Returns
        -------
        self : object
            The updated estimator.
        """
        self._check_sums_kept()
        check_is_fitted(self, "stats_")
        fed = self._federation_of(client, data)
        rest = tree.map(lambda a, b: a - b, self.stats_, self._ask(fed))
        if rest.n < 2:
            raise BadData(f"without client {client!r} fewer than 2 rows are left: fit again on other data instead")
        self._settle(self.design_, rest._replace(yy=np.maximum(rest.yy, 0.0)))
        return self

    def _check_sums_kept(self) -> None:
        if hasattr(self, "posterior_"):
            raise BadParameter("a private fit keeps no exact sums to add to or to subtract from: fit again instead")

    def _federation_of(self, client: str, data: Any) -> Federation:
        if not isinstance(client, str):
            raise BadParameter(
                f"client should be the name of a client, not a {type(client).__name__}: give its rows as data=(X, y)"
            )
        fed = data if is_federation(data) else getattr(self, "_fed", None)
        if data is not None and not is_federation(data):
            fed = federate({client: data} if isinstance(data, tuple) else data)
        if fed is None or client not in fed.names:
            known = "" if fed is None else f" (it has {', '.join(map(repr, fed.names[:5]))}, ...)"
            raise BadParameter(f"client {client!r} is not in the federation to be asked{known}: give its data=(X, y)")
        return fed.only([client])

    def _ask(self, fed: Federation) -> Stats:
        ask = statistics.using(spec=self._spec(), share=self._last_share(), seed=self.seed_)
        return tree.map(to_numpy, fed.sum(ask, self.design_))

    def _remember(self, fed: Federation, scaling: Scaling) -> None:
        self._fed = fed  # what `forget` asks; not saved
        first = next(iter(fed.here()), None)
        self.single_output_ = len(scaling.y_mean) == 1 and (first is None or to_numpy(first.y).ndim == 1)

    def __getstate__(self) -> Mapping[str, Any]:
        state = super().__getstate__()
        return {k: v for k, v in state.items() if k not in ("_fed", "_known")}

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "impute"
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags
