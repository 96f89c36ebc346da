"""Where FedGMM starts: Gaussians from local k-means, learners from class means inside each Gaussian; one federated
PCA for images.

PCA costs three SUMs (means, second moments, lengths of what the axes leave out). k-means costs one GATHER of local
centres. The learners' start costs one SUM of class means by Gaussian, for linear learners; others start at random.
"""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage

from unpooled.arrays import Array, Float, like, namespace, to_numpy
from unpooled.client import GATHER, SUM, Client, client
from unpooled.errors import BadData, BadParameter
from unpooled.federation import Federation
from unpooled.maths import gaussian
from unpooled.maths.mixture import Params
from unpooled.models import initialization as start
from unpooled.models.fedgmm.rounds import Joint, Labelled, Lens, embedded, log_rest, second_moments
from unpooled.tree import message

SHRINK = 1e-3  # of the mean variance, added to what is inverted for the learners' start
NOTHING = 1e-9  # of the variance: axes that leave no more out than this leave nothing out
TIED = 0.95  # of a Gaussian's rows, the share that a tied start gives to its own learner
REACH = 0.3  # scores of a random learner, root mean square: small, so that rows choose between learners slowly


@message("fedgmm.Candidate")
class Candidate(NamedTuple):
    """One start, or one number of Gaussians and learners, and how well it does."""

    key: str  # names its weights in the clients' state
    source: str  # the mixture it began from
    joint: Joint
    loglik: float
    held: float


@message("fedgmm.Scatter")
class Scatter(NamedTuple):
    xx: Float[Array, "t"]  # packed sum of (x - mean)(x - mean)'


@message("fedgmm.Lengths")
class Lengths(NamedTuple):
    """Of the log lengths of what axes leave out."""

    n: Float[Array, "", ">=0 rows"]
    total: Float[Array, ""]
    squares: Float[Array, "", ">=0"]


@message("fedgmm.View")
class View(NamedTuple):
    frame: start.Frame  # of the embedded rows
    lens: Lens


# ---- the lens ----


@client("fedgmm.scatter", SUM, adds=True)
def scatter(centre: start.Centre, client: Client) -> Scatter:
    """Outer products of the rows about the mean of all clients."""
    xp = namespace(client.x)
    x = (client.x - xp.asarray(centre.mean, dtype=client.x.dtype)) * client.w[..., None]
    return Scatter(gaussian.pack_triangle(xp.asarray(xp.swapaxes(x, -1, -2) @ x, dtype=xp.float64)))


@client("fedgmm.lengths", SUM, adds=True)
def lengths(lens: Lens, client: Client) -> Lengths:
    """Count, sum and sum of squares of `log_rest`."""
    xp = namespace(client.x)
    z = (client.x - like(lens.mean, client.x)) @ like(lens.axes, client.x)
    w, r = (xp.asarray(a, dtype=xp.float64) for a in (client.w, log_rest(client.x, z, lens)))
    return Lengths(w.sum(-1), (w * r).sum(-1), (w * r * r).sum(-1))


@client("fedgmm.embedded_centres", GATHER, batched=False)
def embedded_centres(view: View, client: Client, *, k: int, min_count: float) -> start.Centres:
    seen = replace(client, x=embedded(client.x, view.lens))
    return start.local_centres.answer(view.frame, seen, k=k, min_count=min_count)


@message("fedgmm.Looking")
class Looking(NamedTuple):
    """How rows are seen by the Gaussians."""

    lens: Lens
    frame: start.Frame  # there
    cov: np.ndarray  # (d, d) of whole rows; (0, 0) where Gaussians see all columns, and nothing was asked


def lens(fed: Federation, frame: start.Frame, axes: int | None, rest: bool) -> Looking:
    """All columns, or the leading principal axes, with or without the length of the rest."""
    d = len(frame.mean)
    if axes is None:
        return Looking(Lens(frame.mean, np.zeros((d, 0)), np.zeros(0)), frame, np.zeros((0, 0)))
    if not isinstance(axes, Integral) or not 1 <= axes <= d:
        raise BadParameter(f"embedding={axes!r} must be a number of principal axes between 1 and {d}, or None")
    total = to_numpy(fed.sum(scatter, start.Centre(frame.mean)).xx)
    if not np.isfinite(total).all():
        raise BadData("principal axes need complete rows: fill in missing values first, or leave embedding= out")
    cov = gaussian.unpack_triangle(total) / float(frame.rows)
    values, vectors = np.linalg.eigh(cov)
    values, vectors = values[::-1], vectors[:, ::-1][:, :axes]
    vectors = vectors * np.sign(vectors[np.abs(vectors).argmax(0), np.arange(axes)])
    scale, left = np.sqrt(np.maximum(values[:axes], 1e-12)), max(values[axes:].sum(), 0.0)
    found = Lens(frame.mean, vectors, np.zeros(0))
    if rest and left > NOTHING * values.sum():
        found, scale = found._replace(rest=_rest(fed, found, left)), np.append(scale, 1.0)
    return Looking(found, start.Frame(np.zeros(len(scale)), scale, frame.rows), cov)


def _rest(fed: Federation, axes: Lens, left: float) -> np.ndarray:
    """The numbers of a lens that sees what its axes leave out, whose mean square is `left`; one SUM."""
    up = fed.sum(lengths, axes._replace(rest=np.array([left, 0.0, 1.0])))
    mean = float(up.total / up.n)
    return np.array([left, mean, np.sqrt(max(float(up.squares / up.n) - mean**2, 1e-12))])


