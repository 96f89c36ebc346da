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
    """Mean and standard deviation of the embedded columns, and the square of the distance at which half a prediction is left."""

    mean: Float[Array, "e"]
    scale: Float[Array, "e"]
    evidence: Float[Array, "e", ">=0"]  # in standard deviations; inf: predictions are left as they are


def shrunk(law: Laws, checked: Checked | None) -> Laws:
    """Distributions moved towards the means of their columns, the further out the more."""
    if checked is None:
        return law
    mean, scale, evidence = (to_numpy(a)[law.columns] for a in checked)
    away = imputation.mean(law) - mean
    left = 1 / (1 + (away / scale) ** 2 / np.maximum(evidence, 1e-300))
    return law._replace(means=law.means - ((1 - left) * away)[:, None])


def evidence(gram: np.ndarray, cells: np.ndarray, shares: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """What checks predictions of each column, (d,): the sum of their squares over hidden cells, over the square of the share unexplained.

    What is unexplained is the mean squared error in variances of the column. A prediction is halved whose unexplained part, so much of
    it, is as large as all predictions that were checked, as roots of sums of squares. As for `stacking.shares`, cells of a column
    are joined by some of all columns of numbers.

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
    size = np.concatenate(
        [np.ones((len(shares), 1)), -shares], axis=1
    )  # error of the mean less error of the prediction
    error = np.concatenate([np.zeros((len(shares), 1)), shares], axis=1)
    squares, errors = (_joined(np.einsum("jc,jcd,jd->j", a, gram, a), cells, numbers) for a in (size, error))
    unexplained = np.minimum(errors / (cells + CELLS), 1.0)
    checked = squares / np.maximum(unexplained**2, 1e-300)
    return np.where(numbers & (squares > 0), checked, np.inf)


def _joined(sums: np.ndarray, cells: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Sums (d,) over cells of each column with those over some cells of all columns of numbers."""
    return sums + CELLS * sums[numbers].sum() / max(float(cells[numbers].sum()), 1.0)
