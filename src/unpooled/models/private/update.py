"""The M-step with differential privacy: what a look proposes, and how much of it is followed. Sends nothing.

Count, mean and covariance of each component move towards what the look says by a scalar Kalman gain P / (P + R). R is the variance of
the look's noise, which is known; P is the variance of what is not known yet. Both are in the component's whitened coordinates. P falls
with every look, and rises when a look proposes a move that noise alone does not explain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.models.private.clipped_moments import clipped_share
from unpooled.models.private.e_step import WhitenedSums
from unpooled.models.private.packing import in_shape, n_numbers, unpack_second
from unpooled.privacy.clipping import in_ball
from unpooled.tree import message

SMALLEST = 0.003  # of all rows: a component never has fewer
STEPS = (-0.9, 4.0)  # by which a look may shrink or widen a component's variances, as shares
FIRST_VARIANCE = np.array([0.3, 0.6, 0.4]) ** 2  # of a start: its count, mean and covariance
DRIFT = np.array([0.1, 0.2, 0.1]) ** 2  # by which EM still moves them, fading from look to look
FADE = 0.6
SURPRISE = 4.0  # a move of more than this many noise variances is not noise
COUNT, MEAN, COVARIANCE = range(3)  # rows of `Gains`


class Noise(NamedTuple):
    """Standard deviations of the noise on each number of a look."""

    n: float
    first: float
    second: float


class Estimate(NamedTuple):
    """What a look says of each component, in whitened coordinates."""

    n: np.ndarray  # (k,)
    first: np.ndarray  # (k, d) sum of y
    second: np.ndarray  # (k, d, d) sum of y y', or (1, d, d) if tied
    noise: Noise
    radius: float


class Current(NamedTuple):
    """Components between two looks, and how well they are known."""

    n: np.ndarray  # (k,)
    means: np.ndarray  # (k, d)
    covs: np.ndarray  # (k, d, d)
    gains: Gains


@message("private.Gains")
class Gains(NamedTuple):
    """Variances of what is not known yet, for (count, mean, covariance) of k components."""

    variance: np.ndarray  # (3, k)
    drift: np.ndarray  # (3,)


def read_sums(sums: WhitenedSums, sigma: float, block_weights: np.ndarray, radius: float, shape: str) -> Estimate:
    """Noisy sums in natural units, the second moments as they were before clipping."""
    count_weight, mean_weight, second_weight = block_weights
    d = sums.first.shape[1]
    share = clipped_share(d, radius)
    second = unpack_second(sums.second, shape, d) * radius**2 / second_weight / share
    per_entry = radius**2 / second_weight / share / (d if shape == "spherical" else 1)
    noise = Noise(sigma * (1 / count_weight), sigma * (radius / mean_weight), sigma * per_entry)
    return Estimate(sums.n / count_weight, sums.first * radius / mean_weight, second, noise, radius)


def follow(current: Current, seen: Estimate, rows: float, shape: str, reg: float) -> Current:
    """The next counts, means and covariances, each moved by its gain towards what was seen."""
    n, count_variance = _move_counts(current, seen, rows)
    divisor = np.maximum(n, max(2 * seen.noise.n, SMALLEST * rows))  # never so small that noise is all there is
    cholesky = np.linalg.cholesky(current.covs)
    step = in_ball(seen.first / divisor[:, None], seen.radius)
    gain, mean_variance = kalman_gain(current.gains, MEAN, (seen.noise.first / divisor) ** 2, (step**2).mean(1))
    means = current.means + np.einsum("kij,kj->ki", cholesky, gain[:, None] * step)
    covs, cov_variance = _move_covariances(current, seen, step, divisor, cholesky, shape)
    covs = covs + reg * np.eye(means.shape[1])
    gains = Gains(np.stack([count_variance, mean_variance, cov_variance]), current.gains.drift * FADE)
    return Current(n, means, covs, gains)


def _move_counts(current: Current, seen: Estimate, rows: float) -> tuple[np.ndarray, np.ndarray]:
    """(rows of each component after the look, variance of what is not known of them), (k,) each."""
    noise = (seen.noise.n / np.maximum(current.n, 1)) ** 2
    moved = (seen.n / current.n - 1) ** 2
    gain, variance = kalman_gain(current.gains, COUNT, noise, moved)
    n = (1 - gain) * current.n + gain * seen.n
    return np.maximum(n, SMALLEST * rows), variance


def _move_covariances(
    current: Current, seen: Estimate, step: np.ndarray, divisor: np.ndarray, cholesky: np.ndarray, shape: str
) -> tuple[np.ndarray, np.ndarray]:
    """(covariances L (I + g e) L', variance of what is not known of them): e is by how much the look differs from I."""
    d = step.shape[1]
    noise = (seen.noise.second / divisor) ** 2
    outer = step[:, :, None] * step[:, None, :]
    if shape == "tied":  # one second moment for all components
        total = divisor.sum(keepdims=True)
        outer = (divisor[:, None, None] * outer).sum(0, keepdims=True) / divisor.sum()
        noise = (seen.noise.second / divisor.sum()) ** 2
        divisor = total
    excess = in_shape(seen.second / divisor[:, None, None] - outer, shape) - np.eye(d)
    excess = _clip_eigenvalues(excess)
    entry_noise = noise / (2 if shape in ("full", "tied") else 1)
    gain, variance = kalman_gain(current.gains, COVARIANCE, entry_noise, _mean_square(excess, shape))
    covs = cholesky @ (np.eye(d) + gain[:, None, None] * excess) @ cholesky.swapaxes(1, 2)
    return (covs + covs.swapaxes(1, 2)) / 2, variance


def _clip_eigenvalues(excess: np.ndarray) -> np.ndarray:
    """Symmetric matrices (k, d, d) whose eigenvalues are moved into `STEPS`, so that covariances stay positive."""
    values, vectors = np.linalg.eigh(excess)
    return (vectors * np.clip(values, *STEPS)[:, None]) @ vectors.swapaxes(1, 2)


def _mean_square(excess: np.ndarray, shape: str) -> np.ndarray:
    """The mean square (k,) of the entries that a covariance of this shape has."""
    if shape == "spherical":
        return excess[:, 0, 0] ** 2
    d = excess.shape[-1]
    i, j = np.tril_indices(d)
    return (excess[:, i, j] ** 2).sum(1) / n_numbers(shape, d)


# ---- how far to follow a noisy look ----


def first_gains(k: int) -> Gains:
    """Gains before the first look: everything is uncertain."""
    return Gains(np.repeat(FIRST_VARIANCE[:, None], k, 1), DRIFT.copy())


def kalman_gain(gains: Gains, which: int, noise: np.ndarray, squared_move: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(gain, variance of what is not known after the look), (k,) each, for a proposed move of mean square `squared_move`."""
    variance = np.maximum(gains.variance[which], 0.5 * (squared_move - SURPRISE * noise))
    variance = variance + gains.drift[which] * FADE
    gain = variance / (variance + noise)
    return gain, (1 - gain) * variance
