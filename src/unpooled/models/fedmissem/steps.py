"""One step of a candidate at the server, and its coefficients in the values' own unit; sends nothing."""

from __future__ import annotations

import numpy as np

from unpooled.models.fedmissem import bilinear
from unpooled.models.fedmissem.bilinear import Factors, Half
from unpooled.models.fedmissem.selection import Candidate


def moved(c: Candidate, side: str, found: Half, tol: float, round: int) -> Candidate:
    """A Newton step of one side, or half of the last step undone if it increased the loss."""
    penalties = c.model.penalties
    family = c.model.family
    loss = float(found.deviance) / c.dispersion + bilinear.penalised(c.factors, penalties)
    if loss > c.loss * (1 + 1e-9):
        middle = Factors(*((a + b) / 2 for a, b in zip(c.best, c.factors)))
        return c._replace(factors=middle, settled=loss < c.loss * (1 + tol))
    dispersion = dispersion_of(float(found.pearson), float(found.visits), freedom(c), family)
    factors, covariance = bilinear.newton(c.factors, side, found, dispersion, penalties, c.model.curves)
    factors = bilinear.level_in_dates(factors)
    if c.model.curves:
        factors = bilinear.curves_in_dates(factors, penalties)
    settled = round > 1 and c.loss - loss < tol * loss and abs(dispersion / c.dispersion - 1) < max(1e-3, 10 * tol)
    again = float(found.deviance) / dispersion + bilinear.penalised(c.factors, penalties)
    stepped = c._replace(factors=factors, best=c.factors, loss=again, dispersion=dispersion, settled=settled)
    return stepped._replace(sites=covariance) if side == "left" else stepped._replace(dates=covariance)


def freedom(c: Candidate) -> float:
    """The effective number of coefficients."""
    return sum(bilinear.freedom(s, cov, c.model.penalties) for s, cov in (("left", c.sites), ("right", c.dates)))


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
