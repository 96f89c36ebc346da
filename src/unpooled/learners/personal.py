"""What each client keeps of a fitted classifier, chosen at the client by its own rows. One TELL: nothing comes back.

Before it, one SUM of held-out log-losses calibrates the shared model (see `calibration`) and, for linear learners, one SUM says how well
the candidates explain the rows of all clients: what the others say is a client's prior.

Candidates are the shared model, the client's own mixture of shared models, linear corrections of both (from the intercepts alone to
nearly a model of its own), logistic regressions of the client alone and, for networks, both with the client's label shares, fine-tuned
and local networks. Each is scored on rows that it was not fitted to: networks by rows held out, linear models by approximate
leave-one-out. The client keeps their average, weighted by these scores and a prior (see `stacking`): with few rows that is mostly the
shared model, with many the best candidate or mixture of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from unpooled import tree
from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SMALL, SUM, TELL, Client, client
from unpooled.learners import calibration
from unpooled.learners.bases import Shared, average_log_proba, base_log_proba, in_equal_units, mixed
from unpooled.learners.calibration import CalibrationLosses, calibrated_bases
from unpooled.learners.candidates import Axes
from unpooled.learners.corrections import log_softmax
from unpooled.learners.judging import ENOUGH_ROWS, Evidence, Judged, chosen, judge, part_of, side_by_side
from unpooled.learners.labels import codes_of
from unpooled.learners.own_nets import NO_NETS, REFITTED, own_scores, sound
from unpooled.learners.own_nets import STATE as NETS
from unpooled.learners.rows import Rows
from unpooled.learners.trainer import Trainer
from unpooled.tree import message

__all__ = ["KEYS", "Shared", "average_log_proba", "calibration_losses", "keep", "mixed", "personalise", "predict"]

MIN_LOG = -30.0  # lower bound of log-probabilities
STATE = ("mix", "which", "maps", "centre", "axes", "nets", "losses", "rows", "shift")
NOTHING_SAID = (np.zeros((0, 0)), np.zeros(()))  # of the candidates, by all clients: shares and losses, rows
KEYS = tuple(f"kept_{name}" for name in STATE)  # what a client keeps, in its state


@client("learners.calibration_losses", SUM, batched=SMALL, brief=True)
def calibration_losses(down: Shared, client: Client, *, trainer: dict, own: dict) -> CalibrationLosses:
    """Held-out log-losses of the client's version of the shared model, or of that itself, and of a single learner beside it, over a
    grid of calibrations.
    """
    learner, first = Trainer(**trainer), -1 - len(down.single)  # the client's version and the single learner come last
    members = apart(client, learner.labels)
    scored = client.memo["scored"] = scored_by(learner, down, client, members, own)
    bases = [one.log_bases[first:, :: one.part] for one in scored]
    labels = [codes_of(member, learner.labels)[:: one.part] for member, one in zip(members, scored)]
    weights = [_judging(learner, member)[:: one.part] for member, one in zip(members, scored)]
    if not client.stacked:
        return calibration.losses(bases[0], labels[0], weights[0])
    log_bases = np.moveaxis(side_by_side(bases, 1), 0, 1)  # (models, clients, n, c)
    return calibration.losses(log_bases, side_by_side(labels), side_by_side(weights))


@message("learners.CandidateShares")
class CandidateShares(NamedTuple):
    """The share of a client's rows that each candidate explains, and its log-loss summed over them; all 0 with too few rows to judge by."""

    shares: Float[Array, "candidates"]
    losses: Float[Array, "candidates"]
    rows: Float[Array, "", ">=0 rows"]


@client("learners.judge_candidates", SUM, batched=SMALL, brief=True)
def judge_candidates(down: Shared, client: Client, *, trainer: dict, own: dict) -> CandidateShares:
    """How well each candidate explains the client's rows, for the prior of the others."""
    members = apart(client, trainer["labels"])
    found = client.memo["judged"] = judged(down, client, members, trainer, own)
    said = said_by(found, len(members))
    return said if client.stacked else tree.at(said, 0)


@client("learners.personalise", TELL, batched=SMALL, brief=True)
def personalise(down: Shared, client: Client, *, trainer: dict, own: dict) -> None:
    """Choose among the shared model, the client's own versions of it and local models, by held-out rows; keep the result."""
    members = apart(client, trainer["labels"])
    found = client.memo.pop("judged", None) or judged(down, client, members, trainer, own)
    keep(Trainer(**trainer), members, found, down)
    kept: Any = [member.state for member in members]
    client.state = kept if client.stacked else kept[0]


def apart(client: Client, labels: Sequence) -> list[Client]:
    """The single clients of a stack, without padding; or the client itself. Their labels are looked up in `labels` only once."""
    if not client.stacked:
        return [client]
    codes = codes_of(client, labels)
    return [
        Client(
            name,
            client.x[i, :n],
            None if client.y is None else client.y[i, :n],
            client.w[i, :n],
            tree.at(client.state, i),
            memo={"codes": (list(labels), codes[i, :n])},
        )
        for i, (name, n) in enumerate(zip(client.members, _sizes(to_numpy(client.w))))
    ]


