"""Where clients do not differ: starting points for the Gaussian mixture that pooled rows would get; sends nothing.

The atoms are split until each has few rows. The server samples rows from them and fits mixtures of 1, 2, ... Gaussians to the sample.
With so many columns that the atoms stay coarse, the sample decides the numbers of Gaussians to try and nothing else: the mixtures
then start, as on pooled rows, from k-means, namely of the clients' centres. Where a Gaussian has fewer rows than its covariance has
numbers, and in small tables, there are further starts from these centres, with one covariance for all Gaussians in the first rounds. In
small tables the server also fits every mixture several times and keeps the best.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.maths import gaussian, local_mixture
from unpooled.maths.mixture import Params
from unpooled.models.open_mixture.candidates import SHARED, Candidate, best_optimum, gaussian_candidate, has_few_rows
from unpooled.models.open_mixture.client_weights import Proposal
from unpooled.models.open_mixture.constants import (
    COST_DIGITS,
    HALF_MEAN,
    MAX_ATOMS,
    MAX_GAUSSIANS,
    MAX_NUMBERS,
    MERGE_RANGE,
    N_ATTEMPTS,
    N_DRAWS,
    N_TIED_STARTS,
    PATIENCE,
    ROWS_PER_PIECE,
    SMALL_TABLE,
    TIED_ROWS,
)
from unpooled.models.open_mixture.covariances import with_floor
from unpooled.models.open_mixture.initial import Centres, initial_sizes, merge_best_pair

TIED = "-tied"  # in the ids of further starting points, where rows are few
ScoredMixtures = dict[str, tuple[Candidate, float]]  # id -> (mixture, its BIC on the sample)


# ---- splitting atoms ----


def should_split(atoms: Candidate, rows: float) -> bool:
    """Whether twice as many atoms still have enough rows each and fit in one message."""
    return 2 * _n_atoms(atoms) <= min(rows / ROWS_PER_PIECE, _max_atoms(atoms))


def are_too_coarse(atoms: Candidate, rows: float) -> bool:
    """Whether there are rows for twice as many atoms, but the message would be too long."""
    return _max_atoms(atoms) < 2 * _n_atoms(atoms) <= rows / ROWS_PER_PIECE


def _n_atoms(atoms: Candidate) -> int:
    """How many atoms there are."""
    return atoms.proposal.topics.shape[1]


def _max_atoms(atoms: Candidate) -> int:
    """Atoms in one message."""
    d = atoms.proposal.params.means.shape[1]
    numbers_per_atom = 1 + d + d * (d + 1) // 2
    return max(MAX_ATOMS, MAX_NUMBERS // numbers_per_atom)


def split_atoms(atoms: Candidate) -> Candidate:
    """Every atom replaced by its two halves across its longest axis."""
    params = atoms.proposal.params
    covs = gaussian.full_covs(params, atoms.shape)
    variance, axis = np.linalg.eigh(covs)
    offset = HALF_MEAN * np.sqrt(variance[:, -1:]) * axis[:, :, -1]  # (k, d)
    half_covs = covs - offset[:, :, None] * offset[:, None, :]
    packed = gaussian.pack_covs(gaussian.reshape_covs(half_covs, atoms.shape), atoms.shape)
    weights = np.tile(to_numpy(params.weights) / 2, 2)
    means = np.concatenate([params.means + offset, params.means - offset])
    halves = Params(weights, means, np.concatenate([packed, packed]))
    return atoms._replace(id=f"{atoms.id}-2", proposal=Proposal(halves, weights[None]))


# ---- mixtures fitted by the server ----


def server_mixtures(
    atoms: Candidate, centres: Centres | None, rows: float, shapes: Sequence[str], rng: np.random.Generator
) -> ScoredMixtures:
    """A starting point for every covariance type and number of Gaussians."""
    x = sample_rows(atoms, rows, rng)
    mixtures = _fit_all_sizes(x, shapes, rng)
    if centres is not None and are_too_coarse(atoms, rows):
        return restart_from_centres(mixtures, centres, centres.mean, 3, rng)
    for shape in shapes:
        _fit_downwards(mixtures, x, np.ones(len(x)), shape)
    if centres is None:
        return mixtures
    return mixtures | tied_starts(mixtures, centres, rows, rng)


def tied_starts(mixtures: ScoredMixtures, centres: Centres, rows: float, rng: np.random.Generator) -> ScoredMixtures:
    """Further starts in small tables and of the sizes with few rows: k-means of centres, one covariance for all Gaussians at first.

    Half of them are from k-means of whitened centres: clusters may be narrow in directions in which no column is.
    """
    d = centres.mean.shape[1]
    few = {
        id: found
        for id, found in mixtures.items()
        if (has_few_rows(found[0], rows) or _is_small(rows, found[0])) and rows >= 2 * d * found[0].size
    }
    starts: ScoredMixtures = {}
    for i, places in enumerate((centres.mean, whitened(centres)) * N_TIED_STARTS):
        for id, (c, bic) in restart_from_centres(few, centres, places, 1, rng).items():
            starts[f"{id}{TIED}{i}"] = c._replace(id=f"{id}{TIED}{i}", prior_rows=TIED_ROWS), bic
    return starts


def _is_small(rows: float, c: Candidate) -> bool:
    """Whether a mixture of full covariances of a small table; other types have one optimum more often."""
    return c.shape == "full" and rows <= SMALL_TABLE


def whitened(centres: Centres) -> np.ndarray:
    """(m, d) the centres in units of the covariance of all rows."""
    centred = centres.mean - centres.n @ centres.mean / centres.n.sum()
    total = with_floor((centres.scatter + (centred * centres.n[:, None]).T @ centred) / centres.n.sum())
    return np.linalg.solve(np.linalg.cholesky(total), centred.T).T


def sample_rows(atoms: Candidate, rows: float, rng: np.random.Generator) -> np.ndarray:
    """(n, d) rows sampled from the atoms, as many as there are but at most N_DRAWS."""
    params = atoms.proposal.params
    z = rng.choice(len(params.weights), int(min(rows, N_DRAWS)), p=params.weights)
    factors = np.linalg.cholesky(gaussian.full_covs(params, atoms.shape))
    noise = rng.normal(size=(len(z), params.means.shape[1]))
    return params.means[z] + np.einsum("nij,nj->ni", factors[z], noise)


def _fit_all_sizes(x: np.ndarray, shapes: Sequence[str], rng: np.random.Generator) -> ScoredMixtures:
    """Mixtures of 1, 2, ... Gaussians of each type, until neither some further sizes nor some much larger ones have a better BIC."""
    mixtures: ScoredMixtures = {}
    tried, up_to = 0, 1
    while tried < up_to:
        tried = _fit_upwards(mixtures, x, shapes, rng, tried + 1, up_to)
        up_to = _better_size_above(tried, mixtures, x, shapes, rng)
    return mixtures


def _fit_upwards(
    mixtures: ScoredMixtures, x: np.ndarray, shapes: Sequence[str], rng: np.random.Generator, first: int, up_to: int
) -> int:
    """Mixtures of this size and larger ones, up to a size and from there until BIC has not improved for some; returns the last size."""
    lowest = {shape: min((bic for c, bic in mixtures.values() if c.shape == shape), default=np.inf) for shape in shapes}
    n_without_gain = 0
    for k in range(first, MAX_GAUSSIANS + 1):
        n_without_gain += 1
        for fit in _best_attempts(x, k, rng, shapes):
            id = f"{fit.shape}-{k}"
            mixtures[id] = _as_candidate(id, fit), fit.bic
            if fit.bic < lowest[fit.shape]:
                lowest[fit.shape] = fit.bic
                n_without_gain = 0
        if n_without_gain >= PATIENCE and k >= up_to:
            break
    return k


def _best_attempts(x: np.ndarray, k: int, rng: np.random.Generator, shapes: Sequence[str]) -> list[local_mixture.Fit]:
    """A fit of k components for each covariance type with enough rows: in small tables the best of several."""
    n_times = N_ATTEMPTS if len(x) <= SMALL_TABLE else 1
    found = [fit for _ in range(n_times) for fit in local_mixture.attempts(x, np.ones(len(x)), k, rng, shapes)]
    ranked = sorted(found, key=lambda fit: round(fit.bic, COST_DIGITS))
    best = {fit.shape: fit for fit in reversed(ranked)}
    return [best[shape] for shape in shapes if shape in best]


def _better_size_above(
    size: int, mixtures: ScoredMixtures, x: np.ndarray, shapes: Sequence[str], rng: np.random.Generator
) -> int:
    """The first of some larger and larger sizes with the best BIC of all; 0 if there is none.

    Clusters that lie evenly, as on a ring, gain little before almost each has a Gaussian.
    """
    lowest = min((bic for _, bic in mixtures.values()), default=np.inf)
    while (size := size * 3 // 2 + 1) <= min(MAX_GAUSSIANS, len(x) // ROWS_PER_PIECE):
        if any(fit.bic < lowest for fit in local_mixture.attempts(x, np.ones(len(x)), size, rng, shapes)):
            return size
    return 0


def _fit_downwards(mixtures: ScoredMixtures, x: np.ndarray, w: np.ndarray, shape: str) -> None:
    """From above the best number, merge one pair at a time and refit; this often ends better than a k-means start."""
    best = _best_size(mixtures, shape)
    larger = (f"{shape}-{k}" for k in range(best + MERGE_RANGE, best, -1))
    current = next((mixtures[id][0] for id in larger if id in mixtures), None)
    while current is not None and current.size > max(1, best - MERGE_RANGE):
        merged = merge_best_pair(current, len(x))[0]
        fit = local_mixture.improved(x, w, merged.proposal.params, shape)
        if fit is None:
            break
        id = f"{shape}-{current.size - 1}"
        current = _as_candidate(id, fit)
        fewest = mixtures[f"{shape}-1"][1] if f"{shape}-1" in mixtures else np.inf
        if id not in mixtures or best_optimum([mixtures[id][0], current], len(x), fewest) is current:
            mixtures[id] = current, fit.bic


def _as_candidate(id: str, fit: local_mixture.Fit) -> Candidate:
    """A fitted local mixture as a candidate."""
    return Candidate(id, SHARED, fit.shape, Proposal(fit.params, np.asarray(fit.params.weights)[None]), fit.bic)


def restart_from_centres(
    mixtures: ScoredMixtures, centres: Centres, places: np.ndarray, n_init: int, rng: np.random.Generator
) -> ScoredMixtures:
    """Mixtures of the same sizes and types that start from k-means of the clients' centres at `places`, where these are enough."""
    sizes = sorted({c.size for c, _ in mixtures.values()})
    labels = {k: local_mixture.kmeans(places, centres.n, k, rng, n_init=n_init) for k in sizes}
    possible = {k for k in sizes if labels[k].max() == k - 1}
    return {
        id: (_from_centres(c, centres, labels[c.size]) if c.size in possible else c, bic)
        for id, (c, bic) in mixtures.items()
    }


