"""The client side of FedGMM: one SUM per round of Gaussian statistics and learners; a client's weights never leave it.

Down, per candidate (a start, or a number of Gaussians and learners): the Gaussians and the learners. Up, per Gaussian: a
count, a sum and a second moment; per learner: a model times its mass (SGD), or a gradient and second derivatives (Newton).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from unpooled import tree
from unpooled.arrays import Array, Float, like, namespace, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.learners import Rows, Trainer, newton
from unpooled.learners.mixing import log_shares, mass, responsibilities, shares
from unpooled.learners.rows import held_out
from unpooled.maths import gaussian, missing, mixture
from unpooled.maths.kernel import has_nan
from unpooled.maths.mixture import Params, Stats
from unpooled.models.fedgmm import bounded, weighted_e_step
from unpooled.models.fedgmm.embedding import Embedding, embed
from unpooled.models.fedgmm.row_cache import CachedColumns, cached_columns
from unpooled.models.fedgmm.weighted_e_step import log_densities
from unpooled.tree import message

MIN_WEIGHT = 1e-30  # lower bound of a client's weights: a pair of weight 0 could never come back
HELD_OUT = 5  # every fifth row is held out to compare candidates of different sizes
MAX_PRECONDITIONED = 256  # columns up to which SGD on linear learners is preconditioned


@message("fedgmm.Joint")
class Joint(NamedTuple):
    """One candidate: Gaussians and learners."""

    gaussians: Params
    theta: Float[Array, "m p"]
    shares: Float[Array, "k m"]  # of all rows; the first weights of a client without any


@message("fedgmm.Down")
class Down(NamedTuple):
    """The candidates of a round."""

    candidates: tuple[Joint, ...]
    embedding: Embedding


@message("fedgmm.Mixtures")
class Mixtures(NamedTuple):
    """Mixtures of the inputs alone, before there are learners."""

    params: tuple[Params, ...]
    embedding: Embedding


@message("fedgmm.JointStats")
class JointStats(NamedTuple):
    """What the E-step sends, without the learners."""

    gaussians: Stats  # its loglik is the joint one, over the rows that train
    pairs: Float[Array, "k m", ">=0 rows"]  # rows of each pair of Gaussian and learner
    held_out: Float[Array, ""]  # joint log-likelihood of the rows held out
    held_out_labels: Float[Array, ""]  # their log P(y | x)
    trained_labels: Float[Array, ""]  # log P(y | x) of the rows that train; like the last one 0 if none are held out
    held_out_rows: Float[Array, "", ">=0 rows"]


@message("fedgmm.SgdUp")
class SgdUp(NamedTuple):
    """Statistics of Gaussians, and learners weighted by their rows."""

    stats: JointStats
    theta: Float[Array, "m p"]  # sum of mass x model


@message("fedgmm.NewtonUp")
class NewtonUp(NamedTuple):
    """Statistics of Gaussians, and gradients and second derivatives of learners."""

    stats: JointStats
    gradient: Float[Array, "m q"]
    curvature: Float[Array, "m t"]  # packed second derivatives; none of wide learners, see `bounded`


@message("fedgmm.LabelMeans")
class LabelMeans(NamedTuple):
    """Counts and sums of rows by Gaussian and class."""

    n: Float[Array, "k c", ">=0 rows"]
    x: Float[Array, "k c d"]  # sum of (x - the mean of the mixture)


class RoundOptions(NamedTuple):
    """What a round needs beside the parameters and the trainer; it travels as plain JSON."""

    keys: list[str]  # of the candidates or mixtures: part of the names of their weights in the client's state
    sources: dict[str, str]  # candidate -> mixture that it began from
    shape: str  # covariance type
    hold_out: bool  # whether every fifth row is held out
    precondition: bool  # whether SGD on linear learners is preconditioned
    keep_out: bool = False  # whether Gaussians never see the rows from which novelty thresholds are read
    bounded: bool = False  # whether linear learners are too wide for second derivatives, and gradients alone are sent


# ---- questions ----


@client("fedgmm.sgd_round", SUM)
def sgd_round(down: Down, client: Client, *, trainer: dict, options: dict) -> tuple[SgdUp, ...]:
    """E-step, then local epochs of each learner weighted by its responsibilities."""
    learner = Trainer(**trainer)
    plan = RoundOptions(**options)
    answers = []
    for joint, key in zip(down.candidates, plan.keys):
        stats, rows, r = e_step(joint, down.embedding, client, learner, key, plan)
        scale = preconditioner(joint, plan.shape, rows.x) if plan.precondition else None
        initial = learner.with_own(joint.theta, client, rows.x)
        trained = learner.train(initial, replace(client, w=rows.w), rows, r, scale)
        theta = learner.keep_own(trained, client, joint.theta)
        weight = mass(r, density_weights(client, rows.w, plan.keep_out))  # the rows of `stats.pairs`
        answers.append(SgdUp(stats, weight[..., None] * theta))
    return tuple(answers)


@client("fedgmm.newton_round", SUM)
def newton_round(down: Down, client: Client, *, trainer: dict, options: dict) -> tuple[NewtonUp, ...]:
    """E-step, then gradient and, unless they are too large, second derivatives of each linear learner."""
    learner = Trainer(**trainer)
    plan = RoundOptions(**options)
    answers = []
    for joint, key in zip(down.candidates, plan.keys):
        stats, rows, r = e_step(joint, down.embedding, client, learner, key, plan)
        log_p = learner.log_proba(joint.theta, rows.x)
        row_weights = r * rows.w[..., None]
        if plan.bounded:
            found = bounded.gradient(log_p, rows.x, rows.y, row_weights, down.embedding.mean)
            answers.append(NewtonUp(stats, found, found[..., :0]))
        else:
            derivatives = newton.curvature(log_p, rows.x, rows.y, row_weights, down.embedding.mean)
            answers.append(NewtonUp(stats, *derivatives))
    return tuple(answers)


@client("fedgmm.warm_up", SUM)
def warm_up(down: Mixtures, client: Client, *, trainer: dict, options: dict) -> tuple[Stats, ...]:
    """E-step of the mixtures of the inputs alone, under the client's own weights."""
    rows = Trainer(**trainer).rows(client)
    plan = RoundOptions(**options)
    z = embed(rows.x, down.embedding)
    answers = []
    for params, key in zip(down.params, plan.keys):
        weights = client.state.get(f"weights-{key}", params.weights)
        w = density_weights(client, rows.w, plan.keep_out)
        stats = mixture.e_step(params, z, w, plan.shape, log_weights=log_shares(weights, z))
        client.state[f"weights-{key}"] = shares(stats.n)
        answers.append(stats)
    return tuple(answers)


