"""Weights of models in an average that predicts visits held back best (stacking). Sends nothing.

References
----------
Breiman, Stacked regressions, Machine Learning 1996.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls

RIDGE = 1e-6  # on the diagonal, relative to the mean: models that are alike share a weight, whatever the rounding
LEAST = 0.02  # smaller weights are set to 0: each model in the average is fitted again


def average_weights(products: np.ndarray, allowed: np.ndarray) -> np.ndarray:  # (m, m), (m,) -> (m,)
    """Non-negative weights of sum 1 with the smallest squared error, from sums of products of two models' errors.

    The minimum of w'Ew over weights of sum 1 is that of v'Ev + (sum v - 1)^2 over v >= 0, divided by its sum.
    """
    products = products[np.ix_(allowed, allowed)]
    products = products / max(np.diag(products).mean(), 1e-300) + RIDGE * np.eye(len(products))
    values, vectors = np.linalg.eigh(products)
    root = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
    found, _ = nnls(np.vstack([root, np.ones(len(products))]), np.append(np.zeros(len(products)), 1.0))
    weights = np.zeros(len(allowed))
    weights[allowed] = without_small(found / found.sum())
    return weights


def without_small(weights: np.ndarray) -> np.ndarray:
    """The weights with small ones set to 0."""
    kept = np.where(weights >= min(LEAST, weights.max()), weights, 0.0)
    return kept / kept.sum()
