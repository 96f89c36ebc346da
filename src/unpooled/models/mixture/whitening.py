"""Coordinates of a mixture, centred on it, in which the information of the complete data is the identity. Nothing is sent.

A vector holds, by component, changes of the log weights, of the means in units of the component's own factor L, and of
the spread: L becomes L (I + A), A lower triangular with an exponential diagonal (log standard deviations where the shape
has only those). Each is scaled by the root of its information, so that the gradient here is EM's own step, to first order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.maths import gaussian
from unpooled.maths.mixture import Params, Stats
from unpooled.tree import message

TRIANGULAR = ("full", "tied")


@message("mixture.Frame")
class Frame(NamedTuple):
    """The coordinates around one mixture; g covariances: k, or 1 where they are tied; q numbers to each."""

    params: Params
    shape: str
    factor: np.ndarray  # (g, d, d) lower triangular; diag (k, d) and spherical (k, 1) standard deviations
    scale: np.ndarray  # (p,), p = k + k d + g q: root of the information of each coordinate, per row


def around(params: Params, shape: str) -> Frame:
    """The frame about `params`: Cholesky factors, and the square root of the complete data's information."""
    (k, d), weights = params.means.shape, np.asarray(params.weights)
    if shape in TRIANGULAR:
        factor = gaussian.cholesky(gaussian.unpack_triangle(np.atleast_2d(params.covs)))
        information = 1 + gaussian.diagonal(params.means, shape)  # (t,): 2 on the diagonal of A, 1 below
    else:
        factor = np.sqrt(params.covs).reshape(k, -1)
        information = np.full(factor.shape[1], 2.0 * d / factor.shape[1])
    described = np.ones(1) if shape == "tied" else weights  # (g,): the share of the rows each covariance describes
    squares = weights, np.repeat(weights, d), np.outer(described, information).ravel()
    return Frame(params, shape, factor, np.sqrt(np.concatenate(squares)))


def gradient(frame: Frame, stats: Stats, reg: float) -> np.ndarray:
    """Of the log-likelihood per row, (p,), by Fisher's identity; zero exactly where EM stands still, `reg` included.

    The M-step adds reg to each variance, as if each covariance S carried the prior exp(-reg/2 tr S^-1) once for every
    row that it describes: that prior's gradient is the second term of the spread.
    """
    d = frame.params.means.shape[1]
    n = shares(stats, frame.shape)[:, None]
    x = np.asarray(stats.x) / stats.rows
    xx = np.atleast_1d(stats.xx) / stats.rows
    if frame.shape in TRIANGULAR:
        whiten = gaussian.inverse_triangle(frame.factor)
        u = (whiten @ x[..., None])[..., 0]
        moment = gaussian.unpack_triangle(np.atleast_2d(xx)) + reg * n[..., None] * np.eye(d)
        spread = gaussian.pack_triangle(whiten @ moment @ whiten.swapaxes(1, 2) - n[..., None] * np.eye(d))
    else:
        u = x / frame.factor
        spread = ((xx.reshape(len(xx), -1) + reg * n) / frame.factor**2 - n) * (d / frame.factor.shape[1])
    drift = np.asarray(stats.n) / stats.rows - frame.params.weights
    return np.concatenate([drift, u.ravel(), spread.ravel()]) / frame.scale


def move(frame: Frame, step: np.ndarray) -> Params:
    """The mixture at `step` (p,): its weights add to one and its covariances are positive definite, whatever the step."""
    change, u, a = _split(frame, step / frame.scale)
    weights = frame.params.weights * np.exp(change - change.max())
    if frame.shape not in TRIANGULAR:
        covs = (frame.factor * np.exp(a)) ** 2
        means = frame.params.means + frame.factor * u
        return Params(weights / weights.sum(), means, covs.reshape(np.shape(frame.params.covs)))
    means = frame.params.means + (frame.factor @ u[..., None])[..., 0]
    on = gaussian.diagonal(means, frame.shape) == 1
    growth = np.tril(gaussian.unpack_triangle(np.where(on, np.exp(a), a)))
    factor = frame.factor @ growth
    covs = gaussian.pack_triangle(factor @ factor.swapaxes(1, 2))
    return Params(weights / weights.sum(), means, covs.reshape(np.shape(frame.params.covs)))


def largest(frame: Frame, step: np.ndarray) -> float:
    """The largest change of a log weight, of a mean in its own standard deviations, or of a log standard deviation."""
    change, u, a = _split(frame, step / frame.scale)
    return float(max(np.abs(change).max(), np.linalg.norm(u, axis=1).max(), np.abs(a).max()))


def shares(stats: Stats, shape: str) -> np.ndarray:
    """The share of the rows that each covariance describes after an E-step: (g,)."""
    return np.ones(1) if shape == "tied" else np.asarray(stats.n) / stats.rows


def precision_traces(frame: Frame) -> np.ndarray:
    """tr S^-1 of each covariance: (g,)."""
    if frame.shape in TRIANGULAR:
        return (gaussian.inverse_triangle(frame.factor) ** 2).sum((1, 2))
    return (frame.factor**-2).sum(1) * (frame.params.means.shape[1] / frame.factor.shape[1])


def _split(frame: Frame, v: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log weights (k,), means (k, d) and spread (g, q) of a vector."""
    k, d = frame.params.means.shape
    g = 1 if frame.shape == "tied" else k
    log_weights, means, spread = np.split(v, [k, k + k * d])
    return log_weights, means.reshape(k, d), spread.reshape(g, -1)
