"""A candidate model of `OpenMixture`, its M-step, its BIC and how candidates are ranked; sends nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.maths import gaussian, mixture
from unpooled.maths.mixture import Params, Stats
from unpooled.models.open_mixture.client_weights import Proposal
from unpooled.models.open_mixture.constants import (
    CLUSTER_PENALTY,
    COST_DIGITS,
    COV_PRIOR_ROWS,
    OPTIMUM_GAIN,
    TIED_ROWS,
    TINY,
)
from unpooled.models.open_mixture.covariances import least_variance, shrink
from unpooled.models.open_mixture.questions import CandidateStats
from unpooled.tree import message

GAUSSIANS = "gaussians"  # each Gaussian is a cluster, each client has its own weights of them
ATOMS = "atoms"  # many small Gaussians in one topic: all clients have the same weights
TOPICS = "topics"  # each topic is a cluster, each client has its own weights of topics
SHARED = "shared"  # each Gaussian is a cluster, all clients have the same weights


@message("open_mixture.Candidate")
class Candidate(NamedTuple):
    """One model among those that are fitted side by side."""

    id: str  # covariance type and number of Gaussians, "full-6"; with "-1" for each pair merged since
    structure: str  # GAUSSIANS, ATOMS, TOPICS or SHARED
    shape: str  # covariance type
    proposal: Proposal
    bic: float = np.inf
    held_out: float = -np.inf  # log-likelihood per held-out row
    weight_gain: float = 0.0  # the part of it that is due to the clients' own weights
    held_out_stderr: float = 0.0  # standard error of its difference to the first validated candidate
    validated: bool = False  # whether rows are held out of it
    prior_rows: float = COV_PRIOR_ROWS  # rows that the pooled covariance counts as when covariances are shrunk

    @property
    def size(self) -> int:
        """The number of clusters."""
        n_topics, n_gaussians = self.proposal.topics.shape
        return n_gaussians if self.structure in (GAUSSIANS, SHARED) else n_topics

    def in_common(self) -> Candidate:
        """The same Gaussians with the same weights at all clients."""
        return self._replace(
            structure=SHARED, proposal=self.proposal._replace(topics=self.proposal.params.weights[None])
        )

    @property
    def is_tied(self) -> bool:
        """Whether all Gaussians have one covariance."""
        return self.prior_rows >= TIED_ROWS

    @property
    def cost(self) -> float:
        """BIC, and for Gaussians held by some clients only a penalty for multiple comparisons; the lowest is the best."""
        return self.bic + (CLUSTER_PENALTY * self.size if self.structure == GAUSSIANS else 0.0)

    @property
    def state_id(self) -> str:
        """The name under which clients keep their weights of it: ids alone are not unique across structures."""
        return f"{self.structure}-{self.id}"

    @property
    def answer_key(self) -> str:
        """The name of its statistics in an answer.

        Topics have their atoms' and a validated copy has its original's, because `Compressed` sends changes since the last answer of
        the same name.
        """
        if self.id.startswith((ATOMS, TOPICS)):
            return f"{ATOMS}-{self.shape}"
        return self.state_id.removesuffix("-validated")


def gaussian_candidate(
    id: str, structure: str, shape: str, n: np.ndarray, means: np.ndarray, covs: np.ndarray
) -> Candidate:
    """A candidate of Gaussians with n (k,) rows each and full covariances (k, d, d), reduced to the covariance type."""
    weights = n / n.sum()
    least = least_variance(covs, n, means)
    packed = gaussian.project_positive(gaussian.pack_covs(gaussian.reshape_covs(covs, shape), shape), shape, least)
    topics = weights[None] if structure == SHARED else np.zeros((0, len(weights)))
    return Candidate(id, structure, shape, Proposal(Params(weights, means, packed), topics))


# ---- one round ----


def updated(c: Candidate, answer: CandidateStats) -> Candidate:
    """The candidate after one round: scored at the parameters that were sent, then moved by an M-step."""
    rows = float(answer.stats.rows)
    held_out_rows = max(float(answer.held_out_rows), 1.0)
    held_out = float(answer.held_out_loglik) / held_out_rows
    common = float(answer.held_out_common) / held_out_rows
    return c._replace(
        proposal=m_step(c, answer),
        bic=-2 * float(answer.stats.loglik) + parameter_penalty(c, rows) + float(answer.weight_penalty),
        held_out=held_out,
        weight_gain=held_out - common,
        held_out_stderr=float(np.sqrt(answer.held_out_squares) / held_out_rows),
    )


def m_step(c: Candidate, answer: CandidateStats) -> Proposal:
    """New Gaussians with shrunk covariances, and new topics."""
    topics = to_numpy(answer.topics).T
    if len(topics):
        topics = topics / np.maximum(topics.sum(1, keepdims=True), TINY)
    return gaussian_m_step(c, answer.stats)._replace(topics=topics)


def gaussian_m_step(c: Candidate, stats: Stats) -> Proposal:
    """New Gaussians with shrunk covariances; topics stay."""
    params = mixture.m_step(c.proposal.params, stats, c.shape, 0.0)
    n = to_numpy(stats.n)
    own_scale = c.structure in (ATOMS, TOPICS)
    covs = shrink(params.covs, n, params.means, c.shape, c.prior_rows, own_scale)
    return c.proposal._replace(params=params._replace(covs=covs))


def parameter_penalty(c: Candidate, rows: float) -> float:
    """BIC's penalty for the parameters at the server; clients add that of their own weights."""
    n_topics, k = c.proposal.topics.shape
    d = c.proposal.params.means.shape[1]
    numbers = {"full": d * (d + 1) // 2, "diag": d, "spherical": 1}[c.shape]  # of one covariance
    n_parameters = k * d + numbers * (1 if c.is_tied else k)
    if n_topics:
        n_parameters += k - 1 + n_topics - 1
    return n_parameters * np.log(rows)


# ---- ranking ----


def best(candidates: Sequence[Candidate], structure: str) -> Candidate | None:
    """The candidate of one structure with the lowest cost."""
    return min((c for c in candidates if c.structure == structure), key=lambda c: c.cost, default=None)


def lowest_cost(candidates: Sequence[Candidate], n: int) -> list[Candidate]:
    """The n candidates with the lowest cost, the best first."""
    return sorted(candidates, key=lambda c: round(c.cost, COST_DIGITS))[:n]


def best_of_each_size(candidates: Sequence[Candidate], n_kept: int) -> list[Candidate]:
    """The best candidates of every size."""
    kept: dict[int, list[Candidate]] = {}
    for c in lowest_cost(candidates, len(candidates)):
        kept.setdefault(c.size, []).append(c)
    return [c for ranked in kept.values() for c in ranked[:n_kept]]


def by_size(
    candidates: Sequence[Candidate], rows: float, fewest: float = np.inf, least_gain: float = OPTIMUM_GAIN
) -> list[list[Candidate]]:
    """Groups of candidates, the one with the lowest cost first; in each the best local optimum first, then the one with the lowest cost.

    A group has one candidate; but where rows are too few for the likelihood to choose among local optima (see `best_optimum`), those of
    one size are a group.
    """
    groups: dict[tuple[str, int | str], list[Candidate]] = {}
    for c in candidates:
        groups.setdefault((c.shape, c.size if has_few_rows(c, rows) else c.id), []).append(c)
    found = []
    for group in groups.values():
        lowest = lowest_cost(group, 1)[0]
        optimum = best_optimum(group, rows, fewest, least_gain)
        found.append([optimum] if optimum is lowest else [optimum, lowest])
    return sorted(found, key=lambda group: round(group[-1].cost, COST_DIGITS))


def best_optimum(
    candidates: Sequence[Candidate], rows: float, fewest: float, least_gain: float = OPTIMUM_GAIN
) -> Candidate:
    """The best local optimum among candidates of one size and type; `fewest` is the cost of the mixture with fewest Gaussians.

    It is the one with the lowest cost; but where a Gaussian has fewer rows than its covariance has numbers, likelihoods compare how
    covariances follow chance and tails. There it is the one with the smallest determinant of the mean covariance within clusters (Wilks'
    criterion; Friedman and Rubin, 1967), which all rows determine, of those that gain nearly as much over fewer Gaussians as the
    one with the lowest cost: at least its share `least_gain`. A Gaussian that collapses onto two rows makes the determinant small, too, but
    gains nothing.
    """
    lowest = lowest_cost(candidates, 1)[0]
    if not has_few_rows(lowest, rows):
        return lowest
    enough = fewest - least_gain * (fewest - lowest.cost) if np.isfinite(fewest) else np.inf
    return min((c for c in candidates if c is lowest or c.cost <= enough), key=_log_volume)


def has_few_rows(c: Candidate, rows: float) -> bool:
    """Whether a Gaussian has, on average, fewer rows than its covariance has numbers; only full covariances have many."""
    d = c.proposal.params.means.shape[1]
    return c.shape == "full" and rows / len(c.proposal.params.weights) < d * (d + 1) / 2


def _log_volume(c: Candidate) -> float:
    """The logarithm of the determinant of the mean covariance within clusters."""
    return float(np.linalg.slogdet(gaussian.unpack_triangle(pooled_covariance(c)))[1])


def pooled_covariance(c: Candidate) -> np.ndarray:
    """(t,) the weighted mean covariance of its Gaussians, packed."""
    params = c.proposal.params
    return gaussian.pack_triangle(np.tensordot(params.weights, gaussian.full_covs(params, c.shape), 1))
