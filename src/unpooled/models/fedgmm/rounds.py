"""What clients do in a round of FedGMM, and what leaves them: sums of Gaussian statistics and of learners, never
their weights.

Down, for each candidate (a start, or a number of Gaussians and learners): the Gaussians and the learners. Up: for
each Gaussian a count, a sum and a second moment; for each learner a model times its mass (SGD) or a gradient and
second derivatives (Newton).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from unpooled import tree
from unpooled.arrays import Array, Float, like, namespace, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.learners import Rows, Trainer, newton
from unpooled.learners.mixing import log_shares, mass, responsibilities, shares
from unpooled.maths import gaussian, missing, mixture
from unpooled.maths.kernel import has_nan
from unpooled.maths.mixture import Params, Stats
from unpooled.models.fedgmm import weighted_e_step as coupling
from unpooled.models.fedgmm.row_cache import Standing, standing
from unpooled.models.fedgmm.weighted_e_step import log_densities
from unpooled.tree import message

FLOOR = 1e-30  # no weight is below this: a client may change its mind
HELD_OUT = 5  # one row in so many judges candidates of different sizes
LEAST = 1e-3  # what axes leave out of a row counts as this share of the mean at least
WIDEST = 256  # columns up to which SGD on linear learners is preconditioned


@message("fedgmm.Joint")
class Joint(NamedTuple):
    """One candidate: Gaussians and learners."""

    gaussians: Params
    theta: Float[Array, "m p"]
    shares: Float[Array, "k m"]  # of all rows: where a client without weights of its own begins


@message("fedgmm.Lens")
class Lens(NamedTuple):
    """What takes a row to the Gaussians' space: z = (x - mean) axes and, last, how long the rest of the row is; one
    without axes leaves rows as they are.
    """

    mean: Float[Array, "inputs"]
    axes: Float[Array, "inputs axes"]
    rest: Float[Array, "numbers"]  # mean square of what axes leave out, mean and spread of `log_rest`; or nothing


@message("fedgmm.Down")
class Down(NamedTuple):
    candidates: tuple[Joint, ...]
    lens: Lens


@message("fedgmm.Mixtures")
class Mixtures(NamedTuple):
    params: tuple[Params, ...]
    lens: Lens


@message("fedgmm.Mixed")
class Mixed(NamedTuple):
    gaussians: Stats  # its loglik is that of the joint, over the rows that train
    joint: Float[Array, "k m", ">=0 rows"]  # rows that each pair answers for
    held: Float[Array, ""]  # joint log-likelihood of the rows held out
    held_rows: Float[Array, "", ">=0 rows"]


@message("fedgmm.Trained")
class Trained(NamedTuple):
    mixed: Mixed
    theta: Float[Array, "m p"]  # sum of mass x model


@message("fedgmm.Curved")
class Curved(NamedTuple):
    mixed: Mixed
    gradient: Float[Array, "m q"]
    curvature: Float[Array, "m t"]


@message("fedgmm.Labelled")
class Labelled(NamedTuple):
    """Rows by Gaussian and class."""

    n: Float[Array, "k c", ">=0 rows"]
    x: Float[Array, "k c d"]  # sum of (x - the mean of all)


# ---- questions ----


@client("fedgmm.sgd_round", SUM)
def sgd_round(down: Down, client: Client, *, trainer: dict, plan: dict) -> tuple[Trained, ...]:
    """E-step, then local epochs of each learner weighted by its responsibilities."""
    how = Trainer(**trainer)
    answers = []
    for joint, key in zip(down.candidates, plan["keys"]):
        mixed, rows, r, train = e_step(joint, down.lens, client, how, key, plan)
        scale = preconditioner(joint, plan["shape"], rows.x) if plan["whiten"] else None
        begin = how.with_own(joint.theta, client, rows.x)
        theta = how.keep_own(how.train(begin, replace(client, w=train), rows, r, scale), client, joint.theta)
        answers.append(Trained(mixed, mass(r, rows.w)[..., None] * theta))
    return tuple(answers)


@client("fedgmm.newton_round", SUM)
def newton_round(down: Down, client: Client, *, trainer: dict, plan: dict) -> tuple[Curved, ...]:
    """E-step, then what a pooled Newton step needs of each linear learner."""
    how = Trainer(**trainer)
    answers = []
    for joint, key in zip(down.candidates, plan["keys"]):
        mixed, rows, r, _ = e_step(joint, down.lens, client, how, key, plan)
        log_p, s = how.log_proba(joint.theta, rows.x), r * rows.w[..., None]
        answers.append(Curved(mixed, *newton.curvature(log_p, rows.x, rows.y, s, down.lens.mean)))
    return tuple(answers)


@client("fedgmm.warm_up", SUM)
def warm_up(down: Mixtures, client: Client, *, trainer: dict, plan: dict) -> tuple[Stats, ...]:
    """The mixture alone, under weights that the client keeps."""
    rows = Trainer(**trainer).rows(client)
    z = embedded(rows.x, down.lens)
    answers = []
    for params, key in zip(down.params, plan["keys"]):
        mine = client.state.get(f"weights-{key}", params.weights)
        stats = mixture.e_step(params, z, rows.w, plan["shape"], log_weights=log_shares(mine, z))
        client.state[f"weights-{key}"] = shares(stats.n)
        answers.append(stats)
    return tuple(answers)


@client("fedgmm.label_means", SUM)
def label_means(down: Mixtures, client: Client, *, trainer: dict, plan: dict) -> tuple[Labelled, ...]:
    """Where each class lies inside each Gaussian, under the client's own weights."""
    rows = Trainer(**trainer).rows(client)
    xp = namespace(rows.x)
    classes = xp.arange(len(trainer["labels"]), **({} if xp is np else {"device": rows.x.device}))
    hit = like(rows.y[..., None, :] == classes[:, None], rows.x) * rows.w[..., None, :]  # (..., c, n)
    answers = []
    for params, key in zip(down.params, plan["keys"]):
        log_n = log_densities(params, rows.x, plan["shape"])
        mine = client.state.get(f"weights-{key}", params.weights)
        r, _ = responsibilities(log_n + log_shares(mine, log_n)[..., None, :])
        both = xp.swapaxes(r, -1, -2)[..., None, :] * hit[..., None, :, :]  # (..., k, c, n)
        centred = filled(rows.x, params, plan["shape"]) - like(params.weights @ params.means, rows.x)
        answers.append(Labelled(both.sum(-1), both @ centred[..., None, :, :]))
    return tuple(answers)


