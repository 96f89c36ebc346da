"""Covariances of cells and components as matrices or as variances per column, with the same operations. Sends nothing.

`Matrices` serves the shapes "full" and "tied", `Variances` serves "diag" and "spherical": EM on cells is written once, for both.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

LEAST = 1e-8  # the least eigenvalue of a covariance, where columns have variance 1


class Matrices:
    """Covariances as (..., d, d); `tied` pools them over components."""

    def __init__(self, tied: bool):
        self.pools = tied

    def positive(self, covs: np.ndarray, least: float = LEAST) -> np.ndarray:
        """The nearest covariances whose eigenvalues are not tiny."""
        values, vectors = np.linalg.eigh((covs + np.swapaxes(covs, -1, -2)) / 2)
        return (vectors * np.maximum(values, least)[..., None, :]) @ np.swapaxes(vectors, -1, -2)

    def outer(self, x: np.ndarray) -> np.ndarray:
        """x x' of every vector."""
        return x[..., :, None] * x[..., None, :]

    def identity(self, d: int) -> np.ndarray:
        """The identity, (d, d)."""
        return np.eye(d)

    def from_variances(self, variances: np.ndarray) -> np.ndarray:  # (k, d) -> (k, d, d)
        """Diagonal covariances."""
        return variances[:, :, None] * np.eye(variances.shape[1])

    def log_det(self, covs: np.ndarray) -> np.ndarray:
        """Logarithms of the determinants."""
        return 2 * np.log(np.einsum("...ii->...i", np.linalg.cholesky(covs))).sum(-1)

    def inverse(self, covs: np.ndarray) -> np.ndarray:
        """Precisions."""
        return np.linalg.inv(covs)

    def times(self, covs: np.ndarray, x: np.ndarray) -> np.ndarray:  # (k, d, d), (k, d) -> (k, d)
        """Each matrix times its vector."""
        return np.einsum("kij,kj->ki", covs, x)

    def pooled(self, covs: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """One covariance for all components."""
        return np.broadcast_to(np.einsum("k,kij->ij", weights, covs), covs.shape)

    def root(self, cov: np.ndarray) -> np.ndarray:
        """The Cholesky factor."""
        return np.linalg.cholesky(cov)

    def diagonal(self, cov: np.ndarray) -> np.ndarray:
        """The variances."""
        return np.einsum("...ii->...i", cov)

    def whitened(self, means: np.ndarray, covs: np.ndarray, root: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Centred means and covariances in coordinates in which `root root'` is the identity."""
        back = np.linalg.inv(root)
        return means @ back.T, self.positive(back @ covs @ back.T, 1e-6)

    def unwhitened(self, means: np.ndarray, covs: np.ndarray, root: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The inverse of `whitened`."""
        return means @ root.T, root @ covs @ root.T

    def long_axis(self, cov: np.ndarray, between: np.ndarray) -> np.ndarray:
        """The direction (d,) in which cell means differ most, measured in the component's own spread."""
        values, vectors = np.linalg.eigh(cov)
        root = vectors / np.sqrt(values)
        return root @ np.linalg.eigh(root.T @ between @ root)[1][:, -1]


class Variances:
    """Covariances as (..., d), columns being independent within a component; `spherical` pools them over columns."""

    def __init__(self, spherical: bool):
        self.pools = spherical

    def positive(self, covs: np.ndarray, least: float = LEAST) -> np.ndarray:
        """Variances of at least `least`."""
        return np.maximum(covs, least)

    def outer(self, x: np.ndarray) -> np.ndarray:
        """x^2 of every vector."""
        return x**2

    def identity(self, d: int) -> np.ndarray:
        """Variances of 1, (d,)."""
        return np.ones(d)

    def from_variances(self, variances: np.ndarray) -> np.ndarray:
        """The variances themselves."""
        return variances

    def log_det(self, covs: np.ndarray) -> np.ndarray:
        """Logarithms of the determinants."""
        return np.log(covs).sum(-1)

    def inverse(self, covs: np.ndarray) -> np.ndarray:
        """Precisions."""
        return 1 / covs

    def times(self, covs: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Each vector scaled by its variances."""
        return covs * x

    def pooled(self, covs: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """One variance for all columns."""
        return np.broadcast_to(covs.mean(-1, keepdims=True), covs.shape)

    def root(self, cov: np.ndarray) -> np.ndarray:
        """Standard deviations."""
        return np.sqrt(cov)

    def diagonal(self, cov: np.ndarray) -> np.ndarray:
        """The variances themselves."""
        return cov

    def whitened(self, means: np.ndarray, covs: np.ndarray, root: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Centred means and variances in units in which `root**2` is 1."""
        return means / root, self.positive(covs / root**2, 1e-6)

    def unwhitened(self, means: np.ndarray, covs: np.ndarray, root: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The inverse of `whitened`."""
        return means * root, covs * root**2

    def long_axis(self, cov: np.ndarray, between: np.ndarray) -> np.ndarray:
        """The column along which cells lie farthest apart."""
        return np.eye(len(cov))[np.argmax(between / cov)]


CovarianceKind: TypeAlias = Matrices | Variances


def kind_of(shape: str) -> CovarianceKind:
    """The kind that the covariances of this shape are."""
    return Matrices(shape == "tied") if shape in ("full", "tied") else Variances(shape == "spherical")
