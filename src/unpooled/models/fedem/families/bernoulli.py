"""Mixture of independent yes-or-no columns: k (1 + d) statistics."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float
from unpooled.models.fedem.families import base
from unpooled.models.fedem.families.columns import ColumnMixture, Stats
from unpooled.tree import message


@message("families.bernoulli.Params")
class Params(NamedTuple):
    weights: Float[Array, "k", ">=0"]
    probs: Float[Array, "k d", ">=0"]


class BernoulliMixture(ColumnMixture):
    params = Params
    wants = "zeros and ones"

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

    def project(self, stats: Stats) -> tuple[Stats, bool]:
        n = np.maximum(stats.n, self.floor)
        low, high = self.floor * n[:, None], (1 - self.floor) * n[:, None]
        outside = (stats.n < self.floor).any() or (stats.x < 0).any() or (stats.x > n[:, None] * (1 + 1e-12)).any()
        return Stats(n, np.clip(stats.x, low, high)), bool(outside)

    def sample(self, params: Params, n: int, rng: np.random.Generator) -> np.ndarray:
        probs = params.probs[base.labels(params.weights, n, rng)]
        return (rng.random(probs.shape) < probs).astype(np.float64)
