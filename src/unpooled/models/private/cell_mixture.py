"""Mixtures fitted to cells instead of rows, from many starts: at the server, from what is already known.

Sends nothing, and costs nothing of the budget. To leave a poor local optimum, two components that share a cluster are merged and one that
covers two clusters is split; one look at the likelihoods of such proposals (`choice`) says whether one of them is better.
"""

from __future__ import annotations

from itertools import combinations
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from unpooled.models.private.cells import Cells

FLOOR = 1e-3  # added to variances, in the units of the frame
ITERATIONS = 60
APART = 0.3  # standard deviations between means of two different mixtures
SPLIT_STEP = 0.8  # standard deviations each way that the halves of a split component are moved


class Mixture(NamedTuple):
    """Parameters of a mixture with full covariances."""

    weights: np.ndarray  # (k,)
    means: np.ndarray  # (k, d)
    covs: np.ndarray  # (k, d, d)


def fit_cells(cells: Cells, k: int, rng: np.random.Generator, starts: int) -> list[tuple[float, Mixture]]:
    """Local optima of the cells' likelihood, the best first: (log-likelihood, mixture)."""
    found = [expectation_maximisation(cells, spread_out(cells, k, rng)) for _ in range(starts)]
    return sorted(found, key=lambda one: -one[0])


def spread_out(cells: Cells, k: int, rng: np.random.Generator) -> Mixture:
    """k-means++ on the cells, each component as wide as a cell."""
    count = np.maximum(cells.n, 0)
    mean = cells.mean
    chosen = [int(rng.choice(len(mean), p=count / count.sum()))]
    distance = ((mean - mean[chosen[0]]) ** 2).sum(1)
    while len(chosen) < k:
        weight = distance * count
        total = weight.sum()
        one = int(rng.choice(len(mean), p=weight / total)) if total > 0 else int(rng.integers(len(mean)))
        chosen.append(one)
        distance = np.minimum(distance, ((mean - mean[one]) ** 2).sum(1))
    width = max(float(np.average(cells.variance, weights=count)), 0.05)
    d = mean.shape[1]
    return Mixture(np.full(k, 1 / k), mean[chosen], np.tile(width * np.eye(d), (k, 1, 1)))


def expectation_maximisation(cells: Cells, start: Mixture) -> tuple[float, Mixture]:
    """EM on cells, each a Gaussian blob of equal width in all columns."""
    now = start
    loglik = -np.inf
    for _ in range(ITERATIONS):
        before = loglik
        shares, loglik = _expect(cells, now)
        now = _maximise(cells, shares)
        if loglik - before < 1e-6 * abs(loglik):
            break
    return loglik, now


def _expect(cells: Cells, now: Mixture) -> tuple[np.ndarray, float]:
    """Responsibilities (m, k) times counts, and the expected log-likelihood."""
    inverse = np.linalg.inv(np.linalg.cholesky(now.covs))
    y = ((cells.mean - now.means[:, None]) @ inverse.swapaxes(1, 2)).swapaxes(0, 1)  # (m, k, d) whitened
    log_det = np.log(np.einsum("kii->ki", inverse)).sum(1)
    within_cells = 0.5 * cells.variance[:, None] * (inverse**2).sum((1, 2))
    d = now.means.shape[1]
    log_joint = np.log(now.weights) - 0.5 * (y**2).sum(2) + log_det - within_cells - 0.5 * d * np.log(2 * np.pi)
    largest = log_joint.max(1, keepdims=True)
    by_cell = largest[:, 0] + np.log(np.exp(log_joint - largest).sum(1))
    responsibilities = np.exp(log_joint - by_cell[:, None])
    return responsibilities * cells.n[:, None], float((cells.n * by_cell).sum())


def _maximise(cells: Cells, shares: np.ndarray) -> Mixture:
    """The M-step over cells: `shares` (m, k) are the expected rows of each cell in each component."""
    d = cells.mean.shape[1]
    n = shares.sum(0) + 1e-9
    means = shares.T @ cells.mean / n[:, None]
    deviations = (cells.mean[:, None] - means).swapaxes(0, 1)  # (k, m, d)
    between = (shares.T[:, :, None] * deviations).swapaxes(1, 2) @ deviations / n[:, None, None]
    within = shares.T @ cells.variance / n + FLOOR
    return Mixture(n / n.sum(), means, between + within[:, None, None] * np.eye(d))


def distinct(found: list[tuple[float, Mixture]], most: int) -> list[Mixture]:
    """The best mixtures of which no two have all their means within APART standard deviations of each other."""
    kept: list[Mixture] = []
    for _, one in found:
        if all(_distance(one, other) > APART for other in kept):
            kept.append(one)
        if len(kept) == most:
            break
    return kept


def _distance(one: Mixture, other: Mixture) -> float:
    """The largest distance from a mean of one to the nearest mean of the other, in widths of the former."""
    nearest = ((one.means[:, None] - other.means) ** 2).sum(-1).min(1)
    width = np.trace(one.covs, axis1=1, axis2=2)
    return float(np.sqrt((nearest / width).max()))


# ---- moves out of a poor optimum ----


def proposals(now: Mixture, most: int) -> list[Mixture]:
    """Mixtures of as many components, each with one pair merged and another component split; the likeliest moves first."""
    k = len(now.weights)
    pairs = sorted(combinations(range(k), 2), key=lambda pair: _squared_distance(now, *pair))
    rank_by_length = np.argsort(np.argsort(-_stretch(now)))  # 0 for the longest component
    moves = []
    for rank, pair in enumerate(pairs):  # 0 for the nearest pair
        moves += [(rank + rank_by_length[s], pair, s) for s in range(k) if s not in pair]
    moves.sort(key=itemgetter(0))
    return [_moved(now, pair, s) for _, pair, s in moves[:most]]


def _squared_distance(now: Mixture, i: int, j: int) -> float:
    """Squared distance between the means of two components, in units of the sum of their covariances."""
    difference = now.means[i] - now.means[j]
    return float(difference @ np.linalg.solve(now.covs[i] + now.covs[j], difference))


def _stretch(now: Mixture) -> np.ndarray:
    """Weight times largest variance (k,): a component of many rows that is long may cover two clusters."""
    return now.weights * np.linalg.eigvalsh(now.covs)[:, -1]


def _moved(now: Mixture, pair: tuple[int, int], split: int) -> Mixture:
    """The mixture with the pair merged into one component and component `split` split along its longest axis."""
    i, j = pair
    weights = now.weights.copy()
    means = now.means.copy()
    covs = now.covs.copy()
    weights[i], means[i], covs[i] = _merged(now, i, j)
    values, vectors = np.linalg.eigh(covs[split])
    step = SPLIT_STEP * np.sqrt(values[-1]) * vectors[:, -1]
    means[j], means[split] = means[split] + step, means[split] - step
    covs[j] = covs[split] = covs[split] - np.outer(step, step)
    weights[j] = weights[split] = weights[split] / 2
    return Mixture(weights, means, covs)


def _merged(now: Mixture, i: int, j: int) -> tuple[float, np.ndarray, np.ndarray]:
    """(weight, mean, covariance) of the Gaussian with the moments of components i and j together."""
    a, b = now.weights[i], now.weights[j]
    total = a + b
    mean = (a * now.means[i] + b * now.means[j]) / total
    within = (a * now.covs[i] + b * now.covs[j]) / total
    difference = now.means[i] - now.means[j]
    between = b * (total - b) / total**2 * np.outer(difference, difference)
    return total, mean, within + between
