"""Moves out of a poor optimum: two components that share a cluster become one, one that covers two clusters becomes two. Sends nothing.

Proposals are made at the server from what is known; a look at their likelihoods (`choice`) says whether one of them is better.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from unpooled.models.private.cell_mixture import Mixture

APART = 0.8  # of a standard deviation each way: where the halves of a split component go


def proposals(now: Mixture, most: int) -> list[Mixture]:
    """Mixtures of as many components, each with one pair merged and another component split; the likeliest moves first."""
    k = len(now.weights)
    pairs = sorted(combinations(range(k), 2), key=lambda pair: _distance(now, *pair))
    moves = [(rank, s, pair) for rank, pair in enumerate(pairs) for s in range(k) if s not in pair]
    stretched = np.argsort(np.argsort(-_stretch(now)))  # 0 for the longest component
    moves.sort(key=lambda move: move[0] + stretched[move[1]])
    return [_moved(now, pair, s) for _, s, pair in moves[:most]]


def _distance(now: Mixture, i: int, j: int) -> float:
    """Between two components, in their mean width."""
    away = now.means[i] - now.means[j]
    return float(away @ np.linalg.solve(now.covs[i] + now.covs[j], away))


def _stretch(now: Mixture) -> np.ndarray:
    """Rows times length: what a component could hold two clusters by."""
    return now.weights * np.linalg.eigvalsh(now.covs)[:, -1]


def _moved(now: Mixture, pair: tuple[int, int], split: int) -> Mixture:
    """The mixture with the pair merged into one component and component `split` split along its longest axis."""
    weights, means, covs = now.weights.copy(), now.means.copy(), now.covs.copy()
    i, j = pair
    total = weights[i] + weights[j]
    mean = (weights[i] * means[i] + weights[j] * means[j]) / total
    inside = (weights[i] * covs[i] + weights[j] * covs[j]) / total
    away = means[i] - means[j]
    weights[i], means[i] = total, mean
    covs[i] = inside + weights[j] * (total - weights[j]) / total**2 * np.outer(away, away)
    values, vectors = np.linalg.eigh(covs[split])
    step = APART * np.sqrt(values[-1]) * vectors[:, -1]
    half = covs[split] - np.outer(step, step)
    means[j], means[split] = means[split] + step, means[split] - step
    covs[j] = covs[split] = half
    weights[j] = weights[split] = weights[split] / 2
    return Mixture(weights, means, covs)
