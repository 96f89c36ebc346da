"""Linear classifiers of principal axes ("probes") at the clients, by which concepts are told apart: SUMs, and a TELL.

- `fedconceptem.sketch_moments` (SUM): second moments of the columns, for the principal axes.
- `fedconceptem.probes` (SUM per step): each client joins the probe that fits its rows best, or stays; gradients and second derivatives.
- `fedconceptem.score_moments` (SUM): second moments of the clients' scores, the gradients of their rows at one probe of all rows.
- `fedconceptem.score_means` (SUM per step): k-means of these scores.
- `fedconceptem.assign` (TELL): each client begins with the nearest mean.

A client has intercepts of its own throughout, so that other label shares do not look like another concept. They, its score and its probe
never leave it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, TELL, Client, client
from unpooled.errors import BadParameter
from unpooled.learners import Trainer
from unpooled.learners.corrections import log_softmax
from unpooled.maths import logistic
from unpooled.maths.gaussian import pack_triangle
from unpooled.tree import message

INTERCEPT_RIDGE = 0.25  # precision of a client's own intercepts
INTERCEPT_STEPS = 4  # Newton steps of a client's own intercepts, from those of the step before
STEPS_FROM_ZERO = 12  # the same where there is no step before
MAX_PROBES = 14  # groups that a search begins with, at most
SURE = 0.9  # the first weight of a client's concept


@message("fedconceptem.Sketch")
class Sketch(NamedTuple):
    """Centred columns, or random combinations of them where there are many."""

    mean: Float[Array, "d"]
    map: Float[Array, "d s"]


@message("fedconceptem.SketchMoments")
class SketchMoments(NamedTuple):
    """Second moments of the sketched columns."""

    zz: Float[Array, "t"]  # packed sum of z z'


@message("fedconceptem.Probes")
class Probes(NamedTuple):
    """Linear classifiers of principal axes."""

    mean: Float[Array, "d"]
    axes: Float[Array, "d a"]
    coef: Float[Array, "k m w"]  # scores of all classes but the first, intercepts last


@message("fedconceptem.ProbeSums")
class ProbeSums(NamedTuple):
    """Of the clients that a probe fits best: rows, gradient, second derivatives, and what is lost without it."""

    n: Float[Array, "k", ">=0 rows"]
    loss: Float[Array, "k"]
    gradient: Float[Array, "k q"]
    curvature: Float[Array, "k t"]


@message("fedconceptem.Scores")
class Scores(NamedTuple):
    """One probe of all rows, and what makes scores of unit variance if clients label alike."""

    probe: Probes
    whitening: Float[Array, "s s"]


@message("fedconceptem.ScoreMoments")
class ScoreMoments(NamedTuple):
    """Second moments of the clients' scores."""

    ss: Float[Array, "t"]  # packed sum of s s'


@message("fedconceptem.Centres")
class Centres(NamedTuple):
    """Directions of scores, and restarts of k-means along them."""

    scores: Scores
    directions: Float[Array, "s r"]
    at: Float[Array, "restarts g r"]


@message("fedconceptem.ScoreMeans")
class ScoreMeans(NamedTuple):
    """Clients and means of scores of each cluster, for several restarts."""

    n: Float[Array, "restarts g", ">=0"]
    x: Float[Array, "restarts g r"]
    squares: Float[Array, "restarts"]  # squared distances to the nearest centre


# ---- questions ----


@client("fedconceptem.sketch_moments", SUM, adds=True)
def sketch_moments(down: Sketch, client: Client) -> SketchMoments:
    """Second moments of the columns about their means, or of combinations of them."""
    x = to_numpy(client.x)
    w = to_numpy(client.w)
    z = ((x - down.mean.astype(x.dtype)) @ down.map.astype(x.dtype)).astype(np.float64)
    return SketchMoments(pack_triangle(np.swapaxes(z * w[..., None], -1, -2) @ z))


@client("fedconceptem.probes", SUM, batched=False)
def probes(down: Probes, client: Client, *, trainer: dict, ids: list, move: bool) -> ProbeSums:
    """Join the probe that fits best or, without `move`, stay with the one before; its gradient and second derivatives.

    `ids` are the places of the probes among those of the first step.
    """
    if not ids or not all(0 <= place < MAX_PROBES for place in ids):
        raise BadParameter(f"ids={ids!r}: places of probes are whole numbers from 0 to {MAX_PROBES - 1}")
    rows = probe_rows(down, client, trainer)
    if "own_intercepts" in client.state:
        intercepts = to_numpy(client.state["own_intercepts"])
        steps = INTERCEPT_STEPS
    else:
        intercepts = np.zeros((max(ids) + 1, rows.classes))
        steps = STEPS_FROM_ZERO
    own = own_intercepts(rows, intercepts[ids], steps)
    loglik = log_likelihood(rows, rows.scores + own[:, None, :]) - 0.5 * INTERCEPT_RIDGE * (own**2).sum(-1)
    best = int(loglik.argmax() if move else to_numpy(client.state["omega"])[ids].argmax())
    intercepts[ids] = own
    client.state["own_intercepts"] = intercepts
    client.state["omega"] = mostly(len(intercepts), ids[best])
    p = np.exp(log_softmax(rows.scores[best] + own[best])).T[1:]  # (c - 1, n)
    gradient = logistic.gradient_of(errors(rows, p), rows.inputs).ravel()
    second = pack_triangle(logistic.second_of(rows.w, p, rows.inputs))
    hit = np.arange(len(ids)) == best
    loss = loglik[best] - np.delete(loglik, best).max(initial=-np.inf) if len(ids) > 1 else 0.0
    return ProbeSums(hit * rows.w.sum(), hit * loss, np.outer(hit, gradient), np.outer(hit, second))


