"""A round of EM: one SUM of sufficient statistics for every mixture that is asked about, and the update from the sums.

Several fits share the rounds: a `Candidate` for each number of components and each start. A round asks about the mixtures of every
candidate that has not converged; `advanced` computes its next mixture. The result is the candidate of least BIC among those of
which no component has collapsed.

A component has collapsed if, in some direction, it has no variance of its own where all rows together have some. The likelihood of
a mixture is unbounded where a component shrinks onto few rows, or onto a plane of repeated values; only `reg_covar` then holds its
variance up. Such a component wins any comparison of likelihoods, BIC included, without describing the data.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from unpooled import tree
from unpooled.arrays import Array, like, namespace, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.errors import BadData
from unpooled.federation import Federation
from unpooled.maths import gaussian, mixture
from unpooled.maths.mixture import Params, Stats
from unpooled.tree import message

EMPTY = 0.1  # a component with fewer rows than this is re-seeded
MAX_RESEEDS = 3
# of the variance of all rows in the same direction: with less, and less than `reg`, a component has collapsed
SHARE = 1e-6
MANY = 3  # rows for each column, of a component that is not thin by chance
ROUNDING = 1e-11  # of the variance of all rows: repeated values leave less
PART = 0.2  # of the largest part of a column in a direction: columns with less are not named
FLAT = 1e-9  # of the variance of standardised columns: a direction with less is flat for all rows and is ignored

# ---- what is asked of clients ----


@client("mixture.e_step", SUM, adds=True)
def e_step(down: tuple[Params, ...], client: Client, *, shape: str) -> tuple[Stats, ...]:
    """Counts, sums and second moments of each component, weighted by how probable it is for each row."""
    return tuple(mixture.e_step(params, client.x, client.w, shape) for params in down)


@client("mixture.personal_e_step", SUM)
def personal_e_step(down: tuple[Params, ...], client: Client, *, shape: str, ids: list) -> tuple[Stats, ...]:
    """Counts, sums and second moments under the client's own weights, which it updates and keeps."""
    answers = []
    for i, params in zip(ids, down):
        mine = client.state.get(f"weights-{i}", params.weights)
        stats = mixture.e_step(params, client.x, client.w, shape, log_weights=_log(mine))
        client.state[f"weights-{i}"] = stats.n / stats.n.sum(-1)[..., None]
        answers.append(stats)
    return tuple(answers)


def _log(weights: Array) -> Array:
    """The logarithm, finite for a weight of 0."""
    xp = namespace(weights)
    return xp.log(xp.clip(weights, 1e-300, None))


# ---- the fits that share the rounds: one for each number of components and each start ----


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
    left_out: int = 0  # components of few rows that a study does without


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


def weights_id(candidates: Sequence[Any], i: int) -> int:
    """Under which number clients keep their own weights for a candidate: another one once components were left out."""
    return i + len(candidates) * candidates[i].left_out


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
    return c._replace(
        params=params, asked=(params,), loglik=loglik, gain=gain, reseeded=c.reseeded + new, converged=converged
    )


def reseed(params: Params, stats: Stats, shape: str) -> tuple[Params, int]:
    """Each empty component takes half of the widest heavy one, moved along its long axis; (params, how many)."""
    empty = np.flatnonzero(to_numpy(stats.n) < EMPTY)
    if not len(empty) or len(empty) == len(stats.n):
        return params, 0
    weights = np.array(to_numpy(params.weights))
    means = np.array(to_numpy(params.means))
    covs = np.array(to_numpy(gaussian.full_covs(params, shape)))
    for k in empty:
        widest = int(np.argmax(weights * np.trace(covs, axis1=1, axis2=2)))
        values, vectors = np.linalg.eigh(covs[widest])
        step = np.sqrt(values[-1]) * vectors[:, -1]
        means[k] = means[widest] + step
        covs[k] = covs[widest]
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


# ---- which candidate is the result ----


def criterion(c: Candidate, rows: float, price: float, shape: str) -> float:
    """-2 log-likelihood plus `price` for each parameter."""
    k, d = c.params.means.shape
    return float(-2 * c.loglik * rows + gaussian.n_parameters(k, d, shape) * price)


