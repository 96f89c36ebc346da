"""A sum of four kernels as one feature map: linear, piecewise linear in single columns, and two Gaussian kernels of all columns.

Sends nothing. The features are blocks side by side, rounded to a grid where one is given, each multiplied by its own scale:

- the columns themselves, (d,);
- hinges max(x - knot, 0) of single columns, less their means: splines that are additive over columns;
- a Gaussian kernel with a length scale per column, by its projection on r points (Nystroem features);
- the same at shorter length scales and q points, where r points are enough for the first: length scales that were learned with few
  features are often too long.

The points are not rows of anybody: the server draws them. Points suit the kernel where rows are, so that fewer features are needed than
with random frequencies.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from unpooled.arrays import Array
from unpooled.maths.grids import on_grid

N_BLOCKS = 4
SHORTER = 0.4  # length scales of the second Gaussian kernel, over those of the first
JITTER = 1e-6  # on the diagonal of the kernel matrix of the points, where it is 1
LEAST_LEFT = 1e-6  # variance that the points leave of a row, of 1, from which on there are enough of them
TINY = 1e-8


class Parts(NamedTuple):
    """What the features are made of."""

    columns: np.ndarray  # (a,) column of each hinge
    knots: np.ndarray  # (a,)
    centres: np.ndarray  # (a,) mean of each hinge
    points: np.ndarray  # (r, d)
    fine: np.ndarray  # (q, d) points of the shorter length scales
    steps: np.ndarray = np.zeros(0)  # (d + a + r + q,) of the grid of each feature; none: not rounded


def features(log_scale: Array, weights: Array, parts: Parts, x: Array) -> np.ndarray:  # (..., n, d + a + r + q)
    """Features of standardised rows x (..., n, d), for length scales (d,) and the scales of the blocks (4,)."""
    columns = parts.columns.astype(np.int64)
    hinges = np.maximum(x[..., columns] - parts.knots, 0.0) - parts.centres
    length = np.exp(log_scale)
    kernel = nystroem(length, parts.points, x)
    fine = nystroem(SHORTER * length, parts.fine, x)
    return weights[blocks(x.shape[-1], parts)] * on_grid(np.concatenate([x, hinges, kernel, fine], -1), parts.steps)


def blocks(n_columns: int, parts: Parts) -> np.ndarray:  # (d + a + r + q,)
    """The block, 0 to 3, of each feature."""
    return np.repeat(np.arange(N_BLOCKS), [n_columns, len(parts.knots), len(parts.points), len(parts.fine)])


def nystroem(length: np.ndarray, points: np.ndarray, x: np.ndarray) -> np.ndarray:  # (..., n, r)
    """Features whose inner products are the Gaussian kernel, projected on the points (r, d)."""
    root = np.linalg.cholesky(gaussian(length, points, points) + JITTER * np.eye(len(points)))
    inverse = solve_triangular(root, np.eye(len(points)), lower=True)
    return gaussian(length, x, points) @ inverse.T


def gaussian(length: np.ndarray, x: np.ndarray, other: np.ndarray) -> np.ndarray:  # (..., n, m)
    """The Gaussian kernel of rows x (..., n, d) and others (m, d), with a length scale per column (d,)."""
    x = x / length
    other = other / length
    distances: Any = (x**2).sum(-1)[..., None] + (other**2).sum(-1) - 2 * x @ other.T
    return np.exp(-0.5 * np.maximum(distances, 0.0))


def choose_points(
    length: np.ndarray, rows: np.ndarray, n_points: int, rng: np.random.Generator
) -> np.ndarray:  # (r, d)
    """Of rows (n, d), up to so many that the others follow from well: each is drawn by how little those before explain it.

    References
    ----------
    Chen, Epperly, Tropp, Webber, Randomly pivoted Cholesky: practical approximation of a kernel matrix with few entry evaluations, 2022.
    """
    left = np.ones(len(rows))
    found = []
    factor = np.zeros((len(rows), n_points))
    for i in range(min(n_points, len(rows))):
        if left.max() < LEAST_LEFT:
            break
        reached = np.cumsum(left)
        row = int(np.searchsorted(reached, rng.random() * reached[-1], side="right"))
        covariance = gaussian(length, rows, rows[row : row + 1])[:, 0] - factor[:, :i] @ factor[row, :i]
        factor[:, i] = covariance / np.sqrt(left[row])
        left = np.maximum(left - factor[:, i] ** 2, 0.0)
        left = np.where(left < TINY, 0.0, left)  # the row itself, its copies and what rounding leaves
        found.append(row)
    return rows[found]
