"""Which Gaussian components are one, decided from their counts, means and scatters; sends nothing.

Two components are merged while the evidence (marginal likelihood) for one Gaussian behind both is above that for two, under a
normal-inverse-Wishart prior with the pooled within-component covariance. A client that holds both pays BIC's penalty for one mixing
weight more as long as they are two.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.special import gammaln, xlogy
from sklearn.neighbors import NearestNeighbors

from unpooled.models.open_mixture.agglomeration import Merges, greedy
from unpooled.models.open_mixture.constants import MAX_ALL_PAIRS, N_NEIGHBORS, PAIRS_PER_CHUNK, PRIOR_MEAN_ROWS
from unpooled.tree import message


@message("open_mixture.Components")
class Components(NamedTuple):
    """Summaries of groups of rows."""

    n: np.ndarray  # (m,)
    mean: np.ndarray  # (m, d)
    scatter: np.ndarray  # (m, d, d) about the mean
    held: csr_array  # (m, c) rows of each client


@message("open_mixture.Prior")
class Prior(NamedTuple):
    """Prior of a component's mean and covariance."""

    mean: np.ndarray  # (d,)
    within: np.ndarray  # (d, d) pooled covariance within components
    shape: str
    client_rows: float  # mean number of rows per client


def prior(parts: Components, shape: str) -> Prior:
    """The prior that all components together suggest."""
    total = parts.n.sum()
    within = parts.scatter.sum(0) / total
    floor = 1e-9 * max(np.trace(within) / len(within), np.var(parts.mean), 1e-300)
    rows = total / max(parts.held.shape[1], 1)
    return Prior(parts.n @ parts.mean / total, within + floor * np.eye(len(within)), shape, max(rows, 2.0))


def merged_pairs(parts: Components, i: np.ndarray, j: np.ndarray) -> Components:
    """(pairs,) components i and j merged, for every pair."""
    n = parts.n[i] + parts.n[j]
    offset = parts.mean[j] - parts.mean[i]
    mean = parts.mean[i] + offset * (parts.n[j] / n)[:, None]
    between = (parts.n[i] * parts.n[j] / n)[:, None, None] * offset[:, :, None] * offset[:, None, :]
    return Components(n, mean, parts.scatter[i] + parts.scatter[j] + between, parts.held[i] + parts.held[j])


def grouped(parts: Components, labels: np.ndarray) -> Components:
    """(k,) the components merged by label."""
    m, d = parts.mean.shape
    member = csr_array((np.ones(m), (labels, np.arange(m))))  # (k, m)
    n = member @ parts.n
    mean = member @ (parts.n[:, None] * parts.mean) / n[:, None]
    offset = parts.mean - mean[labels]
    spread = parts.scatter + parts.n[:, None, None] * offset[:, :, None] * offset[:, None, :]
    return Components(n, mean, (member @ spread.reshape(m, d * d)).reshape(-1, d, d), csr_array(member @ parts.held))


# ---- evidence ----


def evidence(parts: Components, p: Prior) -> np.ndarray:
    """(m,) log marginal likelihood of each component's rows under one Gaussian, up to a term linear in n."""
    offset = parts.mean - p.mean
    mean_rows = PRIOR_MEAN_ROWS * parts.n / (PRIOR_MEAN_ROWS + parts.n)
    mean_evidence = len(p.mean) / 2 * np.log(PRIOR_MEAN_ROWS / (PRIOR_MEAN_ROWS + parts.n))
    return _scale_evidence(parts, p, mean_rows, offset) + mean_evidence + _weight_evidence(parts)


