"""The candidates that `OpenMixture` fits side by side, and how the server makes, moves and ranks them. Sends nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from unpooled.arrays import Array, to_numpy
from unpooled.errors import BadData
from unpooled.maths import gaussian, mixture
from unpooled.maths.local_mixture import kmeans
from unpooled.maths.mixture import Params
from unpooled.models.open_mixture import merging
from unpooled.models.open_mixture.agglomeration import Merges
from unpooled.models.open_mixture.rounds import TINY, Description, Proposal, Sums
from unpooled.tree import message

ATOMS = (12, 80)  # fewest and most
ROUND_ATOMS = (12, 48)  # the same where they are round, which is chosen to send little
ROWS_PER_ATOM = 60
LADDER = 8  # numbers of clusters tried first, for each covariance shape
SMALLEST = 0.01  # an atom's size, relative to the pooled one
CLEAR = 10.0  # of BIC: where evidence counts as very strong
FLOOR = 1e-6  # of the mean variance, added to the pooled covariance


@message("open_mixture.Candidate")
class Candidate(NamedTuple):
    """A model in the race."""

    id: str
    structure: str  # gaussians; atoms (one topic); topics; alike: Gaussians, of one topic
    shape: str
    proposal: Proposal
    bic: float = np.inf
    held: float = -np.inf  # log-likelihood of a held-out row
    told: float = 0.0  # how much of that its client's own weights tell
    doubt: float = 0.0  # standard error of how far that is above the first tested candidate's
    tested: bool = False  # whether rows are held out of it, to judge it by
    brief: bool = False  # whether clients tell its likelihood alone, so that it does not move
    still: bool = False  # whether its Gaussians stay where they are, and topics alone move
    pull: float = 2.0  # rows of the pooled covariance that each Gaussian's own is mixed with

    @property
    def size(self) -> int:
        """Clusters."""
        return self.proposal.topics.shape[self.structure in ("gaussians", "alike")]

    @property
    def cost(self) -> float:
        """BIC, and that a Gaussian which few clients hold must be clear: chance has a try at each cluster of each client."""
        return self.bic + (CLEAR * self.size if self.structure == "gaussians" else 0.0)

    @property
    def place(self) -> str:
        """Under which name clients keep their weights of it: full-6 of a search and full-6 of clients that are alike are two."""
        return f"{self.structure}-{self.id}"

    @property
    def kin(self) -> str:
        """Whose statistics its own go on from: those of topics from their atoms', those of a copy from the first's."""
        if self.of_atoms:
            return f"atoms-{self.shape}"
        return self.place.removesuffix("-tested")

    @property
    def of_atoms(self) -> bool:
        return self.id.startswith(("atoms", "topics"))

    @property
    def numbers(self) -> int:
        """In one answer about it, beside topics."""
        params = self.proposal.params
        return params.weights.size + params.means.size + params.covs.size


@message("open_mixture.Path")
class Path(NamedTuple):
    """How local components join into ever fewer, and what they were."""

    shape: str
    n: Array  # (m,)
    mean: Array  # (m, d)
    scatter: Array  # (m, t)
    within: Array  # (t,)
    merges: Merges


@message("open_mixture.Centres")
class Centres(NamedTuple):
    """Centres that clients found in their rows."""

    x: Array  # (m, d)
    n: Array  # (m,) rows of each
    around: Array  # (d, d) scatter of all rows about their centres


# ---- Gaussians ----


def components(found: Mapping[str, Description]) -> merging.Components:
    """All clients' components as one list."""
    parts = [found[name] for name in sorted(found)]
    owner = np.repeat(np.arange(len(parts)), [len(p.n) for p in parts])
    n = np.concatenate([p.n for p in parts])
    if not len(n):
        raise BadData("no client has a cluster of min_count rows: lower min_count, or give clients with more rows")
    held = csr_array((n, (np.arange(len(n)), owner)), shape=(len(n), len(parts)))
    scatter = _sound(np.concatenate([p.scatter for p in parts]), "full", 0.0)  # it may have come rounded
    return merging.Components(n, np.concatenate([p.mean for p in parts]), gaussian.unpack_triangle(scatter), held)


def path(parts: merging.Components, shape: str) -> Path:
    """How the components join when clusters have this covariance shape."""
    few, _, merges = merging.merge(parts, shape)
    within = gaussian.pack_triangle(merging.prior(parts, shape).within)
    return Path(shape, few.n, few.mean, gaussian.pack_triangle(few.scatter), within, merges)


def along(road: Path, sizes: Sequence[int]) -> list[Candidate]:
    """Mixtures of so many Gaussians, where joining stops there."""
    merges = road.merges
    least = max(1, merges.leaves - len(merges.left))
    few = merging.Components(road.n, road.mean, gaussian.unpack_triangle(road.scatter), csr_array((len(road.n), 1)))
    return [_joined(road, few, merges.labels(k), k) for k in sizes if least <= k <= merges.leaves]


