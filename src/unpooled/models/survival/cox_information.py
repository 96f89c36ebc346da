"""What follows from the information matrix of Cox regression. Nothing is sent.

It finds coefficients that diverge and columns that depend on others, and chooses the ridge penalty by maximum marginal likelihood:
coefficients have a normal prior of mean 0 and one common variance, whose inverse is the ridge. If the log-likelihood is nearly
quadratic, the best ridge solves ridge = effective number of coefficients / sum of their squares (MacKay 1992).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import eigh

from unpooled.errors import BadData
from unpooled.models.column_names import called

CURVED = 0.1  # of the curvature at the start, along the coefficients: above it they have a finite optimum
DIVERGES = 12.0  # a larger coefficient of a standardised covariate counts as diverging
FLAT = 1e-6  # so does a direction in which a smaller share of the initial information is left
DEPENDENT = 1e-10  # smallest eigenvalue of the information, relative to the largest, below which columns are dependent
LEAST, MOST = 1e-6, 1e3  # bounds of the ridge per row
ROUNDS = 500  # iterations of the search for the ridge, at most


def diverging(state: Any) -> np.ndarray:
    """Covariates whose coefficients diverge: they are very large, or the likelihood has become flat in their direction.

    Coefficients of columns that nearly follow from each other may be very large too; the likelihood then stays as curved as it was.
    """
    grown = np.abs(state.coef) > DIVERGES
    if state.ridge == 0:
        curved = state.coef @ state.information @ state.coef > CURVED * (state.coef @ state.first @ state.coef)
        grown &= not curved
        values, vectors = eigh(state.information, state.first)
        flat = vectors[:, values < FLAT]
        grown |= (np.abs(flat) > 0.5 * np.abs(flat).max(0, initial=0.0)).any(1)
    return np.flatnonzero(grown)


def check_independent(information: np.ndarray, names: list[str]) -> None:
    """Refuse columns that are linear combinations of others: their coefficients are not determined."""
    values, vectors = eigh(information)
    if values[0] > DEPENDENT * max(values[-1], 1e-300):
        return
    involved = np.flatnonzero(np.abs(vectors[:, 0]) > 0.1)
    raise BadData(
        f"{called(names, involved)} cannot be told apart (one follows from the others among those at risk): "
        "leave one out, or give penalizer='auto'"
    )


def most_probable(information: np.ndarray, gradient: np.ndarray, coef: np.ndarray, rows: float, start: float) -> float:
    """The ridge of the largest marginal likelihood, by iteration from `start`.

    Information (k, k) and gradient (k,) are those of the log-likelihood at `coef` (k,).
    """
    values, vectors = np.linalg.eigh(information)
    values = np.maximum(values, 0.0)
    # linear term of the quadratic log-likelihood, along eigenvectors
    linear = vectors.T @ (information @ coef + gradient)
    ridge = start
    for _ in range(ROUNDS):
        best = linear / (values + ridge)
        effective = float((values / (values + ridge)).sum())
        new = float(np.clip(effective / max(float(best @ best), 1e-300), LEAST * rows, MOST * rows))
        if abs(np.log(new / ridge)) < 1e-10:
            return new
        ridge = new
    return ridge
