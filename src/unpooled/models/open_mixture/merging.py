"""Which Gaussian components are one: decided from their counts, means and scatters alone.

Two components are joined while the evidence for one Gaussian behind both is above that for two (a normal-inverse-Wishart
prior with the pooled within-component covariance, so that components of few rows are judged mildly). Clients weigh in: a client
that holds both pays for one mixing weight more as long as they are two.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.special import gammaln, xlogy
from sklearn.neighbors import NearestNeighbors

from unpooled.models.open_mixture.agglomeration import Merges, greedy
from unpooled.tree import message

SHRINK = 0.01  # rows that the prior of a mean counts for
EXACT = 250  # so many components are agglomerated by looking at all pairs
CHUNK = 500  # pairs at a time: their scatters stay in the processor's cache
NEIGHBOURS = 8  # above, only at so many nearest ones each


@message("open_mixture.Components")
class Components(NamedTuple):
    """Summaries of groups of rows; `held` says how many of each client's rows are in it."""

    n: np.ndarray  # (m,)
    mean: np.ndarray  # (m, d)
    scatter: np.ndarray  # (m, d, d) about the mean
    held: csr_array  # (m, c)

    def take(self, which: np.ndarray) -> Components:
        return Components(self.n[which], self.mean[which], self.scatter[which], self.held[which])


@message("open_mixture.Prior")
class Prior(NamedTuple):
    mean: np.ndarray  # (d,)
    within: np.ndarray  # (d, d) pooled covariance within components
    shape: str
    client_rows: float  # mean rows of a client


def prior(parts: Components, shape: str) -> Prior:
    total = parts.n.sum()
    within = parts.scatter.sum(0) / total
    floor = 1e-9 * max(np.trace(within) / len(within), np.var(parts.mean), 1e-300)
    rows = total / max(parts.held.shape[1], 1)
    return Prior(parts.n @ parts.mean / total, within + floor * np.eye(len(within)), shape, max(rows, 2.0))


def joined(parts: Components, i: np.ndarray, j: np.ndarray) -> Components:
    """Components i and j as one, pair by pair."""
    n = parts.n[i] + parts.n[j]
    away = parts.mean[j] - parts.mean[i]
    mean = parts.mean[i] + away * (parts.n[j] / n)[:, None]
    between = (parts.n[i] * parts.n[j] / n)[:, None, None] * away[:, :, None] * away[:, None, :]
    return Components(n, mean, parts.scatter[i] + parts.scatter[j] + between, parts.held[i] + parts.held[j])


def pooled(parts: Components, labels: np.ndarray) -> Components:
    """The components grouped by label, (k,) of them."""
    m, d = parts.mean.shape
    member = csr_array((np.ones(m), (labels, np.arange(m))))  # (k, m)
    n = member @ parts.n
    mean = member @ (parts.n[:, None] * parts.mean) / n[:, None]
    away = parts.mean - mean[labels]
    spread = parts.scatter + parts.n[:, None, None] * away[:, :, None] * away[:, None, :]
    return Components(n, mean, (member @ spread.reshape(m, d * d)).reshape(-1, d, d), csr_array(member @ parts.held))


# ---- evidence ----


def evidence(parts: Components, p: Prior) -> np.ndarray:
    """(m,) log marginal likelihood of each component's rows under one Gaussian, up to a term linear in n."""
    away = parts.mean - p.mean
    pull = SHRINK * parts.n / (SHRINK + parts.n)
    return (
        _scale_evidence(parts, p, pull, away) + len(p.mean) / 2 * np.log(SHRINK / (SHRINK + parts.n)) + _weights(parts)
    )


def _scale_evidence(parts: Components, p: Prior, pull: np.ndarray, away: np.ndarray) -> np.ndarray:
    d = len(p.mean)
    if p.shape == "full":
        nu = d + 2.0
        psi = p.within * (nu - d - 1)
        post = psi + parts.scatter + pull[:, None, None] * away[:, :, None] * away[:, None, :]
        scale = nu / 2 * _logdet(psi[None]) - (nu + parts.n) / 2 * _logdet(post)
        return _multigammaln((nu + parts.n) / 2, d) - _multigammaln(np.array([nu / 2]), d) + scale
    squares = np.einsum("mii->mi", parts.scatter) + pull[:, None] * away**2  # (m, d)
    within = np.diag(p.within)
    if p.shape == "spherical":
        return _gamma_evidence(parts.n * d, within.mean(), squares.sum(1))
    return np.sum([_gamma_evidence(parts.n, within[j], squares[:, j]) for j in range(d)], axis=0)