def bic(c: Candidate, rows: float, shape: str) -> float:
    """The Bayesian information criterion of a candidate; smaller is better."""
    return criterion(c, rows, np.log(rows), shape)


def best(candidates: Sequence[Candidate], rows: float, shape: str) -> int:
    """The position of the least BIC."""
    return int(np.argmin([bic(c, rows, shape) for c in candidates]))


def chosen(candidates: Sequence[Candidate], rows: float, shape: str, reg: float, fed: Federation) -> int:
    """The least BIC among candidates of which no component has collapsed; among all where each has such a component."""
    first = best(candidates, rows, shape)
    sound = [i for i, c in enumerate(candidates) if not collapsed(c.params, shape, reg, rows).any()]
    if first in sound:
        return first
    from unpooled.models.column_names import names_of

    params = candidates[first].params
    text = f"a component of the fit with {len(params.weights)} components has no variance beyond reg_covar"
    where = narrow(params, shape, reg, names_of(fed, params.means.shape[1]))
    if not sound:
        advice = f"lower n_components, raise reg_covar, or leave out columns of few distinct values ({where})"
        warnings.warn(f"{text} in some direction: {advice}", ConvergenceWarning, stacklevel=5)
        return first
    second = sound[best([candidates[i] for i in sound], rows, shape)]
    size = len(candidates[second].params.weights)
    warnings.warn(
        f"{text}, so that its BIC means nothing: {size} were chosen ({where})", ConvergenceWarning, stacklevel=5
    )
    return second


def collapsed(params: Params, shape: str, reg: float, rows: float | None = None) -> np.ndarray:
    """Which components have collapsed, (k,) bool; `reg` is what was added to their variances.

    Where the number of all rows is given, a component of many rows has not: a variance that is small, and not rounding alone, is then
    how these rows are.
    """
    least, towards, _ = _narrowest(params, shape, reg)
    thin = (least < SHARE) & (least < reg * (towards**2).sum(-1))
    if rows is None:
        return thin
    many = rows * to_numpy(params.weights) >= MANY * (towards.shape[1] + 1)
    return thin & ~(many & (least > ROUNDING))


def narrow(params: Params, shape: str, reg: float, names: list[str]) -> str:
    """In which columns the narrowest component has the least of the variance of all rows, in words."""
    from unpooled.models.column_names import called

    least, towards, scale = _narrowest(params, shape, reg)
    parts = np.abs(towards[int(np.argmin(least))]) * scale
    which = np.flatnonzero(parts > PART * parts.max(initial=0.0))
    alone = "in" if len(which) == 1 else "in a combination of"
    return f"{alone} {called(names, which)}"


def _narrowest(params: Params, shape: str, reg: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(least share of the variance of all rows (k,), the direction that has it (k, d), deviations of all rows (d,))."""
    weights = to_numpy(params.weights)
    means = to_numpy(params.means)
    covs = to_numpy(gaussian.full_covs(params, shape)) - reg * np.eye(means.shape[1])
    about = means - weights @ means
    whole = np.einsum("k,kij->ij", weights, covs) + (weights[:, None] * about).T @ about
    scale = np.sqrt(np.maximum(np.diag(whole), 0.0))
    white = _whitening(whole, FLAT * reg)
    if not white.shape[1]:
        return np.ones(len(weights)), np.zeros(means.shape), scale
    values, vectors = np.linalg.eigh(white.T @ covs @ white)
    return values[:, 0], vectors[:, :, 0] @ white.T, scale


def _whitening(cov: np.ndarray, flat: float) -> np.ndarray:
    """A map (d, r) to coordinates in which the covariance is the identity, without the directions that are flat."""
    variances = np.diag(cov)
    varies = variances > max(flat, 0.0)  # whatever the units of other columns
    scale = np.where(varies, np.sqrt(np.where(varies, variances, 1.0)), np.inf)
    values, vectors = np.linalg.eigh(cov / np.outer(scale, scale))
    kept = values > FLAT
    return vectors[:, kept] / np.sqrt(values[kept]) / scale[:, None]
