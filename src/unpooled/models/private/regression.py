"""Linear regression with differential privacy, and intervals that take the noise into account: five looks.

1. Frame: moments of the columns and of the target.
2. Second moments of both: a ridge fit, and coordinates in which the features are nearly uncorrelated.
3. Two looks at the gradient about the fit, in these coordinates: residuals are short, so the noise is small, and no direction of
   the features amplifies it. Each is one Newton step.
4. A histogram of the residuals, from which intervals have their quantiles.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm
from sklearn.isotonic import isotonic_regression

from unpooled.errors import BadParameter
from unpooled.estimator import Info
from unpooled.federation import Federation
from unpooled.layers.private import look, private_layer
from unpooled.maths import calibration
from unpooled.maths.bayes_linear import Posterior
from unpooled.maths.feature_maps import Kernel
from unpooled.models.private.frame import Frame, half_widths, look_at_columns
from unpooled.models.private.packing import unpack_second
from unpooled.models.private.regression_questions import (
    EDGES,
    LONGEST,
    ONE,
    SLOPE,
    SQUARE,
    Line,
    Scaled,
    gradient,
    joint_moments,
    residual_counts,
    second_moments,
)
from unpooled.models.regression import Design, LastLayer, Scaling, check_targets
from unpooled.privacy.clipping import from_unit
from unpooled.tree import message

FRAME_SHARE = 0.12  # of the budget
SECOND_SHARE, GRADIENT_SHARE, RESIDUAL_SHARE = 0.4, 0.25, 0.1  # of the rest; the gradient twice
GRADIENTS = 2
REACH = 3.0  # residuals are clipped at this many scales
QUIET = 0.02  # noise up to which the radius grows, so that fewer rows are clipped
WIDEST = 3.0  # the radius at most, in lengths of a typical row
LEAST_SCALE = 0.02  # of residuals, as a share of the target's standard deviation


@message("private.RegressionState")
class State(NamedTuple):
    """The line between two looks, and its variance due to noise."""

    line: Line
    rows: float
    slope_variance: np.ndarray  # (d,) in whitened coordinates, from noise alone
    offset_variance: float  # from noise alone
    counts: np.ndarray  # residuals between EDGES
    epsilon: float


class PrivateRegression(LastLayer):
    """Linear regression whose fit is differentially private; fitted to `Private(fed, epsilon=, delta=, bounds=)`.

    The bounds need an entry for the target: "y" in a dict, or one more row of an array.

    Parameters
    ----------
    random_state : int or None, default None
        Not used: the noise comes from the layer.

    Attributes
    ----------
    coef_ : array (d,)
        Slope of each column.
    intercept_ : float
        Target where all columns are 0.
    noise_variance_ : array (1,)
        Variance of the target about its mean.
    posterior_ : Posterior
        Of the weights; its variances include that of the noise.
    n_rows_ : float
        The number of rows, with noise.
    epsilon_ : float
        What all looks so far cost, this fit's included.

    References
    ----------
    Wang (2018), Revisiting differentially private linear regression, UAI (AdaSSP), is what it is compared with.

    Examples
    --------
    >>> import numpy as np
    >>> import unpooled as up
    >>> from unpooled.layers.private import Private
    >>> from unpooled.models.private import PrivateRegression
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(10_000, 2))
    >>> y = x @ [1.0, -2.0] + 3 + rng.normal(size=10_000)
    >>> fed = up.federate({"a": (x[::2], y[::2]), "b": (x[1::2], y[1::2])})
    >>> private = Private(fed, epsilon=1, delta=1e-5, bounds=[[-5, 5], [-5, 5], [-10, 15]], secret=b"s" * 32)
    >>> PrivateRegression().fit(private).coef_.round(1).tolist()
    [1.0, -2.0]
    """

    max_iter = 1
    missing = "impute"

    def __init__(self, *, random_state: Any = None):
        self.random_state = random_state

    def check(self, fed: Federation) -> None:
        """Refuse a federation without a privacy budget, without targets, or without bounds of the target."""
        private = private_layer(fed)
        check_targets(fed)
        if private.target_bounds is None:
            text = 'bounds= has no entry for the target: add "y": (low, high) to the dict'
            raise BadParameter(f"{text}, or one more row to the array, from knowledge")

    def init(self, fed: Federation, rng: np.random.Generator) -> None:
        """Nothing is asked before the looks."""
        return None

    def step(self, fed: Federation, state: Any) -> tuple[State, Info]:
        """All looks: columns, second moments, gradients about the fit, and residuals."""
        private = private_layer(fed)
        budget = private.mu2_for_fit
        bounds = np.vstack([private.bounds, private.target_bounds])
        columns, cost = look_at_columns(fed, joint_moments, bounds, FRAME_SHARE * budget)
        budget = budget - cost
        state = first_fit(fed, columns.frame, columns.rows, SECOND_SHARE * budget, private.noise_factor)
        for _ in range(GRADIENTS):
            state = newton_step(fed, state, GRADIENT_SHARE * budget)
        counts, _ = look(fed, residual_counts, state.line, RESIDUAL_SHARE * budget)
        epsilon = private.accountant.spent.epsilon
        return state._replace(counts=counts.counts, epsilon=epsilon), {"epsilon": epsilon}

    def finish(self, fed: Federation, state: State) -> None:
        """Set coefficients, noise and intervals in the data's units."""
        frame = state.line.frame
        d = len(state.line.slope)
        self._remember(fed, _scaling(frame))
        self.design_ = Design(_scaling(frame), Kernel({}, {}), None)
        self.posterior_ = read_posterior(state)
        self.histogram_ = fine_counts(state)[None]
        self.n_clients_checked_ = 0
        self.n_features_in_ = d
        self.n_rows_ = state.rows
        self.epsilon_ = state.epsilon
        x_scale = self.design_.scaling.x_scale
        y_scale = self.design_.scaling.y_scale
        self.noise_variance_ = self.posterior_.noise_variance * y_scale**2
        self.coef_ = self.posterior_.weights[:, 0] * y_scale[0] / x_scale
        at_zero = self.posterior_.intercept - self.posterior_.feature_mean @ self.posterior_.weights
        self.intercept_ = float(
            self.design_.scaling.y_mean[0] + y_scale[0] * at_zero[0] - self.design_.scaling.x_mean @ self.coef_
        )

    def _spec(self) -> dict:
        """The features of a linear regression."""
        return {"map": "monomials", "degree": 1}


