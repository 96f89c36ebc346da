"""A mixture for one small table with an unknown number of components. Sends nothing.

EM starts from k-means for k = 1, 2, ...; BIC chooses k and the covariance shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from sklearn.cluster import KMeans

from unpooled.maths import gaussian, mixture
from unpooled.maths.mixture import Params
from unpooled.tree import message

SHAPES = ("spherical", "diag", "full")
MAX_ITER = 20
RIDGE = 1e-4  # share of the mean variance that is added to variances
PATIENCE = 2  # the search ends after this many k without a better BIC


@message("maths.local_mixture.Fit")
class Fit(NamedTuple):
    """A fitted mixture, its covariance shape and its BIC."""

    params: Params
    shape: str
    bic: float


def fit(x: np.ndarray, w: np.ndarray, rng: np.random.Generator, sizes: range) -> Fit:
    """The best mixture, by BIC, of rows x (n, d) with weights w (n,) over numbers of components and shapes."""
    best, waited = None, 0
    for k in sizes:
        better = min(attempts(x, w, k, rng), key=lambda f: f.bic, default=None)
        if better is not None and (best is None or better.bic < best.bic):
            best = better
            waited = 0
        else:
            waited += 1
        if waited == PATIENCE:
            break
    return best if best is not None else _one(x, w)


def _one(x: np.ndarray, w: np.ndarray) -> Fit:
    """One spherical Gaussian, for very few rows."""
    return Fit(_start(x, w, np.zeros(len(x), dtype=int), "spherical"), "spherical", np.inf)


def variance(x: np.ndarray, w: np.ndarray) -> float:
    """Mean variance of the columns of x (n, d), never 0."""
    mean = w @ x / w.sum()
    return float(max((w @ (x - mean) ** 2 / w.sum()).mean(), 1e-12 * (1 + np.abs(x).max()) ** 2))


def attempts(
    x: np.ndarray, w: np.ndarray, k: int, rng: np.random.Generator, shapes: Sequence[str] = SHAPES
) -> list[Fit]:
    """A fit of k components for each covariance shape with enough rows, all from the same k-means."""
    labels = kmeans(x, w, k, rng, n_init=3)
    if labels.max() < k - 1:
        return []
    fits = []
    for shape in shapes:
        least_rows = k * (x.shape[1] + 2 if shape == "full" else 2)
        if len(x) >= least_rows:
            fits.append(improved(x, w, _start(x, w, labels, shape), shape))
    return [fit for fit in fits if fit is not None]


def kmeans(x: np.ndarray, w: np.ndarray, k: int, rng: np.random.Generator, n_init: int = 1) -> np.ndarray:
    """Cluster labels (n,); fewer than k clusters if there are fewer distinct rows."""
    k = min(k, len(np.unique(x, axis=0)))
    if k == 1:
        return np.zeros(len(x), dtype=int)
    model = KMeans(k, n_init=n_init, max_iter=30, random_state=int(rng.integers(2**31 - 1)))
    return model.fit(x, sample_weight=w).labels_


def _start(x: np.ndarray, w: np.ndarray, labels: np.ndarray, shape: str) -> Params:
    """The mixture whose components are the clusters of `labels` (n,)."""
    r = np.eye(labels.max() + 1)[labels] * w[:, None]  # (n, k)
    n, means, scatter = summarise(x, r)
    ridge = RIDGE * variance(x, w) * np.eye(x.shape[1])
    covs = gaussian.reshape_covs(scatter / n[:, None, None] + ridge, shape)
    return Params(n / n.sum(), means, gaussian.pack_covs(covs, shape))


def improved(x: np.ndarray, w: np.ndarray, params: Params, shape: str) -> Fit | None:
    """EM from these parameters; None if a component is left with almost no rows."""
    before = -np.inf
    reg = RIDGE * variance(x, w)
    for _ in range(MAX_ITER):
        stats = mixture.e_step(params, x, w, shape)
        if stats.loglik - before < 1e-4 * len(x):
            break
        before = stats.loglik
        if stats.n.min() < 1.5:
            return None
        params = mixture.m_step(params, stats, shape, reg)
    k, d = params.means.shape
    return Fit(params, shape, float(-2 * stats.loglik + gaussian.n_parameters(k, d, shape) * np.log(w.sum())))


def responsibilities(found: Fit, x: np.ndarray) -> np.ndarray:
    """Probabilities of the components given each row of x (n, d): (n, k)."""
    q = mixture.log_joint(found.params, x, found.shape)
    r = np.exp(q - q.max(1, keepdims=True))
    return r / r.sum(1, keepdims=True)


def summarise(x: np.ndarray, r: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(n (k,), mean (k, d), scatter about the mean (k, d, d)) of rows x (n, d) with weights r (n, k)."""
    n = r.sum(0) + 1e-12
    mean = r.T @ x / n[:, None]
    centred = x[None] - mean[:, None]  # (k, n, d)
    return n, mean, np.swapaxes(centred * r.T[:, :, None], 1, 2) @ centred
