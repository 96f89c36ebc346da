"""What features are made of, rounded so that it is the same however rows are split among clients. Sends nothing.

Sums of floats differ in their last digits with the order of adding. Length scales that are learned in ten rounds differ by more, up to
1e-11. See `unpooled.maths.grids`.
"""

from __future__ import annotations

import numpy as np

from unpooled.maths.grids import power_below, snapped
from unpooled.models.regression import Design, Scaling

FINE = 2.0**-20  # of standard deviations and correlations
COARSE = 2.0**-10  # of the logarithms of length scales


def settled(standardised: np.ndarray) -> np.ndarray:
    """Numbers without units, such as correlations, without their last digits."""
    return snapped(standardised, FINE)


def settled_scaling(scaling: Scaling) -> Scaling:
    """The scaling with means and scales of columns and targets without their last digits."""
    x_step = FINE * power_below(scaling.x_scale)
    y_step = FINE * power_below(scaling.y_scale)
    return scaling._replace(
        fill=snapped(scaling.fill, x_step),
        x_mean=snapped(scaling.x_mean, x_step),
        x_scale=snapped(scaling.x_scale, x_step),
        y_mean=snapped(scaling.y_mean, y_step),
        y_scale=snapped(scaling.y_scale, y_step),
    )


def settled_lengths(learned: Design) -> Design:
    """The design with length scales without their last digits."""
    theta = learned.kernel.theta | {"log_scale": snapped(learned.kernel.theta["log_scale"], COARSE)}
    return learned._replace(kernel=learned.kernel._replace(theta=theta))
