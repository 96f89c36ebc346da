"""Gaussians and learners of few rows, in a study: it does without them, as mixtures do without components of few rows.

The moments of a Gaussian that one person alone belongs to are that person's row, and so is the gradient of a learner, or the sum over a
class within a Gaussian. Where a Gaussian or a learner may hold few rows, whole rows are counted in a SUM of their own before more is
asked; where a total shows few, the study goes on without it from where it asked. Sums over a class within a Gaussian are asked for where
enough rows are, and so that those left out are enough together: the rest of the Gaussian's rows would show them otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.learners import Trainer
from unpooled.learners.mixing import log_shares, responsibilities
from unpooled.maths.mixture import Params
from unpooled.models.fedgmm.embedding import embed
from unpooled.models.fedgmm.initialization import Candidate
from unpooled.models.fedgmm.rounds import (
    Down,
    Joint,
    Mixtures,
    RoundOptions,
    density_weights,
    imputed,
    own_weights,
    split,
)
from unpooled.models.fedgmm.weighted_e_step import log_densities
from unpooled.models.initialization import whole_rows, without
from unpooled.models.mixture import few_rows
from unpooled.tree import message


@message("fedgmm.ClassRows")
class ClassRows(NamedTuple):
    """Whole rows by Gaussian and class."""

    n: Float[Array, "k c", ">=0 rows"]


@message("fedgmm.PairRows")
class PairRows(NamedTuple):
    """Whole rows of each Gaussian, and of each learner."""

    gaussians: Float[Array, "k", ">=0 rows"]  # rows that belong to it most
    learners: Float[Array, "m", ">=0 rows"]  # rows that it has half of an equal share of, at least


# ---- questions ----


@client("fedgmm.class_rows", SUM, batched=False)
def class_rows(down: Mixtures, client: Client, *, trainer: dict, options: dict) -> tuple[ClassRows, ...]:
    """How many rows of each class belong most to each Gaussian, under the client's own weights."""
    rows = Trainer(**trainer).rows(client)
    plan = RoundOptions(**options)
    z = embed(rows.x, down.embedding)
    is_class = to_numpy(rows.y)[:, None] == np.arange(len(trainer["labels"]))
    seen = whole_rows(to_numpy(density_weights(client, rows.w, plan.keep_out)))
    answers = []
    for params, key in zip(down.params, plan.keys):
        weights = client.state.get(f"weights-{key}", params.weights)
        log_n = log_densities(params, z, plan.shape)
        nearest = to_numpy(log_n + log_shares(weights, log_n)).argmax(-1)
        belongs = (nearest[:, None] == np.arange(len(params.weights))) * seen[:, None]
        answers.append(ClassRows(belongs.T @ is_class))
    return tuple(answers)


@client("fedgmm.pair_rows", SUM, batched=False)
def pair_rows(down: Down, client: Client, *, trainer: dict, options: dict) -> tuple[PairRows, ...]:
    """How many rows each Gaussian and each learner of each candidate holds, under the client's own weights."""
    learner = Trainer(**trainer)
    plan = RoundOptions(**options)
    rows = learner.rows(client)
    z = embed(rows.x, down.embedding)
    train, _ = split(rows.w, plan.hold_out)
    seen = to_numpy(density_weights(client, train, plan.keep_out))
    answers = []
    for joint, key in zip(down.candidates, plan.keys):
        known = rows._replace(x=imputed(rows.x, joint.gaussians, plan.shape)) if z is rows.x else rows
        log_labels = to_numpy(learner.log_likelihood(joint.theta, known))  # (n, m)
        log_n = to_numpy(log_densities(joint.gaussians, z, plan.shape))
        pi = to_numpy(own_weights(client, joint, key, plan.sources))
        log_pairs = log_n[:, :, None] + log_shares(pi, log_n) + log_labels[:, None, :]
        r = responsibilities(log_pairs.reshape(len(log_pairs), -1))[0].reshape(log_pairs.shape)
        nearest = r.sum(2).argmax(1)
        belongs = nearest[:, None] == np.arange(log_n.shape[1])
        shared = r.sum(1) >= 0.5 / log_labels.shape[1]
        answers.append(PairRows(whole_rows(seen) @ belongs, whole_rows(to_numpy(train)) @ shared))
    return tuple(answers)


# ---- the server ----


def shown(n: Array, least: float) -> list[list[int]]:
    """1 for each Gaussian and class that sums are asked for, else 0; of few rows, or all that hides these, (k, c) as lists."""
    mask = np.ones(np.shape(n), int)
    for kept, rows in zip(mask, to_numpy(n)):
        order = np.argsort(rows)
        hidden = np.cumsum(rows[order])
        few = int((rows < least).sum())  # the first of them in order
        if few and 0 < hidden[few - 1] < least:
            few = min(int((hidden < least).sum()) + 1, len(rows))
        kept[order[:few]] = 0
    return mask.tolist()


def mixture_without(params: Params, n: Array, least: float, shape: str) -> Params:
    """A mixture without its Gaussians of few rows; the same one, if there are none."""
    kept = few_rows.held([n], least)
    return params if kept.all() else without(params, kept, shape)


def in_doubt(c: Candidate, rows: float, least: float) -> bool:
    """Whether a Gaussian or a learner of the candidate may hold few rows in the next round."""
    first = not np.isfinite(c.loglik)
    crowded = c.joint.shares.sum(0) * rows >= few_rows.CROWDED * least
    learners = len(crowded) > 1 and (first or not crowded.all())
    return learners or bool(few_rows.uncertain(c.joint.gaussians, rows, least, first).any())


def kept_of(c: Candidate, gaussians: Sequence[Array], learners: Sequence[Array], least: float, shape: str) -> Candidate:
    """The candidate without Gaussians and learners that hold few rows by any of these counts; the same one, if there are none."""
    of_gaussians = few_rows.held(gaussians, least)
    of_learners = few_rows.held(learners, least)
    lost = int((~of_gaussians).sum() + (~of_learners).sum())
    if not lost:
        return c
    shares = to_numpy(c.joint.shares)[of_gaussians][:, of_learners] + 1e-12
    params = without(c.joint.gaussians, of_gaussians, shape)
    joint = Joint(params, c.joint.theta[of_learners], shares / shares.sum())
    left_out = c.left_out + lost
    return c._replace(
        key=f"{c.key.partition(',')[0]}, {left_out} left out", joint=joint, left_out=left_out, curvature=np.zeros(0)
    )