@client("fedgmm.label_means", SUM)
def label_means(
    down: Mixtures, client: Client, *, trainer: dict, options: dict, shown: Sequence[list] = ()
) -> tuple[LabelMeans, ...]:
    """Counts and sums of the rows by Gaussian and class, under the client's own weights; of those that are shown, in a study."""
    rows = Trainer(**trainer).rows(client)
    plan = RoundOptions(**options)
    xp = namespace(rows.x)
    classes = xp.arange(len(trainer["labels"]), **({} if xp is np else {"device": rows.x.device}))
    by_class = like(rows.y[..., None, :] == classes[:, None], rows.x) * rows.w[..., None, :]  # (..., c, n)
    answers = []
    for i, (params, key) in enumerate(zip(down.params, plan.keys)):
        log_n = log_densities(params, rows.x, plan.shape)
        weights = client.state.get(f"weights-{key}", params.weights)
        r, _ = responsibilities(log_n + log_shares(weights, log_n)[..., None, :])
        by_both = xp.swapaxes(r, -1, -2)[..., None, :] * by_class[..., None, :, :]  # (..., k, c, n)
        if shown:
            by_both = by_both * like(np.asarray(shown[i], float), by_both)[..., None]
        centred = imputed(rows.x, params, plan.shape) - like(params.weights @ params.means, rows.x)
        answers.append(LabelMeans(by_both.sum(-1), by_both @ centred[..., None, :, :]))
    return tuple(answers)


# ---- the E-step ----


def e_step(
    joint: Joint, embedding: Embedding, client: Client, learner: Trainer, key: str, plan: RoundOptions
) -> tuple[JointStats, Rows, Array]:
    """(statistics, rows as learners take them with the weights of training, the learners' responsibilities (..., n, m)).

    The client's weights are updated in its state and stay there.
    """
    rows = learner.rows(client)
    z = embed(rows.x, embedding)
    # embedded rows are new arrays every time
    cached = cached_columns(client.memo, z, rows.w) if z is client.x else None
    if z is rows.x and cached is None:
        rows = rows._replace(x=imputed(rows.x, joint.gaussians, plan.shape))
    pi = own_weights(client, joint, key, plan.sources)
    train, held_out = split(rows.w, plan.hold_out)
    log_labels = learner.log_likelihood(joint.theta, rows)
    seen = density_weights(client, train, plan.keep_out)
    expected = joint_e_step(joint.gaussians, z, seen, log_labels, pi, plan.shape, cached)
    pairs = expected.pairs
    stats = expected.stats
    client.state[f"pi-{key}"] = shares(pairs.reshape(*pairs.shape[:-2], -1)).reshape(pairs.shape)
    if learner.hold_out and not plan.hold_out:
        held_out = like(learner.held(client), rows.w)
    judged = plan.hold_out or learner.hold_out
    joint_loglik = (held_out * expected.log_p).sum(-1)
    log_labels = expected.log_p - _log_inputs(joint.gaussians, z, pi, plan) if judged else 0 * expected.log_p
    held_labels = (held_out * log_labels).sum(-1)
    trained_labels = (train * log_labels).sum(-1)
    answer = JointStats(stats, pairs, joint_loglik, held_labels, trained_labels, held_out.sum(-1))
    return answer, rows._replace(w=train), expected.r


