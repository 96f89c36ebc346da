"""How many concepts there are, and which client has which, before any model is trained: SUMs only.

A linear probe of all rows is fitted (by `fedconceptem.probe`, one SUM a step). Where clients label alike, their scores at its optimum are
noise; where they do not, the scores of all clients span one direction less than there are concepts. `fedconceptem.score_moments` (one
SUM) sends the second moments of the clients' scores, whose eigenvalues above the noise count the concepts. k-means of the clients along
these directions (`fedconceptem.score_means`, a small SUM a step) divides them into a few groups too many; `fedconceptem.assign` (TELL)
lets each client keep its own. Then every group has a probe (`fedconceptem.probes`, one SUM a step of gradients and second derivatives),
clients join the one that fits them best, and probes that are not worth their parameters (BIC) are removed one by one.
A client has intercepts of its own throughout, so that other label shares do not look like another concept.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, TELL, Client, client
from unpooled.federation import Federation
from unpooled.learners import Trainer, curvatures, newton, penalties
from unpooled.learners.corrections import log_softmax
from unpooled.maths.gaussian import pack_triangle, unpack_triangle
from unpooled.tree import message

MAX_PARAMETERS = 240  # free parameters of the probe
RIDGE = 0.01  # of the probe, per row: keeps its probabilities off 0 and 1 where classes are far apart
SKETCHED = 256  # columns; of more than these, so many random combinations are looked at
MAX_AXES = 32  # principal axes that it sees
STEPS = 12  # Newton steps of the probe, at most
RESTARTS, MEAN_STEPS = 64, 15  # of k-means, all restarts in the same SUMs
INTERCEPT_RIDGE = 0.25  # precision of a client's own intercepts
SURE = 0.9  # the first weight of a client's concept
MOST, MORE = 14, 6  # groups to begin with, at most, and how many more than directions were found
EM_STEPS, AFTER_REMOVAL = 8, 3  # steps of the probes before the first removal and after each


@message("fedconceptem.Probe")
class Probe(NamedTuple):
    """A linear classifier of principal axes."""

    mean: Float[Array, "d"]
    axes: Float[Array, "d a"]
    coef: Float[Array, "m w"]  # scores of all classes but the first, intercepts last


@message("fedconceptem.Sketch")
class Sketch(NamedTuple):
    """Centred columns, or random combinations of them where there are many."""

    mean: Float[Array, "d"]
    map: Float[Array, "d s"]


@message("fedconceptem.SketchMoments")
class SketchMoments(NamedTuple):
    """Second moments of the sketched columns."""

    zz: Float[Array, "t"]  # packed sum of z z'


@message("fedconceptem.Scores")
class Scores(NamedTuple):
    """The probe, and what makes scores of unit variance if clients label alike."""

    mean: Float[Array, "d"]
    axes: Float[Array, "d a"]
    coef: Float[Array, "m w"]
    whitening: Float[Array, "s s"]


@message("fedconceptem.ScoreMoments")
class ScoreMoments(NamedTuple):
    """Second moments of the clients' scores."""

    clients: Float[Array, "", ">=0"]
    ss: Float[Array, "t"]  # packed sum of s s'


@message("fedconceptem.Centres")
class Centres(NamedTuple):
    """The probe, directions of scores, and restarts of k-means along them."""

    scores: Scores
    directions: Float[Array, "s r"]
    at: Float[Array, "restarts k r"]


@message("fedconceptem.Probes")
class Probes(NamedTuple):
    """A probe for each group."""

    mean: Float[Array, "d"]
    axes: Float[Array, "d a"]
    coef: Float[Array, "k m w"]


@message("fedconceptem.ProbeSums")
class ProbeSums(NamedTuple):
    """Of the clients that a probe fits best: rows, gradient, second derivatives, and what is lost without it."""

    n: Float[Array, "k", ">=0 rows"]
    loglik: Float[Array, ""]
    loss: Float[Array, "k"]
    gradient: Float[Array, "k q"]
    curvature: Float[Array, "k t"]


@message("fedconceptem.ScoreMeans")
class ScoreMeans(NamedTuple):
    """Clients and means of scores of each cluster, for several restarts."""

    n: Float[Array, "restarts k", ">=0"]
    x: Float[Array, "restarts k r"]
    squares: Float[Array, "restarts"]  # squared distances to the nearest centre


# ---- questions ----


@client("fedconceptem.sketch_moments", SUM, adds=True)
def sketch_moments(down: Sketch, client: Client) -> SketchMoments:
    """Second moments of the columns about their means, or of combinations of them."""
    x, w = to_numpy(client.x), to_numpy(client.w)
    z = ((x - down.mean.astype(x.dtype)) @ down.map.astype(x.dtype)).astype(np.float64)
    return SketchMoments(pack_triangle(np.swapaxes(z * w[..., None], -1, -2) @ z))


