"""A prior variance per block of features, by evidence: columns, splines and kernels share one Gram matrix. Sends nothing.

The weights of block b have variance v_b. Each step sets v_b to the mean square of its weights over the number of weights that the rows
determine, and the noise to the residual sum of squares over the rows left: at a fixed point the evidence is stationary. A block that
does not help gets a variance near 0, so that the choice among kernels costs no held-out rows and no further SUM.

References
----------
MacKay, Bayesian interpolation, Neural Computation 1992.
"""

from __future__ import annotations

import numpy as np

from unpooled.maths.bayes_linear.eigen_axes import without_group_offsets
from unpooled.maths.bayes_linear.sums import Stats
from unpooled.maths.bayes_linear.weight_posterior import posterior

STEPS = 80
MAX_CHANGE = 3.0  # factor by which a variance changes in a step, at most
SMALLEST = 1e-7  # variance of a block over its start: 0 as far as predictions are concerned
FIRST_NOISE = 0.3  # share of the variance of y
LEAST_NOISE = 1e-8  # share of the variance of y


def block_scales(stats: Stats, block: np.ndarray) -> np.ndarray:  # (blocks,)
    """Standard deviations of the weights of each block, for features in the blocks `block` (k,), over all outputs."""
    ratio = float(posterior(stats).ratio)
    shrink = ratio / (1 + ratio * stats.group_n)
    _, gram, cross, yy, _, _ = without_group_offsets(stats, shrink, False)
    n, n_blocks = float(stats.n), int(block.max()) + 1
    size = (
        np.maximum(np.bincount(block, np.diag(gram), n_blocks), 1e-300) / n
    )  # mean squared length of a row in each block
    first = 1 / (n_blocks * size)
    variance, noise = first.copy(), FIRST_NOISE * yy / n
    for _ in range(STEPS):
        squares, informed, noise = _step(gram, cross, yy, n, np.sqrt(variance)[block], noise, block, n_blocks)
        change = squares / np.maximum(informed, 1e-300)
        variance = np.maximum(variance * np.clip(change, 1 / MAX_CHANGE, MAX_CHANGE), SMALLEST * first)
        noise = np.maximum(noise, LEAST_NOISE * yy / n)
    return np.sqrt(variance)


def _step(
    gram: np.ndarray,
    cross: np.ndarray,
    yy: np.ndarray,
    n: float,
    scale: np.ndarray,
    noise: np.ndarray,
    block: np.ndarray,
    n_blocks: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """By block, over outputs: squares of the standardised weights and how many of them rows determine; and the noise (o,)."""
    squares, informed, noises = np.zeros(n_blocks), np.zeros(n_blocks), np.zeros_like(noise)
    for j, variance in enumerate(noise):
        precision = scale[:, None] * gram * scale / variance
        precision[np.diag_indices_from(precision)] += 1.0
        covariance = np.linalg.inv(precision)
        standard = covariance @ (scale * cross[:, j]) / variance
        determined = np.clip(1 - np.diag(covariance), 0.0, 1.0)
        weights = scale * standard
        unexplained = yy[j] - 2 * weights @ cross[:, j] + weights @ gram @ weights
        noises[j] = unexplained / max(n - determined.sum(), 0.05 * n)
        squares += np.bincount(block, standard**2, n_blocks)
        informed += np.bincount(block, determined, n_blocks)
    return squares, informed, noises
