"""The first candidates, made from what clients described, and candidates with pairs of Gaussians merged; sends nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import csr_array

from unpooled.arrays import Array, to_numpy
from unpooled.errors import BadData
from unpooled.maths import gaussian
from unpooled.maths.local_mixture import kmeans
from unpooled.maths.mixture import Params
from unpooled.models.open_mixture import merging
from unpooled.models.open_mixture.agglomeration import Merges
from unpooled.models.open_mixture.candidates import (
    ATOMS,
    GAUSSIANS,
    Candidate,
    gaussian_candidate,
    pooled_covariance,
)
from unpooled.models.open_mixture.client_weights import Proposal
from unpooled.models.open_mixture.constants import (
    COV_PRIOR_ROWS,
    HALF_MEAN,
    MAX_ATOMS,
    MIN_ATOMS,
    N_INITIAL_SIZES,
    ROWS_PER_ATOM,
    ROWS_PER_CENTRE,
    TINY,
)
from unpooled.models.open_mixture.covariances import repair, with_floor
from unpooled.models.open_mixture.descriptions import Description
from unpooled.tree import message

TOO_FEW_ROWS = "no client has a cluster of min_count rows: lower min_count, or give clients with more rows"


# ---- Gaussians: local components, merged into fewer and fewer ----


@message("open_mixture.MergePath")
class MergePath(NamedTuple):
    """The clients' components for one covariance type, and the order in which they merge."""

    shape: str
    n: Array  # (m,)
    mean: Array  # (m, d)
    scatter: Array  # (m, t) packed
    within: Array  # (t,) pooled covariance within components, packed
    merges: Merges


def local_components(descriptions: Mapping[str, Description]) -> merging.Components:
    """All clients' components in one list."""
    parts = [descriptions[name].components() for name in sorted(descriptions)]
    n, mean, packed = (np.concatenate(values) for values in zip(*parts))
    if not len(n):
        raise BadData(TOO_FEW_ROWS)
    owner = np.repeat(np.arange(len(parts)), [len(part[0]) for part in parts])
    held = csr_array((n, (np.arange(len(n)), owner)), shape=(len(n), len(parts)))
    scatter = repair(packed, "full", 0.0)  # a compressed one may not be positive
    return merging.Components(n, mean, gaussian.unpack_triangle(scatter), held)


def without_client_means(descriptions: Mapping[str, Description]) -> tuple[dict[str, Description], np.ndarray]:
    """(the descriptions with every client's centres moved so that all clients have one mean, that mean (d,))."""
    told = {name: d for name, d in descriptions.items() if len(d.n)}
    if not told:
        raise BadData(TOO_FEW_ROWS)
    means = {name: d.n @ d.centre / d.n.sum() for name, d in told.items()}
    rows = np.array([d.n.sum() for d in told.values()])
    centre = rows @ np.stack(list(means.values())) / rows.sum()
    moved = {name: d._replace(centre=d.centre - means[name] + centre) for name, d in told.items()}
    return {**descriptions, **moved}, centre


def merge_path(components: merging.Components, shape: str) -> MergePath:
    """The order in which components merge when clusters have this covariance type."""
    condensed, _, merges = merging.merge(components, shape)
    within = gaussian.pack_triangle(merging.prior(components, shape).within)
    return MergePath(shape, condensed.n, condensed.mean, gaussian.pack_triangle(condensed.scatter), within, merges)


