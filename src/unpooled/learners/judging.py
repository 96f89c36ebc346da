"""The candidates of clients, fitted and judged by their own rows, and what each client keeps of them. Nothing is sent.

Clients of few rows are treated together, as arrays with an axis of clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.learners import corrections, stacking
from unpooled.learners.candidates import Axes, Candidates, axes_of, candidates, count_axes, penalties
from unpooled.learners.corrections import Fitted, Paths, label_losses
from unpooled.maths import logistic

MIN_ROWS = 10  # with fewer the client keeps the shared model
TOGETHER = 200_000  # numbers in the rows of clients whose candidates are fitted at once
ENOUGH_ROWS, ROWS_PER_PARAMETER = 1000, 25  # beyond both, a part of the rows tells second derivatives and losses
FAR_OUT = 0.1  # squared length of a row, relative to the rows of this part, from which on all rows are taken
TINY = 1e-300  # likelihood of a row, relative to its best candidate, at least
NEGLIGIBLE = 0.01  # weight of a candidate, relative to the best one, below which it is dropped


class Evidence(NamedTuple):
    """The rows that a client chooses by, and its models' scores of them; or those of several clients on a leading axis."""

    raw: np.ndarray  # (n, r) what corrections are linear in
    y: np.ndarray  # (n,) codes
    w: np.ndarray  # (n,) 0 is padding
    # (offsets, n, c) log-probabilities of the bases, then of the client's networks; the last are zeros
    offsets: np.ndarray
    optimism: np.ndarray  # (offsets,) what is added to their losses
    bases: int
    alone: bool  # whether logistic regressions of the client alone are candidates
    spread: np.ndarray | float = 0.0  # (r,) deviations of the columns over all clients
    part: int = 1  # candidates are fitted to all rows, and compared by every `part`-th one

    def compared(self) -> Evidence:
        """The rows, on a leading axis of clients, that candidates are compared by."""
        k = self.part
        return self._replace(raw=self.raw[:, ::k], y=self.y[:, ::k], w=self.w[:, ::k], offsets=self.offsets[:, :, ::k])


BY_CLIENT = ("raw", "y", "w", "offsets", "optimism")  # the fields that have an axis of clients


class Group(NamedTuple):
    """The candidates of several clients, and how well they explain their rows."""

    seen: Evidence  # the rows of the comparison, on a leading axis
    rows: np.ndarray  # (clients, 1) all rows
    space: Axes
    fitted: Fitted
    losses: np.ndarray  # (clients, j, n)
    likely: np.ndarray  # (clients, j, n) likelihoods relative to the largest one of each row
    shares: np.ndarray  # (clients, j) of the rows that they explain
    total: np.ndarray  # (clients, j) sums of their losses


class Judged(NamedTuple):
    """How the candidates are made, and the clients that may choose among them, in groups: (their places, what was found)."""

    plan: Candidates
    groups: list[tuple[list[int], Group]]


def judge(seen: list[Evidence]) -> Judged:
    """The candidates of each client that has rows enough, fitted to its evidence, and their losses; others keep the shared model.

    Clients with as many axes are treated together, as long as their rows are few.
    """
    first = seen[0]
    plan = candidates(first.bases, len(first.offsets) - 1 - first.bases, first.alone)
    axes = {i: count_axes(*one.raw.shape) for i, one in enumerate(seen) if len(one.w) >= MIN_ROWS or not one.bases}
    groups: list[list[int]] = []
    for i in sorted(axes, key=lambda i: (axes[i], len(seen[i].w))):
        cells = len(seen[i].w) * (axes[i] + first.offsets[:, 0].size)
        few = (
            seen[i].part == 1
            and len(seen[i].w) < 2 * ENOUGH_ROWS
            and groups
            and (len(groups[-1]) + 1) * cells <= TOGETHER
        )
        if few and axes[groups[-1][0]] == axes[i]:
            groups[-1].append(i)
        else:
            groups.append([i])
    return Judged(plan, [(who, _judged(plan, together([seen[i] for i in who]), axes[who[0]])) for who in groups])


def together(seen: list[Evidence]) -> Evidence:
    """The rows of several clients on a leading axis, short ones padded."""
    one = seen[0]
    if len(seen) == 1:
        return one._replace(**{name: getattr(one, name)[None] for name in BY_CLIENT})
    raw, y, w = (side_by_side(arrays) for arrays in zip(*((own.raw, own.y, own.w) for own in seen)))
    offsets = side_by_side([own.offsets for own in seen], 1)
    optimism = np.stack([own.optimism for own in seen])
    return one._replace(raw=raw, y=y, w=w, offsets=offsets, optimism=optimism)


def side_by_side(arrays: Sequence[np.ndarray], axis: int = 0) -> np.ndarray:
    """Arrays on a new leading axis, with zeros appended along `axis` to the short ones."""
    first = arrays[0]
    longest = max(a.shape[axis] for a in arrays)
    shape = (*first.shape[:axis], longest, *first.shape[axis + 1 :])
    found = np.zeros((len(arrays), *shape), first.dtype)
    for own, a in zip(np.moveaxis(found, axis + 1, 1), arrays):
        own[: a.shape[axis]] = np.moveaxis(a, axis, 0)
    return found


def _judged(plan: Candidates, seen: Evidence, axes: int) -> Group:
    """The candidates of several clients and their losses."""
    some = seen.compared()
    space = axes_of(some.raw, some.w, seen.spread, axes)
    fitted = corrected(seen, space)
    losses = losses_of(plan, some, fitted)
    likely = stacking.likelihoods(losses)
    total = stacking.over_rows(losses, some.w)
    shares = stacking.shares(plan.prior, likely, some.w)
    return Group(some, seen.w.sum(-1, keepdims=True), space, fitted, losses, likely, shares, total)