def _from_centres(c: Candidate, centres: Centres, labels: np.ndarray) -> Candidate:
    """A candidate from labelled centres."""
    n, means, between = local_mixture.summarise(centres.mean, np.eye(c.size)[labels] * centres.n[:, None])
    covs = between / n[:, None, None] + centres.scatter / centres.n.sum()
    return gaussian_candidate(c.id, SHARED, c.shape, n, means, covs)


def first_shared(mixtures: ScoredMixtures, shapes: Sequence[str]) -> tuple[Candidate, ...]:
    """The first candidates: for each covariance type the best number on the sample, and numbers above and below."""
    best = {shape: _best_size(mixtures, shape) for shape in shapes}
    ids = [id for shape, k in best.items() for size in (k + 1, *initial_sizes(k)) for id in ids_of(shape, size)]
    return tuple(mixtures[id][0] for id in ids if id in mixtures)


def ids_of(shape: str, k: int) -> list[str]:
    """The ids of the starting points of one size."""
    return [f"{shape}-{k}", *(f"{shape}-{k}{TIED}{i}" for i in range(2 * N_TIED_STARTS))]


def _best_size(mixtures: ScoredMixtures, shape: str) -> int:
    """The number of Gaussians with the lowest BIC for a covariance type; 0 if there is none."""
    bics = {c.size: bic for c, bic in mixtures.values() if c.shape == shape}
    return min(bics, key=bics.__getitem__, default=0)
