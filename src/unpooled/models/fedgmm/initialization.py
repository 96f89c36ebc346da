"""The start of FedGMM: Gaussians from k-means over all rows or local centres, linear learners from class means inside each Gaussian.

k-means over all rows takes SUMs alone, the local centres one GATHER. The class means by Gaussian are one SUM
(`rounds.label_means`), for linear learners; other learners start at random.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage

from unpooled.arrays import Array, to_numpy
from unpooled.client import GATHER, SUM, Client, client
from unpooled.federation import Federation
from unpooled.maths import gaussian, mixture
from unpooled.maths.mixture import Params, Stats
from unpooled.models import initialization as start
from unpooled.models.fedgmm.embedding import EmbeddedFrame, embed
from unpooled.models.fedgmm.rounds import Joint, LabelMeans, Mixtures, second_moments
from unpooled.tree import message

MIN_COUNT = 5.0  # rows of a local cluster whose mean leaves a client, at least
MIN_EIGENVALUE = 1e-3  # of the matrices that are inverted for the learners' start, relative to their mean eigenvalue
TIED_SHARE = 0.95  # share of a Gaussian's rows that a tied start gives to its own learner
LARGEST_SCORE = 3.0  # spread of a first learner's scores over its rows, at most: from certain probabilities Newton's method diverges
RANDOM_SCORE = 0.3  # root mean square of a random learner's scores: small, so that responsibilities change slowly


@message("fedgmm.Candidate")
class Candidate(NamedTuple):
    """One start, or one number of Gaussians and learners, and its likelihood."""

    key: str  # part of the name of its weights in the clients' state
    source: str  # key of the mixture that it began from
    joint: Joint
    loglik: float  # per row that trains
    held_out: float  # log-likelihood per row held out: of inputs and labels, or of labels given inputs
    gap: float = 0.0  # by how much log P(y | x) per row that trained exceeded that per row held out, when last compared
    parameters: float = 0.0  # effective number of the learners' parameters
    curvature: Array = np.zeros(0)  # of a single linear learner: its packed second derivatives and prior
    damping: float = 0.0  # of Newton steps: the share of a bound of second derivatives that is added to them
    left_out: int = 0  # Gaussians and learners of few rows that a study does without


@client("fedgmm.embedded_centres", GATHER, batched=False)
def embedded_centres(space: EmbeddedFrame, client: Client, *, k: int, min_count: float) -> start.Centres:
    """Local k-means centres of the embedded rows."""
    embedded = replace(client, x=embed(client.x, space.embedding))
    return start.local_centres.answer(space.frame, embedded, k=k, min_count=min_count)


@client("fedgmm.embedded_cells", SUM, adds=True)
def embedded_cells(down: Mixtures, client: Client, *, shapes: list) -> tuple[Stats, ...]:
    """Counts, sums and second moments of the embedded rows near each point."""
    z = embed(start.double(client.x), down.embedding)
    return tuple(mixture.e_step(kernels, z, client.w, shape) for kernels, shape in zip(down.params, shapes))


@client("fedgmm.embedded_counts", SUM, adds=True)
def embedded_counts(down: Mixtures, client: Client, *, shapes: list) -> tuple[start.Counts, ...]:
    """How many embedded rows are near each point."""
    z = embed(start.double(client.x), down.embedding)
    return tuple(start.count_rows(kernels, z, start.double(client.w), s) for kernels, s in zip(down.params, shapes))


# ---- Gaussians ----


def gaussians(
    fed: Federation, space: EmbeddedFrame, sizes: list[int], shape: str, rng: Any, init_params: str
) -> list[Params]:
    """A mixture of each size, from which the Gaussians start.

    Parameters
    ----------
    fed : Federation
        Whose rows the mixtures are of.
    space : EmbeddedFrame
        The space of the Gaussians: all columns, or principal axes.
    sizes : list of int
        Numbers of Gaussians.
    shape : {"full", "tied", "diag", "spherical"}
        Of the covariances.
    rng : numpy.random.Generator
        Draws of the server; clients draw nothing.
    init_params : {"cells", "gather"}
        From SUMs over small regions, or from one GATHER of local k-means centres.

    Returns
    -------
    list of Params
        One per size.
    """
    if init_params == "cells":

        def totals(kernels: tuple[Params, ...], shapes: list[str], counts: bool) -> tuple[Any, ...]:
            """Totals of regions, as counts of rows or as sums."""
            question = embedded_counts if counts else embedded_cells
            return fed.sum(question.using(shapes=shapes), Mixtures(kernels, space.embedding))

        clusters = start.k_means(start.Totals(fed, totals), space.frame, sizes, rng)
        return [_from_centres(space.frame, found, shape) for found in clusters]
    centres = start.centres(fed, space, max(sizes), MIN_COUNT, embedded_centres)
    return [_from_centres(space.frame, start.cluster_centres(centres, k, rng), shape) for k in sizes]


def _from_centres(frame: start.Frame, centres: start.Centres, shape: str) -> Params:
    """Gaussians of gathered centres, in the columns' units."""
    variances = frame.scale**2 * (centres.xx / centres.n[:, None] + 1e-3)  # (k, d)
    full = variances[:, :, None] * np.eye(variances.shape[1])
    covs = gaussian.reshape_covs(full, shape)
    means = frame.mean + frame.scale * centres.x
    return Params(centres.n / centres.n.sum(), means, gaussian.pack_covs(covs, shape))


