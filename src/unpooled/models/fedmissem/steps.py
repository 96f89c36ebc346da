"""One step of a candidate at the server, and its coefficients in the values' own unit; sends nothing."""

from __future__ import annotations

import numpy as np

from unpooled.models.fedmissem import bilinear
from unpooled.models.fedmissem.bilinear import Factors, Half
from unpooled.models.fedmissem.selection import Candidate


def moved(candidate: Candidate, side: str, found: Half, tol: float, round: int) -> Candidate:
    """A Newton step of one side, or half of the last step undone if it increased the loss."""
    penalties = candidate.model.penalties
    family = candidate.model.family
    loss = float(found.deviance) / candidate.dispersion + bilinear.penalised(candidate.factors, penalties)
    if loss > candidate.loss * (1 + 1e-9):
        middle = Factors(*((a + b) / 2 for a, b in zip(candidate.best, candidate.factors)))
        return candidate._replace(factors=middle, settled=loss < candidate.loss * (1 + tol))
    dispersion = dispersion_of(float(found.pearson), float(found.visits), freedom(candidate), family)
    factors, covariance = bilinear.newton(candidate.factors, side, found, dispersion, penalties, candidate.model.curves)
    factors = bilinear.level_in_dates(factors)
    if candidate.model.curves:
        factors = bilinear.curves_in_dates(factors, penalties)
    gains_little = candidate.loss - loss < tol * loss
    same_dispersion = abs(dispersion / candidate.dispersion - 1) < max(1e-3, 10 * tol)
    settled = round > 1 and gains_little and same_dispersion
    again = float(found.deviance) / dispersion + bilinear.penalised(candidate.factors, penalties)
    stepped = candidate._replace(
        factors=factors, best=candidate.factors, loss=again, dispersion=dispersion, settled=settled
    )
    return stepped._replace(sites=covariance) if side == "left" else stepped._replace(dates=covariance)


def freedom(candidate: Candidate) -> float:
    """The effective number of coefficients."""
    penalties = candidate.model.penalties
    of_sites = bilinear.freedom("left", candidate.sites, penalties)
    of_dates = bilinear.freedom("right", candidate.dates, penalties)
    return of_sites + of_dates


def dispersion_of(pearson: float, visits: float, fitted: float, family: str) -> float:
    """The dispersion, from the sum of squared errors over variances and the effective number of coefficients."""
    found = pearson / max(visits - fitted, 0.1 * visits)
    return max(found, 1.0 if family == "binomial" else 1e-12)


def in_own_unit(factors: Factors, family: str, centre: float, scale: float) -> Factors:
    """The coefficients of a fit to scaled values, for values in their own unit."""
    left = factors.left.copy()
    right = factors.right.copy()
    if family == "gaussian":
        left[:, 0] *= scale
        right[:, 1] = centre + scale * right[:, 1]
        left[:, 2:] *= np.sqrt(scale)
        right[:, 2:] *= np.sqrt(scale)
    else:
        right[:, 1] += np.log(scale)
    return Factors(left, right)
