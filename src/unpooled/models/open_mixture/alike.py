"""Clients that do not differ: `OpenMixture` fits them the Gaussian mixture that pooled rows would get, K by BIC. Sends nothing itself.

Atoms are split until they are fine. The server draws rows from them, fits mixtures of 1, 2, ... Gaussians to what it drew, and the
likeliest numbers race over the real rows with weights that all clients share. Where rows have so many columns that atoms stay crude,
what was drawn tells numbers alone: the race then begins as it would over the pool, at k-means, of the centres that clients found.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.sparse.csgraph import connected_components

from unpooled.arrays import to_numpy
from unpooled.maths import gaussian, local_mixture
from unpooled.maths.mixture import Params
from unpooled.models.open_mixture.race import ATOMS, Candidate, Centres, ladder, one_less
from unpooled.models.open_mixture.rounds import Proposal

ROWS_PER_PIECE = 10  # an atom is split in two as long as its halves would have so many rows on average
NUMBERS = 80 * 231  # that a client sends of all pieces at most: 80 in 20 dimensions, thousands in two
APART = np.sqrt(2 / np.pi)  # where the halves of a Gaussian have their means, in standard deviations
DRAWS = 5000
MOST = 40
AROUND = 5  # numbers above and below the best that are reached by joining pairs, too
PATIENCE = 3  # so many numbers in a row at which no shape has a better BIC end the search
CONCENTRIC = 0.5  # standard deviations: Gaussians whose means are nearer are the core and the tails of one cluster


def coarse(c: Candidate, rows: float) -> bool:
    """Whether the atoms are few for so many rows, and twice as many are not too long a message."""
    return 2 * c.proposal.topics.shape[1] <= min(rows / ROWS_PER_PIECE, _most(c))


def crude(c: Candidate, rows: float) -> bool:
    """Whether the atoms are few for so many rows, and twice as many would be too long a message."""
    return _most(c) < 2 * c.proposal.topics.shape[1] <= rows / ROWS_PER_PIECE


def _most(c: Candidate) -> int:
    """Atoms in a message."""
    d = c.proposal.params.means.shape[1]
    return max(ATOMS[1], NUMBERS // (1 + d + d * (d + 1) // 2))


def halved(c: Candidate) -> Candidate:
    """Every atom cut in two across its longest axis."""
    params = c.proposal.params
    covs = gaussian.full_covs(params, c.shape)
    length, axis = np.linalg.eigh(covs)
    away = APART * np.sqrt(length[:, -1:]) * axis[:, :, -1]  # (k, d)
    half = covs - away[:, :, None] * away[:, None, :]
    half = gaussian.pack_covs(gaussian.reshape_covs(half, c.shape), c.shape)
    weights = np.tile(to_numpy(params.weights) / 2, 2)
    both = Params(weights, np.concatenate([params.means + away, params.means - away]), np.concatenate([half, half]))
    return c._replace(id=f"{c.id}-2", proposal=Proposal(both, weights[None]))


# ---- what the server draws and fits ----


def drawn(c: Candidate, rows: float, rng: np.random.Generator) -> np.ndarray:
    """(n, d) rows as the atoms would give them, as many as there are or DRAWS."""
    params = c.proposal.params
    z = rng.choice(len(params.weights), int(min(rows, DRAWS)), p=params.weights)
    factors = np.linalg.cholesky(gaussian.full_covs(params, c.shape))
    return params.means[z] + np.einsum("nij,nj->ni", factors[z], rng.normal(size=(len(z), params.means.shape[1])))


Found = dict[str, tuple[Candidate, float]]  # id -> (mixture, its BIC on what was drawn)


def mixtures(
    atoms: Candidate, spots: Centres | None, rows: float, shapes: Sequence[str], rng: np.random.Generator
) -> Found:
    """Where the race may begin, for each shape and number."""
    x = drawn(atoms, rows, rng)
    found = fitted(x, shapes, rng)
    if spots is not None and crude(atoms, rows):
        return begun(found, spots, rng)
    for shape in shapes:
        _descend(found, x, np.ones(len(x)), shape)
    return found


def fitted(x: np.ndarray, shapes: Sequence[str], rng: np.random.Generator) -> Found:
    """For each shape and number until none gets better."""
    found: Found = {}
    w, least, waited = np.ones(len(x)), dict.fromkeys(shapes, np.inf), 0
    for k in range(1, MOST + 1):
        waited += 1
        for fit in local_mixture.attempts(x, w, k, rng, shapes):
            found[f"{fit.shape}-{k}"] = _candidate(f"{fit.shape}-{k}", fit), fit.bic
            if fit.bic < least[fit.shape]:
                least[fit.shape], waited = fit.bic, 0
        if waited == PATIENCE:
            break
    return found


def _descend(found: Found, x: np.ndarray, w: np.ndarray, shape: str) -> None:
    """From above the best number of a shape join one pair at a time: it often ends better than k-means begins."""
    best = _best(found, shape)
    at = next((found[f"{shape}-{k}"][0] for k in range(best + AROUND, best, -1) if f"{shape}-{k}" in found), None)
    while at is not None and at.size > max(1, best - AROUND):
        fit = local_mixture.improved(x, w, one_less(at, len(x))[0].proposal.params, shape)
        if fit is None:
            break
        id = f"{shape}-{at.size - 1}"
        at = _candidate(id, fit)
        if id not in found or fit.bic < found[id][1]:
            found[id] = at, fit.bic


def _candidate(id: str, fit: local_mixture.Fit) -> Candidate:
    return Candidate(id, "alike", fit.shape, Proposal(fit.params, np.asarray(fit.params.weights)[None]))


def begun(found: Found, spots: Centres, rng: np.random.Generator) -> Found:
    """Mixtures of the same numbers and shapes that begin at k-means of the clients' centres, where there are enough."""
    sizes = sorted({c.size for c, _ in found.values()})
    labels = {k: local_mixture.kmeans(spots.x, spots.n, k, rng, n_init=3) for k in sizes}
    enough = {k for k in sizes if labels[k].max() == k - 1}
    return {i: (_begun(c, spots, labels[c.size]) if c.size in enough else c, bic) for i, (c, bic) in found.items()}


