"""Residuals of rows left out of the fit: one SUM of a histogram, which recalibrates intervals for new rows of the same clients."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float
from unpooled.client import SUM, Client, client
from unpooled.maths import bayes_linear, calibration
from unpooled.maths.feature_maps import features
from unpooled.models.regression.design import Fitted, group_of
from unpooled.models.regression.scaling import standard_rows
from unpooled.tree import message


@message("regression.Histogram")
class Histogram(NamedTuple):
    """Standardised residuals, counted by bin, in single precision."""

    counts: Float[Array, "o b", ">=0 rows"]


@client("regression.residuals", SUM, adds=True)
def residuals(fitted: Fitted, client: Client, *, spec: dict, share: float, seed: int, inside: bool) -> Histogram:
    """Standardised residuals of the held-out rows, or of all if share is 0.

    With `inside`, these rows are part of the fit and each is judged as if it alone had been left out.
    """
    x, y, w, held = standard_rows(fitted.design.scaling, client, share, seed)
    z = features(spec, fitted.design.kernel, x)
    group = group_of(fitted.design, client)
    post = fitted.posterior
    mean, variance = bayes_linear.left_out(post, z, y, group) if inside else bayes_linear.predict(post, z, group)
    counts = calibration.histogram((y - mean) / np.sqrt(variance), held if share > 0 else w)
    return Histogram(counts.astype(np.float32))
