"""How many concepts there are, and which client has which, before any model is trained: the SUMs of `probes`.

One linear probe of all rows is fitted first. Where clients label alike, their scores at its optimum are noise; where they do not, the
scores of all clients span one direction less than there are concepts. The eigenvalues of the scores' second moments that are above the
noise count these directions. k-means of the clients along them makes a few groups too many. Then every group has a probe, clients join
the one that fits them best, and probes whose removal improves BIC are removed one by one.
"""

from __future__ import annotations

import numpy as np

from unpooled.arrays import Array, to_numpy
from unpooled.federation import Federation
from unpooled.learners import curvatures, newton, penalties
from unpooled.maths.gaussian import unpack_triangle
from unpooled.models.fedconceptem.probes import (
    MAX_PROBES,
    Centres,
    Probes,
    ProbeSums,
    Scores,
    Sketch,
    assign,
    probes,
    score_means,
    score_moments,
    sketch_moments,
)

MAX_PARAMETERS = 240  # free parameters of a probe
RIDGE = 0.01  # of a probe, per row: keeps its probabilities off 0 and 1 where classes are far apart
SKETCHED = 256  # columns; of more than these, so many random combinations are looked at
MAX_AXES = 32  # principal axes that it sees
STEPS, STILL = 12, 1e-3  # Newton steps of the first probe, at most, and the change of slopes at which they end
RESTARTS, MEAN_STEPS = 64, 15  # of k-means, all restarts in the same SUMs
MORE = 6  # groups to begin with beyond the directions that were found
GROUP_STEPS = 4  # of the probes of groups, before clients may join another
EM_STEPS, AFTER_REMOVAL = 8, 3  # steps after that before the first removal, and after each


def discover(fed: Federation, trainer: dict, rng: np.random.Generator, most: int | None = None) -> list[int]:
    """The places of the concepts in the clients' first weights `omega`, which they keep; at most `most` places where it is given."""
    clients = len(fed.names)
    if clients < 2:
        return [0]
    sums = fed.sum(curvatures.column_sums, None)
    rows = float(sums.n)
    mean = to_numpy(sums.x) / float(sums.n)
    classes = len(trainer["labels"])
    axes = probe_axes(fed, mean, rows, classes, rng)
    pen = penalties.penalty(classes, axes.shape[1], 1.0 / max(RIDGE * rows, 1.0))
    probe, second = fit_probe(fed, Probes(mean, axes, np.zeros((1, classes - 1, axes.shape[1] + 1))), trainer, pen)
    groups = divide(fed, Scores(probe, whitening_of(second / rows, classes - 1)), trainer, rng)
    ids = fit_probes(fed, probe._replace(coef=np.repeat(probe.coef, groups, 0)), trainer, pen, most or clients)
    return ids if len(ids) <= max(clients / 2, 1) else ids[:1]


# ---- one probe of all rows ----