@client("fedconceptem.probe", SUM, adds=True)
def probe(down: Probe, client: Client, *, trainer: dict) -> curvatures.Curvature:
    """Log-likelihood of a linear classifier of principal axes, its gradient and second derivatives."""
    rows = Trainer(**trainer)._replace(device=None, hold_out=False, learner="linear").rows(client)
    one = _features(down, client)
    w = to_numpy(client.w).astype(np.float64)
    free = one @ to_numpy(down.coef).T
    log_p = log_softmax(np.concatenate([np.zeros_like(free[..., :1]), free], -1))  # (..., n, c)
    chosen = np.take_along_axis(log_p, rows.y[..., None], -1)[..., 0]
    p = np.moveaxis(np.exp(log_p), -1, -2)[..., 1:, :]
    gradient = curvatures.gradient_of(rows.y, w, p, one)
    return curvatures.Curvature(
        w.sum(-1), (w * chosen).sum(-1), gradient, pack_triangle(curvatures.second_of(w, p, one))
    )


@client("fedconceptem.score_moments", SUM, batched=False)
def score_moments(down: Scores, client: Client, *, trainer: dict) -> ScoreMoments:
    """The second moment of the client's score."""
    s = client_score(down, client, trainer)
    return ScoreMoments(np.asarray(1.0), pack_triangle(np.outer(s, s)))


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
    client.state["omega"] = _mostly(down.at.shape[1], int(nearest))


@client("fedconceptem.probes", SUM, batched=False)
def probes(down: Probes, client: Client, *, trainer: dict, ids: list, first: bool) -> ProbeSums:
    """Join the probe that fits best (in the first step: that of the client's group); its gradient and second derivatives.

    `ids` are the places of the probes among those of the first step.
    """
    learner = Trainer(**trainer)._replace(device=None, hold_out=False, learner="linear")
    y, w = to_numpy(learner.rows(client).y), to_numpy(client.w).astype(np.float64)
    one = _features(down, client)
    scores = _scores(down.coef, one)  # (k, n, c)
    before = to_numpy(client.state.get("own_intercepts", np.zeros((max(ids) + 1, scores.shape[-1]))))
    own = fitted_intercepts(scores, y, w, before[ids])
    log_p = log_softmax(scores + own[:, None, :])
    loglik = (w * log_p[:, np.arange(len(y)), y]).sum(-1) - 0.5 * INTERCEPT_RIDGE * (own**2).sum(-1)
    best = int(to_numpy(client.state["omega"])[ids].argmax()) if first else int(loglik.argmax())
    before[ids] = own
    client.state["own_intercepts"], client.state["omega"] = before, _mostly(len(before), ids[best])
    p = np.exp(log_p[best]).T[1:]  # (c - 1, n)
    hit = np.arange(len(ids)) == best
    others = np.delete(loglik, best)
    loss = loglik[best] - others.max() if len(others) else 0.0
    gradient, second = curvatures.gradient_of(y, w, p, one), pack_triangle(curvatures.second_of(w, p, one))
    return ProbeSums(hit * w.sum(), loglik[best], hit * loss, np.outer(hit, gradient), np.outer(hit, second))


def _mostly(k: int, one: int) -> np.ndarray:  # (k,)
    """Weights with SURE on one."""
    return np.full(k, (1 - SURE) / k) + SURE * (np.arange(k) == one)


def fitted_intercepts(scores: np.ndarray, y: np.ndarray, w: np.ndarray, own: np.ndarray, steps: int = 4) -> np.ndarray:
    """What the client's own label shares add to scores (k, n, c), (k, c); begins at `own`."""
    c = scores.shape[-1]
    hits = np.array([w[y == label].sum() for label in range(c)])
    for _ in range(steps):
        p = np.exp(log_softmax(scores + own[:, None, :]))
        weighted = p * w[:, None]
        expected = weighted.sum(1)  # (k, c)
        second = expected[:, :, None] * np.eye(c) - np.swapaxes(weighted, 1, 2) @ p + INTERCEPT_RIDGE * np.eye(c)
        step = np.linalg.solve(second, (hits - expected - INTERCEPT_RIDGE * own)[..., None])[..., 0]
        own = own + step / np.maximum(1.0, np.abs(step).max(-1, keepdims=True) / 2)
    return own


