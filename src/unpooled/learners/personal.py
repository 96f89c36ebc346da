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

from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, TELL, Client, client
from unpooled.learners import calibration, corrections, stacking
from unpooled.learners.bases import Shared, average_log_proba, base_log_proba, in_equal_units, mixed
from unpooled.learners.calibration import CalibrationLosses, calibrated_bases
from unpooled.learners.candidates import Axes, Candidates, axes_of, candidates, penalties
from unpooled.learners.corrections import Fitted, Paths, label_losses, log_softmax
from unpooled.learners.labels import codes
from unpooled.learners.own_nets import NO_NETS, REFITTED, own_scores, sound
from unpooled.learners.own_nets import STATE as NETS
from unpooled.learners.trainer import Trainer
from unpooled.tree import message

__all__ = ["KEYS", "Shared", "average_log_proba", "calibration_losses", "keep", "mixed", "personalise", "predict"]

MIN_ROWS = 10  # with fewer the client keeps the shared model
NEGLIGIBLE = 0.01  # weight of a candidate, relative to the best one, below which it is dropped
MIN_LOG = -30.0  # lower bound of log-probabilities
STATE = ("mix", "which", "maps", "centre", "axes", "nets", "losses", "rows", "shift")
NOTHING_SAID = (np.zeros((0, 0)), np.zeros(()))  # of the candidates, by all clients: shares and losses, rows
KEYS = tuple(f"kept_{name}" for name in STATE)  # what a client keeps, in its state


@client("learners.calibration_losses", SUM, batched=False)
def calibration_losses(down: Shared, client: Client, *, trainer: dict, own: dict) -> CalibrationLosses:
    """Held-out log-losses of the client's version of the shared model, or of that itself, and of a single learner beside it, over a
    grid of calibrations.
    """
    learner = Trainer(**trainer)
    rows = learner._replace(hold_out=False).rows(client)
    log_bases = base_log_proba(learner, down, client.state, rows, own)
    client.memo["log_bases"] = log_bases
    judged = log_bases[len(log_bases) - 1 - len(down.single) :]  # the client's version and the single learner
    return calibration.losses(judged, to_numpy(rows.y), _judging(learner, client))


@message("learners.CandidateShares")
class CandidateShares(NamedTuple):
    """The share of a client's rows that each candidate explains, and its log-loss summed over them; all 0 with too few rows to judge by."""

    shares: Float[Array, "candidates"]
    losses: Float[Array, "candidates"]
    rows: Float[Array, "", ">=0 rows"]


@client("learners.judge_candidates", SUM, batched=False)
def judge_candidates(down: Shared, client: Client, *, trainer: dict, own: dict) -> CandidateShares:
    """How well each candidate explains the client's rows, for the prior of the others."""
    return said_of(client, judged(down, client, trainer, own))


@client("learners.personalise", TELL, batched=False)
def personalise(down: Shared, client: Client, *, trainer: dict, own: dict) -> None:
    """Choose among the shared model, the client's own versions of it and local models, by held-out rows; keep the result."""
    found = client.memo.pop("judged", None)
    keep(Trainer(**trainer), client, found or judged(down, client, trainer, own), down)


def judged(down: Shared, client: Client, trainer: dict, own: dict) -> Judged:
    """The candidates and their losses at the client's rows."""
    learner = Trainer(**trainer)
    rows = learner._replace(hold_out=False).rows(client)
    log_bases = client.memo.pop("log_bases", None)
    if log_bases is None:
        log_bases = base_log_proba(learner, down, client.state, rows, own)
    log_bases = in_equal_units(calibrated_bases(log_bases, down.calibration), len(down.single))
    optimism = np.full(len(log_bases), float(down.optimism))
    if own.get("theta") in client.state and not learner.hold_out and len(log_bases) > 1:
        optimism[1] += own_optimism(learner, to_numpy(client.state[own["theta"]]), to_numpy(client.w))
    return judge(learner, client, log_bases, optimism, to_numpy(rows.x), to_numpy(down.spread))


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
    """The rows that a client chooses by, and its models' scores of them."""

    raw: np.ndarray  # (n, r) what corrections are linear in
    y: np.ndarray  # (n,) codes
    w: np.ndarray  # (n,)
    offsets: (
        np.ndarray
    )  # (offsets, n, c) log-probabilities of the bases, then of the client's networks; the last are zeros
    optimism: np.ndarray  # (offsets,) what is added to their losses
    bases: int
    alone: bool  # whether logistic regressions of the client alone are candidates
    spread: np.ndarray | float = 0.0  # (r,) deviations of the columns over all clients


class Judged(NamedTuple):
    """The candidates of a client, and how well they explain its rows."""

    seen: Evidence
    plan: Candidates
    space: Axes
    fitted: Any  # `corrections.Fitted`, or none with too few rows
    losses: np.ndarray  # (n, j)
    shares: np.ndarray  # (j,) of the rows that they explain


def judge(
    learner: Trainer, client: Client, log_bases: np.ndarray, optimism: Any, x: np.ndarray, spread: Any = ()
) -> Judged:
    """The candidates of a client and their losses; x (n, d) are the rows as learners take them.

    `optimism`, a number or one per base, is added to the losses of the bases. `spread` are deviations of the columns over all clients.
    """
    weights = _judging(learner, client)
    live = weights > 0
    offsets = offsets_of(learner, to_numpy(client.state.get(NETS, NO_NETS)), x, log_bases, client.state)
    raw, y = features(learner, x, log_bases), codes(client.y, learner.labels, client.w)
    more = np.zeros(len(offsets))
    more[: len(log_bases)] = optimism
    alone = learner.learner == "linear"
    least = spread if alone and len(spread) else 0.0
    seen = Evidence(raw[live], y[live], weights[live], offsets[:, live], more, len(log_bases), alone, least)
    return judged_by(seen)


