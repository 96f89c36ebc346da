"""What each client keeps of a fitted classifier, chosen at the client by its own rows. One TELL: nothing comes back.

Before it, one SUM of held-out log-losses calibrates the shared model (see `calibration`).

Candidates are the shared model, the client's own mixture of shared models, linear corrections of both (from the intercepts alone to
nearly a model of its own), logistic regressions of the client alone and, for networks, both with the client's label shares, fine-tuned
and local networks. Each is scored on rows that it was not fitted to: networks by rows held out, linear models by approximate
leave-one-out. The client keeps their average, weighted by these scores and a prior (see `stacking`): with few rows that is mostly the
shared model, with many the best candidate or mixture of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled import tree
from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SMALL, SUM, TELL, Client, client
from unpooled.learners import calibration, corrections, stacking
from unpooled.learners.bases import Shared, average_log_proba, base_log_proba, in_equal_units, mixed
from unpooled.learners.calibration import CalibrationLosses, calibrated_bases
from unpooled.learners.candidates import Axes, Candidates, axes_of, candidates, count_axes, penalties
from unpooled.learners.corrections import Fitted, Paths, label_losses, log_softmax
from unpooled.learners.labels import codes_of
from unpooled.learners.own_nets import NO_NETS, REFITTED, own_scores, sound
from unpooled.learners.own_nets import STATE as NETS
from unpooled.learners.rows import Rows
from unpooled.learners.trainer import Trainer
from unpooled.tree import message

__all__ = ["KEYS", "Shared", "average_log_proba", "calibration_losses", "keep", "mixed", "personalise", "predict"]

MIN_ROWS = 10  # with fewer the client keeps the shared model
TOGETHER = 200_000  # numbers in the rows of clients whose candidates are fitted at once
ENOUGH_ROWS, ROWS_PER_PARAMETER = 1000, 25  # beyond both, second derivatives are taken from a part of the rows
NEGLIGIBLE = 0.01  # weight of a candidate, relative to the best one, below which it is dropped
MIN_LOG = -30.0  # lower bound of log-probabilities
STATE = ("mix", "which", "maps", "centre", "axes", "nets", "losses", "rows", "shift")
NOTHING_SAID = (np.zeros((0, 0)), np.zeros(()))  # of the candidates, by all clients: shares and losses, rows
KEYS = tuple(f"kept_{name}" for name in STATE)  # what a client keeps, in its state


@client("learners.calibration_losses", SUM, batched=SMALL)
def calibration_losses(down: Shared, client: Client, *, trainer: dict, own: dict) -> CalibrationLosses:
    """Held-out log-losses of the client's version of the shared model, or of that itself, and of a single learner beside it, over a
    grid of calibrations.
    """
    learner, first = Trainer(**trainer), -1 - len(down.single)  # the client's version and the single learner come last
    members = apart(client)
    bases = client.memo["log_bases"] = bases_of(learner, down, client, members, own)
    labels, weights = [codes_of(one, learner.labels) for one in members], [_judging(learner, one) for one in members]
    if not client.stacked:
        return calibration.losses(bases[0][first:], labels[0], weights[0])
    n = client.w.shape[-1]
    log_bases = np.stack([padded(one[first:], 1, n) for one in bases], 1)  # (models, clients, n, c)
    return calibration.losses(log_bases, *(np.stack([padded(a, 0, n) for a in one]) for one in (labels, weights)))


@message("learners.CandidateShares")
class CandidateShares(NamedTuple):
    """The share of a client's rows that each candidate explains, and its log-loss summed over them; all 0 with too few rows to judge by."""

    shares: Float[Array, "candidates"]
    losses: Float[Array, "candidates"]
    rows: Float[Array, "", ">=0 rows"]


@client("learners.judge_candidates", SUM, batched=SMALL)
def judge_candidates(down: Shared, client: Client, *, trainer: dict, own: dict) -> CandidateShares:
    """How well each candidate explains the client's rows, for the prior of the others."""
    members = apart(client)
    found = client.memo["judged"] = judged(down, client, members, trainer, own)
    said = said_by(found, len(members))
    return said if client.stacked else tree.at(said, 0)


@client("learners.personalise", TELL, batched=SMALL)
def personalise(down: Shared, client: Client, *, trainer: dict, own: dict) -> None:
    """Choose among the shared model, the client's own versions of it and local models, by held-out rows; keep the result."""
    members = apart(client)
    found = client.memo.pop("judged", None) or judged(down, client, members, trainer, own)
    keep(Trainer(**trainer), members, found, down)
    client.state = [member.state for member in members] if client.stacked else members[0].state


