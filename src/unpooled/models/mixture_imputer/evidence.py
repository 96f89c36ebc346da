"""What all rows say of single Gaussians with different priors, beside the hidden cells: Mallows' criterion. Nothing is sent.

Hidden cells are few, and cells of all columns are joined: where most columns depend on nothing, the strong priors that are best for these
are taken for the few columns that do depend on others too. A single Gaussian foretells a column by a ridge regression on the others, and
the sums that it was fitted to say how large its errors are on the rows it was fitted to. Mallows (1973) says how much larger they are on
rows that are new, and Hansen (2007) the same of products of the errors of two regressions.

References
----------
Mallows, Some comments on C_p, Technometrics 1973. Hansen, Least squares model averaging, Econometrica 2007.
Geary, The ratio of the mean deviation to the standard deviation as a test of normality, Biometrika 1935.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

NORMAL = np.sqrt(2 / np.pi)  # mean absolute deviation of a normal distribution, in standard deviations


class Known(NamedTuple):
    """What is known of the embedded columns."""

    rows: float
    seen: np.ndarray  # (e,) values
    hidden: np.ndarray  # (e,) values that were hidden while the Gaussians were fitted
    informative: np.ndarray  # (e,) the share of values that tell how the column varies, see `informative`


def informative(deviations: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """What share of the values (e,) tell how a column varies: 1 as in a normal distribution, near 0 if all but a few are the same.

    By the ratio of mean absolute and standard deviation (Geary 1935): its square is four times the share of the few values.
    """
    return np.minimum(1.0, (deviations / np.maximum(seen, 1.0) / NORMAL) ** 2)


def products(covs: np.ndarray, priors: np.ndarray, known: Known) -> np.ndarray:
    """Sums of products of the errors that single Gaussians are expected to make on as many new cells as speak for them, (e, m, m).

    Cells speak for them as far as they are not needed to determine the regression, and as far as neither the column nor what it is
    foretold from is constant but for a few values: regressions of such columns rest on few rows.

    Parameters
    ----------
    covs : ndarray of shape (m, e, e)
        Covariances of standardised columns.
    priors : ndarray of shape (m,)
        How many rows of uncorrelated columns each of them was given.
    known : Known
        Of the columns.
    """
    cells = _complete(known)
    weakest = int(np.argmin(priors))
    precisions = np.linalg.inv(covs)
    diagonal = np.einsum("mee->me", precisions)
    errors = precisions / diagonal[:, None, :]  # (m, e, j): the error of column j is this combination of columns
    inside = np.einsum("maj,naj->jmn", errors, covs[weakest] @ errors)  # per cell, on rows that were fitted
    spent = _parameters(covs[weakest], priors, cells)
    noise = inside[:, weakest, weakest] / np.maximum(1 - spent[:, weakest] / cells, 1 / cells)
    outside = inside + (noise / cells)[:, None, None] * (spent[:, :, None] + spent[:, None, :])
    free = np.maximum(1 - spent[:, weakest] / cells, 0.0)
    worth = cells * free * known.informative * _predictors(errors[weakest], covs[weakest], known.informative)
    return worth[:, None, None] * outside


def _complete(known: Known) -> np.ndarray:
    """How many rows, about, each column's regression rests on: of those that have its value, the share that has another column's."""
    share = known.seen / max(known.rows, 1.0)
    others = (share.sum() - share) / max(len(share) - 1, 1)
    return np.maximum((known.seen - known.hidden) * others, 1.0)


def _parameters(cov: np.ndarray, priors: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """How many parameters each ridge regression of a column on all others, and on a constant, is worth: (e, m)."""
    values, vectors = np.linalg.eigh(cov)
    penalty = priors / cells[:, None]  # (e, m)
    inverse = 1 / (np.maximum(values, 0.0) + penalty[:, :, None])  # (e, m, eigenvalues)
    own = np.einsum("ei,emi->em", vectors**2, inverse)
    squared = np.einsum("ei,emi->em", vectors**2, inverse**2)
    return len(values) - penalty * (inverse.sum(2) - squared / own)


def _predictors(errors: np.ndarray, cov: np.ndarray, informative: np.ndarray) -> np.ndarray:
    """What share of the values that each column is foretold from is informative, (e,): a harmonic mean, as variances add up.

    Columns count by how much they move the prediction.
    """
    moves = errors**2 * np.diag(cov)[:, None]
    np.fill_diagonal(moves, 0.0)
    return moves.sum(0) / np.maximum((1 / np.maximum(informative, 1e-12)) @ moves, 1e-300)
