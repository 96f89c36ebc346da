"""Which of the candidates is the result: the least BIC among those of which no component has collapsed. Sends nothing."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from unpooled.maths import gaussian
from unpooled.models.mixture.candidates import Candidate
from unpooled.models.mixture.collapse import collapsed


def criterion(c: Candidate, rows: float, price: float, shape: str) -> float:
    """-2 log-likelihood plus `price` for each parameter."""
    k, d = c.params.means.shape
    return float(-2 * c.loglik * rows + gaussian.n_parameters(k, d, shape) * price)


def bic(c: Candidate, rows: float, shape: str) -> float:
    """The Bayesian information criterion of a candidate; smaller is better."""
    return criterion(c, rows, np.log(rows), shape)


def best(candidates: Sequence[Candidate], rows: float, shape: str) -> int:
    """The position of the least BIC."""
    return int(np.argmin([bic(c, rows, shape) for c in candidates]))


def chosen(candidates: Sequence[Candidate], rows: float, shape: str, reg: float) -> int:
    """The least BIC among candidates of which no component has collapsed; among all where each has such a component."""
    first = best(candidates, rows, shape)
    sound = [i for i, c in enumerate(candidates) if not collapsed(c.params, shape, reg, rows).any()]
    if first in sound:
        return first
    size = len(candidates[first].params.weights)
    text = f"a component of the fit with {size} components has no variance beyond reg_covar"
    if not sound:
        advice = "lower n_components, raise reg_covar, or leave out columns of few distinct values"
        warnings.warn(f"{text} in some direction: {advice}", ConvergenceWarning, stacklevel=5)
        return first
    second = sound[best([candidates[i] for i in sound], rows, shape)]
    size = len(candidates[second].params.weights)
    warnings.warn(f"{text}, so that its BIC means nothing: {size} were chosen", ConvergenceWarning, stacklevel=5)
    return second
