"""Published methods, in our own code: DP-EM (Park et al. 2017) and AdaSSP (Wang 2018). NumPy's noise, for comparison only."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import logsumexp
from sklearn.mixture import GaussianMixture

from unpooled.privacy.clipping import to_unit

ROUNDS = 10


def dp_em(x: np.ndarray, bounds: np.ndarray, k: int, mu: float, rng: np.random.Generator) -> GaussianMixture:
    """EM whose 2 k + 1 parameters each get noise in every round; rows have length at most 1."""
    d = x.shape[1]
    u = to_unit(x, bounds) / np.sqrt(d)
    n, scale = len(u), 2 / (mu / np.sqrt(ROUNDS * (2 * k + 1)))
    weights, means = np.full(k, 1 / k), rng.uniform(-0.5, 0.5, (k, d)) / np.sqrt(d)
    covs = np.tile(np.eye(d) * 0.1 / d, (k, 1, 1))
    for _ in range(ROUNDS):
        shares = _responsibilities(u, weights, means, covs)
        counts = shares.sum(0)
        weights = np.maximum(counts / n + scale / n * rng.normal(size=k), 1e-3)
        weights /= weights.sum()
        rows = np.maximum(weights * n, 10)
        for j in range(k):
            mean = shares[:, j] @ u / max(counts[j], 1e-9)
            second = (shares[:, j, None] * u).T @ u / max(counts[j], 1e-9) - np.outer(mean, mean)
            noise = scale / rows[j] * rng.normal(size=(d, d))
            values, vectors = np.linalg.eigh(second + np.triu(noise) + np.triu(noise, 1).T)
            covs[j] = (vectors * np.maximum(values, 0.02**2 / d)) @ vectors.T
            moved = mean + scale / rows[j] * rng.normal(size=d)
            means[j] = moved / max(1.0, np.linalg.norm(moved))
    half = (bounds[:, 1] - bounds[:, 0]) / 2 * np.sqrt(d)
    return as_mixture(weights, bounds.mean(1) + half * means, covs * np.outer(half, half))


def _responsibilities(u, weights, means, covs) -> np.ndarray:
    inverse = np.linalg.inv(np.linalg.cholesky(covs))
    joint = np.stack(
        [
            np.log(w) - 0.5 * (((u - m) @ i.T) ** 2).sum(1) + np.log(np.diag(i)).sum()
            for w, m, i in zip(weights, means, inverse)
        ],
        1,
    )
    return np.exp(joint - logsumexp(joint, axis=1, keepdims=True))


def as_mixture(weights, means, covs) -> GaussianMixture:
    """A fitted mixture of scikit-learn, to score with."""
    found = GaussianMixture(len(weights))
    found.weights_, found.means_, found.covariances_ = weights, means, covs
    found.precisions_cholesky_ = np.linalg.inv(np.linalg.cholesky(covs)).swapaxes(1, 2)
    return found


def adassp(x, y, bounds, epsilon: float, delta: float, rng: np.random.Generator) -> Callable[[np.ndarray], np.ndarray]:
    """Ridge regression from noisy sums, the ridge set by a noisy least eigenvalue; gives back a predictor."""
    unit = lambda rows: np.column_stack([to_unit(rows, bounds[:-1]), np.ones(len(rows))])  # noqa: E731
    d = x.shape[1] + 1
    u, v = unit(x) / np.sqrt(d), to_unit(y[:, None], bounds[-1:])[:, 0]
    each, log = epsilon / 3, np.log(6 / delta)
    noise = np.sqrt(log) / each
    gram, cross = u.T @ u, u.T @ v
    least = max(0.0, np.linalg.eigvalsh(gram)[0] + noise * rng.normal() - log / each)
    ridge = max(0.0, np.sqrt(d * log * np.log(2 * d * d / 0.05)) / each - least)
    shake = noise * rng.normal(size=(d, d))
    shake = np.triu(shake) + np.triu(shake, 1).T
    slope = np.linalg.solve(gram + shake + ridge * np.eye(d), cross + noise * rng.normal(size=d))
    middle, half = bounds[-1].mean(), (bounds[-1, 1] - bounds[-1, 0]) / 2
    return lambda rows: middle + half * (unit(rows) / np.sqrt(d) @ slope)