def _sizes(w: np.ndarray) -> np.ndarray:  # (clients,)
    """The number of rows of stacked clients up to the last one whose weight (clients, n) is not 0."""
    live = w > 0
    return np.where(live.any(1), w.shape[1] - live[:, ::-1].argmax(1), 0)


class Scored(NamedTuple):
    """A client's rows as the shared models see them."""

    log_bases: np.ndarray  # (b, n, c), see `base_log_proba`
    part: int  # candidates are compared by every `part`-th row


def scored_by(learner: Trainer, down: Shared, client: Client, members: list[Client], own: dict) -> list[Scored]:
    """The bases of each member of a stack; of linear learners without local state and of few rows at once."""
    everything = learner._replace(hold_out=False)
    parts = [_part(learner, down, member) for member in members]
    if own or not len(down.inverse) or len(members) == 1 or max(parts) > 1:
        rows = [everything.rows(member) for member in members]
        return [
            Scored(base_log_proba(learner, down, member.state, its, own, part), part)
            for member, its, part in zip(members, rows, parts)
        ]
    stacked = everything.rows(client)
    x, y, w = (to_numpy(a) for a in stacked)
    log_bases = base_log_proba(learner, down, {}, Rows(x.reshape(-1, learner.inputs), y.ravel(), w.ravel()), own)
    apiece = log_bases.reshape(len(log_bases), -1, w.shape[-1], log_bases.shape[-1])
    return [Scored(apiece[:, i, : len(member.w)], 1) for i, member in enumerate(members)]


def _part(learner: Trainer, down: Shared, client: Client) -> int:
    """See `part_of`; 1 for networks, and where some rows do not count."""
    if len(client.w) < 2 * ENOUGH_ROWS or not len(down.inverse) or not to_numpy(client.w).all():
        return 1
    y = codes_of(client, learner.labels)
    return part_of(to_numpy(client.x), y, to_numpy(down.centre), to_numpy(down.spread), len(learner.labels))


def judged(down: Shared, client: Client, members: list[Client], trainer: dict, own: dict) -> Judged:
    """The candidates and their losses at the rows of each member of a stack."""
    learner = Trainer(**trainer)
    scored = client.memo.pop("scored", None) or scored_by(learner, down, client, members, own)
    everything = learner._replace(hold_out=False)
    spread = to_numpy(down.spread)
    seen = []
    for member, (log_bases, part) in zip(members, scored):
        log_bases = in_equal_units(calibrated_bases(log_bases, down.calibration), len(down.single))
        optimism = np.full(len(log_bases), float(down.optimism))
        if own.get("theta") in member.state and not learner.hold_out and len(log_bases) > 1:
            optimism[1] += own_optimism(learner, to_numpy(member.state[own["theta"]]), to_numpy(member.w))
        x = to_numpy(everything.rows(member).x)
        seen.append(evidence(learner, member, log_bases, optimism, x, spread)._replace(part=part))
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


def evidence(
    learner: Trainer, client: Client, log_bases: np.ndarray, optimism: Any, x: np.ndarray, spread: Any = ()
) -> Evidence:
    """What a client chooses by; x (n, d) are its rows as learners take them.

    `optimism`, a number or one per base, is added to the losses of the bases. `spread` are deviations of the columns over all clients.
    """
    weights = _judging(learner, client)
    offsets = offsets_of(learner, to_numpy(client.state.get(NETS, NO_NETS)), x, log_bases, client.state)
    raw = features(learner, x, log_bases)
    y = codes_of(client, learner.labels)
    more = np.zeros(len(offsets))
    more[: len(log_bases)] = optimism
    alone = learner.learner == "linear"
    live = weights > 0
    if not live.all():
        raw = raw[live]
        y = y[live]
        weights = weights[live]
        offsets = offsets[:, live]
    return Evidence(raw, y, weights, offsets, more, len(log_bases), alone, spread if alone and len(spread) else 0.0)


def said_by(found: Judged, clients: int) -> CandidateShares:
    """What each client says of the candidates, on a leading axis."""
    listed = len(found.plan.kind)
    said = CandidateShares(np.zeros((clients, listed)), np.zeros((clients, listed)), np.zeros(clients))
    for who, group in found.groups:
        said.shares[who] = group.shares
        said.losses[who] = group.total
        said.rows[who] = group.rows[:, 0]
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
    return np.maximum(np.concatenate([log_bases, log_nets, nothing]), MIN_LOG)


def predict(learner: Trainer, own: dict[str, np.ndarray], x: np.ndarray, log_bases: np.ndarray) -> np.ndarray:  # (n, c)
    """Class probabilities of what a client keeps."""
    columns = Axes(own["kept_centre"], own["kept_axes"]).columns(features(learner, x, log_bases))
    offsets = offsets_of(learner, own.get("kept_nets", NO_NETS), x, log_bases, own)
    scores = offsets[own["kept_which"].astype(int)] + columns @ own["kept_maps"]
    return np.einsum("j,jnc->nc", own["kept_mix"], np.exp(log_softmax(scores)))