# ---- Gaussians ----


def gaussians(fed: Federation, view: View, sizes: list[int], shape: str, rng: Any) -> list[Params]:
    """A mixture of each size, from one GATHER of local k-means centres."""
    share = min(1.0, start.MAX_CLIENTS / len(fed.names))
    ask = embedded_centres.using(k=max(sizes), min_count=5.0 if len(fed.names) > 1 else 0.0)
    answers = fed.sample(share, fed.journal.rng).gather(ask, view)
    found = start.Centres(*(np.concatenate(parts) for parts in zip(*(answers[name] for name in sorted(answers)))))
    return [_from_centres(view.frame, start.cluster_centres(found, k, rng), shape) for k in sizes]


def _from_centres(frame: start.Frame, centres: start.Centres, shape: str) -> Params:
    variances = frame.scale**2 * (centres.xx / centres.n[:, None] + 1e-3)
    covs = gaussian.reshape_covs(variances[:, :, None] * np.eye(variances.shape[1]), shape)
    means = frame.mean + frame.scale * centres.x
    return Params(centres.n / centres.n.sum(), means, gaussian.pack_covs(covs, shape))


def shared(params: Params, shape: str) -> Params:
    """The mixture with one covariance for all, the mean of theirs."""
    if shape == "tied":
        return params
    covs = to_numpy(params.covs)
    return params._replace(covs=0 * covs + np.tensordot(to_numpy(params.weights), covs, 1))


# ---- learners ----


def owners(params: Params, m: int, shape: str) -> np.ndarray:
    """The learner of each Gaussian, (k,): its own where there are enough, else near Gaussians share one.

    Near is by their mean covariance: Gaussians that split one component of the truth lie within its spread.
    """
    means, k = to_numpy(params.means), len(params.means)
    if k <= m or m == 1:
        return np.arange(k) % m
    common = np.einsum("k,kij->ij", to_numpy(params.weights), to_numpy(gaussian.full_covs(params, shape)))
    white = np.linalg.solve(np.linalg.cholesky(_positive(common)), means.T).T
    return fcluster(linkage(white, "average"), m, "maxclust") - 1


def discriminants(params: Params, found: Labelled, owner: np.ndarray, m: int, shape: str) -> np.ndarray:
    """Linear learners (m, c (d + 1)) by linear discriminant analysis, each over the Gaussians it owns."""
    means, covs = to_numpy(params.means), to_numpy(gaussian.full_covs(params, shape))
    centre = to_numpy(params.weights) @ means
    counts, sums = to_numpy(found.n), to_numpy(found.x)
    parts = ((means[own] - centre, covs[own], counts[own], sums[own]) for own in (owner == j for j in range(m)))
    return np.stack([_discriminant(*part, centre) for part in parts])


def _discriminant(means: Array, covs: Array, n: Array, x: Array, centre: Array) -> np.ndarray:
    """One learner over Gaussians with these means about `centre`; n (k, c) and x (k, c, d) are rows by Gaussian and class."""
    d, classes = means.shape[1], n.shape[1]
    if n.sum() == 0:
        return np.zeros(classes * (d + 1))
    share, by_class = n.sum(1) / n.sum(), n.sum(0)
    mean = share @ means
    total = np.einsum("k,kij->ij", share, covs + means[:, :, None] * means[:, None, :]) - np.outer(mean, mean)
    where = np.where(by_class[:, None] > 0, x.sum(0) / np.maximum(by_class, 1e-12)[:, None], mean)  # (c, d)
    prior = (by_class + 0.5) / (by_class.sum() + 0.5 * classes)
    between = np.einsum("c,ci,cj->ij", by_class / by_class.sum(), where - mean, where - mean)
    within = _positive(total - between)
    v = np.linalg.solve(within, where.T).T
    b = np.log(prior) - (v * where).sum(-1) / 2 - v @ centre
    return np.concatenate([v, b[:, None]], axis=1).ravel()


def _positive(m: np.ndarray) -> np.ndarray:
    """The nearest matrix whose eigenvalues are not tiny."""
    values, vectors = np.linalg.eigh((m + m.T) / 2)
    return (vectors * np.maximum(values, SHRINK * max(values.mean(), 1e-12))) @ vectors.T


def random_hyperplanes(joint: Joint, classes: int, shape: str, rng: np.random.Generator) -> np.ndarray:
    """Linear learners (m, c (d + 1)) with random scores of a given reach over the rows they will see."""
    seen = second_moments(joint, shape)  # (m, d + 1, d + 1)
    u = rng.standard_normal((len(seen), classes, seen.shape[-1]))
    u *= REACH / np.linalg.norm(u, axis=-1, keepdims=True)
    return (u @ np.linalg.inv(np.linalg.cholesky(seen))).reshape(len(seen), -1)


def first_joint(params: Params, theta: np.ndarray, owner: np.ndarray | None) -> Joint:
    """A candidate's first parameters: the mixture's shares, equal over the learners or mostly with the owner's."""
    weights, m = to_numpy(params.weights), len(theta)
    spread = np.full((len(weights), m), 1 / m)
    if owner is not None:
        spread = TIED * (owner[:, None] == np.arange(m)) + (1 - TIED) * spread
    return Joint(params, theta, weights[:, None] * spread)