def apart(client: Client) -> list[Client]:
    """The single clients of a stack, without padding; or the client itself."""
    if not client.stacked:
        return [client]
    sizes = [int(np.flatnonzero(w)[-1]) + 1 if w.any() else 0 for w in to_numpy(client.w)]
    return [
        Client(name, client.x[i, :n], client.y[i, :n], client.w[i, :n], tree.at(client.state, i))
        for i, (name, n) in enumerate(zip(client.members, sizes))
    ]


def bases_of(
    learner: Trainer, down: Shared, client: Client, members: list[Client], own: dict
) -> list[np.ndarray]:  # each (b, n, c)
    """The bases of each member of a stack, see `base_log_proba`; of linear learners without local state at once."""
    everything = learner._replace(hold_out=False)
    if own or not len(down.inverse):
        return [base_log_proba(learner, down, member.state, everything.rows(member), own) for member in members]
    rows = everything.rows(client)
    flat = Rows(to_numpy(rows.x).reshape(-1, learner.inputs), to_numpy(rows.y).ravel(), to_numpy(rows.w).ravel())
    log_bases = base_log_proba(learner, down, {}, flat, own)
    apiece = log_bases.reshape(len(log_bases), -1, rows.w.shape[-1], log_bases.shape[-1])
    return [apiece[:, i, : len(member.w)] for i, member in enumerate(members)]


def judged(down: Shared, client: Client, members: list[Client], trainer: dict, own: dict) -> Judged:
    """The candidates and their losses at the rows of each member of a stack."""
    learner = Trainer(**trainer)
    bases = client.memo.pop("log_bases", None) or bases_of(learner, down, client, members, own)
    seen = []
    for member, log_bases in zip(members, bases):
        log_bases = in_equal_units(calibrated_bases(log_bases, down.calibration), len(down.single))
        optimism = np.full(len(log_bases), float(down.optimism))
        if own.get("theta") in member.state and not learner.hold_out and len(log_bases) > 1:
            optimism[1] += own_optimism(learner, to_numpy(member.state[own["theta"]]), to_numpy(member.w))
        x = to_numpy(learner._replace(hold_out=False).rows(member).x)
        seen.append(evidence(learner, member, log_bases, optimism, x, to_numpy(down.spread)))
    return judge(seen)


def own_optimism(learner: Trainer, theta: np.ndarray, w: np.ndarray) -> float:
    """Parameters per row of learners that the client trained itself on all its rows (Akaike), see `Shared.optimism`."""
    free = theta.size * (1 - 1 / len(learner.labels))
    return 0.5 * free / max(float(w.sum()), 1.0)


def _judging(learner: Trainer, client: Client) -> np.ndarray:  # (n,)
    """Weights of the rows that candidates are scored on: those held out, or all."""
    weights = learner.held(client) if learner.hold_out else to_numpy(client.w)
    return weights.astype(np.float64)


# ---- the choice ----


class Evidence(NamedTuple):
    """The rows that a client chooses by, and its models' scores of them; or those of several clients on a leading axis."""

    raw: np.ndarray  # (n, r) what corrections are linear in
    y: np.ndarray  # (n,) codes
    w: np.ndarray  # (n,) 0 is padding
    offsets: (
        np.ndarray
    )  # (offsets, n, c) log-probabilities of the bases, then of the client's networks; the last are zeros
    optimism: np.ndarray  # (offsets,) what is added to their losses
    bases: int
    alone: bool  # whether logistic regressions of the client alone are candidates
    spread: np.ndarray | float = 0.0  # (r,) deviations of the columns over all clients


class Group(NamedTuple):
    """The candidates of several clients, and how well they explain their rows."""

    seen: Evidence  # on a leading axis
    space: Axes
    fitted: Fitted
    losses: np.ndarray  # (clients, j, n)
    shares: np.ndarray  # (clients, j) of the rows that they explain
    total: np.ndarray  # (clients, j) sums of their losses


class Judged(NamedTuple):
    """How the candidates are made, and the clients that may choose among them, in groups: (their places, what was found)."""

    plan: Candidates
    groups: list[tuple[list[int], Group]]


def evidence(
    learner: Trainer, client: Client, log_bases: np.ndarray, optimism: Any, x: np.ndarray, spread: Any = ()
) -> Evidence:
    """What a client chooses by; x (n, d) are its rows as learners take them.

    `optimism`, a number or one per base, is added to the losses of the bases. `spread` are deviations of the columns over all clients.
    """
    weights = _judging(learner, client)
    offsets = offsets_of(learner, to_numpy(client.state.get(NETS, NO_NETS)), x, log_bases, client.state)
    raw, y = features(learner, x, log_bases), codes_of(client, learner.labels)
    more = np.zeros(len(offsets))
    more[: len(log_bases)] = optimism
    alone = learner.learner == "linear"
    live = weights > 0
    if not live.all():
        raw, y, weights, offsets = raw[live], y[live], weights[live], offsets[:, live]
    return Evidence(raw, y, weights, offsets, more, len(log_bases), alone, spread if alone and len(spread) else 0.0)