def _gamma_evidence(n: np.ndarray, variance: float, squares: np.ndarray) -> np.ndarray:
    """Of n values about a known mean, with an inverse-gamma prior on their variance; the constant of pi is left out."""
    a = 2.0
    b = variance * a / 2
    post_a, post_b = a + n / 2, b + squares / 2
    return gammaln(post_a) - gammaln(a) + a * np.log(b) - post_a * np.log(post_b) - n / 2 * np.log(2.0)


def _weights(parts: Components) -> np.ndarray:
    """What the clients' own mixing weights add: sum of n_ck log n_ck."""
    held = parts.held
    return np.asarray(csr_array((xlogy(held.data, held.data), held.indices, held.indptr), held.shape).sum(1)).ravel()


def _logdet(a: np.ndarray) -> np.ndarray:
    return np.linalg.slogdet(a)[1]


def _multigammaln(a: np.ndarray, d: int) -> np.ndarray:
    return gammaln(a[:, None] - np.arange(d) / 2).sum(1)


# ---- joining ----


def gains(parts: Components, p: Prior, alone: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """(pairs,) log evidence won by joining i and j, and the mixing weights their clients need no longer pay for."""
    at = range(0, len(i), CHUNK)
    return np.concatenate([_gains(parts, p, alone, i[s : s + CHUNK], j[s : s + CHUNK]) for s in at] or [np.zeros(0)])


def _gains(parts: Components, p: Prior, alone: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    both = np.asarray((parts.held[i] > 0).multiply(parts.held[j] > 0).sum(1)).ravel()
    return evidence(joined(parts, i, j), p) - alone[i] - alone[j] + 0.5 * both * np.log(p.client_rows)


def merge(parts: Components, shape: str) -> tuple[Components, np.ndarray, Merges]:
    """(components, where each leaf went, how they join further): many are first condensed by sure pairs of near ones."""
    p = prior(parts, shape)
    parts, where = condense(parts, p)
    return parts, where, agglomerate(parts, p)


def agglomerate(parts: Components, p: Prior) -> Merges:
    """The whole dendrogram by the best pair at a time."""
    live = _Live(parts, p)
    return greedy(len(parts.n), live.gains, live.join)


class _Live:
    """Components while they are being joined."""

    def __init__(self, parts: Components, p: Prior):
        self.prior, self.alone = p, evidence(parts, p)
        self.n, self.mean, self.scatter = (np.array(a) for a in parts[:3])
        self.held = parts.held.toarray()

    def parts(self, which: np.ndarray) -> Components:
        return Components(self.n[which], self.mean[which], self.scatter[which], csr_array(self.held[which]))

    def gains(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        which, at = np.unique(np.concatenate([i, j]), return_inverse=True)
        a, b = at[: len(i)], at[len(i) :]
        return gains(self.parts(which), self.prior, self.alone[which], a, b)

    def join(self, i: int, j: int) -> None:
        one = joined(self.parts(np.array([i, j])), np.array([0]), np.array([1]))
        self.n[i], self.mean[i], self.scatter[i], self.held[i] = (
            one.n[0],
            one.mean[0],
            one.scatter[0],
            one.held.toarray()[0],
        )
        self.alone[i] = evidence(one, self.prior)[0]


def condense(parts: Components, p: Prior) -> tuple[Components, np.ndarray]:
    """Join near pairs that surely gain by it, in sweeps, until few are left or none gains."""
    where = np.arange(len(parts.n))
    while len(parts.n) > EXACT:
        i, j = _sure_pairs(parts, p)
        if not len(i):
            break
        label = np.arange(len(parts.n))
        label[j] = i
        label = np.unique(label, return_inverse=True)[1]
        parts, where = pooled(parts, label), label[where]
    return parts, where


def _sure_pairs(parts: Components, p: Prior) -> tuple[np.ndarray, np.ndarray]:
    """(i, j), i < j: disjoint pairs of near neighbours whose gain is at least half of the best that either could have."""
    m = len(parts.n)
    whitened = np.linalg.solve(np.linalg.cholesky(p.within), parts.mean.T).T
    near = NearestNeighbors(n_neighbors=NEIGHBOURS, algorithm="brute").fit(whitened).kneighbors(return_distance=False)
    first, second = np.repeat(np.arange(m), NEIGHBOURS), near.ravel()
    code = np.unique(np.minimum(first, second) * m + np.maximum(first, second))
    i, j = np.divmod(code, m)
    gain = gains(parts, p, evidence(parts, p), i, j)
    best = np.zeros(m)
    np.maximum.at(best, i, gain)
    np.maximum.at(best, j, gain)
    sure = np.flatnonzero((gain > 0) & (2 * gain >= np.maximum(best[i], best[j])))
    sure = sure[np.argsort(-gain[sure])]
    free, chosen = np.ones(m, dtype=bool), []
    for pair in sure:
        a, b = i[pair], j[pair]
        if free[a] and free[b]:
            free[a] = free[b] = False
            chosen.append(pair)
    return i[chosen], j[chosen]
