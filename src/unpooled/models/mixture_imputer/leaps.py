"""Where steps of EM lead, from the last two: squared extrapolation of one Gaussian. Nothing is sent.

EM is slow where the row that says most of how columns depend on each other has a gap: the gap is filled by the present relation, which
it then confirms. Steps of EM then hardly change the likelihood, and go in the same direction for hundreds of rounds.

References
----------
Varadhan and Roland, Simple and globally convergent methods for accelerating the convergence of any EM algorithm, Scandinavian Journal of
Statistics 2008.
"""

from __future__ import annotations

import numpy as np

from unpooled.maths import gaussian
from unpooled.maths.mixture import Params

SHORTENED = 8  # times that a leap is shortened at most, until its covariance is positive definite


def leap(zero: Params, one: Params, two: Params, scale: np.ndarray) -> Params:
    """The Gaussian that EM is heading for on its way from `zero` to `one` to `two`; `two` itself where there is no such Gaussian.

    Parameters
    ----------
    zero, one, two : Params
        Mixtures of one component, each a step of EM from the one before.
    scale : ndarray of shape (e,)
        Standard deviations of the columns: what is far does not depend on units.
    """
    points = np.stack([_point(params, scale) for params in (zero, one, two)])  # (3, 1 + e, e)
    step = points[1] - points[0]
    bend = points[0] - 2 * points[1] + points[2]
    length = max(1.0, float(np.linalg.norm(step)) / max(float(np.linalg.norm(bend)), 1e-300))
    for _ in range(SHORTENED):
        mean, cov = np.split(points[0] + 2 * length * step + length**2 * bend, [1])
        if np.linalg.eigvalsh(cov)[0] > 0:
            return Params(two.weights, mean * scale, gaussian.pack_covs((cov * np.outer(scale, scale))[None], "full"))
        length = (1 + length) / 2
    return two


def _point(params: Params, scale: np.ndarray) -> np.ndarray:
    """Mean and covariance in standard deviations, (1 + e, e)."""
    cov = gaussian.unpack_triangle(params.covs)[0] / np.outer(scale, scale)
    return np.concatenate([params.means / scale, cov])