def initial_sizes(best: int) -> list[int]:
    """Numbers of clusters to try first: two above the server's estimate, the estimate, and from there down in steps of a quarter."""
    sizes = [best + 2, best]
    while sizes[-1] > 1 and len(sizes) < N_INITIAL_SIZES:
        sizes.append(min(sizes[-1] - 1, sizes[-1] * 3 // 4))
    return sizes


def candidates_on_path(path: MergePath, sizes: Sequence[int]) -> list[Candidate]:
    """A candidate for each of the sizes that the path reaches."""
    merges = path.merges
    smallest = max(1, merges.leaves - len(merges.left))
    return [_candidate_on_path(path, k) for k in sizes if smallest <= k <= merges.leaves]


def _candidate_on_path(path: MergePath, k: int) -> Candidate:
    """The candidate with k Gaussians on the path of merges."""
    unowned = csr_array((len(path.n), 1))
    parts = merging.Components(path.n, path.mean, gaussian.unpack_triangle(path.scatter), unowned)
    merged = merging.grouped(parts, path.merges.labels(k))
    covs = prior_covariances(merged, path.within)
    return gaussian_candidate(f"{path.shape}-{k}", GAUSSIANS, path.shape, merged.n, merged.mean, covs)


def prior_covariances(components: merging.Components, within: Array) -> np.ndarray:
    """(k, d, d) covariances averaged with the packed pooled one."""
    prior_scatter = COV_PRIOR_ROWS * gaussian.unpack_triangle(within)
    return (components.scatter + prior_scatter) / (components.n + COV_PRIOR_ROWS)[:, None, None]


# ---- a pair of Gaussians merged ----


def merge_best_pair(c: Candidate, rows: float) -> list[Candidate]:
    """The candidate with the pair merged that is most likely one Gaussian; empty if it has one Gaussian only."""
    k = c.size
    if k < 2:
        return []
    components = as_components(c, rows)
    prior = merging.prior(components, c.shape)
    i, j = np.triu_indices(k, 1)
    gains = merging.gains(components, prior, merging.evidence(components, prior), i, j)
    pair = int(np.argmax(gains))
    labels = np.arange(k)
    labels[j[pair]] = i[pair]
    merged = merging.grouped(components, np.unique(labels, return_inverse=True)[1])
    covs = merged.scatter / merged.n[:, None, None]
    return [gaussian_candidate(f"{c.id}-1", c.structure, c.shape, merged.n, merged.mean, covs)]


def merge_pairs(c: Candidate, rows: float, n_pairs: int) -> list[Candidate]:
    """The candidate with one pair merged, with two, and so on up to n_pairs."""
    found = [c]
    while len(found) <= n_pairs and found[-1].size > 1:
        found += merge_best_pair(found[-1], rows)
    return found[1:]


def as_components(c: Candidate, rows: float) -> merging.Components:
    """The candidate's Gaussians as components of one unknown client."""
    params = c.proposal.params
    n = rows * to_numpy(params.weights) + TINY
    scatter = gaussian.full_covs(params, c.shape) * n[:, None, None]
    return merging.Components(n, params.means, scatter, csr_array((len(n), 1)))


# ---- a Gaussian split ----


def split_gaussian(c: Candidate, k: int) -> Candidate:
    """The mixture with one Gaussian cut in halves across its longest axis, over that of the mean covariance within clusters."""
    cov = gaussian.full_covs(c.proposal.params, c.shape)[k]
    variance, axes = eigh(cov, gaussian.unpack_triangle(pooled_covariance(c)))
    return _halved(c, k, HALF_MEAN * cov @ axes[:, -1] / np.sqrt(variance[-1]))


def split_along(c: Candidate, k: int, axis: int) -> Candidate:
    """The mixture with one Gaussian cut in halves across one of its own principal axes; 0 is the longest.

    Where all Gaussians have one covariance, no axis is longer than another over the mean covariance within clusters. The classes of
    correlated columns differ most along the long ones.
    """
    variance, axes = np.linalg.eigh(gaussian.full_covs(c.proposal.params, c.shape)[k])
    return _halved(c, k, HALF_MEAN * np.sqrt(max(variance[-1 - axis], 0.0)) * axes[:, -1 - axis])


def _halved(c: Candidate, k: int, away: np.ndarray) -> Candidate:
    """The mixture with Gaussian k in two halves, whose means are `away` (d,) from its own."""
    params = c.proposal.params
    covs = gaussian.full_covs(params, c.shape)
    half_cov = covs[k] - np.outer(away, away)
    others = np.arange(len(covs)) != k
    weights = np.append(params.weights[others], np.repeat(params.weights[k] / 2, 2))
    means = np.concatenate([params.means[others], [params.means[k] + away, params.means[k] - away]])
    all_covs = np.concatenate([covs[others], [half_cov, half_cov]])
    return gaussian_candidate(c.id, c.structure, c.shape, weights, means, all_covs)._replace(prior_rows=c.prior_rows)


def split_widest(c: Candidate, n_splits: int) -> list[Candidate]:
    """The candidate with one Gaussian split, for each of those that are widest over the mean covariance within clusters.

    A single Gaussian is as wide as that in all directions: it is split across its own longest axes.
    """
    if c.size == 1:
        axes = range(min(n_splits, c.proposal.params.means.shape[1]))
        return [split_along(c, 0, axis)._replace(id=f"{c.id}+{axis}") for axis in axes]
    within = gaussian.unpack_triangle(pooled_covariance(c))
    widths = [eigh(cov, within, eigvals_only=True)[-1] for cov in gaussian.full_covs(c.proposal.params, c.shape)]
    widest = np.argsort(widths)[::-1][:n_splits]
    return [split_gaussian(c, int(k))._replace(id=f"{c.id}+{i}") for i, k in enumerate(widest)]


# ---- atoms: k-means of the clients' centres ----


@message("open_mixture.Centres")
class Centres(NamedTuple):
    """All clients' k-means centres."""

    mean: Array  # (m, d)
    n: Array  # (m,) rows of each
    scatter: Array  # (d, d) of all rows about their centres


def local_centres(descriptions: Mapping[str, Description]) -> Centres:
    """All clients' centres in one list."""
    parts = [descriptions[name] for name in sorted(descriptions)]
    mean = np.concatenate([p.centre for p in parts])
    n = np.concatenate([p.n for p in parts])
    if not len(mean):
        raise BadData(TOO_FEW_ROWS)
    return Centres(mean, n, gaussian.unpack_triangle(np.concatenate([p.scatter for p in parts]).sum(0)))


def initial_atoms(centres: Centres, rng: np.random.Generator) -> Candidate:
    """A mixture of many Gaussians with one covariance, from k-means of all clients' centres."""
    x, n, scatter = centres
    n_atoms = int(np.clip(n.sum() / ROWS_PER_ATOM, MIN_ATOMS, MAX_ATOMS))
    most = max(min(len(x) // 2, int(n.sum()) // (2 * ROWS_PER_CENTRE)), 1)  # at least two centres each
    labels = kmeans(x, n, min(n_atoms, most), rng, n_init=3)
    member = np.eye(labels.max() + 1)[:, labels] * n  # (k, m)
    means = member @ x / member.sum(1)[:, None]
    centred = x - means[labels]
    within = with_floor(((centred * n[:, None]).T @ centred + scatter) / n.sum())
    weights = member.sum(1) / n.sum()
    covs = np.repeat(gaussian.pack_triangle(within)[None], len(weights), axis=0)
    prior_rows = x.shape[1] + COV_PRIOR_ROWS  # an atom has few rows
    return Candidate(ATOMS, ATOMS, "full", Proposal(Params(weights, means, covs), weights[None]), prior_rows=prior_rows)
