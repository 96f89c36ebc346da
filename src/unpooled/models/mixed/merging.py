"""A mixture of fewer components from one of more: the two that are most alike become one, again and again. Nothing is sent.

What a merger costs is bounded by the divergences of the two components from their merger (Runnalls 2007), which has a closed form for
every kind of column. A mixture with some components to spare finds small groups that one of the right size misses from its start.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.maths import gaussian, mixture
from unpooled.models.mixed.messages import Params

TINY = 1e-300
LEAST_LOG_DET = -1e100


class Parts(NamedTuple):
    """Components with full covariances, as arrays with the component first."""

    weights: np.ndarray  # (k,)
    means: np.ndarray  # (k, g)
    covs: np.ndarray  # (k, g, g)
    levels: np.ndarray  # (k, t)
    mean: np.ndarray  # (k, m)
    dispersion: np.ndarray  # (k, m)


def merged(params: Params, sizes: list[int], shape: str, reg: float) -> dict[int, Params]:
    """Mixtures of the given sizes, all below that of `params`; `reg` is the least variance where rounding leaves less."""
    parts = _parts(params, shape)
    found = {}
    for k in range(len(parts.weights) - 1, min(sizes, default=len(parts.weights)) - 1, -1):
        parts = _join(parts, *_cheapest(parts))
        if k in sizes:
            found[k] = _params(parts, params, shape, reg)
    return found


def _parts(params: Params, shape: str) -> Parts:
    """The components one by one, with full covariances."""
    block = params.gaussian
    k, g = block.means.shape
    covs = gaussian.full_covs(block, shape) if g else np.zeros((k, 0, 0))
    return Parts(block.weights, block.means, np.array(covs), params.levels, params.mean, params.dispersion)


def _params(parts: Parts, like: Params, shape: str, reg: float) -> Params:
    """The components together, in the mixture's shape."""
    if parts.covs.shape[1]:
        packed = gaussian.pack_covs(gaussian.reshape_covs(parts.covs, shape), shape)
        covs = gaussian.project_positive(packed, shape, reg)
    else:  # no numeric column
        covs = like.gaussian.covs[: len(parts.weights)]
    return Params(mixture.Params(parts.weights, parts.means, covs), parts.levels, parts.mean, parts.dispersion)


def _cheapest(parts: Parts) -> tuple[int, int]:
    """The pair of components whose merging costs least."""
    k = len(parts.weights)
    pairs = [(i, j) for i in range(k) for j in range(i + 1, k)]
    costs = [_cost(parts, i, j) for i, j in pairs]
    return pairs[int(np.argmin(np.round(costs, 9)))]


def _pair(parts: Parts, i: int, j: int) -> Parts:
    """The merger of two components, as one component."""
    weight = parts.weights[i] + parts.weights[j]
    a = parts.weights[i] / weight
    b = parts.weights[j] / weight
    both = [a * values[i] + b * values[j] for values in parts[1:]]
    away = parts.means[i] - parts.means[j]
    both[1] = both[1] + a * b * np.outer(away, away)
    return Parts(np.asarray(weight), *both)


def _cost(parts: Parts, i: int, j: int) -> float:
    """What the log-likelihood per row loses, at most, when two components become one."""
    one = _pair(parts, i, j)
    cost = float(one.weights) * _log_det(one.covs) / 2
    for c in (i, j):
        w = parts.weights[c]
        p = parts.levels[c]
        mean = parts.mean[c]
        cost -= w * _log_det(parts.covs[c]) / 2
        cost += w * float((p * (np.log(np.maximum(p, TINY)) - np.log(np.maximum(one.levels, TINY)))).sum())
        ratio = mean * np.log(np.maximum(mean, TINY) / np.maximum(one.mean, TINY)) - mean + one.mean
        cost += w * float((ratio / (1 + one.dispersion * one.mean)).sum())
    return cost


def _log_det(cov: np.ndarray) -> float:
    """The log-determinant, 0 without columns; finite where rounding leaves none."""
    return max(float(np.linalg.slogdet(cov)[1]), LEAST_LOG_DET) if cov.shape[-1] else 0.0


def _join(parts: Parts, i: int, j: int) -> Parts:
    """The components with a pair merged into one."""
    merged = _pair(parts, i, j)
    others = [c for c in range(len(parts.weights)) if c not in (i, j)]
    joined = [np.concatenate([values[others], np.asarray(new)[None]]) for values, new in zip(parts, merged)]
    return Parts(*joined)
