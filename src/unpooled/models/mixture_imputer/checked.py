"""How far predictions are trusted: as far out as hidden cells have checked them. Nothing is sent but sums over hidden cells.

A relation may rest on one row, where a column is constant but for a few values; and what it says of another such row is far from the
mean, further than anything that was checked. Predictions are drawn towards the mean of their column by how much evidence checks them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.maths import imputation
from unpooled.maths.imputation import Laws
from unpooled.models.mixture_imputer.stacking import CELLS
from unpooled.tree import message


@message("mixture_imputer.Checked")
class Checked(NamedTuple):
    """Mean and standard deviation of the embedded columns, and how hidden cells check predictions, in standard deviations."""

    mean: Float[Array, "e"]
    scale: Float[Array, "e"]
    squares: Float[Array, "e", ">=0"]  # sum of squared predictions, from the mean
    unexplained: Float[Array, "e", ">=0"]  # share of a prediction that is error; 0 leaves predictions as they are


def shrunk(law: Laws, checked: Checked | None) -> Laws:
    """Distributions moved towards the means of their columns, the further out the more.

    The unexplained part of a prediction is set against all that was checked and the prediction itself, as sums of squares: one that is
    further out than all others together is divided by 1 and the square of the unexplained share.
    """
    if checked is None:
        return law
    mean, scale, squares, unexplained = (to_numpy(a)[law.columns] for a in checked)
    away = imputation.mean(law) - mean
    square = (away / scale) ** 2
    left = 1 / (1 + unexplained**2 * square / np.maximum(squares + square, 1e-300))
    return law._replace(means=law.means - ((1 - left) * away)[:, None])


def checks(
    gram: np.ndarray, cells: np.ndarray, shares: np.ndarray, numbers: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Sums of squared predictions over hidden cells, and the share of predictions that is error: (d,) each.

    The share is that of squared errors in squared errors and predictions. As for `stacking.shares`, cells of a column are joined by
    some of all columns of numbers.

    Parameters
    ----------
    gram : ndarray of shape (d, 1 + c, 1 + c)
        Sums of products of errors over hidden cells, of the column's mean and of the candidates.
    cells : ndarray of shape (d,)
        How many cells these are.
    shares : ndarray of shape (d, c)
        How much each candidate counts.
    numbers : ndarray of shape (d,)
        Which columns hold numbers; in the others nothing is shrunk.
    """
    away = np.insert(-shares, 0, 1.0, axis=1)  # a prediction less the mean is the error of the mean less its own
    error = np.insert(shares, 0, 0.0, axis=1)
    squares, errors = (np.einsum("jc,jcd,jd->j", a, gram, a) for a in (away, error))
    everywhere = CELLS * squares[numbers].sum() / max(float(cells[numbers].sum()), 1.0)
    common = _share(errors[numbers].sum(), squares[numbers].sum())
    unexplained = (cells * _share(errors, squares) + CELLS * common) / (cells + CELLS)
    return squares + everywhere, np.where(numbers, unexplained, 0.0)


def _share(errors: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """The part of the errors in the sum of both."""
    return errors / np.maximum(errors + squares, 1e-300)