def probe_axes(fed: Federation, mean: np.ndarray, rows: float, classes: int, rng: np.random.Generator) -> np.ndarray:
    """Principal axes (d, a) of standardised columns, as many as a probe has parameters for."""
    d = len(mean)
    sketch = np.eye(d) if d <= SKETCHED else rng.normal(size=(d, SKETCHED)) / d**0.5
    moments = fed.sum(sketch_moments, Sketch(mean, sketch))
    cov = unpack_triangle(to_numpy(moments.zz)) / rows
    scale = np.sqrt(np.diag(cov))
    scale = np.where(scale > 1e-9 * max(scale.max(), 1e-300), scale, np.inf)
    values, vectors = np.linalg.eigh(cov / np.outer(scale, scale))
    most = max(MAX_PARAMETERS // (classes - 1) - 1, 1)
    a = int(min(most, MAX_AXES, (values > 1e-6 * values.max()).sum()))
    axes = (vectors[:, ::-1][:, :a] / scale[:, None]) / np.sqrt(values[::-1][:a])
    return rounded(sketch @ axes)


def fit_probe(fed: Federation, probe: Probes, trainer: dict, pen: penalties.Penalty) -> tuple[Probes, np.ndarray]:
    """(the probe at its optimum, minus the second derivatives there (q, q))."""
    for _ in range(STEPS):
        total = fed.sum(probes.using(trainer=trainer, ids=[0], move=True), probe)
        coef, _ = stepped(probe.coef, total, pen)
        change = np.abs(coef - probe.coef)[..., :-1].max()
        probe = probe._replace(coef=coef)
        if change < STILL:
            break
    return probe, rounded(unpack_triangle(to_numpy(total.curvature)[0]) + pen.matrix)


def whitening_of(second: np.ndarray, free: int) -> np.ndarray:  # (s, s)
    """The inverse root of the information (per row) about slopes, that about intercepts taken out."""
    wide = second.shape[0] // free
    intercepts = np.arange(free) * wide + wide - 1
    slopes = np.delete(np.arange(len(second)), intercepts)
    across = second[np.ix_(slopes, intercepts)]
    of_intercepts = np.linalg.pinv(second[np.ix_(intercepts, intercepts)])
    left = second[np.ix_(slopes, slopes)] - across @ of_intercepts @ across.T
    values, vectors = np.linalg.eigh(0.5 * (left + left.T))
    return (vectors / np.sqrt(np.maximum(values, 1e-4 * values.max()))) @ vectors.T


# ---- groups of clients by their scores ----


def divide(fed: Federation, scores: Scores, trainer: dict, rng: np.random.Generator) -> int:
    """The number of groups into which clients were divided; each keeps its own."""
    clients = len(fed.names)
    moments = fed.sum(score_moments.using(trainer=trainer), scores)
    values, vectors = np.linalg.eigh(unpack_triangle(rounded(moments.ss)))
    vectors = rounded(vectors * np.sign(vectors[np.abs(vectors).argmax(0), np.arange(len(vectors))]))
    k = min(n_directions(values, clients) + 1 + MORE, MAX_PROBES, clients)
    r = min(k - 1, len(values))
    spread = np.sqrt(np.maximum(values[::-1][:r], 1e-12) / clients)
    at = rng.normal(size=(RESTARTS, k, r)) * spread
    best = k_means(fed, Centres(scores, vectors[:, ::-1][:, :r], at), trainer)
    fed.tell(assign.using(trainer=trainer), best)
    return k


def n_directions(values: np.ndarray, clients: int) -> int:
    """How many eigenvalues are above the noise.

    The threshold of singular values is that of Gavish and Donoho (2014) for noise of unknown size.
    """
    few, many = sorted((clients, len(values)))
    singular = np.sqrt(np.maximum(values[::-1][:few], 0.0))
    beta = few / many
    threshold = (0.56 * beta**3 - 0.95 * beta**2 + 1.82 * beta + 1.43) * np.median(singular)
    return int((singular > threshold).sum())


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


# ---- a probe for each group ----


def fit_probes(fed: Federation, down: Probes, trainer: dict, pen: penalties.Penalty, most: int) -> list[int]:
    """The places of the probes that improve BIC, of `most` at most."""
    ids = list(range(len(down.coef)))
    step = 0
    last = GROUP_STEPS + EM_STEPS
    while len(ids) > 1:
        step += 1
        total = fed.sum(probes.using(trainer=trainer, ids=ids, move=step > GROUP_STEPS), down)
        moved, parameters = stepped(down.coef, total, pen)
        keep = to_numpy(total.n) > 0
        if keep.all() and step >= last:
            worth = to_numpy(total.loss) - 0.5 * parameters * np.log(np.maximum(to_numpy(total.n), 2.0))
            if worth.min() >= 0 and len(ids) <= most:
                break
            keep = np.arange(len(ids)) != worth.argmin()
            last = step + AFTER_REMOVAL
        ids = [i for i, kept in zip(ids, keep) if kept]
        down = down._replace(coef=moved[keep])
    return ids


def stepped(coef: np.ndarray, total: ProbeSums, pen: penalties.Penalty) -> tuple[np.ndarray, np.ndarray]:
    """(probes after a Newton step (k, m, w), how many parameters of each the rows determine (k,))."""
    out = to_numpy(coef).copy()
    parameters = np.zeros(len(coef))
    for i, (own, gradient, packed) in enumerate(zip(out, to_numpy(total.gradient), to_numpy(total.curvature))):
        second = unpack_triangle(packed)
        matrix = second + pen.matrix + 1e-6 * np.eye(len(second))
        step = newton.solve(matrix, gradient - pen.times(own.ravel()))
        size = np.sqrt(max(float(step @ matrix @ step), 0.0) / max(float(total.n[i]), 1.0))
        out[i] += (step / max(1.0, size / 2)).reshape(own.shape)
        parameters[i] = np.trace(newton.solve(matrix, second))
    return rounded(out), parameters


def rounded(a: Array) -> np.ndarray:
    """Numbers to nine digits of the largest, so that the order in which clients are added does not matter."""
    a = to_numpy(a)
    unit = 10.0 ** (np.ceil(np.log10(max(float(np.abs(a).max(initial=0.0)), 1e-300))) - 9)
    return np.round(a / unit) * unit
