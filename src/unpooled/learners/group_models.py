"""A network for each group of clients with similar inputs (see `input_groups`), for clients without labels.

It begins with the model that the group's clients have, and is trained by them alone. One SUM per round: a model for each group, zero for
the groups of others; one SUM of held-out log-likelihoods at the end, by which a group keeps its network or the one it began with.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, like, namespace, to_numpy
from unpooled.client import SUM, TELL, Client, client
from unpooled.federation import Federation
from unpooled.learners.mixing import average
from unpooled.learners.own_nets import GROUP_MODEL, Version, chosen, own_version
from unpooled.learners.trainer import Trainer
from unpooled.tree import message

GROUP = "input_group"  # key of a client's state


@message("learners.GroupWeights")
class GroupWeights(NamedTuple):
    """Which learner the clients of each group use most."""

    rows: Float[Array, "g k", ">=0 rows"]  # rows of the clients of each group whose largest weight is at each learner


@message("learners.GroupModels")
class GroupModels(NamedTuple):
    """Down: the networks of the groups."""

    theta: Float[Array, "g p"]


@message("learners.GroupTrained")
class GroupTrained(NamedTuple):
    """Up: the group's network after local epochs, times the client's rows."""

    theta: Float[Array, "g p"]
    weight: Float[Array, "g", ">=0 rows"]


@message("learners.GroupBefore")
class GroupBefore(NamedTuple):
    """Down: networks of the groups, and what they began with."""

    theta: Float[Array, "g p"]
    before: Float[Array, "g p"]


@message("learners.GroupGain")
class GroupGain(NamedTuple):
    """What a group's network gains on held-out rows."""

    loglik: Float[Array, "g"]  # held-out log-likelihood minus that of what the group began with


# ---- questions ----


@client("learners.group_weights", SUM, batched=False)
def group_weights(down: Version, client: Client, *, own: dict, groups: int) -> GroupWeights:
    """The client's rows at its group and at the learner of its largest weight."""
    weights = own_version(down, client.state, own)[1]
    out = np.zeros((groups, len(weights)))
    out[int(client.state[GROUP]), int(weights.argmax())] = float(to_numpy(client.w).sum())
    return GroupWeights(out)


@client("learners.group_round", SUM)
def group_round(down: GroupModels, client: Client, *, trainer: dict) -> GroupTrained:
    """The network of the client's group after local epochs."""
    learner = Trainer(**trainer)
    rows = learner.rows(client)
    xp = namespace(rows.w)
    hit = one_hot(client, len(down.theta))  # (..., g)
    begin = like(chosen(to_numpy(down.theta), hit, rows.w.shape[:-1]), rows.x)
    theta = learner.train(begin, client, rows, xp.ones_like(rows.w)[..., None])  # (..., 1, p)
    weight = like(hit, rows.w) * rows.w.sum(-1)[..., None]
    return GroupTrained(weight[..., None] * theta, weight)


@client("learners.group_gain", SUM)
def group_gain(down: GroupBefore, client: Client, *, trainer: dict) -> GroupGain:
    """By how much the group's network predicts the client's held-out labels better than what it began with."""
    learner = Trainer(**trainer)
    rows = learner._replace(hold_out=False).rows(client)
    hit = one_hot(client, len(down.theta))
    pair = [chosen(to_numpy(theta), hit, rows.w.shape[:-1]) for theta in (down.theta, down.before)]
    log_p = to_numpy(learner.log_likelihood(like(np.concatenate(pair, -2), rows.x), rows)).astype(np.float64)
    gained = (learner.held(client) * (log_p[..., 0] - log_p[..., 1])).sum(-1)
    return GroupGain(hit * gained[..., None])


@client("learners.group_model", TELL)
def group_model(down: GroupModels, client: Client) -> None:
    """Keep the network of the client's group."""
    hit = one_hot(client, len(down.theta))
    client.state[GROUP_MODEL] = chosen(to_numpy(down.theta), hit, hit.shape[:-1])


def one_hot(client: Client, groups: int) -> np.ndarray:  # (..., g)
    """1 at the client's group."""
    own = to_numpy(client.state[GROUP])[..., None]
    return (own == np.arange(groups)).astype(np.float64)


# ---- the server ----


def fit_group_models(
    fed: Federation, trainer: dict, shared: Version, own: dict, groups: int, rounds: int
) -> np.ndarray:  # (g, p)
    """Networks of the groups: those that training made better, and for the rest what the group began with."""
    rows = to_numpy(fed.sum(group_weights.using(own=own, groups=groups), shared).rows)
    before = to_numpy(shared.theta)[rows.argmax(1)]
    theta: Array = before
    for _ in range(rounds):
        total = fed.sum(group_round.using(trainer=trainer), GroupModels(theta))
        theta = average(total.theta, total.weight, theta)
    theta = to_numpy(theta)
    gain = to_numpy(fed.sum(group_gain.using(trainer=trainer), GroupBefore(theta, before)).loglik)
    theta = np.where(gain[:, None] > 0, theta, before)
    fed.tell(group_model, GroupModels(theta))
    return theta