def _begun(c: Candidate, spots: Centres, labels: np.ndarray) -> Candidate:
    n, means, scatter = local_mixture.summarise(spots.x, np.eye(c.size)[labels] * spots.n[:, None])
    covs = scatter / n[:, None, None] + spots.around / spots.n.sum()
    weights = n / n.sum()
    params = Params(weights, means, gaussian.pack_covs(gaussian.reshape_covs(covs, c.shape), c.shape))
    return c._replace(proposal=Proposal(params, weights[None]))


def entrants(found: Found, shapes: Sequence[str]) -> tuple[Candidate, ...]:
    """The mixtures that the race begins with: for each shape the likeliest number, and others a little above and below."""
    ids = [f"{shape}-{k}" for shape in shapes for k in ladder(_best(found, shape))]
    return tuple(found[id][0] for id in ids if id in found)


def _best(found: Found, shape: str) -> int:
    """The likeliest number of a shape; 0 where there is none."""
    bics = {c.size: bic for c, bic in found.values() if c.shape == shape}
    return min(bics, key=bics.__getitem__, default=0)


# ---- clusters that one Gaussian does not describe ----


def concentric(c: Candidate) -> Candidate:
    """The candidate with a topic for each cluster: Gaussians about the same mean are one, others are clusters of their own.

    BIC spends a second Gaussian on a cluster that has a denser core or longer tails than one Gaussian; it is still one cluster.
    """
    params = c.proposal.params
    covs = gaussian.full_covs(params, c.shape)
    away = params.means[:, None] - params.means[None]  # (k, k, d)
    both = (covs[:, None] + covs[None]) / 2
    squares = np.einsum("ijd,ijd->ij", away, np.linalg.solve(both, away[..., None])[..., 0])
    k, labels = connected_components(squares < CONCENTRIC**2)
    topics = np.eye(k)[:, labels] * to_numpy(params.weights)
    return c._replace(proposal=Proposal(params, topics / topics.sum(1, keepdims=True)))