# ---- the E-step ----


def e_step(
    joint: Joint, lens: Lens, client: Client, how: Trainer, key: str, plan: dict
) -> tuple[Mixed, Rows, Array, Array]:
    """(statistics, rows with what learners see, learners' responsibilities (..., n, m), weights of the rows that
    train).

    The client's weights move in its state and stay there.
    """
    rows, shape = how.rows(client), plan["shape"]
    z = embedded(rows.x, lens)
    kept = standing(client.memo, z, rows.w) if z is client.x else None  # an embedding is made anew each time
    if z is rows.x and kept is None:
        rows = rows._replace(x=filled(rows.x, joint.gaussians, shape))
    pi = own_shares(client, joint, key, plan["sources"])
    train, held = parts(rows.w, plan["held"])
    found = coupled(joint.gaussians, z, train, how.log_likelihood(joint.theta, rows), pi, shape, kept)
    client.state[f"pi-{key}"] = shares(found.joint.reshape(*found.joint.shape[:-2], -1)).reshape(found.joint.shape)
    stats = found.stats
    if plan["paper"]:  # about the client's own means, as printed: the scatter between clients is lost
        stats = stats._replace(xx=stats.xx - gaussian.mean_scatter(stats.n, stats.x, shape))
    mixed = Mixed(stats, found.joint, (held * found.log_p).sum(-1), held.sum(-1))
    return mixed, rows._replace(w=train), found.r, train


@message("fedgmm.Pairs")
class Pairs(NamedTuple):
    """What the E-step over pairs of Gaussian and learner finds."""

    stats: Stats
    joint: Array  # (..., k, m) rows that each pair answers for
    r: Array  # (..., n, m) of the learners
    log_p: Array  # (..., n) joint