def _scale_evidence(parts: Components, p: Prior, mean_rows: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """The part of the evidence that depends on scatters; mean_rows is the weight of a squared offset from the prior mean."""
    d = len(p.mean)
    if p.shape == "full":
        nu = d + 2.0
        psi = p.within * (nu - d - 1)
        post = psi + parts.scatter + mean_rows[:, None, None] * offset[:, :, None] * offset[:, None, :]
        scale = nu / 2 * _logdet(psi[None]) - (nu + parts.n) / 2 * _logdet(post)
        return _multigammaln((nu + parts.n) / 2, d) - _multigammaln(np.array([nu / 2]), d) + scale
    squares = np.einsum("mii->mi", parts.scatter) + mean_rows[:, None] * offset**2  # (m, d)
    within = np.diag(p.within)
    if p.shape == "spherical":
        return _gamma_evidence(parts.n * d, within.mean(), squares.sum(1))
    return np.sum([_gamma_evidence(parts.n, within[j], squares[:, j]) for j in range(d)], axis=0)


def _gamma_evidence(n: np.ndarray, variance: float, squares: np.ndarray) -> np.ndarray:
    """Evidence of n values about a known mean with an inverse-gamma prior on their variance, without the power of pi."""
    a = 2.0
    b = variance * a / 2
    post_a = a + n / 2
    post_b = b + squares / 2
    return gammaln(post_a) - gammaln(a) + a * np.log(b) - post_a * np.log(post_b) - n / 2 * np.log(2.0)


def _weight_evidence(parts: Components) -> np.ndarray:
    """The contribution of the clients' own mixing weights: sum of n_ck log n_ck."""
    held = parts.held
    return np.asarray(csr_array((xlogy(held.data, held.data), held.indices, held.indptr), held.shape).sum(1)).ravel()


def _logdet(a: np.ndarray) -> np.ndarray:
    """Log-determinants."""
    return np.linalg.slogdet(a)[1]


def _multigammaln(a: np.ndarray, d: int) -> np.ndarray:
    """The log of the multivariate gamma function."""
    return gammaln(a[:, None] - np.arange(d) / 2).sum(1)


# ---- merging ----


def gains(parts: Components, p: Prior, alone: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """(pairs,) log evidence gained by merging i and j, plus the penalty of the mixing weights that clients then save."""
    out = np.zeros(len(i))
    for start in range(0, len(i), PAIRS_PER_CHUNK):
        chunk = slice(start, start + PAIRS_PER_CHUNK)
        out[chunk] = _gains(parts, p, alone, i[chunk], j[chunk])
    return out


def _gains(parts: Components, p: Prior, alone: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """What merging pairs gains in log evidence; clients that hold both save a weight."""
    both = np.asarray((parts.held[i] > 0).multiply(parts.held[j] > 0).sum(1)).ravel()
    return evidence(merged_pairs(parts, i, j), p) - alone[i] - alone[j] + 0.5 * both * np.log(p.client_rows)


def merge(parts: Components, shape: str) -> tuple[Components, np.ndarray, Merges]:
    """(components, the component of each input, the dendrogram); many components are first condensed by merging near pairs."""
    p = prior(parts, shape)
    parts, where = condense(parts, p)
    return parts, where, agglomerate(parts, p)


def agglomerate(parts: Components, p: Prior) -> Merges:
    """The whole dendrogram, merging the best pair in every step."""
    current = _Merging(parts, p)
    return greedy(len(parts.n), current.gains, current.join)


class _Merging:
    """Components while they are being merged."""

    def __init__(self, parts: Components, p: Prior):
        """Components to merge, with the evidence of each alone."""
        self.prior, self.alone = p, evidence(parts, p)
        self.n, self.mean, self.scatter = (np.array(a) for a in parts[:3])
        self.held = parts.held.toarray()

    def parts(self, which: np.ndarray) -> Components:
        """Some of the components."""
        return Components(self.n[which], self.mean[which], self.scatter[which], csr_array(self.held[which]))

    def gains(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """What merging each pair gains."""
        which, at = np.unique(np.concatenate([i, j]), return_inverse=True)
        a, b = at[: len(i)], at[len(i) :]
        return gains(self.parts(which), self.prior, self.alone[which], a, b)

    def join(self, i: int, j: int) -> None:
        """Put the merged pair in the place of `i`."""
        merged = merged_pairs(self.parts(np.array([i, j])), np.array([0]), np.array([1]))
        self.n[i] = merged.n[0]
        self.mean[i] = merged.mean[0]
        self.scatter[i] = merged.scatter[0]
        self.held[i] = merged.held.toarray()[0]
        self.alone[i] = evidence(merged, self.prior)[0]


def condense(parts: Components, p: Prior) -> tuple[Components, np.ndarray]:
    """Merge near pairs with a clear gain, in sweeps, until MAX_ALL_PAIRS are left or no pair gains."""
    where = np.arange(len(parts.n))
    while len(parts.n) > MAX_ALL_PAIRS:
        i, j = _clear_pairs(parts, p)
        if not len(i):
            break
        label = np.arange(len(parts.n))
        label[j] = i
        label = np.unique(label, return_inverse=True)[1]
        parts = grouped(parts, label)
        where = label[where]
    return parts, where


def _clear_pairs(parts: Components, p: Prior) -> tuple[np.ndarray, np.ndarray]:
    """(i, j), i < j: disjoint pairs of near neighbours whose gain is at least half of the best gain of either."""
    i, j = _neighbour_pairs(parts, p)
    gain = gains(parts, p, evidence(parts, p), i, j)
    best = np.zeros(len(parts.n))
    np.maximum.at(best, i, gain)
    np.maximum.at(best, j, gain)
    clear = np.flatnonzero((gain > 0) & (2 * gain >= np.maximum(best[i], best[j])))
    clear = clear[np.argsort(-gain[clear])]
    free = np.ones(len(parts.n), dtype=bool)
    chosen = []
    for pair in clear:
        a, b = i[pair], j[pair]
        if free[a] and free[b]:
            free[a] = free[b] = False
            chosen.append(pair)
    return i[chosen], j[chosen]


def _neighbour_pairs(parts: Components, p: Prior) -> tuple[np.ndarray, np.ndarray]:
    """(i, j), i < j: each component with its nearest ones, by means whitened with the pooled covariance; no pair twice."""
    m = len(parts.n)
    whitened = np.linalg.solve(np.linalg.cholesky(p.within), parts.mean.T).T
    search = NearestNeighbors(n_neighbors=N_NEIGHBORS, algorithm="brute").fit(whitened)
    neighbours = search.kneighbors(return_distance=False)  # (m, N_NEIGHBORS)
    first = np.repeat(np.arange(m), N_NEIGHBORS)
    second = neighbours.ravel()
    code = np.unique(np.minimum(first, second) * m + np.maximum(first, second))
    return np.divmod(code, m)
