"""Mixture of independent yes-or-no columns: k (1 + d) statistics."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float
from unpooled.maths.families import base
from unpooled.maths.named import at_least, within


class Params(NamedTuple):
    weights: Float[Array, "k", ">=0"]
    probs: Float[Array, "k d", ">=0"]


class Stats(NamedTuple):
    n: Float[Array, "k"]  # r
    x: Float[Array, "k d"]  # r x


class Numbers(NamedTuple):
    n_components: int = 2
    floor: float = 1e-6  # of weights and probabilities


class BernoulliMixture(base.Plain, Numbers):
    wants = "zeros and ones"

    def check(self) -> None:
        at_least("n_components", self.n_components, 1)
        within("floor", self.floor, 0, 0.1, "the least weight and probability")

    def bad_rows(self, x: np.ndarray) -> np.ndarray:
        return ~base.whole(x, 0, 1)

    def start(self, mean: np.ndarray, scale: np.ndarray, rng: np.random.Generator) -> Params:
        k = self.n_components
        return Params(np.full(k, 1 / k), 0.5 * np.clip(mean, 0.05, 0.95) + 0.5 * rng.random((k, len(mean))))

    def log_joint(self, params: Params, x: np.ndarray) -> np.ndarray:  # (n, d) -> (n, k)
        seen = ~np.isnan(x)
        values = np.where(seen, x, 0.0)
        log_no = np.log1p(-params.probs)
        return values @ (np.log(params.probs) - log_no).T + seen @ log_no.T + np.log(params.weights)

    def statistics(self, params: Params, x: np.ndarray, w: np.ndarray) -> base.Sum:
        r, loglik = base.responsibilities(self.log_joint(params, x), w)
        seen = ~np.isnan(x)
        total = r.T @ np.where(seen, x, 0.0) + (r.T @ ~seen) * params.probs
        return base.Sum(Stats(r.sum(axis=0), total), loglik)

    def maximize(self, stats: Stats, params: Params) -> Params:
        stats, _ = self.project(stats)
        return Params(base.weights(stats.n, self.floor), stats.x / stats.n[:, None])

    def project(self, stats: Stats) -> tuple[Stats, bool]:
        n = np.maximum(stats.n, self.floor)
        low, high = self.floor * n[:, None], (1 - self.floor) * n[:, None]
        outside = (stats.n < self.floor).any() or (stats.x < 0).any() or (stats.x > n[:, None] * (1 + 1e-12)).any()
        return Stats(n, np.clip(stats.x, low, high)), bool(outside)

    def moments(self, params: Params) -> Stats:
        return Stats(params.weights, params.weights[:, None] * params.probs)

    def sample(self, params: Params, n: int, rng: np.random.Generator) -> np.ndarray:
        probs = params.probs[base.labels(params.weights, n, rng)]
        return (rng.random(probs.shape) < probs).astype(np.float64)