def _log_inputs(params: Params, z: Array, pi: Array, plan: RoundOptions) -> Array:
    """log P(x) (..., n) under the client's weights of the Gaussians."""
    log_n = log_densities(params, z, plan.shape)
    return responsibilities(log_n + log_shares(like(pi, z).sum(-1), log_n)[..., None, :])[1]


@message("fedgmm.JointEStep")
class JointEStep(NamedTuple):
    """The E-step over pairs of Gaussian and learner."""

    stats: Stats
    pairs: Array  # (..., k, m) rows of each pair
    r: Array  # (..., n, m) responsibilities of the learners
    log_p: Array  # (..., n) log P(x, y)


def joint_e_step(
    params: Params, z: Array, w: Array, log_p: Array, pi: Array, shape: str, cached: CachedColumns | None = None
) -> JointEStep:
    """The E-step under weights pi (..., k, m) and the learners' log P(y | x) (..., n, m), without an array of all pairs.

    Gaussian k has the weight s_ik = sum_j pi_kj P_j for row i; given k, learner j has the share pi_kj P_j / s_ik.
    """
    xp = namespace(z)
    pi = like(pi, z).clip(min=MIN_WEIGHT)
    log_p = xp.swapaxes(log_p, -1, -2)  # (..., m, n)
    top = xp.amax(log_p, axis=-2, keepdims=True)
    p = xp.exp(log_p - top)
    s = (pi @ p).clip(min=MIN_WEIGHT)  # (..., k, n)
    stats, r, total = weighted_e_step.e_step(params, z, w, xp.log(s) + top, shape, cached)
    share = r / s
    pairs = pi * ((share * like(w, z)[..., None, :]) @ xp.swapaxes(p, -1, -2))
    learners = p * (xp.swapaxes(pi, -1, -2) @ share)
    return JointEStep(stats, pairs, xp.swapaxes(learners, -1, -2), total)


def own_weights(client: Client, joint: Joint, key: str, sources: dict[str, str]) -> Array:
    """The client's weights (..., k, m); at first those of its Gaussians, divided among the learners as over all clients."""
    if f"pi-{key}" in client.state:
        return client.state[f"pi-{key}"]
    first = client.state.get(f"weights-{sources.get(key)}")
    if first is None:  # the client did not take part in the warm-up
        return joint.shares
    return first[..., None] * like(joint.shares / joint.shares.sum(-1)[:, None], first)


def density_weights(client: Client, w: Array, keep_out: bool) -> Array:
    """Weights of the rows that Gaussians are fitted to: all, or with `keep_out` those that are not held out."""
    return w * like(~held_out(client), w) if keep_out else w


def split(w: Array, hold_out: bool) -> tuple[Array, Array]:
    """Weights of the rows that train and of those held out (every fifth, or none)."""
    if not hold_out:
        return w, 0 * w
    out = like(np.arange(w.shape[-1]) % HELD_OUT == HELD_OUT - 1, w)
    return w * (1 - out), w * out


# ---- what learners take from the Gaussians ----


def imputed(x: Array, params: Params, shape: str) -> Array:
    """Rows with missing values replaced by their conditional means."""
    if not has_nan(x):
        return x
    return like(missing.impute(params, x.reshape(-1, x.shape[-1]), shape), x).reshape(x.shape)


def second_moments(joint: Joint, shape: str, centre: np.ndarray | float = 0.0) -> np.ndarray:
    """The mean of (x, 1)(x, 1)' about a centre over the rows of each learner, (m, d + 1, d + 1), from the Gaussians."""
    means = np.asarray(joint.gaussians.means) - centre
    one = np.concatenate([means, np.ones((len(means), 1))], axis=1)
    each = one[:, :, None] * one[:, None, :]
    each[:, :-1, :-1] += np.asarray(gaussian.full_covs(joint.gaussians, shape))
    share = np.asarray(joint.shares) + 1e-12
    return np.einsum("km,kij->mij", share / share.sum(0), each)


def preconditioner(joint: Joint, shape: str, reference: Array) -> Array | None:
    """The inverse of each linear learner's `second_moments`: SGD then moves as in whitened coordinates."""
    if joint.gaussians.means.shape[-1] > MAX_PRECONDITIONED:
        return None
    return like(np.linalg.inv(second_moments(tree.map(to_numpy, joint), shape)), reference)
