"""The parts of any mixture in one form (weights, means, covariances), and what follows from them; from parameters alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.maths import gaussian

MOST_COLUMNS = 24  # shown in a profile
MOST_WORDS = 3  # columns that describe a part
TELLING = 0.5  # standard deviations from the mean of all rows from which a column is named


class Parts(NamedTuple):
    """A mixture's clusters as Gaussians."""

    weights: np.ndarray  # (k,)
    means: np.ndarray  # (k, d)
    covs: np.ndarray  # (k, d, d)

    @property
    def spreads(self) -> np.ndarray:
        """(k, d) standard deviations within each part."""
        return np.sqrt(np.maximum(np.einsum("kii->ki", self.covs), 0))


class Whole(NamedTuple):
    """All rows together, as the mixture has them."""

    mean: np.ndarray  # (d,)
    cov: np.ndarray  # (d, d)

    @property
    def scale(self) -> np.ndarray:
        """(d,) standard deviations, 1 for a constant column."""
        sd = np.sqrt(np.maximum(np.diag(self.cov), 0))
        return np.where(sd > 0, sd, 1.0)


def parts_of(model: Any) -> Parts | None:
    """The clusters of a fitted mixture; None where its family has no means and covariances."""
    if hasattr(model, "cluster_centers_"):
        return _from_centres(model)
    if hasattr(model, "params_"):
        return _from_params(model)
    if not all(hasattr(model, name) for name in ("weights_", "means_", "covariances_")):
        return None
    weights, means, covs = (to_numpy(getattr(model, name)) for name in ("weights_", "means_", "covariances_"))
    gaussians = Parts(weights, means, as_full(covs, *means.shape))
    topics = getattr(model, "topics_", None)
    return gaussians if topics is None else _grouped(gaussians, to_numpy(topics), to_numpy(model.cluster_weights_))


def _from_centres(model: Any) -> Parts:
    """FedGEM: centres with one variance; weights are the mean over clients."""
    means = to_numpy(model.cluster_centers_)
    weights = np.zeros(len(means))
    for name, own in getattr(model, "client_weights_", {}).items():
        np.add.at(weights, to_numpy(model.super_clusters_[name]), to_numpy(own))
    weights = weights / weights.sum() if weights.sum() > 0 else np.full(len(means), 1 / len(means))
    return Parts(weights, means, as_full(np.full(len(means), float(model.variance_)), *means.shape))


def _from_params(model: Any) -> Parts | None:
    """The parts from packed parameters, None for models that have none."""
    params = model.params_
    if not all(hasattr(params, name) for name in ("weights", "means", "covs")):
        return None
    means = to_numpy(params.means)
    packed = to_numpy(params.covs)
    k, d = means.shape
    size = packed.shape[-1] if packed.ndim > 1 or len(packed) != k else 0
    triangle = size == d * (d + 1) // 2 and (packed.ndim == 1 or d > 1)
    covs = gaussian.unpack_triangle(packed) if triangle else packed
    return Parts(to_numpy(params.weights), means, as_full(covs, k, d))


def as_full(covs: np.ndarray, k: int, d: int) -> np.ndarray:
    """(k, d, d) from any layout of scikit-learn: full, tied, diag, spherical."""
    if covs.ndim == 3:
        return covs
    if covs.ndim == 1:
        return covs[:, None, None] * np.eye(d)
    if (
        covs.shape == (d, d)
        and (k != d or np.allclose(covs, covs.T))
        and np.count_nonzero(covs - np.diag(np.diag(covs)))
    ):
        return np.broadcast_to(covs, (k, d, d))
    return covs[:, :, None] * np.eye(d)


def _grouped(atoms: Parts, topics: np.ndarray, weights: np.ndarray) -> Parts:
    """Clusters that are groups of Gaussians: the moments of each group."""
    means = topics @ atoms.means
    second = np.einsum("zk,kij->zij", topics, atoms.covs + np.einsum("ki,kj->kij", atoms.means, atoms.means))
    return Parts(weights, means, second - np.einsum("zi,zj->zij", means, means))


def whole(parts: Parts) -> Whole:
    """Mean and covariance of all rows under the mixture."""
    share = parts.weights / parts.weights.sum()
    mean = share @ parts.means
    apart = parts.means - mean
    cov = np.einsum("k,kij->ij", share, parts.covs) + np.einsum("k,ki,kj->ij", share, apart, apart)
    return Whole(mean, cov)


def standardised(parts: Parts) -> tuple[np.ndarray, np.ndarray]:
    """(means, spreads), (k, d) each, in standard deviations about the mean of all rows."""
    all_rows = whole(parts)
    return (parts.means - all_rows.mean) / all_rows.scale, parts.spreads / all_rows.scale


def most_telling(means: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The columns in which parts differ most, at most MOST_COLUMNS of them, in their old order."""
    between = weights @ means**2
    return np.sort(np.argsort(-between, kind="stable")[:MOST_COLUMNS])


def in_words(mean: np.ndarray, columns: Sequence[str]) -> str:
    """A part by the columns in which it stands out: "crp high, age low"."""
    order = [j for j in np.argsort(-np.abs(mean), kind="stable")[:MOST_WORDS] if abs(mean[j]) >= TELLING]
    words = [f"{columns[j]} {_degree(mean[j])}" for j in order]
    return ", ".join(words) or "near the mean in every column"


def _degree(value: float) -> str:
    """ "high", "very low" and so on, of a standardised value."""
    size = "very " if abs(value) >= 1.5 else ""
    return f"{size}{'high' if value > 0 else 'low'}"


def plane(parts: Parts) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(centres (k, 2), covariances (k, 2, 2), axes (2, d), share of variance (2,)) by the principal axes of all rows, scaled."""
    all_rows = whole(parts)
    scale = all_rows.scale
    values, vectors = np.linalg.eigh(all_rows.cov / np.outer(scale, scale))
    axes = vectors[:, ::-1][:, :2].T
    axes = axes * np.sign(axes[np.arange(2), np.abs(axes).argmax(1)])[:, None]
    centres = (parts.means - all_rows.mean) / scale @ axes.T
    covs = np.einsum("ai,kij,bj->kab", axes / scale, parts.covs, axes / scale)
    return centres, covs, axes, values[::-1][:2] / values.sum()


def axis_name(axis: np.ndarray, share: float, number: int, columns: Sequence[str]) -> str:
    """ "axis 1 (52%): +crp, -age"."""
    largest = np.argsort(-np.abs(axis), kind="stable")[:2]
    signed = []
    for j in largest:
        if abs(axis[j]) > 0.25:
            sign = "+" if axis[j] > 0 else "-"
            signed.append(f"{sign}{columns[j]}")
    return f"axis {number} ({share:.0%}): {', '.join(signed)}"
