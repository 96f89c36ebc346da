"""A prior variance per block of features, by evidence: columns, splines and kernels share one Gram matrix. Sends nothing.

The weights of block b have variance v_b. Each step sets v_b to the mean square of its weights over the number of weights that the rows
determine, and the noise to the residual sum of squares over the rows left: at a fixed point the evidence is stationary. A block that
does not help gets a variance near 0, so that the choice among kernels costs no held-out rows and no further SUM.

References
----------
MacKay, Bayesian interpolation, Neural Computation 1992.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dtrtri

from unpooled.maths.bayes_linear.eigen_axes import Moments, moments_without_offsets
from unpooled.maths.bayes_linear.sums import Stats
from unpooled.maths.bayes_linear.weight_posterior import posterior

STEPS = 80
MAX_CHANGE = 3.0  # factor by which a variance changes in a step, at most
SMALLEST = 1e-7  # variance of a block over its start: 0 as far as predictions are concerned
FIRST_NOISE = 0.3  # share of the variance of y
LEAST_NOISE = 1e-8  # share of the variance of y
LEAST_ROWS_LEFT = 0.05  # share of the rows that the noise is estimated from, at least


def block_scales(stats: Stats, block: np.ndarray) -> np.ndarray:  # (blocks,)
    """Standard deviations of the weights of each block, for features in the blocks `block` (k,), over all outputs."""
    moments = moments_without_offsets(stats, float(posterior(stats).group_ratio), intercept=False)
    n = float(stats.n)
    n_blocks = int(block.max()) + 1
    squared_length = np.maximum(np.bincount(block, np.diag(moments.gram), n_blocks), 1e-300) / n  # of a row, by block
    first = 1 / (n_blocks * squared_length)
    variance = first.copy()
    noise = FIRST_NOISE * moments.yy / n
    for _ in range(STEPS):
        outputs = [
            _fit_output(moments, j, n, np.sqrt(variance)[block], noise_variance)
            for j, noise_variance in enumerate(noise)
        ]
        squares = sum(np.bincount(block, fit.standard**2, n_blocks) for fit in outputs)
        determined = sum(np.bincount(block, fit.determined, n_blocks) for fit in outputs)
        change = squares / np.maximum(determined, 1e-300)
        variance = np.maximum(variance * np.clip(change, 1 / MAX_CHANGE, MAX_CHANGE), SMALLEST * first)
        noise = np.maximum([fit.noise for fit in outputs], LEAST_NOISE * moments.yy / n)
    return np.sqrt(variance)


class _OutputFit(NamedTuple):
    """The posterior of one output's weights at given variances, as far as the next variances need it."""

    standard: np.ndarray  # (k,) weights over their prior standard deviations
    determined: np.ndarray  # (k,) how far rows determine each weight, from 0 to 1
    noise: float  # residual variance


def _fit_output(moments: Moments, output: int, n: float, scale: np.ndarray, noise: float) -> _OutputFit:
    """The fit of one output, for weights of prior standard deviations `scale` (k,) and noise of variance `noise`."""
    cross = moments.cross[:, output]
    precision = scale[:, None] * moments.gram * scale / noise
    precision[np.diag_indices_from(precision)] += 1.0
    root, _ = dtrtri(np.linalg.cholesky(precision), lower=1)  # root' root is the covariance
    standard = root.T @ (root @ (scale * cross)) / noise
    determined = np.clip(1 - (root**2).sum(0), 0.0, 1.0)
    weights = scale * standard
    unexplained = moments.yy[output] - 2 * weights @ cross + weights @ moments.gram @ weights
    rows_left = max(n - determined.sum(), LEAST_ROWS_LEFT * n)
    return _OutputFit(standard, determined, unexplained / rows_left)
