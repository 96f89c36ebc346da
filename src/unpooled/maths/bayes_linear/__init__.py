"""Bayesian linear regression from sums over rows. Sends nothing.

`Stats` is the message of `unpooled.models.regression`.

The model is y = z'v + b + e with weights v ~ N(0, prior I),
noise e ~ N(0, noise) and, if rows are in groups, an offset b ~ N(0, ratio * noise) that the rows of a group share. An
intercept without a prior may be added. `Stats` are the sufficient statistics: they add over rows, can be subtracted to
forget rows, and are k (k + 1) / 2 numbers for k features plus k per group. Everything else follows from them at the
server. Group offsets are integrated out, so the cost depends on k and not on the number of groups.

Read in this order:

- `sums`: the sums over rows; `eigen_axes`: the same along the eigenvectors of the Gram matrix
- `variances`: noise and prior by evidence; `blocks`: a prior variance per block of features
- `weight_posterior`: weights and offsets
- `prediction`: means, variances, draws, rows left out
"""

from unpooled.maths.bayes_linear.blocks import block_scales
from unpooled.maths.bayes_linear.eigen_axes import TINY, Axes, axes
from unpooled.maths.bayes_linear.prediction import (
    GroupOffsets,
    apart,
    draw,
    left_out,
    left_out_together,
    predict,
    shared_offsets,
)
from unpooled.maths.bayes_linear.sums import Stats, pack, scaled, statistics, unpack
from unpooled.maths.bayes_linear.variances import log_evidence, unexplained
from unpooled.maths.bayes_linear.weight_posterior import Posterior, Slopes, cotangent, posterior, slopes

__all__ = [
    "TINY",
    "Axes",
    "GroupOffsets",
    "Posterior",
    "Slopes",
    "Stats",
    "apart",
    "axes",
    "block_scales",
    "cotangent",
    "draw",
    "left_out",
    "left_out_together",
    "log_evidence",
    "pack",
    "posterior",
    "predict",
    "scaled",
    "shared_offsets",
    "slopes",
    "statistics",
    "unexplained",
    "unpack",
]
