"""Gaussian mixture of four shapes: k (1 + d) statistics and second moments packed by shape, all about one fixed origin.

FedEM carries statistics from round to round, so they must not move with the means as those of the exact solver do. What is sent is
compressed in each component's own whitened frame, where all numbers have like sizes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float
from unpooled.errors import BadParameter
from unpooled.maths import gaussian, mixture
from unpooled.maths.mixture import Params
from unpooled.models.fedem.families import base
from unpooled.parameters import at_least, within
from unpooled.tree import message

LEAST_RATIO = 1e-10  # least eigenvalue of a covariance over its largest: below, rounding makes it indefinite


@message("families.gaussian.Stats")
class Stats(NamedTuple):
    """Expected rows, sums and second moments by component, about a fixed origin."""

    n: Float[Array, "k"]  # r
    x: Float[Array, "k d"]  # r x
    xx: Float[Array, "*c"]  # r x x', packed as covariances are


@message("families.gaussian.Numbers")
class Numbers(NamedTuple):
    """The settings of the family; they travel with every question."""

    n_components: int = 1
    shape: str = "full"
    floor: float = 1e-6  # of weights, and of eigenvalues in the standardised frame
    reg: float | tuple[float, ...] = 0.0  # added to variances, for all columns or for each


class GaussianMixture(base.Clustered, Numbers):
    """Gaussian mixture with full, tied, diagonal or spherical covariances; cells may be missing.

    Parameters
    ----------
    n_components : int, default=1
        Number of components.
    shape : {"full", "tied", "diag", "spherical"}, default="full"
        Shape of the covariances.
    floor : float, default=1e-6
        Least weight, and least eigenvalue of a covariance in standardised columns.
    reg : float or tuple of float, default=0.0
        Added to variances, for all columns or for each.
    """

    wants = "finite numbers, or gaps"

    def check(self) -> None:
        """Refuse numbers of the family that are out of range."""
        at_least("n_components", self.n_components, 1)
        within("floor", self.floor, 0, 0.1, "the least weight, and the least eigenvalue of a covariance")
        if self.shape not in gaussian.SHAPES:
            raise BadParameter(f"shape={self.shape!r} is not known: use one of {', '.join(gaussian.SHAPES)}")

    def bad_rows(self, x: np.ndarray) -> np.ndarray:
        """(n,) True for rows that do not suit the family."""
        return np.isinf(x).any(axis=1)

    def frame(self, mean: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Spherical covariances stay so under one unit for all columns only."""
        return mean, scale if self.shape != "spherical" else np.full_like(scale, np.sqrt(np.mean(scale**2)))

    def scaled(self, unit: np.ndarray) -> GaussianMixture:
        """The same family for rows in other units."""
        return self._replace(reg=tuple(np.broadcast_to(self.reg, len(unit)) / unit**2))

    def from_clusters(
        self, weights: np.ndarray, means: np.ndarray, variances: np.ndarray
    ) -> Params:  # (k,), (k, d), (k, d)
        """Parameters of clusters with weights (k,), means (k, d) and variances (k, d)."""
        covs = gaussian.reshape_covs(variances[:, :, None] * np.eye(means.shape[1]), self.shape)
        return Params(weights, means, gaussian.pack_covs(covs, self.shape))

    def log_joint(self, params: Params, x: np.ndarray) -> np.ndarray:  # (n, d) -> (n, k)
        """Log of weight times density of each row under each component, (n, k)."""
        return mixture.log_joint(params, x, self.shape)

    def statistics(self, params: Params, x: np.ndarray, w: np.ndarray) -> base.Sum:
        """Sum over rows of the expected sufficient statistics, and the log-likelihood."""
        found = mixture.e_step(params, x, w, self.shape)
        return base.Sum(_moved(Stats(found.n, found.x, found.xx), params.means, self.shape), float(found.loglik))

    def maximize(self, stats: Stats, params: Params) -> Params:
        """New parameters; a component whose count is below the floor keeps its mean and covariance.

        Noise of compression can make a count negative. Dividing sums by a count near zero would throw the component far away.
        """
        stats = self._without_empty(stats, params)
        means = stats.x / stats.n[:, None]
        covs = self._floored(self._covs(stats, means))
        return Params(base.weights(stats.n, self.floor), means, gaussian.pack_covs(covs, self.shape))

    def _without_empty(self, stats: Stats, params: Params) -> Stats:
        """Components below the floor get the statistics that `floor` rows of their old distribution would have."""
        empty = stats.n < self.floor
        if not empty.any():
            return stats
        old = self.moments(params._replace(weights=np.full_like(params.weights, self.floor)))
        n = np.where(empty, old.n, stats.n)
        x = np.where(empty[:, None], old.x, stats.x)
        if self.shape == "tied":
            return Stats(n, x, stats.xx)
        return Stats(n, x, np.where(_beside(empty, stats.xx), old.xx, stats.xx))

    def project(self, stats: Stats) -> tuple[Stats, bool]:
        """The same statistics, and whether `maximize` has to raise a weight or an eigenvalue to the floor."""
        n = np.maximum(stats.n, self.floor)
        covs = self._covs(stats._replace(n=n), stats.x / n[:, None])
        values = np.linalg.eigvalsh(covs) if self._matrices else covs
        return stats, bool((stats.n < self.floor).any() or (values < self.floor).any())

    def moments(self, params: Params) -> Stats:
        """Mean statistics under the parameters themselves."""
        w = params.weights
        covs = gaussian.unpack_covs(params.covs, self.shape)
        spread = (covs - self._ridge(covs)) * (1.0 if self.shape == "tied" else _beside(w, covs))
        about = Stats(w, np.zeros_like(params.means), gaussian.pack_covs(spread, self.shape))
        return _moved(about, params.means, self.shape)

    def sample(self, params: Params, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw `n` rows."""
        of = base.labels(params.weights, n, rng)
        factors = np.linalg.cholesky(gaussian.full_covs(params, self.shape))
        return params.means[of] + np.einsum("nij,nj->ni", factors[of], rng.normal(size=(n, params.means.shape[1])))

    def unscale(self, params: Params, shift: np.ndarray, unit: np.ndarray) -> Params:
        """The parameters of rows x as those of rows shift + unit x."""
        covs = gaussian.unpack_covs(params.covs, self.shape)
        if self.shape == "diag":
            square = unit**2
        elif self.shape == "spherical":
            square = unit[0] ** 2
        else:
            square = np.outer(unit, unit)
        means = shift + unit * params.means
        return Params(params.weights, means, gaussian.pack_covs(covs * square, self.shape))

    # ---- the frame in which statistics are compressed ----

    def whiten(self, params: Params, stats: Stats) -> list[np.ndarray]:
        """Each component's count, first and second moments about its mean in units of its covariance, a row each."""
        about = _moved(stats, -params.means, self.shape)
        x, xx = _mapped(about, _factors(params, self.shape, inverse=True), self.shape)
        if self.shape == "tied":
            return [np.column_stack([about.n, x]), xx[None]]
        return [np.column_stack([about.n, x, xx])]

    def unwhiten(self, params: Params, blocks: list[np.ndarray]) -> Stats:
        """The inverse of `whiten`."""
        d = params.means.shape[1]
        n = blocks[0][:, 0]
        x = blocks[0][:, 1 : d + 1]
        xx = blocks[1][0] if self.shape == "tied" else blocks[0][:, d + 1 :]
        xx = xx[:, 0] if self.shape == "spherical" else xx
        x, xx = _mapped(Stats(n, x, xx), _factors(params, self.shape, inverse=False), self.shape)
        return _moved(Stats(n, x, xx), params.means, self.shape)

    def change(self, old: Params, new: Params) -> float:
        """In logarithms of weights and of covariances' eigenvalues, and standard deviations of means."""
        white = gaussian.inverse_triangle(gaussian.cholesky(gaussian.full_covs(old, self.shape)))
        means = np.einsum("kij,kj->ki", white, new.means - old.means)
        covs = white @ gaussian.full_covs(new, self.shape) @ white.transpose(0, 2, 1)
        of_covs = np.abs(np.log(np.maximum(np.linalg.eigvalsh(covs), 1e-300))).max()
        of_weights = np.abs(np.log(new.weights / old.weights)).max()
        of_means = np.sqrt((means**2).sum(axis=1)).max()
        return float(max(of_weights, of_covs, of_means))

    # ---- covariances ----

    def _covs(self, stats: Stats, means: np.ndarray) -> np.ndarray:
        """In the natural layout, before the floor."""
        within = gaussian.unpack_covs(_moved(stats, -means, self.shape).xx, self.shape)
        n = stats.n.sum() if self.shape == "tied" else _beside(stats.n, within)
        return within / n + self._ridge(within)

    def _floored(self, covs: np.ndarray) -> np.ndarray:
        """No eigenvalue below the floor; covariances that are above it keep their bits."""
        if not self._matrices:
            return np.maximum(covs, self.floor)
        values, vectors = np.linalg.eigh(covs)
        floor = np.maximum(self.floor, LEAST_RATIO * values.max(axis=-1))[..., None]
        lifted = (vectors * np.maximum(values, floor)[..., None, :]) @ vectors.swapaxes(-1, -2)
        return np.where((values < floor).any(axis=-1)[..., None, None], lifted, covs)

    def _ridge(self, covs: np.ndarray) -> np.ndarray:
        """What `reg` adds to covariances of this shape."""
        if self._matrices:
            return np.eye(covs.shape[-1]) * np.asarray(self.reg)
        return np.asarray(self.reg) if self.shape == "diag" else np.asarray(np.mean(self.reg))

    @property
    def _matrices(self) -> bool:
        """Whether covariances are matrices, not variances."""
        return self.shape in ("full", "tied")


def _moved(stats: Stats, by: np.ndarray, shape: str) -> Stats:  # by (k, d)
    """The statistics of rows that each component's share has moved by so much."""
    n = stats.n[:, None]
    x = stats.x
    if shape in ("diag", "spherical"):
        added = by * (2 * x + n * by)
        return Stats(stats.n, x + n * by, stats.xx + (added if shape == "diag" else added.mean(axis=1)))
    half = by[:, :, None] * (x + 0.5 * n * by)[:, None, :]
    if shape == "tied":
        half = half.sum(axis=0)
    return Stats(stats.n, x + n * by, stats.xx + gaussian.pack_triangle(half + half.swapaxes(-1, -2)))


def _factors(params: Params, shape: str, inverse: bool) -> np.ndarray:
    """Lower factors (k or 1, d, d), or standard deviations (k, d or 1); or their inverses."""
    if shape in ("diag", "spherical"):
        deviations = np.sqrt(params.covs).reshape(len(params.covs), -1)
        return 1 / deviations if inverse else deviations
    return _triangles(np.asarray(params.covs, np.float64).tobytes(), params.means.shape[1])[int(inverse)]


@lru_cache(maxsize=4)
def _triangles(covs: bytes, d: int) -> tuple[np.ndarray, np.ndarray]:
    """(factors, their inverses) of packed covariances; all clients of a round ask for the same ones."""
    packed = np.frombuffer(covs).reshape(-1, d * (d + 1) // 2)
    lower = gaussian.cholesky(gaussian.unpack_triangle(packed))
    return lower, gaussian.inverse_triangle(lower)


def _mapped(stats: Stats, factors: np.ndarray, shape: str) -> tuple[np.ndarray, np.ndarray]:
    """(x, xx) of rows that each component's share has been multiplied by its factor."""
    if shape in ("diag", "spherical"):
        return stats.x * factors, stats.xx * (factors**2 if shape == "diag" else factors[:, 0] ** 2)
    x = np.einsum("kij,kj->ki", np.broadcast_to(factors, (len(stats.n), *factors.shape[1:])), stats.x)
    xx = gaussian.unpack_triangle(stats.xx)
    factors = factors if shape == "full" else factors[0]
    return x, gaussian.pack_triangle(factors @ xx @ factors.swapaxes(-1, -2))


def _beside(n: np.ndarray, covs: np.ndarray) -> np.ndarray:
    """(k,) with axes to multiply (k, ...)."""
    return n.reshape(-1, *[1] * (covs.ndim - 1))