@client("fedconceptem.score_moments", SUM, batched=False)
def score_moments(down: Scores, client: Client, *, trainer: dict) -> ScoreMoments:
    """The second moment of the client's score."""
    s = client_score(down, client, trainer)
    return ScoreMoments(pack_triangle(np.outer(s, s)))


@client("fedconceptem.score_means", SUM, batched=False)
def score_means(down: Centres, client: Client, *, trainer: dict) -> ScoreMeans:
    """For each restart of k-means: 1 and the client's place at the nearest centre, zeros at the others."""
    place = client_score(down.scores, client, trainer) @ down.directions  # (r,)
    distance = ((place - down.at) ** 2).sum(-1)  # (restarts, k)
    hit = (distance.argmin(-1)[:, None] == np.arange(distance.shape[1])).astype(np.float64)
    return ScoreMeans(hit, hit[..., None] * place, distance.min(-1))


@client("fedconceptem.assign", TELL, batched=False)
def assign(down: Centres, client: Client, *, trainer: dict) -> None:
    """Begin with most weight on the concept of the nearest centre."""
    place = client_score(down.scores, client, trainer) @ down.directions
    nearest = ((place - down.at[0]) ** 2).sum(-1).argmin()
    client.state["omega"] = mostly(down.at.shape[1], int(nearest))
    client.state.pop("own_intercepts", None)


# ---- at a client ----


class ProbeRows(NamedTuple):
    """A client's rows, and their scores under k probes."""

    y: np.ndarray  # (n,) codes of the labels
    w: np.ndarray  # (n,)
    inputs: np.ndarray  # (n, a) along the axes
    scores: np.ndarray  # (k, n, c), those of the first class being 0

    @property
    def classes(self) -> int:
        return self.scores.shape[-1]


def probe_rows(down: Probes, client: Client, trainer: dict) -> ProbeRows:
    """The client's rows as probes see them."""
    learner = Trainer(**trainer)._replace(device=None, hold_out=False, learner="linear")
    y = to_numpy(learner.rows(client).y)
    w = to_numpy(client.w).astype(np.float64)
    x = to_numpy(client.x)
    inputs = ((x - down.mean.astype(x.dtype)) @ down.axes.astype(x.dtype)).astype(np.float64)
    coef = np.swapaxes(to_numpy(down.coef), -1, -2)  # (k, a + 1, c - 1)
    free = inputs @ coef[:, :-1] + coef[:, -1:]
    return ProbeRows(y, w, inputs, np.concatenate([np.zeros_like(free[..., :1]), free], -1))


def errors(rows: ProbeRows, p: np.ndarray) -> np.ndarray:  # (c - 1, n)
    """Weighted errors of the probabilities (c - 1, n) of all classes but the first."""
    return ((rows.y == np.arange(1, rows.classes)[:, None]) - p) * rows.w


def log_likelihood(rows: ProbeRows, scores: np.ndarray) -> np.ndarray:  # (...)
    """Log-likelihoods of the labels under scores (..., n, c)."""
    chosen = log_softmax(scores)[..., np.arange(len(rows.y)), rows.y]
    return (rows.w * chosen).sum(-1)


def own_intercepts(rows: ProbeRows, begin: np.ndarray, steps: int) -> np.ndarray:  # (k, c)
    """What the client's own label shares add to the scores of each probe, by Newton steps from `begin`."""
    own = begin
    c = rows.classes
    hits = np.bincount(rows.y, weights=rows.w, minlength=c)
    for _ in range(steps):
        p = np.exp(log_softmax(rows.scores + own[:, None, :]))
        weighted = p * rows.w[:, None]
        expected = weighted.sum(1)  # (k, c)
        second = expected[:, :, None] * np.eye(c) - np.swapaxes(weighted, 1, 2) @ p + INTERCEPT_RIDGE * np.eye(c)
        step = np.linalg.solve(second, (hits - expected - INTERCEPT_RIDGE * own)[..., None])[..., 0]
        own = own + step / np.maximum(1.0, np.abs(step).max(-1, keepdims=True) / 2)
    return own


def client_score(down: Scores, client: Client, trainer: dict) -> np.ndarray:  # (s,)
    """The whitened gradient of the probe's slopes at a client with its own intercepts, divided by the root of its rows."""
    rows = probe_rows(down.probe, client, trainer)
    own = own_intercepts(rows, np.zeros((1, rows.classes)), STEPS_FROM_ZERO)
    p = np.exp(log_softmax(rows.scores[0] + own[0])).T[1:]
    gradient = (errors(rows, p) @ rows.inputs).ravel()
    return to_numpy(down.whitening) @ gradient / np.sqrt(max(rows.w.sum(), 1.0))


def mostly(k: int, one: int) -> np.ndarray:  # (k,)
    """Weights with SURE on one."""
    return np.full(k, (1 - SURE) / k) + SURE * (np.arange(k) == one)