def corrected(seen: Evidence, space: Axes) -> Fitted:
    """Corrections of each base, and of nothing: models of the client alone."""
    starts = [*range(seen.bases), -1]
    ridge = penalties(seen.bases, space.axes.shape[-1])
    columns = space.columns(seen.raw, np.float32)
    if not seen.w.all():
        columns *= (seen.w > 0)[..., None]
    return corrections.fit(Paths(columns, seen.y, seen.w, seen.offsets[:, starts], ridge, seen.part))


def part_of(x: np.ndarray, y: np.ndarray, centre: np.ndarray, spread: np.ndarray, classes: int) -> int:
    """k where every k-th row (n, r) of a client, with codes y (n,), is enough to compare candidates by; 1 with few rows.

    Rows of which nearly all have one label tell as little as few of them. Nor may there be a row so far out, in units of the deviations
    `spread` (r,) about a centre (r,), that it makes up much of the second derivatives: a part may be without it.
    """
    rows = len(x)
    enough = max(ENOUGH_ROWS, ROWS_PER_PARAMETER * (count_axes(*x.shape) + 1) * (classes - 1))
    if rows < 2 * enough:
        return 1
    varied = 1 - ((np.bincount(y) / rows) ** 2).sum()  # 0.5 where two labels are equally many
    part = int(min(1.0, 2 * varied) * rows / enough)
    if part < 2:
        return 1
    unit = np.where(spread > 0, spread, 1.0) ** -2.0
    farthest = max(float((np.square(z, out=z) @ unit).max()) for _, z in logistic.blocks(x, centre))
    return part if farthest < FAR_OUT * rows / part else 1


def losses_of(plan: Candidates, seen: Evidence, fitted: Fitted) -> np.ndarray:  # (clients, j, n)
    """-log P(y | x) of every row under every candidate as it is without the row; all 0 with too few rows to judge by."""
    fits = plan.path >= 0
    losses = np.empty((len(seen.w), len(fits), seen.w.shape[1]))
    losses[:, fits] = fitted.losses[:, plan.stage[fits], plan.path[fits]]
    losses[:, ~fits] = label_losses(seen.offsets[:, plan.offset[~fits]], seen.y[:, None])
    if seen.optimism.any():
        losses += seen.optimism[:, plan.offset, None]
    few = (seen.w > 0).sum(-1) < MIN_ROWS
    losses[few] = 0.0
    return losses


# ---- the choice ----


def chosen(plan: Candidates, found: Group, down: Any) -> list[dict[str, np.ndarray]]:
    """What each client keeps: weights of the candidates, their corrections, and losses for the report."""
    w, space = found.seen.w, found.space
    prior = plan.prior if down is None or not len(down.said) else prior_of(plan, found, down)
    mix = stacking.averaged(prior, found.likely, found.total, w)
    constant = plan.kind == "constant"
    hedged = stacking.hedged(mix, constant, w)
    reported = reported_losses(plan, found, prior, mix)
    large = (hedged > NEGLIGIBLE * hedged.max(-1, keepdims=True)) | constant
    return [
        _kept(plan, np.flatnonzero(large[i]), hedged[i], found.fitted.maps[i])
        | {"losses": reported[i], "centre": space.centre[i], "axes": space.axes[i], "rows": found.rows[i, 0]}
        for i in range(len(w))
    ]


def prior_of(plan: Candidates, found: Group, down: Any) -> np.ndarray:  # (clients, j)
    """The prior of the candidates by what the other clients say: what all say without the client's own."""
    shares, losses = to_numpy(down.said)
    said = np.maximum(shares - found.shares, 0.0), losses - found.total, float(down.said_rows) - found.rows
    return stacking.prior_of_others(plan.prior, plan.path >= 0, stacking.Said(*said), found.rows)


def _kept(plan: Candidates, kept: np.ndarray, mix: np.ndarray, maps: np.ndarray) -> dict[str, np.ndarray]:
    """The weights and corrections of the candidates that a client keeps."""
    own = maps[plan.stage[kept], plan.path[kept]] * (plan.path[kept] >= 0)[:, None, None]
    return {"mix": mix[kept] / mix[kept].sum(), "which": plan.offset[kept], "maps": own.astype(np.float64)}


def reported_losses(plan: Candidates, found: Group, prior: np.ndarray, mix: np.ndarray) -> np.ndarray:
    """Mean losses (clients, 3): alone, shared and kept, the last by weights that the other rows give."""
    alone = plan.kind == "alone"
    shared = (plan.kind == "plain") & (plan.offset == 0)
    w = found.seen.w
    rows = found.seen.w.sum(-1)
    least = (w * found.losses.min(-2)).sum(-1)  # by the best candidate of each row
    reported = np.full((len(w), 3), np.nan)
    if alone.any():
        weights = stacking.likely(plan.prior[alone], found.total[:, alone], w)
        average = stacking.of_average(weights, found.likely[:, alone])
        reported[:, 0] = (least - (w * np.log(np.maximum(average, TINY))).sum(-1)) / rows
    if shared.any():
        reported[:, 1] = found.total[:, shared][:, 0] / rows
    reported[:, 2] = (least + stacking.loss_of_average(prior, found.likely, w, mix)) / rows
    return reported
