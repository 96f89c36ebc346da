"""Mixture of independent Poisson counts: k (1 + d) statistics."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from unpooled.arrays import Array, Float
from unpooled.maths.families import base
from unpooled.maths.named import at_least, within


class Params(NamedTuple):
    weights: Float[Array, "k", ">=0"]
    rates: Float[Array, "k d", ">=0"]


class Stats(NamedTuple):
    n: Float[Array, "k"]  # r
    x: Float[Array, "k d"]  # r x


class Numbers(NamedTuple):
    n_components: int = 2
    floor: float = 1e-6  # of weights and rates


class PoissonMixture(base.Plain, Numbers):
    wants = "whole numbers of at least 0"

    def check(self) -> None:
        at_least("n_components", self.n_components, 1)
        within("floor", self.floor, 0, 0.1, "the least weight and rate")

    def bad_rows(self, x: np.ndarray) -> np.ndarray:
        return ~base.whole(x, 0, np.inf)

    def start(self, mean: np.ndarray, scale: np.ndarray, rng: np.random.Generator) -> Params:
        k = self.n_components
        spread = np.exp(rng.normal(scale=0.5, size=(k, len(mean))))
        return Params(np.full(k, 1 / k), np.maximum(mean, self.floor) * spread)

    def log_joint(self, params: Params, x: np.ndarray) -> np.ndarray:  # (n, d) -> (n, k)
        seen = ~np.isnan(x)
        values = np.where(seen, x, 0.0)
        constant = (seen * gammaln(values + 1)).sum(axis=1, keepdims=True)
        return values @ np.log(params.rates).T - seen @ params.rates.T + np.log(params.weights) - constant

    def statistics(self, params: Params, x: np.ndarray, w: np.ndarray) -> base.Sum:
        r, loglik = base.responsibilities(self.log_joint(params, x), w)
        seen = ~np.isnan(x)
        total = r.T @ np.where(seen, x, 0.0) + (r.T @ ~seen) * params.rates
        return base.Sum(Stats(r.sum(axis=0), total), loglik)

    def maximize(self, stats: Stats, params: Params) -> Params:
        stats, _ = self.project(stats)
        return Params(base.weights(stats.n, self.floor), stats.x / stats.n[:, None])

    def project(self, stats: Stats) -> tuple[Stats, bool]:
        n = np.maximum(stats.n, self.floor)
        inside = Stats(n, np.maximum(stats.x, self.floor * n[:, None]))
        return inside, bool((stats.n < self.floor).any() or (stats.x < 0).any())

    def moments(self, params: Params) -> Stats:
        return Stats(params.weights, params.weights[:, None] * params.rates)

    def sample(self, params: Params, n: int, rng: np.random.Generator) -> np.ndarray:
        return rng.poisson(params.rates[base.labels(params.weights, n, rng)]).astype(np.float64)
