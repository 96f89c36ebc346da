"""The M-step with differential privacy: what a look proposes, and how much of it is followed. Sends nothing.

How much is a scalar Kalman gain P / (P + R) for each component's count, mean and covariance: R is the variance of the look's noise,
which is known, P that of what is not known yet, both in the component's own units. P falls with every look, and rises when a look
proposes a move that noise alone does not explain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.models.private.own_frame import OwnSums, clipped_share, unpack_second
from unpooled.privacy.clipping import in_ball
from unpooled.tree import message

SMALLEST = 0.003  # of all rows: a component never has fewer
STEPS = (-0.9, 4.0)  # by which a look may shrink or widen a component's variances, as shares
UNSURE = np.array([0.3, 0.6, 0.4]) ** 2  # of a start: its count, mean and covariance
DRIFT = np.array([0.1, 0.2, 0.1]) ** 2  # by which EM still moves them, fading from look to look
FADE = 0.6
SURPRISE = 4.0  # a move of more than this many noise variances is not noise


class Seen(NamedTuple):
    """What a look says, in each component's own coordinates, and the noise on each number."""

    n: np.ndarray  # (k,)
    first: np.ndarray  # (k, d)
    second: np.ndarray  # (k, d, d), or (1, d, d) if tied
    noise: np.ndarray  # (3,) standard deviations on counts, first and second sums
    radius: float


class Known(NamedTuple):
    """What is believed before a look."""

    n: np.ndarray  # (k,)
    means: np.ndarray  # (k, d)
    covs: np.ndarray  # (k, d, d)
    gains: Gains


def second_count(shape: str, d: int) -> float:
    """Numbers that one covariance has."""
    return {"full": d * (d + 1) / 2, "tied": d * (d + 1) / 2, "diag": d, "spherical": 1}[shape]


def read_sums(sums: OwnSums, sigma: float, blocks: np.ndarray, radius: float, shape: str) -> Seen:
    """Noisy sums in natural units, the second moments as they were before clipping."""
    a, b, c = blocks
    k, d = sums.first.shape
    kept = clipped_share(d, radius)
    second = unpack_second(sums.second, shape, k, d) * radius**2 / c / kept
    entry = radius**2 / c / kept / (d if shape == "spherical" else 1)
    noise = sigma * np.array([1 / a, radius / b, entry])
    return Seen(sums.n / a, sums.first * radius / b, second, noise, radius)


def follow(known: Known, seen: Seen, rows: float, shape: str, reg: float) -> Known:
    """The next counts, means and covariances, each moved by its gain towards what was seen."""
    count, unsure_count = _counts(known, seen, rows)
    spoken = np.maximum(
        count, max(2 * seen.noise[0], SMALLEST * rows)
    )  # rows that the look spoke of, as far as is known
    lower = np.linalg.cholesky(known.covs)
    step = in_ball(seen.first / spoken[:, None], seen.radius)
    g, unsure_mean = gain(known.gains, 1, (seen.noise[1] / spoken) ** 2, (step**2).mean(1))
    means = known.means + np.einsum("kij,kj->ki", lower, g[:, None] * step)
    covs, unsure_cov = _covariances(known, seen, step, spoken, lower, shape)
    covs = covs + reg * np.eye(means.shape[1])
    gains = Gains(np.stack([unsure_count, unsure_mean, unsure_cov]), known.gains.drift * FADE)
    return Known(count, means, covs, gains)


def _counts(known: Known, seen: Seen, rows: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows of each component after the look, and how uncertain they are."""
    noise = (seen.noise[0] / np.maximum(known.n, 1)) ** 2
    g, unsure = gain(known.gains, 0, noise, (seen.n / known.n - 1) ** 2)
    return np.maximum((1 - g) * known.n + g * seen.n, SMALLEST * rows), unsure


def _covariances(known: Known, seen: Seen, step: np.ndarray, spoken: np.ndarray, lower: np.ndarray, shape: str):
    """Covariances L (I + g e) L', e being what the second moment differs from the identity by."""
    outer = step[:, :, None] * step[:, None, :]
    noise = (seen.noise[2] / spoken) ** 2
    if shape == "tied":
        outer = (spoken[:, None, None] * outer).sum(0, keepdims=True)
        outer, noise, spoken = outer / spoken.sum(), (seen.noise[2] / spoken.sum()) ** 2, spoken.sum(keepdims=True)
    excess = seen.second / spoken[:, None, None] - outer
    excess = _narrowed(excess, shape) - np.eye(step.shape[1])
    values, vectors = np.linalg.eigh(excess)
    excess = (vectors * np.clip(values, *STEPS)[:, None]) @ vectors.swapaxes(1, 2)
    low = np.tril_indices(step.shape[1])
    moved = (excess[:, low[0], low[1]] ** 2).sum(1) / second_count(shape, step.shape[1])
    if shape == "spherical":
        moved = excess[:, 0, 0] ** 2
    g, unsure = gain(known.gains, 2, noise / (2 if shape in ("full", "tied") else 1), moved)
    inner = np.eye(step.shape[1]) + g[:, None, None] * excess
    covs = lower @ inner @ lower.swapaxes(1, 2)
    return (covs + covs.swapaxes(1, 2)) / 2, unsure


def _narrowed(second: np.ndarray, shape: str) -> np.ndarray:
    """The outer products of steps, too, keep to the shape."""
    if shape in ("full", "tied"):
        return second
    diagonal = np.einsum("kii->ki", second)
    if shape == "spherical":
        diagonal = np.repeat(diagonal.mean(1, keepdims=True), second.shape[1], 1)
    return diagonal[:, :, None] * np.eye(second.shape[1])


# ---- how far to follow a noisy look ----


@message("private.Gains")
class Gains(NamedTuple):
    """Variances of what is not known yet, for (count, mean, covariance) of k components."""

    unsure: np.ndarray  # (3, k)
    drift: np.ndarray  # (3,)


def start_gains(k: int) -> Gains:
    """Gains before the first look: everything is uncertain."""
    return Gains(np.repeat(UNSURE[:, None], k, 1), DRIFT.copy())


def gain(gains: Gains, what: int, noise: np.ndarray, moved: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(gain, what is not known after the look), each (k,); `moved` is the mean square of the proposed move."""
    unsure = np.maximum(gains.unsure[what], 0.5 * (moved - SURPRISE * noise))
    unsure = unsure + gains.drift[what] * FADE
    g = unsure / (unsure + noise)
    return g, (1 - g) * unsure
