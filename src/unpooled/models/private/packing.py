"""Second moments as they are sent, by covariance shape: full triangles, one triangle for all, diagonals or traces. Sends nothing itself.

Entries off the diagonal of a symmetric matrix stand for two, so they are sent times sqrt(2): the vector that is sent is then as long as
the matrix (in Frobenius norm), or shorter, and a bound on the one is a bound on the other.
"""

from __future__ import annotations

import numpy as np

from unpooled.maths import gaussian


def pack_second(second: np.ndarray, shape: str) -> np.ndarray:
    """(k, d, d) to what is sent: full (k, t), tied (t,), diag (k, d), spherical (k,)."""
    if shape in ("full", "tied"):
        packed = gaussian.pack_triangle(second) * _off_diagonal_factor(second.shape[-1])
        return packed if shape == "full" else packed.sum(0)
    diagonal = np.einsum("kii->ki", second)
    return diagonal if shape == "diag" else diagonal.sum(-1)


def unpack_second(packed: np.ndarray, shape: str, d: int) -> np.ndarray:
    """What was sent as matrices: (k, d, d), or (1, d, d) if tied."""
    if shape in ("full", "tied"):
        return gaussian.unpack_triangle(np.atleast_2d(packed / _off_diagonal_factor(d)))
    diagonal = packed if shape == "diag" else np.repeat(packed[:, None] / d, d, 1)
    return diagonal[:, :, None] * np.eye(d)


def in_shape(second: np.ndarray, shape: str) -> np.ndarray:
    """Matrices (k, d, d) without the entries that a covariance of this shape does not have."""
    if shape in ("full", "tied"):
        return second
    diagonal = np.einsum("kii->ki", second)
    if shape == "spherical":
        diagonal = np.repeat(diagonal.mean(1, keepdims=True), second.shape[1], 1)
    return diagonal[:, :, None] * np.eye(second.shape[1])


def n_numbers(shape: str, d: int) -> float:
    """Numbers that one covariance of d columns has."""
    triangle = d * (d + 1) / 2
    return {"full": triangle, "tied": triangle, "diag": d, "spherical": 1}[shape]


def _off_diagonal_factor(d: int) -> np.ndarray:
    """sqrt(2) for entries of the packed triangle off the diagonal, 1 on it."""
    i, j = np.tril_indices(d)
    return np.where(i == j, 1.0, np.sqrt(2.0))
