"""Log-probabilities of the shared models at a client's rows, as if linear learners had not seen them. Nothing is sent."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.learners import curvatures, left_out
from unpooled.learners.own_nets import GROUP_MODEL, own_version
from unpooled.learners.rows import Rows
from unpooled.learners.trainer import Trainer
from unpooled.tree import message


@message("learners.Shared")
class Shared(NamedTuple):
    """The fitted learners and their weights over all clients."""

    theta: Float[Array, "k p"]
    weights: Float[Array, "k"]
    optimism: Float[Array, ""]  # by how much their loss on a training row is smaller than on a new one
    inverse: Float[Array, "learners blocks q r"]  # of second derivatives, see `left_out.inverses_of`, or none
    centre: Float[Array, "d"]  # of the columns, for `inverse`
    # temperature and floor, see `calibration`: of the shared model, and of `single`
    calibration: Float[Array, "models two"]
    single: Float[Array, "singles p"]  # one learner of all rows beside several, or none
    single_inverse: Float[Array, "singles b s t"]  # as `inverse`
    spread: Float[Array, "columns"]  # deviations of the columns over all clients, for linear learners, or none
    # shares and losses that all clients say of the candidates, see `personal.CandidateShares`
    said: Float[Array, "both listed"]
    said_rows: Float[Array, ""]  # rows of these clients, 0 if none was asked


def base_log_proba(
    learner: Trainer, down: Shared, state: dict, rows: Rows, own: dict, part: int = 1
) -> np.ndarray:  # (b, n, c)
    """Log-probabilities of the shared model and, if there are such, of the client's own version, of its group's network, and of one
    learner of all rows.

    Linear learners at their optimum are taken as they were without the row, for every `part`-th row.
    """
    if len(down.inverse):
        return _without_each_row(learner, down, state, rows, own, part)
    bases = [mixed(learner, learner.merge(down.theta, state.get("norm")), down.weights, rows.x)]
    if own.get("theta") in state or _has_weights(down, state, own):
        theta, weights = own_version(down, state, own)
        bases.append(mixed(learner, learner.merge(theta, state.get("norm")), weights, rows.x))
    if GROUP_MODEL in state:
        bases.append(mixed(learner, state[GROUP_MODEL], np.ones(1), rows.x))
    return np.stack(bases)


def _without_each_row(
    learner: Trainer, down: Shared, state: dict, rows: Rows, own: dict, part: int
) -> np.ndarray:  # (b, n, c)
    """Log probabilities of every `part`-th row by learners fitted without it, of the others by learners fitted with it."""
    x, y, w = (to_numpy(a) for a in (rows.x, rows.y, rows.w))
    log_p = to_numpy(learner.log_proba(down.theta, rows.x)).astype(np.float64)  # (k, c, n)
    ids = own.get("ids") or list(range(len(log_p)))
    share = curvatures.shares_of(state, own.get("weights", ""), ids, ())
    share = share if own.get("weights") in state else np.ones(len(log_p))
    centre = to_numpy(down.centre)
    without = [
        left_out.without_each(x, y, w * s, one.T, i, centre, part).T
        for s, one, i in zip(share, log_p, to_numpy(down.inverse))
    ]
    bases = [average_log_proba(np.stack(without), to_numpy(down.weights))]
    if own.get("theta") in state:
        bases.append(mixed(learner, *own_version(down, state, own), rows.x))
    elif _has_weights(down, state, own):
        bases.append(average_log_proba(np.stack(without), share))
    for theta, inverse in zip(down.single, to_numpy(down.single_inverse)):
        log_single = mixed(learner, theta[None], np.ones(1), rows.x)
        bases.append(left_out.without_each(x, y, w, log_single, inverse, centre, part))
    return np.stack(bases)


def _has_weights(down: Shared, state: dict, own: dict) -> bool:
    """Whether the client has weights of its own of several learners; of a single one they do not matter."""
    return len(down.theta) > 1 and own.get("weights") in state


def in_equal_units(log_bases: np.ndarray, singles: int) -> np.ndarray:
    """The bases that clients choose among: of two learners of all rows the one whose columns are divided by their deviations."""
    return log_bases[1:] if singles and len(log_bases) == 2 else log_bases


def mixed(learner: Trainer, theta: Array, weights: Array, x: Array) -> np.ndarray:  # (n, c)
    """Log-probabilities of an average of learners."""
    log_p = to_numpy(learner.log_proba(theta, x)).astype(np.float64)  # (k, c, n)
    return average_log_proba(log_p, to_numpy(weights))


def average_log_proba(log_p: np.ndarray, weights: np.ndarray) -> np.ndarray:  # (n, c)
    """Log of the weighted average of probabilities, from their logs (k, c, n)."""
    if len(log_p) == 1:
        return log_p[0].T
    average = np.einsum("k,kcn->nc", weights / weights.sum(), np.exp(log_p))
    return np.log(average.clip(min=1e-300))