def _joined(road: Path, few: merging.Components, labels: np.ndarray, k: int) -> Candidate:
    one = merging.pooled(few, labels)
    covs = (one.scatter + 2 * gaussian.unpack_triangle(road.within)) / (one.n + 2)[:, None, None]
    return _gaussians(f"{road.shape}-{k}", "gaussians", road.shape, one, covs)


def _gaussians(id: str, structure: str, shape: str, one: merging.Components, covs: np.ndarray) -> Candidate:
    packed = gaussian.pack_covs(gaussian.reshape_covs(covs, shape), shape)
    weights = one.n / one.n.sum()
    topics = weights[None] if structure == "alike" else np.zeros((0, len(weights)))
    return Candidate(id, structure, shape, Proposal(Params(weights, one.mean, packed), topics))


def ladder(best: int) -> list[int]:
    """Numbers of clusters to try first: a little above the server's guess, and down from it by quarters."""
    sizes = [best + 2, best]
    while sizes[-1] > 1 and len(sizes) < LADDER:
        sizes.append(min(sizes[-1] - 1, sizes[-1] * 3 // 4))
    return sizes


def one_less(c: Candidate, rows: float) -> list[Candidate]:
    """The candidate with the pair joined that is most likely one; none when it has no pair."""
    k = c.size
    if k < 2:
        return []
    parts = as_components(c, rows)
    p = merging.prior(parts, c.shape)
    i, j = np.triu_indices(k, 1)
    pair = int(np.argmax(merging.gains(parts, p, merging.evidence(parts, p), i, j)))
    label = np.arange(k)
    label[j[pair]] = i[pair]
    one = merging.pooled(parts, np.unique(label, return_inverse=True)[1])
    return [_gaussians(f"{c.id}-1", c.structure, c.shape, one, one.scatter / one.n[:, None, None])]


def some_less(c: Candidate, rows: float, pairs: int) -> list[Candidate]:
    """The candidate with one pair joined, then another, up to so many."""
    found = [c]
    while len(found) <= pairs and found[-1].size > 1:
        found += one_less(found[-1], rows)
    return found[1:]


def as_components(c: Candidate, rows: float) -> merging.Components:
    """The candidate's Gaussians as if each were a client's component; who holds it is not known."""
    params = c.proposal.params
    n = rows * to_numpy(params.weights) + TINY
    scatter = gaussian.full_covs(params, c.shape) * n[:, None, None]
    return merging.Components(n, params.means, scatter, csr_array((len(n), 1)))


def pooled_within(c: Candidate) -> np.ndarray:
    """(t,) the mean covariance of its Gaussians, packed."""
    params = c.proposal.params
    return gaussian.pack_triangle(np.tensordot(params.weights, gaussian.full_covs(params, c.shape), 1))


# ---- atoms ----


def centres(found: Mapping[str, Description]) -> Centres:
    """All clients' centres as one list."""
    parts = [found[name] for name in sorted(found)]
    x, n = np.concatenate([p.centre for p in parts]), np.concatenate([p.centre_n for p in parts])
    if not len(x):
        raise BadData("no client has a cluster of min_count rows: lower min_count, or give clients with more rows")
    return Centres(x, n, gaussian.unpack_triangle(sum(p.centre_scatter for p in parts)))


def atoms(spots: Centres, shape: str, rng: np.random.Generator) -> Candidate:
    """A fine mixture of one topic, from all clients' centres."""
    x, n, around = spots
    size = int(np.clip(n.sum() / ROWS_PER_ATOM, *(ROUND_ATOMS if shape == "round" else ATOMS)))
    labels = kmeans(x, n, min(size, max(len(x) // 2, 1)), rng, n_init=3)
    member = np.eye(labels.max() + 1)[:, labels] * n  # (k, m)
    means = member @ x / member.sum(1)[:, None]
    away = x - means[labels]
    within = floored(((away * n[:, None]).T @ away + around) / n.sum())
    weights = member.sum(1) / n.sum()
    pull = x.shape[1] + 2.0  # an atom has few rows
    if shape == "round":
        metric = np.linalg.inv(np.linalg.cholesky(within)).T
        mixed = Proposal(Params(weights, means @ metric, np.ones(len(weights))), weights[None], metric)
        return Candidate("atoms", "atoms", "spherical", mixed, pull=pull)
    covs = np.repeat(gaussian.pack_triangle(within)[None], len(weights), axis=0)
    return Candidate("atoms", "atoms", "full", Proposal(Params(weights, means, covs), weights[None]), pull=pull)


def unbent(c: Candidate) -> Candidate:
    """The candidate with its atoms described where the rows are, with full covariances; others as they are."""
    (weights, means, variances), topics, metric = c.proposal
    if not len(metric):
        return c
    back = np.linalg.inv(metric)
    covs = variances[:, None] * gaussian.pack_triangle(back.T @ back)
    return c._replace(shape="full", proposal=Proposal(Params(weights, means @ back, covs), topics))


def floored(cov: np.ndarray) -> np.ndarray:
    """The covariance with a little added, so that a constant column does no harm."""
    mean = np.trace(cov) / len(cov)
    return cov + (FLOOR * mean or FLOOR) * np.eye(len(cov))


# ---- a round ----


def advance(c: Candidate, sums: Sums) -> Candidate:
    """The candidate after one round: scored at the old parameters, moved to the new ones."""
    rows = float(sums.stats.rows)
    bic = -2 * float(sums.stats.loglik) + _price(c, rows) + float(sums.paid)
    out = max(float(sums.held_rows), 1.0)
    held, shared, doubt = (
        s / out for s in (float(sums.held_loglik), float(sums.held_shared), np.sqrt(sums.held_square))
    )
    proposal = c.proposal if c.brief else _moved(c, sums)
    return c._replace(proposal=proposal, bic=bic, held=held, told=held - shared, doubt=float(doubt))


def _moved(c: Candidate, sums: Sums) -> Proposal:
    n, params = to_numpy(sums.stats.n), c.proposal.params
    if c.still:
        params = params._replace(weights=n / n.sum())
    else:
        params = mixture.m_step(params, sums.stats, c.shape, 0.0)
        params = params._replace(covs=_shrunk(params.covs, n, c))
    topics = to_numpy(sums.topics).T
    if len(topics):
        topics = topics / np.maximum(topics.sum(1, keepdims=True), TINY)
    return c.proposal._replace(params=params, topics=topics)


def _price(c: Candidate, rows: float) -> float:
    """BIC's price of what is shared; the clients' own weights are paid for at the clients."""
    z, m = c.proposal.topics.shape
    shared = gaussian.n_parameters(m, c.proposal.params.means.shape[1], c.shape) - (m - 1)
    return (shared + (m - 1 + z - 1 if z else 0)) * np.log(rows)


def _shrunk(covs: Array, n: Array, c: Candidate) -> Array:
    """Covariances drawn a little to the candidate's pooled one; an atom's to one of its own size."""
    d = c.proposal.params.means.shape[1]
    count = n[:, None] if covs.ndim > 1 else n
    pooled = (covs * count).sum(0) / max(n.sum(), TINY)
    level = abs(pooled.mean() if c.shape != "full" else np.trace(gaussian.unpack_triangle(pooled)) / d)
    pooled = _sound(pooled[None], c.shape, SMALLEST * level)[0]
    one = _size(covs, pooled, c.shape) if c.structure in ("atoms", "topics") else 1.0
    drawn = (covs * count + c.pull * one * pooled) / (count + c.pull)
    return _sound(
        drawn + FLOOR * level * gaussian.diagonal(c.proposal.params.means, c.shape), c.shape, SMALLEST * level
    )


def _sound(covs: Array, shape: str, least: float) -> Array:
    """The same, where they are covariances; sums that came rounded may give some that are not."""
    if shape != "full":
        return np.where(covs > 0, covs, least)
    variance, axes = np.linalg.eigh(gaussian.unpack_triangle(covs))
    mended = (axes * np.maximum(variance, least)[:, None]) @ axes.swapaxes(1, 2)
    return np.where(variance[:, :1] > 0, covs, gaussian.pack_triangle(mended))


def _size(covs: Array, pooled: Array, shape: str) -> Array:
    """(k, 1), or (k,) of round ones: the mean variance of each where the pooled covariance is round; none is taken for nothing."""
    if shape != "full":
        size = covs / np.maximum(pooled, TINY)
        return np.maximum(size.mean(-1, keepdims=True) if covs.ndim > 1 else size, SMALLEST)
    white = np.linalg.inv(np.linalg.cholesky(floored(gaussian.unpack_triangle(pooled))))
    size = np.einsum("ij,kjl,il->k", white, gaussian.unpack_triangle(covs), white) / len(white)
    return np.maximum(size, SMALLEST)[:, None]


def best(race: Sequence[Candidate], structure: str) -> Candidate | None:
    """The lowest cost among candidates of one structure."""
    return min((c for c in race if c.structure == structure), key=lambda c: c.cost, default=None)


def thinned(race: Sequence[Candidate], structure: str, keep: int) -> tuple[Candidate, ...]:
    """The few best of one structure, and all others."""
    ranked = sorted((c for c in race if c.structure == structure), key=lambda c: c.cost)
    out = {c.id for c in ranked[keep:]}
    return tuple(c for c in race if c.id not in out)


def picked(race: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Of mixtures whose likelihood alone is known the best goes on with its moments, beside the best of the others.

    Where there are no others, the best of each shape does.
    """
    if not any(c.brief for c in race):
        return tuple(race)
    moving = best([c for c in race if not c.brief], "gaussians")
    known = sorted((c for c in race if c.brief), key=lambda c: -c.cost)
    go = {known[-1].id, moving.id} if moving else set({c.shape: c.id for c in known}.values())
    return tuple(c._replace(brief=False) for c in race if c.structure != "gaussians" or c.id in go)