def client_score(down: Scores, client: Client, trainer: dict) -> np.ndarray:  # (s,)
    """The whitened score of the probe's slopes at a client, after its intercepts were fitted; divided by the root of its rows."""
    learner = Trainer(**trainer)._replace(device=None, hold_out=False, learner="linear")
    y, w = to_numpy(learner.rows(client).y), to_numpy(client.w).astype(np.float64)
    one = _features(down, client)
    scores = _scores(to_numpy(down.coef)[None], one)
    own = fitted_intercepts(scores, y, w, np.zeros((1, scores.shape[-1])), 12)
    p = np.exp(log_softmax(scores[0] + own[0]))
    hit = y[:, None] == np.arange(p.shape[1])
    error = ((hit - p) * w[:, None])[:, 1:]  # (n, c - 1)
    score = (error.T @ one[:, :-1]).ravel()
    return to_numpy(down.whitening) @ score / np.sqrt(max(w.sum(), 1.0))


def _features(down: Probe | Scores | Probes, client: Client) -> np.ndarray:  # (..., n, a + 1)
    """Inputs on the axes, and a column of ones."""
    x = to_numpy(client.x)
    z = ((x - down.mean.astype(x.dtype)) @ down.axes.astype(x.dtype)).astype(np.float64)
    return np.concatenate([z, np.ones_like(z[..., :1])], -1)


def _scores(coef: Array, one: np.ndarray) -> np.ndarray:  # (k, n, c)
    """Scores of all classes under probes (k, c - 1, w); those of the first class are 0."""
    free = one @ np.swapaxes(to_numpy(coef), -1, -2)
    return np.concatenate([np.zeros_like(free[..., :1]), free], -1)


# ---- the server ----


def discover(fed: Federation, trainer: dict, rng: np.random.Generator) -> list[int]:
    """The places of the concepts in the clients' first weights `omega`, which they keep; one place if there is one concept."""
    clients = len(fed.names)
    if clients < 2:
        return [0]
    fitted, second, rows = fit_probe(fed, trainer, rng)
    scores = Scores(*fitted, whitening_of(second / rows, len(fitted.coef)))
    moments = fed.sum(score_moments.using(trainer=trainer), scores)
    values, vectors = np.linalg.eigh(unpack_triangle(rounded(moments.ss)))
    vectors = rounded(vectors * np.sign(vectors[np.abs(vectors).argmax(0), np.arange(len(vectors))]))
    k = min(n_directions(values, clients) + 1 + MORE, MOST, clients)
    r = min(k - 1, len(values))
    spread = np.sqrt(np.maximum(values[::-1][:r], 1e-12) / clients)
    at = rng.normal(size=(RESTARTS, k, r)) * spread
    best = k_means(fed, Centres(scores, vectors[:, ::-1][:, :r], at), trainer)
    fed.tell(assign.using(trainer=trainer), best)
    ids = fit_probes(fed, Probes(fitted.mean, fitted.axes, np.repeat(fitted.coef[None], k, 0)), trainer, rows)
    return ids if len(ids) <= max(clients / 2, 1) else ids[:1]


def rounded(a: Array) -> np.ndarray:
    """Numbers to nine digits of the largest, so that the order in which clients are added does not matter."""
    a = to_numpy(a)
    unit = 10.0 ** (np.ceil(np.log10(max(float(np.abs(a).max(initial=0.0)), 1e-300))) - 9)
    return np.round(a / unit) * unit


def n_directions(values: np.ndarray, clients: int) -> int:
    """How many eigenvalues are above the noise.

    The threshold of singular values is that of Gavish and Donoho (2014) for noise of unknown size.
    """
    few, many = sorted((clients, len(values)))
    singular = np.sqrt(np.maximum(values[::-1][:few], 0.0))
    beta = few / many
    threshold = (0.56 * beta**3 - 0.95 * beta**2 + 1.82 * beta + 1.43) * np.median(singular)
    return int((singular > threshold).sum())


def fit_probes(fed: Federation, down: Probes, trainer: dict, rows: float) -> list[int]:
    """The places of the probes that are worth their parameters."""
    ids, left, first = list(range(len(down.coef))), EM_STEPS, True
    classes, wide = down.coef.shape[1] + 1, down.coef.shape[2]
    while True:
        total = fed.sum(probes.using(trainer=trainer, ids=ids, first=first), down)
        pen = penalties.penalty(classes, wide - 1, 1.0 / max(RIDGE * rows, 1.0))
        moved, parameters = stepped(down.coef, total, pen)
        moved = rounded(moved)
        first, left = False, left - 1
        worth = to_numpy(total.loss) - 0.5 * parameters * np.log(np.maximum(to_numpy(total.n), 2.0))
        empty = to_numpy(total.n) == 0
        keep = ~empty
        if left <= 0 and len(ids) > 1 and not empty.any():
            keep = np.arange(len(ids)) != worth.argmin() if worth.min() < 0 else keep
            if keep.all():
                return ids
            left = AFTER_REMOVAL
        ids, down = [i for i, k in zip(ids, keep) if k], down._replace(coef=moved[keep])
        if len(ids) == 1:
            return ids


