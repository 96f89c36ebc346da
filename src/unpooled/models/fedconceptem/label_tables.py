"""P_k(y), the label shares of each model, from a table of rows by model and label. Nothing is sent."""

from __future__ import annotations

import numpy as np
from scipy.special import chdtri

from unpooled.arrays import Array, to_numpy

MIN_LABEL_SHARE = 0.1  # lower bound of P_k(y), relative to equal shares: an unseen label stays possible
SIGNIFICANCE = 1e-3  # of the test whether a model's labels differ from those of all models by more than noise


def label_shares(table: Array, noise_variance: float = 0.0) -> np.ndarray:
    """P_k(y) (k, classes) from rows by model and label; each row sums to one.

    `noise_variance` is the variance of the noise in each cell of the table.
    """
    counts = to_numpy(table).astype(np.float64)
    counts = shrink_to_pooled(counts, noise_variance) if noise_variance else counts
    total = np.maximum(counts.sum(-1, keepdims=True), 1e-12)
    p = np.maximum(counts / total, MIN_LABEL_SHARE / counts.shape[-1])
    return p / p.sum(-1, keepdims=True)


def shrink_to_pooled(counts: np.ndarray, noise_variance: float) -> np.ndarray:
    """Counts (k, classes) shrunk towards the label shares of all models together (James and Stein).

    A model whose distance from the pooled shares may be noise alone gets the pooled shares. What all models have in common
    does not change which model a row belongs to; noise that differs between two models of one concept would make clients
    switch between them every round.
    """
    classes = counts.shape[-1]
    pooled = np.maximum(counts.sum(0), 0.0)
    expected = counts.sum(-1, keepdims=True) * pooled / max(pooled.sum(), 1e-12)
    distance = ((counts - expected) ** 2).sum(-1, keepdims=True)
    noise = classes * noise_variance
    significant = distance > noise_variance * chdtri(classes, SIGNIFICANCE)
    factor = np.where(significant, 1 - noise / np.maximum(distance, noise), 0.0)
    return expected + factor * (counts - expected)
