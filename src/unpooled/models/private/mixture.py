"""Gaussian mixture with differential privacy: a few looks at rough positions, then noisy EM in whitened coordinates.

1. Frame: one look at the columns' moments.
2. Cells: two looks at counts and means of cells; the server fits mixtures to them from many starts, at no cost.
3. Choice: one look at which of these starts explains the rows best.
4. EM: 5 to 30 looks; each update follows its look as far as the noise allows.
5. After the fourth, another choice: between where EM is and optima with a pair of components merged and another one split.

No log-likelihood is released, so there is no `tol`: the number of looks follows from the budget.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.base import DensityMixin

from unpooled.errors import BadParameter
from unpooled.estimator import Estimator, Info
from unpooled.federation import Federation
from unpooled.layers.private import look, private_layer
from unpooled.maths import gaussian
from unpooled.maths.mixture import Params
from unpooled.models.mixture import MixtureFace
from unpooled.models.private import update
from unpooled.models.private.cell_mixture import Mixture, proposals
from unpooled.models.private.choice import compare
from unpooled.models.private.clipped_moments import best_block_weights, clip_radius
from unpooled.models.private.e_step import EStepRequest, whitened_sums
from unpooled.models.private.frame import Frame, column_moments, half_widths, look_at_columns
from unpooled.models.private.packing import n_numbers
from unpooled.models.private.start import CANDIDATES, find_start
from unpooled.models.private.update import Gains, first_gains
from unpooled.parameters import at_least, is_number, one_of
from unpooled.privacy.clipping import from_unit
from unpooled.tree import message

FRAME_SHARE, RETHINK_SHARE = 0.1, 0.04  # of the budget
RETHINK_AFTER = 4  # EM looks, by which components have found their shapes
ENOUGH_LOOKS = 12  # with fewer, too few would be left to settle in another optimum
HANDICAP = 2.0  # standard deviations of the noise by which a proposal may be worse: EM has not improved it yet
LOOKS = (5, 30)
QUIET = 0.3  # noise that one EM look may have, relative to what it looks at


@message("private.MixtureState")
class State(NamedTuple):
    """Parameters between two looks, how far each is known, and the remaining budget."""

    frame: Frame
    rows: float
    n: np.ndarray  # (k,) rows of each component
    means: np.ndarray  # (k, d) in the units of the frame
    covs: np.ndarray  # (k, d, d)
    gains: Gains
    looks_left: int
    mu2: float  # of each remaining look
    rethink_at: int  # looks left when other optima are tried; 0: never
    rethink_mu2: float
    epsilon: float  # spent so far


class PrivateGaussianMixture(MixtureFace, DensityMixin, Estimator):
    """A mixture of Gaussians whose fit is differentially private; fitted to `Private(fed, epsilon=, delta=, bounds=)`.

    Parameters
    ----------
    n_components : int, default 1
    covariance_type : {"full", "tied", "diag", "spherical"}, default "full"
    reg_covar : float, default 1e-6
        Added to variances, in squared units of the standardised columns.
    max_iter : int, default 30
        EM looks at most; fewer are made when the budget is small.
    random_state : int or None, default None
        For the public cells and the server's starts; the noise comes from the layer.

    Attributes
    ----------
    weights_, means_, covariances_, precisions_, precisions_cholesky_ : arrays
        As scikit-learn has them.
    n_rows_ : float
        The number of rows, with noise.
    epsilon_ : float
        What all looks so far cost, this fit's included.
    history_ : list of dict
        One row per EM look, with the epsilon spent until then.

    References
    ----------
    Park, Foulds, Chaudhuri and Welling (2017), DP-EM, AISTATS, is the published method that it is compared with.

    Examples
    --------
    >>> import numpy as np
    >>> import unpooled as up
    >>> from unpooled.layers.private import Private
    >>> from unpooled.models.private import PrivateGaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> x = np.concatenate([rng.normal(-3, 1, size=(5000, 2)), rng.normal(3, 1, size=(5000, 2))])
    >>> private = Private(up.federate({"a": x[::2], "b": x[1::2]}), epsilon=1, delta=1e-5, bounds=[[-10, 10]] * 2, secret=b"s" * 32)
    >>> PrivateGaussianMixture(2, random_state=0).fit(private).means_.round().tolist()
    [[-3.0, -3.0], [3.0, 3.0]]
    """

    def __init__(
        self,
        n_components: int = 1,
        *,
        covariance_type: str = "full",
        reg_covar: float = 1e-6,
        max_iter: int = 30,
        random_state: Any = None,
    ):
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.reg_covar = reg_covar
        self.max_iter = max_iter
        self.random_state = random_state

    def check(self, fed: Federation) -> None:
        """Refuse a federation without a privacy budget, and parameters that do not exist."""
        private_layer(fed)
        if not is_number(self.n_components):
            text = (
                f"n_components={self.n_components!r} would be chosen by likelihoods, which private looks do not release"
            )
            raise BadParameter(f"{text}: give one number")
        at_least("n_components", self.n_components, 1)
        at_least("max_iter", self.max_iter, 1)
        one_of("covariance_type", self.covariance_type, gaussian.SHAPES)
        if not (is_number(self.reg_covar) and self.reg_covar >= 0):
            raise BadParameter(f"reg_covar={self.reg_covar!r} must be at least 0")

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        """Look at the columns and at cells, choose a start, and plan the looks that remain."""
        private = private_layer(fed)
        budget = private.mu2_for_fit
        k = int(self.n_components)
        columns, cost = look_at_columns(fed, column_moments, private.bounds, FRAME_SHARE * budget)
        start, used = find_start(fed, columns, k, budget, rng)
        rest = budget * (1 - used) - cost
        looks = number_of_looks(self.covariance_type, start, columns.rows, rest, private.noise_factor, self.max_iter)
        again = k >= 3 and looks >= ENOUGH_LOOKS
        reserve = RETHINK_SHARE * budget if again else 0.0
        shaped = _shaped(start, self.covariance_type)
        count = start.weights * columns.rows
        spent = private.accountant.spent.epsilon
        plan = {"looks_left": looks, "mu2": (rest - reserve) / looks, "epsilon": spent}
        plan |= {"rethink_at": looks - RETHINK_AFTER if again else 0, "rethink_mu2": reserve}
        return State(columns.frame, columns.rows, count, start.means, shaped, first_gains(k), **plan)

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        """One noisy EM step, in the whitened coordinates of each component."""
        shape, (k, d) = self.covariance_type, state.means.shape
        state = self._rethink(fed, state) if state.looks_left == state.rethink_at else state
        radius = clip_radius(d)
        block_weights = best_block_weights(shape, k, d, radius)
        request = EStepRequest(state.frame, self._params(state), np.asarray(radius), block_weights)
        sums, sigma = look(fed, whitened_sums.using(shape=shape), request, state.mu2)
        seen = update.read_sums(sums, sigma, block_weights, radius, shape)
        current = update.Current(state.n, state.means, state.covs, state.gains)
        moved = update.follow(current, seen, state.rows, shape, self.reg_covar)
        epsilon = private_layer(fed).accountant.spent.epsilon
        state = state._replace(**moved._asdict(), looks_left=state.looks_left - 1, epsilon=epsilon)
        return state, {"epsilon": epsilon}

    def _rethink(self, fed: Federation, state: State) -> State:
        """The same state, or the start of a better optimum if a look says that there is one."""
        now = Mixture(state.n / state.n.sum(), state.means, state.covs)
        others = [one._replace(covs=_shaped(one, self.covariance_type)) for one in proposals(now, CANDIDATES - 1)]
        scores = compare(fed, state.frame, [now, *others], state.rows, state.rethink_mu2)
        best = int(np.argmax(scores.per_row[1:]))
        if scores.per_row[1:].max() < scores.per_row[0] - HANDICAP * scores.sigma:
            return state
        chosen = others[best]
        n = chosen.weights * state.n.sum()
        return state._replace(n=n, means=chosen.means, covs=chosen.covs, gains=first_gains(len(n)))

    def done(self, state: State, history: list[Info]) -> bool:
        """Whether all looks are spent."""
        return state.looks_left <= 0

    def finish(self, fed: Federation, state: State) -> None:
        """Set the fitted attributes in the data's units."""
        half = half_widths(state.frame.bounds)
        scale = half * state.frame.scale
        means = from_unit(state.frame.mean + state.frame.scale * state.means, state.frame.bounds)
        covs = gaussian.reshape_covs(state.covs * np.outer(scale, scale), self.covariance_type)
        self.weights_ = state.n / state.n.sum()
        self.means_ = means
        self.covariances_ = covs
        self.precisions_cholesky_ = gaussian.precisions_cholesky(covs, self.covariance_type)
        self.precisions_ = gaussian.precisions(self.precisions_cholesky_, self.covariance_type)
        self.n_components_, self.n_features_in_ = (int(s) for s in means.shape)
        self.n_rows_ = state.rows
        self.epsilon_ = state.epsilon

    def _params(self, state: State) -> Params:
        """The current mixture, packed as it goes down."""
        covs = gaussian.reshape_covs(state.covs, self.covariance_type)
        return Params(state.n / state.n.sum(), state.means, gaussian.pack_covs(covs, self.covariance_type))


def number_of_looks(shape: str, start: Mixture, rows: float, mu2: float, noise: float, most: int) -> int:
    """As many looks as keep the noise of each small enough to tell a component's shape."""
    k, d = start.means.shape
    radius = clip_radius(d)
    _, _, second_weight = best_block_weights(shape, k, d, radius)
    per_entry = noise * radius**2 / second_weight / (rows / k) / np.sqrt(mu2)
    of_matrix = per_entry * np.sqrt(2 * n_numbers(shape, d) / (d + 1))  # sqrt d times as much if full
    looks = int(np.clip((QUIET / of_matrix) ** 2, *LOOKS))
    return min(looks, most)


def _shaped(start: Mixture, shape: str) -> np.ndarray:
    """Covariances (k, d, d) that have the wanted shape."""
    covs = gaussian.reshape_covs(start.covs, shape)
    params = Params(start.weights, start.means, gaussian.pack_covs(covs, shape))
    return np.array(gaussian.full_covs(params, shape))