# ---- the server's side ----


def feature_radius(d: int, rows: float, mu2: float, noise: float) -> float:
    """How long a row may be: a little more than typical, and more where the noise stays small all the same."""
    typical = np.sqrt(d)
    affordable = np.sqrt(QUIET * rows * np.sqrt(mu2) / noise / LONGEST**2 / typical)
    return float(np.clip(affordable, typical + 1, WIDEST * typical + 1))


class SecondMoments(NamedTuple):
    """Means and scatter of the columns and, last, the target."""

    rows: float
    mean: np.ndarray  # (d + 1,)
    scatter: np.ndarray  # (d + 1, d + 1) about the mean
    noise: float  # standard deviation of the noise on an entry of the scatter


def first_fit(fed: Federation, frame: Frame, rows: float, mu2: float, noise: float) -> State:
    """A ridge fit from noisy second moments, the ridge as large as the noise."""
    d = len(frame.mean) - 1
    moments = look_at_second_moments(fed, frame, rows, mu2, noise)
    mean = moments.mean
    scatter = moments.scatter
    values, vectors = np.linalg.eigh(scatter[:d, :d])
    values = np.maximum(values, 0.0) + moments.noise * np.sqrt(d)
    slope = vectors @ (vectors.T @ scatter[:d, d] / values)
    residual_variance = (scatter[d, d] - slope @ scatter[:d, d]) / moments.rows
    line = Line(
        frame=frame,
        whiten=vectors * np.sqrt(moments.rows / values),
        centre=mean[:d],
        slope=slope,
        offset=np.asarray(mean[d] - mean[:d] @ slope),
        scale=np.asarray(np.sqrt(np.clip(residual_variance, LEAST_SCALE**2, 1.0))),
        radius=np.asarray(feature_radius(d, moments.rows, mu2, noise)),
        reach=np.asarray(REACH),
    )
    return State(line, moments.rows, np.full(d, np.inf), np.inf, np.zeros(len(EDGES) + 1), 0.0)