def stepped(coef: np.ndarray, total: ProbeSums, pen: penalties.Penalty) -> tuple[np.ndarray, np.ndarray]:
    """(probes after a Newton step (k, m, w), how many parameters of each the rows determine (k,))."""
    out, parameters = to_numpy(coef).copy(), np.zeros(len(coef))
    for i, (own, gradient, packed) in enumerate(zip(out, to_numpy(total.gradient), to_numpy(total.curvature))):
        second = unpack_triangle(packed)
        matrix = second + pen.matrix + 1e-6 * np.eye(len(second))
        step = newton.solve(matrix, gradient - pen.times(own.ravel()))
        size = np.sqrt(max(float(step @ matrix @ step), 0.0) / max(float(total.n[i]), 1.0))
        out[i] += (step / max(1.0, size / 2)).reshape(own.shape)
        parameters[i] = np.trace(newton.solve(matrix, second))
    return out, parameters


def fit_probe(fed: Federation, trainer: dict, rng: np.random.Generator) -> tuple[Probe, np.ndarray, float]:
    """(the probe at its optimum, second derivatives there (q, q), rows)."""
    sums = fed.sum(curvatures.column_sums, None)
    rows, mean = float(sums.n), to_numpy(sums.x) / float(sums.n)
    classes = len(trainer["labels"])
    sketch = np.eye(len(mean)) if len(mean) <= SKETCHED else rng.normal(size=(len(mean), SKETCHED)) / len(mean) ** 0.5
    moments = fed.sum(sketch_moments, Sketch(mean, sketch))
    most = MAX_PARAMETERS // (classes - 1) - 1
    axes = sketch @ principal_axes(unpack_triangle(to_numpy(moments.zz)) / rows, most)
    a = axes.shape[1]
    at, pen = np.zeros((classes - 1) * (a + 1)), penalties.penalty(classes, a, 1.0 / max(RIDGE * rows, 1.0))
    for _ in range(STEPS):
        found = Probe(mean, axes, at.reshape(classes - 1, a + 1))
        total = fed.sum(probe.using(trainer=trainer), found)
        second = unpack_triangle(to_numpy(total.curvature)) + pen.matrix
        step = newton.solve(second, to_numpy(total.gradient) - pen.times(at))
        size = np.sqrt(max(float(step @ second @ step), 0.0) / rows)
        at = rounded(at + step / max(1.0, size / 2))
        if size < 1e-3:
            break
    return found._replace(axes=rounded(axes)), rounded(second), rows


def principal_axes(cov: np.ndarray, most: int) -> np.ndarray:  # (d, a)
    """Axes along which rows with standardised columns vary most, scaled to unit variance."""
    scale = np.sqrt(np.diag(cov))
    scale = np.where(scale > 1e-9 * max(scale.max(), 1e-300), scale, np.inf)
    values, vectors = np.linalg.eigh(cov / np.outer(scale, scale))
    a = int(min(max(most, 1), MAX_AXES, (values > 1e-6 * values.max()).sum()))
    return (vectors[:, ::-1][:, :a] / scale[:, None]) / np.sqrt(values[::-1][:a])


def whitening_of(second: np.ndarray, free: int) -> np.ndarray:  # (s, s)
    """The inverse root of the information (per row) about slopes, that about intercepts taken out."""
    wide = second.shape[0] // free
    intercepts = np.arange(free) * wide + wide - 1
    slopes = np.delete(np.arange(len(second)), intercepts)
    across = second[np.ix_(slopes, intercepts)]
    left = second[np.ix_(slopes, slopes)] - across @ np.linalg.pinv(second[np.ix_(intercepts, intercepts)]) @ across.T
    values, vectors = np.linalg.eigh(0.5 * (left + left.T))
    return (vectors / np.sqrt(np.maximum(values, 1e-4 * values.max()))) @ vectors.T


def k_means(fed: Federation, down: Centres, trainer: dict) -> Centres:
    """The restart of k-means with the smallest squared distances."""
    for _ in range(MEAN_STEPS):
        total = fed.sum(score_means.using(trainer=trainer), down)
        n = to_numpy(total.n)[..., None]
        moved = np.where(n > 0, to_numpy(total.x) / np.maximum(n, 1.0), down.at)
        still = np.abs(moved - down.at).max() < 1e-9
        down = down._replace(at=moved)
        if still:
            break
    best = int(np.argmin(to_numpy(total.squares)))
    return down._replace(at=down.at[best : best + 1])