def with_shared_covariance(params: Params, shape: str) -> Params:
    """The mixture with one covariance for all components, the weighted mean of theirs."""
    if shape == "tied":
        return params
    covs = to_numpy(params.covs)
    return params._replace(covs=0 * covs + np.tensordot(to_numpy(params.weights), covs, 1))


# ---- learners ----


def owners(params: Params, m: int, shape: str) -> np.ndarray:
    """The learner of each Gaussian, (k,): one each if there are enough, else neighbouring Gaussians share one.

    Distances are relative to the mean covariance: Gaussians that split one true component are close in them.
    """
    means = to_numpy(params.means)
    k = len(params.means)
    if k <= m or m == 1:
        return np.arange(k) % m
    common = np.einsum("k,kij->ij", to_numpy(params.weights), to_numpy(gaussian.full_covs(params, shape)))
    white = np.linalg.solve(np.linalg.cholesky(_positive(common)), means.T).T
    return fcluster(linkage(white, "average"), m, "maxclust") - 1


def discriminants(params: Params, label_means: LabelMeans, owner: np.ndarray, m: int, shape: str) -> np.ndarray:
    """Linear learners (m, c (d + 1)) by linear discriminant analysis, each over the Gaussians that it owns."""
    means = to_numpy(params.means)
    covs = to_numpy(gaussian.full_covs(params, shape))
    centre = to_numpy(params.weights) @ means
    counts = to_numpy(label_means.n)
    sums = to_numpy(label_means.x)
    parts = ((means[own] - centre, covs[own], counts[own], sums[own]) for own in (owner == j for j in range(m)))
    return np.stack([_discriminant(*part, centre) for part in parts])


def _discriminant(means: Array, covs: Array, n: Array, x: Array, centre: Array) -> np.ndarray:
    """One learner over Gaussians with these means about `centre`; n (k, c) and x (k, c, d) are counts and sums by class."""
    d = means.shape[1]
    classes = n.shape[1]
    if n.sum() == 0:
        return np.zeros(classes * (d + 1))
    share = n.sum(1) / n.sum()
    by_class = n.sum(0)
    mean = share @ means
    total = np.einsum("k,kij->ij", share, covs + means[:, :, None] * means[:, None, :]) - np.outer(mean, mean)
    class_means = np.where(by_class[:, None] > 0, x.sum(0) / np.maximum(by_class, 1e-12)[:, None], mean)  # (c, d)
    prior = (by_class + 0.5) / (by_class.sum() + 0.5 * classes)
    between = np.einsum("c,ci,cj->ij", by_class / by_class.sum(), class_means - mean, class_means - mean)
    within = _positive(total - between)
    v = np.linalg.solve(within, class_means.T).T
    spread = np.sqrt(np.einsum("ci,ij,cj->c", v - v.mean(0), total, v - v.mean(0)).max())
    v *= min(1.0, LARGEST_SCORE / max(spread, 1e-12))
    b = np.log(prior) - (v * class_means).sum(-1) / 2 - v @ centre
    return np.concatenate([v, b[:, None]], axis=1).ravel()


def _positive(m: np.ndarray) -> np.ndarray:
    """The matrix with eigenvalues of at least MIN_EIGENVALUE times their mean."""
    values, vectors = np.linalg.eigh((m + m.T) / 2)
    return (vectors * np.maximum(values, MIN_EIGENVALUE * max(values.mean(), 1e-12))) @ vectors.T


def random_hyperplanes(joint: Joint, classes: int, shape: str, rng: np.random.Generator) -> np.ndarray:
    """Linear learners (m, c (d + 1)) with random scores of a given size over their rows."""
    # (m, d + 1, d + 1); not positive where a column varies by rounding errors alone
    second = second_moments(joint, shape)
    second = gaussian.unpack_triangle(gaussian.project_positive(gaussian.pack_triangle(second), "full", 0.0))
    u = rng.standard_normal((len(second), classes, second.shape[-1]))
    u *= RANDOM_SCORE / np.linalg.norm(u, axis=-1, keepdims=True)
    return (u @ np.linalg.inv(np.linalg.cholesky(second))).reshape(len(second), -1)


def first_joint(params: Params, theta: np.ndarray, owner: np.ndarray | None) -> Joint:
    """A candidate's first parameters: the weights of each Gaussian divided equally among the learners, or mostly to its owner."""
    weights = to_numpy(params.weights)
    m = len(theta)
    by_learner = np.full((len(weights), m), 1 / m)
    if owner is not None:
        is_owner = owner[:, None] == np.arange(m)
        by_learner = TIED_SHARE * is_owner + (1 - TIED_SHARE) * by_learner
    return Joint(params, theta, weights[:, None] * by_learner)