def coupled(
    params: Params, z: Array, w: Array, log_p: Array, pi: Array, shape: str, kept: Standing | None = None
) -> Pairs:
    """The E-step under weights pi (..., k, m) and learners' log P(y | x) (..., n, m), without an array of all pairs.

    Summed over learners, a row weighs Gaussian k by s_ik = sum_j pi_kj P_j; given k, learner j has the share pi_kj P_j / s_ik.
    """
    xp = namespace(z)
    pi, log_p = like(pi, z).clip(min=FLOOR), xp.swapaxes(log_p, -1, -2)  # (..., m, n)
    top = xp.amax(log_p, axis=-2, keepdims=True)
    p = xp.exp(log_p - top)
    s = (pi @ p).clip(min=FLOOR)  # (..., k, n)
    stats, r, total = coupling.e_step(params, z, w, xp.log(s) + top, shape, kept)
    share = r / s
    joint = pi * ((share * like(w, z)[..., None, :]) @ xp.swapaxes(p, -1, -2))
    learners = p * (xp.swapaxes(pi, -1, -2) @ share)
    return Pairs(stats, joint, xp.swapaxes(learners, -1, -2), total)


def own_shares(client: Client, joint: Joint, key: str, sources: dict) -> Array:
    """The client's weights (..., k, m); at first those of its Gaussians, over the learners as the shares of all rows are."""
    if f"pi-{key}" in client.state:
        return client.state[f"pi-{key}"]
    first = client.state.get(f"weights-{sources.get(key)}")
    if first is None:  # a client that was not there for the warm-up
        return joint.shares
    return first[..., None] * like(joint.shares / joint.shares.sum(-1)[:, None], first)


def parts(w: Array, held: bool) -> tuple[Array, Array]:
    """Row weights of those that train and of those held out, every fifth; without a choice to make, all train."""
    if not held:
        return w, 0 * w
    out = like(np.arange(w.shape[-1]) % HELD_OUT == HELD_OUT - 1, w)
    return w * (1 - out), w * out


# ---- Gaussians ----


def filled(x: Array, params: Params, shape: str) -> Array:
    """Rows as learners can take them: missing values at their conditional mean."""
    if not has_nan(x):
        return x
    return like(missing.impute(params, x.reshape(-1, x.shape[-1]), shape), x).reshape(x.shape)


def embedded(x: Array, lens: Lens) -> Array:
    """Rows in the Gaussians' space."""
    if lens.axes.shape[-1] == 0:
        return x
    z = (x - like(lens.mean, x)) @ like(lens.axes, x)
    if lens.rest.shape[-1] == 0:
        return z
    _, mean, spread = map(float, lens.rest)
    return namespace(x).concatenate([z, ((log_rest(x, z, lens) - mean) / spread)[..., None]], -1)


def log_rest(x: Array, z: Array, lens: Lens) -> Array:
    """The log of the square of what the axes leave out of each row, (..., n), where its mean is 1."""
    rest = x - like(lens.mean, x) - z @ like(lens.axes, x).T
    return namespace(x).log((rest * rest).sum(-1) / float(lens.rest[0]) + LEAST)


def second_moments(joint: Joint, shape: str, centre: np.ndarray | float = 0.0) -> np.ndarray:
    """The mean of (x, 1)(x, 1)' about a centre that each learner sees, (m, d + 1, d + 1), from Gaussians and shares
    alone.
    """
    means = np.asarray(joint.gaussians.means) - centre
    one = np.concatenate([means, np.ones((len(means), 1))], axis=1)
    each = one[:, :, None] * one[:, None, :]
    each[:, :-1, :-1] += np.asarray(gaussian.full_covs(joint.gaussians, shape))
    share = np.asarray(joint.shares) + 1e-12
    return np.einsum("km,kij->mij", share / share.sum(0), each)


def preconditioner(joint: Joint, shape: str, reference: Array) -> Array | None:
    """The inverse of what each linear learner sees of (x, 1)(x, 1)': SGD then moves as in whitened coordinates."""
    if joint.gaussians.means.shape[-1] > WIDEST:
        return None
    return like(np.linalg.inv(second_moments(tree.map(to_numpy, joint), shape)), reference)
