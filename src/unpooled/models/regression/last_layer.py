"""Base class of Bayesian regressions over a fixed feature map: posterior, predictions, intervals.

Sends one SUM of second moments (`regression.statistics`); with recalibration one SUM of a histogram of residuals
(`regression.residuals`, `regression.client_residuals`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from unpooled import tree
from unpooled.arrays import doubles, to_numpy
from unpooled.data.tabled import DESIGN
from unpooled.errors import BadParameter
from unpooled.estimator import rows_of
from unpooled.federation import Federation
from unpooled.maths import bayes_linear, calibration, predictive
from unpooled.maths.bayes_linear import Axes, Posterior, Stats
from unpooled.maths.feature_maps import features
from unpooled.models.regression.design import Design, Fitted, sum_statistics
from unpooled.models.regression.group_effects import members
from unpooled.models.regression.left_out_rows import residuals
from unpooled.models.regression.scaling import Scaling, standard
from unpooled.models.regression.unseen_clients import (
    ClientVariance,
    client_quantiles,
    client_residuals,
    client_variance,
    design_effect,
    warn_if_few,
    warn_if_no_better_than_the_mean,
)
from unpooled.models.regression.updating import UpdatedLastLayer
from unpooled.parameters import at_least, is_number


class LastLayer(RegressorMixin, UpdatedLastLayer):
    """Base class of regressions with an exact Bayesian last layer.

    A subclass has `_spec`, `_posterior` and `_axes`, and calls `_remember`, `_settle` and `_calibrate` at the end of a fit.
    """

    encoding = DESIGN
    _simpler = "try BayesianRegression, or "  # what else to do where the model does not generalise, in words

    seed_: int  # chooses the rows held out
    histogram_: np.ndarray  # (o, b); empty without recalibration
    n_clients_checked_: int = 0  # clients left out that the histogram is of; 0 where rows were
    design_effect_: np.ndarray  # (o,) only where clients were left out
    client_variance_: ClientVariance  # only where clients were left out
    single_output_: bool
    missing: str

    def _spec(self) -> dict:
        """To be given by the model: its feature map."""
        raise NotImplementedError("abstract")

    def _posterior(self, stats: Stats) -> Posterior:
        """To be given by the model: the posterior of these sums."""
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

    def _tilts(self) -> tuple[float, ...]:
        """How far the prior of the weights may favour directions in which rows vary most: see `predictive.TILTS`."""
        return (0.0,)

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
        self.log_marginal_likelihood_ = float(self.posterior.log_evidence.sum() - stats.n * np.log(scale).sum())
        self.noise_variance_ = self.posterior.noise_variance * scale**2  # (o,) in the units of y

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
        self.histogram_ = np.zeros((len(self.posterior.noise_variance), 0))
        self.n_clients_checked_ = 0
        if recalibrate == "clients":
            self._calibrate_for_clients(fed)
        elif recalibrate:
            inside = self._last_share() == 0
            ask = residuals.using(spec=self._spec(), share=self._residual_share(), seed=self.seed_, inside=inside)
            self.histogram_ = doubles(fed.sum(ask, Fitted(self.design_, self.posterior)).counts)

    def _calibrate_for_clients(self, fed: Federation) -> None:
        """One SUM of residuals of clients left out, for intervals of clients never seen."""
        fitted = Fitted(self.design_, self.posterior)
        seen = tree.map(doubles, fed.sum(client_residuals.using(spec=self._spec()), fitted))
        self.histogram_ = seen.counts
        self.n_clients_checked_ = round(float(seen.clients))
        self.design_effect_ = design_effect(seen)
        self.client_variance_ = client_variance(seen)
        warn_if_no_better_than_the_mean(seen, self.design_.scaling.y_scale, self._simpler)
        warn_if_few(self.n_clients_checked_)

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
        Student t distributions), which are wider than normal ones where rows are few. With `recalibrate=True` their ends move towards
        quantiles of left-out residuals, the farther the more the difference exceeds its standard error; with "clients" quantiles of
        residuals replace them.

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
        for j, counts in enumerate(self.histogram_):
            total = counts.sum()
            if total < calibration.MIN_RESIDUALS:
                continue
            mean, std = self._predict(X)
            found = mean[:, j, None] + std[:, j, None] * self._residual_quantiles(j, p)
            ends[:, j] = found if self.n_clients_checked_ else calibration.moved(ends[:, j], found, p, total)
        return self._shaped(ends[..., 0]), self._shaped(ends[..., 1])

    def _residual_quantiles(self, output: int, p: np.ndarray) -> np.ndarray:  # (2,)
        """Quantiles p of the left-out residuals of an output; for clients never seen where clients were left out."""
        found = calibration.quantile(self.histogram_[output][None], p)[0]
        if not self.n_clients_checked_:
            return found
        return client_quantiles(self._wider() * found, p, self.client_variance_, output)

    def _wider(self) -> float:
        """The factor of intervals for clients never seen: the kernel has seen the rows that are left out of the last layer alone."""
        learned = self._n_learned()
        return float(np.sqrt(self.stats_.n / (self.stats_.n - learned))) if learned else 1.0

    def _predictive_quantiles(self, X: Any, p: np.ndarray) -> np.ndarray:  # (n, o, p)
        """Quantiles of y as the model has them: mixtures of t distributions, or normal where variances were given."""
        check_is_fitted(self, "design_")
        along = None if hasattr(self, "posterior_") else self._axes()  # a private fit has its posterior, and no sums
        scaling = self.design_.scaling
        if along is None:
            mean, std = self._predict(X)
            return mean[..., None] + std[..., None] * norm.ppf(p)
        along = along._replace(dof=along.dof - self._n_learned())
        found = predictive.quantiles(self.posterior, along, self._features(X), p, self._group(X), self._tilts())
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
        z = self._features(X)
        group = self._group(X)
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
        scaling = self.design_.scaling
        draws = bayes_linear.draw(self.posterior, z, n_samples, rng, group)
        draws = scaling.y_mean[:, None] + scaling.y_scale[:, None] * draws
        return draws[:, 0] if self.single_output_ else draws

    def _predict(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations in the targets' units, (n, o) each."""
        mean, variance = bayes_linear.predict(self.posterior, self._features(X), self._group(X))
        scaling = self.design_.scaling
        return scaling.y_mean + scaling.y_scale * mean, scaling.y_scale * np.sqrt(variance)

    def _features(self, X: Any) -> np.ndarray:
        """The features of rows."""
        return features(self._spec(), self.design_.kernel, standard(self.design_.scaling, self._checked(X)))

    def _group(self, X: Any) -> np.ndarray | None:
        """The group of each row, None without groups."""
        return members(self.design_.groups, self._checked(X))

    def _checked(self, X: Any) -> np.ndarray:
        """X as an array with the columns of the fit."""
        check_is_fitted(self, "design_")
        finite = "allow-nan" if self.missing == "impute" else True
        return rows_of(self, to_numpy(X) if hasattr(X, "detach") else X, dtype=np.float64, ensure_all_finite=finite)

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        """One column as a vector, several as they are."""
        return values[:, 0] if self.single_output_ else values

    def _ask(self, fed: Federation) -> Stats:
        """One SUM of second moments over a federation."""
        return sum_statistics(fed, self.design_, **self._last_asks())

    def _last_asks(self) -> dict[str, Any]:
        """Options of questions to the rows that the last layer is fitted to."""
        return {"spec": self._spec(), "share": self._last_share(), "seed": self.seed_}

    def _remember(self, fed: Federation, scaling: Scaling) -> None:
        """Remember the federation for `forget`, and whether there is one target."""
        self._fed = fed  # what `forget` asks; not saved
        first = next(iter(fed.here()), None)
        self.single_output_ = len(scaling.y_mean) == 1 and (first is None or to_numpy(first.y).ndim == 1)

    def __getstate__(self) -> Mapping[str, Any]:
        """What is saved: not the federation."""
        state = super().__getstate__()
        return {k: v for k, v in state.items() if k not in ("_fed", "_known")}

    def __sklearn_tags__(self):
        """scikit-learn's tags."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "impute"
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags
