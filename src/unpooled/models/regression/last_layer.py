"""What Bayesian regressions over a fixed feature map share: the SUMs that cost a round, and the face of a fitted model.

One SUM gives the exact posterior of the last layer, one the histogram behind honest intervals, for new rows or for new clients. No row
leaves a client; k features cost k (k + 1) / 2 numbers a client, and k more for every group of rows that share an offset.
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
from unpooled.errors import BadData, BadParameter, DataWarning
from unpooled.estimator import Estimator, rows_of
from unpooled.federation import Federation, is_federation
from unpooled.maths import bayes_linear, calibration
from unpooled.maths.bayes_linear import Posterior, Stats
from unpooled.maths.feature_maps import Kernel, features
from unpooled.models.regression.group_effects import Groups, members
from unpooled.models.regression.scaling import Scaling, check_targets, raw_rows, standard, standard_rows
from unpooled.parameters import at_least
from unpooled.tree import message

ENOUGH_CLIENTS = 9  # left out, so that one more lies within all of them nine times in ten


@message("regression.Design")
class Design(NamedTuple):
    """From a client's rows to features."""

    scaling: Scaling
    kernel: Kernel
    groups: Groups | None = None  # rows that share an offset


@message("regression.Fitted")
class Fitted(NamedTuple):
    design: Design
    posterior: Posterior


@message("regression.Histogram")
class Histogram(NamedTuple):
    counts: Float[Array, "o b", ">=0 rows"]


# ---- what clients are asked; `share` of the rows, chosen by `seed`, is held out ----


@client("regression.statistics", SUM, adds=True)
def statistics(design: Design, client: Client, *, spec: dict, share: float, seed: int) -> Stats:
    x, y, w, _ = standard_rows(design.scaling, client, share, seed)
    groups = 0 if design.groups is None else len(design.groups.keys)
    return bayes_linear.statistics(features(spec, design.kernel, x), y, w, group_of(design, client), groups)


@client("regression.residuals", SUM, adds=True)
def residuals(fitted: Fitted, client: Client, *, spec: dict, share: float, seed: int, inside: bool) -> Histogram:
    """Standardised residuals of the rows held out, or of all where none are; those `inside` the last layer as if left out."""
    x, y, w, held = standard_rows(fitted.design.scaling, client, share, seed)
    z, group, post = features(spec, fitted.design.kernel, x), group_of(fitted.design, client), fitted.posterior
    mean, variance = bayes_linear.left_out(post, z, y, group) if inside else bayes_linear.predict(post, z, group)
    return Histogram(calibration.histogram((y - mean) / np.sqrt(variance), held if share > 0 else w))


@client("regression.client_residuals", SUM, batched=False)
def client_residuals(fitted: Fitted, client: Client, *, spec: dict) -> Histogram:
    """Standardised residuals of all rows of a client in the last layer, as if the whole client were left out."""
    x, y, w, _ = standard_rows(fitted.design.scaling, client, 0.0, 0)
    z = features(spec, fitted.design.kernel, x)
    mean, variance = bayes_linear.left_out_together(fitted.posterior, z, y, group_of(fitted.design, client))
    return Histogram(calibration.histogram((y - mean) / np.sqrt(variance), w))


def group_of(design: Design, client: Client) -> np.ndarray | None:  # (..., n)
    """The group of each of the client's rows, -1 for none."""
    return members(design.groups, raw_rows(client))


def _enough(clients: int) -> int:
    """So many clients were left out, with a warning if they are too few to promise anything."""
    if clients < ENOUGH_CLIENTS:
        warnings.warn(
            f"intervals for clients never seen rest on {clients} clients, and a 90 % interval needs {ENOUGH_CLIENTS}: "
            "they end at the largest residual seen",
            DataWarning,
            stacklevel=2,
        )
    return clients


# ---- the face of a fitted model ----