def judge(seen: list[Evidence]) -> Judged:
    """The candidates of each client that has rows enough, fitted to its evidence, and their losses; others keep the shared model.

    Clients with as many axes are treated together, as long as their rows are few.
    """
    first = seen[0]
    plan = candidates(first.bases, len(first.offsets) - 1 - first.bases, first.alone)
    sizes = {i: _sizes(one) for i, one in enumerate(seen) if len(one.w) >= MIN_ROWS or not one.bases}
    groups: list[list[int]] = []
    for i in sorted(sizes, key=lambda i: (sizes[i], len(seen[i].w))):
        cells = len(seen[i].w) * (sizes[i][0] + first.offsets[:, 0].size)
        if groups and sizes[groups[-1][0]] == sizes[i] and (len(groups[-1]) + 1) * cells <= TOGETHER:
            groups[-1].append(i)
        else:
            groups.append([i])
    return Judged(plan, [(who, _judged(plan, together([seen[i] for i in who]), *sizes[who[0]])) for who in groups])


def _sizes(seen: Evidence) -> tuple[int, int]:
    """(number of axes of a client, which part of its rows second derivatives are taken from)."""
    rows, axes = len(seen.w), count_axes(*seen.raw.shape)
    parameters = (axes + 1) * (seen.offsets.shape[-1] - 1)
    return axes, max(1, rows // max(ENOUGH_ROWS, ROWS_PER_PARAMETER * parameters))


def together(seen: list[Evidence]) -> Evidence:
    """The rows of several clients on a leading axis, short ones padded."""
    if len(seen) == 1:
        return Evidence(*(a[None] for a in seen[0][:5]), *seen[0][5:])
    n = max(len(one.w) for one in seen)
    raw, y, w = (np.stack([padded(one[k], 0, n) for one in seen]) for k in range(3))
    offsets, optimism = (np.stack(parts) for parts in zip(*((padded(one.offsets, 1, n), one.optimism) for one in seen)))
    return Evidence(raw, y, w, offsets, optimism, *seen[0][5:])


def padded(a: np.ndarray, axis: int, n: int) -> np.ndarray:
    """An array with zeros appended along an axis, up to n entries."""
    short = n - a.shape[axis]
    zeros = np.zeros((*a.shape[:axis], short, *a.shape[axis + 1 :]), a.dtype)
    return np.concatenate([a, zeros], axis) if short else a


def _judged(plan: Candidates, seen: Evidence, axes: int, part: int) -> Group:
    """The candidates of several clients and their losses."""
    space = axes_of(seen.raw, seen.w, seen.spread, axes)
    fitted = corrected(seen, space, part)
    losses = losses_of(plan, seen, fitted)
    total = stacking.over_rows(losses, seen.w)
    return Group(seen, space, fitted, losses, stacking.shares(plan.prior, losses, seen.w), total)


def said_by(found: Judged, clients: int) -> CandidateShares:
    """What each client says of the candidates, on a leading axis."""
    listed = len(found.plan.kind)
    said = CandidateShares(np.zeros((clients, listed)), np.zeros((clients, listed)), np.zeros(clients))
    for who, group in found.groups:
        said.shares[who], said.losses[who], said.rows[who] = group.shares, group.total, group.seen.w.sum(-1)
    return said


def keep(learner: Trainer, clients: list[Client], found: Judged, down: Any = None) -> None:
    """Choose, and write what is kept into the clients' states. `down` may have what all clients say of the candidates."""
    nets = [to_numpy(client.state.pop(NETS, NO_NETS)) for client in clients]
    refitted = [to_numpy(client.state.pop(REFITTED, own)) for client, own in zip(clients, nets)]
    for who, group in found.groups:
        for i, kept in zip(who, chosen(found.plan, group, down)):
            clients[i].state.update({f"kept_{name}": value for name, value in kept.items()})
            if len(nets[i]):
                clients[i].state["kept_nets"] = _sound_nets(learner, clients[i], nets[i], refitted[i])


def _sound_nets(learner: Trainer, client: Client, nets: np.ndarray, refitted: np.ndarray) -> np.ndarray:
    """The client's networks, see `sound`."""
    weights = _judging(learner, client)
    live = weights > 0
    x = to_numpy(learner._replace(hold_out=False).rows(client).x)
    return sound(learner, nets, refitted, x[live], codes_of(client, learner.labels)[live], weights[live])


def chosen(plan: Candidates, found: Group, down: Any) -> list[dict[str, np.ndarray]]:
    """What each client keeps: weights of the candidates, their corrections, and losses for the report."""
    w, losses, space = found.seen.w, found.losses, found.space
    prior = plan.prior if down is None or not len(down.said) else prior_of(plan, found, down)
    mix = stacking.averaged(prior, losses, w)
    constant = plan.kind == "constant"
    hedged = stacking.hedged(mix, constant, w)
    reported = reported_losses(plan, losses, w, prior, mix)
    large = (hedged > NEGLIGIBLE * hedged.max(-1, keepdims=True)) | constant
    return [
        _kept(plan, np.flatnonzero(large[i]), hedged[i], found.fitted.maps[i])
        | {"losses": reported[i], "centre": space.centre[i], "axes": space.axes[i], "rows": w[i].sum()}
        for i in range(len(w))
    ]


def prior_of(plan: Candidates, found: Group, down: Any) -> np.ndarray:  # (clients, j)
    """The prior of the candidates by what the other clients say: what all say without the client's own."""
    (shares, losses), rows = to_numpy(down.said), found.seen.w.sum(-1, keepdims=True)
    said = np.maximum(shares - found.shares, 0.0), losses - found.total, float(down.said_rows) - rows
    return stacking.prior_of_others(plan.prior, plan.path >= 0, stacking.Said(*said), rows)


def _kept(plan: Candidates, kept: np.ndarray, mix: np.ndarray, maps: np.ndarray) -> dict[str, np.ndarray]:
    """The weights and corrections of the candidates that a client keeps."""
    own = maps[plan.stage[kept], plan.path[kept]] * (plan.path[kept] >= 0)[:, None, None]
    return {"mix": mix[kept] / mix[kept].sum(), "which": plan.offset[kept], "maps": own.astype(np.float64)}


def corrected(seen: Evidence, space: Axes, part: int) -> Fitted:
    """Corrections of each base, and of nothing: models of the client alone."""
    starts = [*range(seen.bases), -1]
    ridge = penalties(seen.bases, space.axes.shape[-1])
    columns = space.columns(seen.raw, np.float32)
    if not seen.w.all():
        columns *= (seen.w > 0)[..., None]
    return corrections.fit(Paths(columns, seen.y, seen.w, seen.offsets[:, starts], ridge, part))


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


def reported_losses(
    plan: Candidates, losses: np.ndarray, w: np.ndarray, prior: np.ndarray, mix: np.ndarray
) -> np.ndarray:
    """Mean losses (clients, 3): alone, shared and kept, the last by weights that the other rows give."""
    alone, shared = plan.kind == "alone", (plan.kind == "plain") & (plan.offset == 0)
    rows, found = w.sum(-1), np.full((len(w), 3), np.nan)
    if alone.any():
        own = losses[:, alone]
        likelihood, low = stacking.likelihoods(own)
        average = stacking.of_average(stacking.likely(plan.prior[alone], own, w), likelihood)
        found[:, 0] = (w * (low[:, 0] - np.log(average))).sum(-1) / rows
    if shared.any():
        found[:, 1] = (w * losses[:, shared][:, 0]).sum(-1) / rows
    found[:, 2] = stacking.loss_of_average(prior, losses, w, mix)
    return found


# ---- predictions ----


def features(learner: Trainer, x: np.ndarray, log_bases: np.ndarray) -> np.ndarray:  # (n, r)
    """What corrections are linear in: the columns for linear learners, else the log-probabilities of the models."""
    if learner.learner == "linear":
        return x.astype(np.float64, copy=False)
    return np.concatenate(list(log_bases.clip(min=MIN_LOG)), 1)


def offsets_of(
    learner: Trainer, nets: np.ndarray, x: np.ndarray, log_bases: np.ndarray, state: Any
) -> np.ndarray:  # (offsets, n, c)
    """What candidates begin with: the bases, the client's networks, and nothing."""
    log_nets = own_scores(learner, nets, x, log_bases, state)
    nothing = np.zeros((1, *log_bases.shape[1:]))
    return np.concatenate([log_bases, log_nets, nothing]).clip(min=MIN_LOG)


def predict(learner: Trainer, own: dict[str, np.ndarray], x: np.ndarray, log_bases: np.ndarray) -> np.ndarray:  # (n, c)
    """Class probabilities of what a client keeps."""
    columns = Axes(own["kept_centre"], own["kept_axes"]).columns(features(learner, x, log_bases))
    offsets = offsets_of(learner, own.get("kept_nets", NO_NETS), x, log_bases, own)
    scores = offsets[own["kept_which"].astype(int)] + columns @ own["kept_maps"]
    return np.einsum("j,jnc->nc", own["kept_mix"], np.exp(log_softmax(scores)))
