"""The ridge penalty that makes the data most probable, from a quadratic approximation of the log-likelihood. Nothing is sent.

Coefficients have a normal prior of mean 0 and one common variance, whose inverse is the ridge. Where the log-likelihood is about
quadratic, the most probable ridge solves ridge = effective number of coefficients / sum of their squares (MacKay 1992).
"""

from __future__ import annotations

import numpy as np

LEAST, MOST = 1e-6, 1e3  # of the ridge per row
ROUNDS = 500


def most_probable(information: np.ndarray, gradient: np.ndarray, coef: np.ndarray, rows: float, start: float) -> float:
    """The ridge, from a start; information (k, k) and gradient (k,) are those of the log-likelihood at `coef` (k,)."""
    values, vectors = np.linalg.eigh(information)
    values = np.maximum(values, 0.0)
    pull = vectors.T @ (information @ coef + gradient)
    ridge = start
    for _ in range(ROUNDS):
        best = pull / (values + ridge)
        effective = float((values / (values + ridge)).sum())
        new = float(np.clip(effective / max(float(best @ best), 1e-300), LEAST * rows, MOST * rows))
        if abs(np.log(new / ridge)) < 1e-10:
            return new
        ridge = new
    return ridge