class LastLayer(RegressorMixin, Estimator):
    """Needs `_spec()`, `_posterior()`, and `design_` and `stats_` after `fit`; predicts, forgets and goes on learning."""

    design_: Design
    stats_: Stats
    seed_: int  # chooses the rows held out
    histogram_: np.ndarray  # (o, b); empty without recalibration
    n_clients_checked_: int = 0  # clients left out that the histogram is of; 0 where rows were
    single_output_: bool
    missing: str

    def _spec(self) -> dict:
        raise NotImplementedError("abstract")

    def _posterior(self, stats: Stats) -> Posterior:
        raise NotImplementedError("abstract")

    def _share(self) -> float:
        """Of every client's rows, held out while the kernel is learned and intervals are calibrated."""
        return 0.0

    def _last_share(self) -> float:
        """Of every client's rows, held out of the last layer."""
        return self._share()

    def _settle(self, design: Design, stats: Stats) -> None:
        """Everything that follows from the sums."""
        self.__dict__.pop("posterior_", None)  # of an earlier private fit
        self.design_, self.stats_ = design, stats
        self._known = self._posterior(stats)
        self.n_features_in_ = len(design.scaling.x_mean)
        scale = design.scaling.y_scale
        self.log_marginal_likelihood_ = float(self.posterior.evidence.sum() - stats.n * np.log(scale).sum())
        self.noise_variance_ = self.posterior.noise * scale**2  # (o,) in the units of y

    @property
    def posterior(self) -> Posterior:
        """Of the last layer, for standardised rows; it follows from `stats_` and is not saved, unless the fit was private."""
        if hasattr(self, "posterior_"):
            return self.posterior_
        check_is_fitted(self, "stats_")
        if not hasattr(self, "_known"):
            self._known = self._posterior(self.stats_)
        return self._known

    def _calibrate(self, fed: Federation, wanted: bool | str) -> None:
        """Intervals from residuals: of rows left out, or of whole "clients" left out."""
        self.histogram_, self.n_clients_checked_ = np.zeros((len(self.posterior.noise), 0)), 0
        if not wanted:
            return
        inside = self._last_share() == 0
        ask = residuals.using(spec=self._spec(), share=self._share(), seed=self.seed_, inside=inside)
        if wanted == "clients":
            ask = client_residuals.using(spec=self._spec())
            self.n_clients_checked_ = _enough(len(fed.names))
        self.histogram_ = to_numpy(fed.sum(ask, Fitted(self.design_, self.posterior)).counts)

    # ---- predictions ----

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The mean of y at each row, and with `return_std` the standard deviation of y about it, noise included."""
        mean, std = self._predict(X)
        return (self._shaped(mean), self._shaped(std)) if return_std else self._shaped(mean)

    def interval(self, X: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """(lower, upper): y lies between them with probability `level`; if recalibrated, as seen on rows not fitted."""
        if not (isinstance(level, float | np.floating) and 0 < level < 1):
            raise BadParameter(f"level={level!r} must be a number between 0 and 1: the share of y to be covered")
        mean, std = self._predict(X)
        ends = np.array([0.5 - 0.5 * level, 0.5 + 0.5 * level])
        z = np.tile(norm.ppf(ends), (std.shape[1], 1))
        if self.histogram_.shape[1] > 0:
            z = calibration.quantile(self.histogram_, ends, self.n_clients_checked_)
        return self._shaped(mean + z[:, 0] * std), self._shaped(mean + z[:, 1] * std)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Joint draws of y at the rows, noise included: (n, n_samples), or (n, outputs, n_samples)."""
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

    # ---- rows that come and go: the map and the scaling stay, the last layer stays exact ----

    def partial_fit(self, data: Any, y: Any = None, *, by: Any = None, sample_weight: Any = None) -> Any:
        """Add rows of new clients to the last layer: one SUM. The first call fits; intervals keep its calibration."""
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
        """Take a client's rows out of the last layer, as if they had never been in it: one SUM of that client alone.

        `data` is the client's (X, y), or a federation it is part of; without it that of the last `fit`.
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
        self._fed = fed  # in this process only: what `forget` asks
        first = next(iter(fed.here()), None)
        self.single_output_ = len(scaling.y_mean) == 1 and (first is None or to_numpy(first.y).ndim == 1)

    def __getstate__(self) -> Mapping[str, Any]:
        state = super().__getstate__()
        return {k: v for k, v in state.items() if k not in ("_fed", "_known", "_view")}

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "impute"
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags
