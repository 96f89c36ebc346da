"""How far to follow a noisy look: a scalar Kalman gain for each component's count, mean and covariance. Sends nothing.

The gain is P / (P + R): R is the variance of the look's noise, which is known, P that of what is not known yet, both in the component's own
units. P falls with every look, and rises when a look proposes a move that noise alone does not explain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.tree import message

UNSURE = np.array([0.3, 0.6, 0.4]) ** 2  # of a start: its count, mean and covariance
DRIFT = np.array([0.1, 0.2, 0.1]) ** 2  # by which EM still moves them, fading from look to look
FADE = 0.6
SURPRISE = 4.0  # a move of more than this many noise variances is not noise


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
