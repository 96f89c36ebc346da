"""The fits that share the rounds of EM: one for each number of components and each start. Nothing is sent from here.

A round asks about the mixtures of every candidate that has not converged; `advanced` makes its next mixture of the sums.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled import tree
from unpooled.arrays import like, namespace, to_numpy
from unpooled.errors import BadData
from unpooled.maths import gaussian, mixture
from unpooled.maths.mixture import Params, Stats
from unpooled.tree import message

EMPTY = 0.1  # a component with fewer rows than this is re-seeded
MAX_RESEEDS = 3


@message("mixture.Candidate")
class Candidate(NamedTuple):
    """One number of components from one start."""

    params: Params
    asked: tuple[Params, ...]  # what the next round asks about: params, or where accelerated paths stand
    loglik: float  # per row, at the params before the last update
    gain: float
    reseeded: int
    converged: bool
    memory: Any  # the accelerated paths, or None


@message("mixture.State")
class State(NamedTuple):
    """All that is carried from round to round."""

    candidates: tuple[Candidate, ...]
    rows: float


class Settings(NamedTuple):
    """What decides an update."""

    shape: str
    reg: float  # added to variances
    tol: float


def candidate(params: Params, loglik: float = -np.inf) -> Candidate:
    """Before the first round; `loglik` is that of the last fit where this one goes on from it."""
    return Candidate(params, (params,), loglik, np.inf, 0, False, None)


def advanced(c: Candidate, stats: Stats, settings: Settings) -> Candidate:
    """The candidate after one step of EM."""
    shape = settings.shape
    params = tree.map(lambda a: like(a, stats.x), c.params)  # where the clients' arrays live
    loglik = float(stats.loglik) / float(stats.rows)
    params = mixture.m_step(params, stats, shape, settings.reg)
    if settings.reg == 0:
        refuse_singular(params, shape)
    params = params._replace(covs=gaussian.project_positive(params.covs, shape, settings.reg))
    params, new = reseed(params, stats, shape) if c.reseeded < MAX_RESEEDS else (params, 0)
    gain = loglik - c.loglik
    converged = not new and abs(gain) < settings.tol
    return Candidate(params, (params,), loglik, gain, c.reseeded + new, converged, None)


def reseed(params: Params, stats: Stats, shape: str) -> tuple[Params, int]:
    """Each empty component takes half of the widest heavy one, moved along its long axis; (params, how many)."""
    empty = np.flatnonzero(to_numpy(stats.n) < EMPTY)
    if not len(empty) or len(empty) == len(stats.n):
        return params, 0
    weights, means = np.array(to_numpy(params.weights)), np.array(to_numpy(params.means))
    covs = np.array(to_numpy(gaussian.full_covs(params, shape)))
    for k in empty:
        widest = int(np.argmax(weights * np.trace(covs, axis1=1, axis2=2)))
        values, vectors = np.linalg.eigh(covs[widest])
        step = np.sqrt(values[-1]) * vectors[:, -1]
        means[k], covs[k] = means[widest] + step, covs[widest]
        weights[k] = weights[widest] = weights[widest] / 2
    xp = namespace(params.means)
    packed = gaussian.pack_covs(covs if shape == "full" else gaussian.reshape_covs(covs, shape), shape)
    place = {} if xp is np else {"device": params.means.device}
    return Params(*(xp.asarray(a, **place) for a in (weights / weights.sum(), means, packed))), len(empty)


def refuse_singular(params: Params, shape: str) -> None:
    """With reg_covar=0 nothing holds up a component that has shrunk onto a point or a plane."""
    if np.linalg.eigvalsh(to_numpy(gaussian.full_covs(params, shape))).min() <= 0:
        raise BadData(
            "Fitting the mixture model failed because some components have ill-defined empirical covariance (for instance caused by "
            "singleton or collapsed samples). Try to decrease the number of components, increase reg_covar, or scale the input data."
        )