def look_at_second_moments(fed: Federation, frame: Frame, rows: float, mu2: float, noise: float) -> SecondMoments:
    """One look at the second moments of (ONE, columns, target), each row shortened to a radius."""
    size = len(frame.mean)
    radius = feature_radius(size, rows, mu2, noise)
    sums, sigma = look(fed, second_moments, Scaled(frame, np.asarray(radius)), mu2)
    unit = LONGEST**2 * radius**2
    second = unpack_second(sums.triangle[None], "full", size + 1)[0] * unit
    second[0] /= ONE * radius
    second[:, 0] /= ONE * radius
    rows = max(second[0, 0], rows / 2)
    mean = second[0, 1:] / rows
    return SecondMoments(rows, mean, second[1:, 1:] - rows * np.outer(mean, mean), sigma * unit)


def newton_step(fed: Federation, state: State, mu2: float) -> State:
    """The fit after one noisy gradient, followed as far as its noise allows."""
    line, rows = state.line, state.rows
    reach, scale, radius = (float(a) for a in (line.reach, line.scale, line.radius))
    total, sigma = look(fed, gradient, line, mu2)
    unit = LONGEST * reach * scale / SLOPE / rows
    step = total.slope * unit * radius
    noise = (sigma * unit * radius) ** 2
    share = max(0.0, 1 - noise / max(float((step**2).mean()), 1e-300))  # what noise does not explain
    slope = line.slope + line.whiten @ (share * step)
    mean_residual = float(total.offset) * unit / ONE
    offset = line.offset + mean_residual - line.centre @ (slope - line.slope)
    mean_square = float(np.clip(total.square / SQUARE / rows, 0.0, 1.0)) * reach**2
    scale = line.scale * np.sqrt(np.clip(mean_square / clipped_square(reach), LEAST_SCALE, 4.0))
    return state._replace(
        line=line._replace(slope=slope, offset=np.asarray(offset), scale=np.asarray(scale)),
        slope_variance=np.minimum(1 / (1 / state.slope_variance + 1 / noise), noise),
        offset_variance=(sigma * unit / ONE) ** 2,
    )


def clipped_square(reach: float) -> float:
    """What clipping at `reach` leaves of the variance of a standard normal."""
    inside = 1 - 2 * norm.sf(reach) - 2 * reach * norm.pdf(reach)
    return float(inside + 2 * reach**2 * norm.sf(reach))


def read_posterior(state: State) -> Posterior:
    """The weights and their uncertainty, from the scatter of the rows and from the noise; there are no groups."""
    line = state.line
    d = len(state.line.slope)
    residual_variance = np.atleast_1d(line.scale**2)
    not_released = np.full(1, np.nan)
    return Posterior(
        weights=line.slope[:, None],
        basis=line.whiten,
        axis_variance=(residual_variance / state.rows + state.slope_variance)[:, None],
        feature_mean=line.centre,
        intercept=np.atleast_1d(line.offset + line.centre @ line.slope),
        noise_variance=residual_variance,
        prior_variance=not_released,
        intercept_variance=residual_variance / state.rows + state.offset_variance,
        log_evidence=not_released,
        group_ratio=np.asarray(0.0),
        group_variance=np.zeros(1),
        group_features=np.zeros((d, 1)),
        group_targets=np.zeros((1, 1)),
    )


def _scaling(frame: Frame) -> Scaling:
    """From the rows' own units to the frame's."""
    mean = from_unit(frame.mean, frame.bounds)
    scale = half_widths(frame.bounds) * frame.scale
    return Scaling(mean[:-1], mean[:-1], scale[:-1], mean[-1:], scale[-1:])


def fine_counts(state: State) -> np.ndarray:
    """The noisy histogram as a smooth one over the bins of `calibration`, so that its quantiles can be read."""
    below = np.interp(calibration.EDGES, EDGES, shares_below(state.counts, state.rows), left=0.0, right=1.0)
    edges = np.concatenate([[0.0], below, [1.0]])
    return np.maximum(np.diff(edges), 0.0) * state.rows


def shares_below(counts: np.ndarray, rows: float) -> np.ndarray:
    """The share of residuals below each edge: sums from the nearer end, where noise has added up least, made to rise."""
    middle = len(EDGES) // 2
    left = np.cumsum(counts)[:middle]
    right = rows - np.cumsum(counts[::-1])[::-1][middle + 1 :]
    rising = isotonic_regression(np.concatenate([left, right]), y_min=0.0, y_max=rows)
    return rising / rows