def judged_by(seen: Evidence) -> Judged:
    """The candidates, fitted to the evidence, and their losses; not fitted where the client will keep the shared model."""
    plan = candidates(seen.bases, len(seen.offsets) - 1 - seen.bases, seen.alone)
    if len(seen.y) < MIN_ROWS and seen.bases:
        nothing = Axes(np.zeros(0), np.zeros((0, 0)))
        return Judged(seen, plan, nothing, None, np.zeros((0, len(plan.kind))), np.zeros(len(plan.kind)))
    space = axes_of(seen.raw, seen.w, seen.spread)
    fitted = corrected(seen, space)
    losses = losses_of(plan, seen, fitted)
    return Judged(seen, plan, space, fitted, losses, stacking.shares(plan.prior, losses, seen.w))


def said_of(client: Client, found: Judged) -> CandidateShares:
    """What the client says of the candidates; what was found is remembered for `keep`."""
    client.memo["judged"] = found
    w = found.seen.w[: len(found.losses)]
    return CandidateShares(found.shares, w @ found.losses, w.sum())


def keep(learner: Trainer, client: Client, found: Judged, down: Any = None) -> None:
    """Choose, and write what is kept into the client's state. `down` may have what all clients say of the candidates."""
    nets = to_numpy(client.state.pop(NETS, NO_NETS))
    refitted = to_numpy(client.state.pop(REFITTED, nets))
    if found.fitted is None:
        return
    client.state.update({f"kept_{name}": value for name, value in chosen(found, down).items()})
    if len(nets):
        live = _judging(learner, client) > 0
        x = to_numpy(learner._replace(hold_out=False).rows(client).x)
        client.state["kept_nets"] = sound(learner, nets, refitted, x[live], found.seen.y, found.seen.w)


def chosen(found: Judged, down: Any) -> dict[str, np.ndarray]:
    """What the client keeps: weights of the candidates, their corrections, and losses for the report."""
    seen, plan, space, fitted, losses, _ = found
    prior = plan.prior if down is None or not len(down.said) else prior_of(found, down)
    mix = stacking.averaged(prior, losses, seen.w)
    hedged = stacking.hedged(mix, plan.kind == "constant", seen.w)
    kept = np.flatnonzero((hedged > NEGLIGIBLE * hedged.max()) | (plan.kind == "constant"))
    maps = fitted.maps[plan.stage[kept], plan.path[kept]] * (plan.path[kept] >= 0)[:, None, None]
    return {
        "mix": hedged[kept] / hedged[kept].sum(),
        "which": plan.offset[kept],
        "maps": maps.astype(np.float64),
        "losses": reported_losses(plan, losses, seen.w, prior, mix),
        "centre": space.centre,
        "axes": space.axes,
        "rows": np.asarray(float(seen.w.sum())),
    }


def prior_of(found: Judged, down: Any) -> np.ndarray:  # (j,)
    """The prior of the candidates by what the other clients say: what all say without the client's own."""
    (shares, losses), rows = to_numpy(down.said), float(found.seen.w.sum())
    own = found.seen.w @ found.losses
    others = stacking.Said(np.maximum(shares - found.shares, 0.0), losses - own, float(down.said_rows) - rows)
    return stacking.prior_of_others(found.plan.prior, found.plan.path >= 0, others, rows)


def corrected(seen: Evidence, space: Axes) -> Fitted:
    """Corrections of each base, and of nothing: models of the client alone."""
    starts = [*range(seen.bases), -1]
    ridge = penalties(seen.bases, space.axes.shape[1])
    return corrections.fit(Paths(space.columns(seen.raw), seen.y, seen.w, seen.offsets[starts], ridge))


def losses_of(plan: Candidates, seen: Evidence, fitted: Fitted) -> np.ndarray:  # (n, j)
    """-log P(y | x) of every row under every candidate as it is without the row; all 0 with too few rows to judge by."""
    if len(seen.y) < MIN_ROWS:
        return np.zeros((len(seen.y), len(plan.kind)))
    scores = seen.offsets.astype(np.float32)[plan.offset]
    fits = plan.path >= 0
    scores[fits] = fitted.left_out[plan.stage[fits], plan.path[fits]]
    return np.asarray(label_losses(scores, seen.y).T + seen.optimism[plan.offset])


def reported_losses(
    plan: Candidates, losses: np.ndarray, w: np.ndarray, prior: np.ndarray, mix: np.ndarray
) -> np.ndarray:  # (3,)
    """Mean loss (alone, shared, kept); what is kept by weights that the other rows give."""
    alone, shared = plan.kind == "alone", (plan.kind == "plain") & (plan.offset == 0)
    found = np.full(3, np.nan)
    if alone.any():
        own = losses[:, alone]
        own_mix = stacking.likely(plan.prior[alone], own, w)
        found[0] = -(w @ np.log(np.exp(-own) @ own_mix)) / w.sum()
    if shared.any():
        found[1] = w @ losses[:, shared][:, 0] / w.sum()
    found[2] = stacking.loss_of_average(prior, losses, w, mix)
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
