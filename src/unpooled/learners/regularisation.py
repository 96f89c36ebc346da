"""C="auto": the ridge penalty of a linear learner chosen by left-out rows; one SUM of their log-loss per penalty tried.

The optimum of C = 1 is found first, then those of ten times as much or as little while that helps, each from the optimum before; last the
one in between where a parabola through the best three has its minimum. Rows are left out one by one (see `left_out`): for more than two
classes one SUM of second derivatives within classes is needed for it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.errors import BadParameter
from unpooled.estimator import Info
from unpooled.federation import Federation
from unpooled.learners import exact
from unpooled.learners.curvatures import rows_of
from unpooled.learners.left_out import without_each
from unpooled.learners.trainer import Trainer
from unpooled.tree import message

FACTOR, LEAST, MOST = 10.0, 1e-4, 1e4
CLOSE = 0.1  # of log10 C: a minimum so near to one that was tried is not tried


@message("learners.LeftOut")
class LeftOut(NamedTuple):
    """Down: a linear learner at its optimum, and the inverse of the second derivatives there."""

    theta: Float[Array, "k p"]  # k is 1
    centre: Float[Array, "d"]
    inverse: Float[Array, "k blocks q r"]


@message("learners.LeftOutLoss")
class LeftOutLoss(NamedTuple):
    """Up: rows, and the sum of their log-losses under the learner as it were without each of them."""

    n: Float[Array, "", ">=0 rows"]
    loss: Float[Array, ""]


@message("learners.PenaltySearch")
class PenaltySearch(NamedTuple):
    """The search for C: the path of the one that is tried, and the best one so far."""

    trainer: dict
    path: exact.Path
    best: exact.Path
    tried: Array  # (t, 2) log10 C and log-loss per left-out row
    reached: bool


@client("learners.left_out_loss", SUM, adds=True, batched=False, brief=True)
def left_out_loss(down: LeftOut, client: Client, *, trainer: dict) -> LeftOutLoss:
    """The log-loss of every row under the learner as it were without it."""
    rows = rows_of(client, trainer)
    log_p = Trainer(**trainer).log_proba(down.theta, rows.x)
    left = without_each(rows.x, rows.y, rows.w, log_p[0].T, to_numpy(down.inverse)[0], to_numpy(down.centre))
    return LeftOutLoss(rows.w.sum(), -rows.w @ left[np.arange(len(left)), rows.y])


def begin(fed: Federation, trainer: dict) -> PenaltySearch:
    """The search before its first round."""
    path = exact.begin(fed, trainer, 1.0)
    if not (path.has_blocks or exact.takes_newton_steps(trainer["inputs"], len(trainer["labels"]))):
        raise BadParameter(f'C="auto" is for fewer than {trainer["inputs"]} columns: give C= a number')
    return PenaltySearch(trainer, path, path, np.zeros((0, 2)), False)


def advance(fed: Federation, search: PenaltySearch) -> tuple[PenaltySearch, Info]:
    """One round of the path or, at its optimum, the judgement of its C and the start of the next."""
    if not search.path.reached:
        path, info = exact.advance(fed, search.path)
        return search._replace(path=path), info
    path = search.path
    inverse, centre = exact.at_optimum(fed, path)
    total = fed.sum(left_out_loss.using(trainer=search.trainer), LeftOut(path.theta, centre, inverse))
    loss = float(total.loss) / float(total.n)
    better = not len(search.tried) or loss < to_numpy(search.tried)[:, 1].min()
    tried = np.vstack([to_numpy(search.tried), [np.log10(path.C), loss]])
    search = search._replace(tried=tried, best=path if better else search.best)
    following = next_penalty(tried)
    info = {"loglik": -loss, "C": float(path.C)}
    if following is None:
        return search._replace(reached=True), info
    return search._replace(path=exact.restarted(path, following)), info


def next_penalty(tried: np.ndarray) -> float | None:
    """The C to be tried after those of `tried` (t, 2), log10 C and loss; None when the search is over."""
    order = tried[tried[:, 0].argsort()]
    place = int(order[:, 1].argmin())
    step = np.log10(FACTOR)
    low = np.log10(LEAST)
    high = np.log10(MOST)
    best = order[place, 0]
    if place == len(order) - 1 and best + step <= high:
        return float(10 ** (best + step))
    if place == 0 and best - step >= low:
        return float(10 ** (best - step))
    whole = np.allclose(np.diff(order[:, 0]), step)
    if not whole or place in (0, len(order) - 1):  # a minimum in between was tried, or the best is the last one allowed
        return None
    left, middle, right = order[place - 1 : place + 2, 1]
    shift = 0.5 * step * (left - right) / max(left - 2 * middle + right, 1e-300)
    return None if abs(shift) < CLOSE else float(10 ** (best + np.clip(shift, -step / 2, step / 2)))
