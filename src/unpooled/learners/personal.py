"""What each client keeps of a fitted classifier, chosen at the client by its own held-out rows. One TELL: nothing comes back.

Before it, one SUM of held-out log-losses calibrates the shared model (see `calibration`).

Candidates are the shared model, the client's own mixture of shared models, linear corrections of both (from the intercepts alone to
nearly a model of its own), logistic regressions of the client alone and, for networks, both with the client's label shares, fine-tuned
and local networks. Each is scored on
rows that it was not fitted to. The client keeps their average, weighted by these scores and a prior: with few rows that is mostly the
shared model, with many the best candidate or mixture of them. The losses that `gain_` reports come from weights found without the
rows scored.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, TELL, Client, client
from unpooled.learners import calibration, corrections, exact, left_out
from unpooled.learners.calibration import Calibration, CalibrationLosses, calibrated
from unpooled.learners.candidates import Candidates, Features, candidates, features_of, prior_weights
from unpooled.learners.corrections import Problem, log_softmax
from unpooled.learners.labels import codes
from unpooled.learners.own_nets import GROUP_MODEL, NO_NETS, REFITTED, own_scores, own_version, sound
from unpooled.learners.own_nets import STATE as NETS
from unpooled.learners.rows import Rows
from unpooled.learners.trainer import Trainer
from unpooled.maths.folds import fold_of
from unpooled.tree import message

MIN_ROWS = 10  # with fewer the client keeps the shared model
MANY_ROWS = 3000  # rows x classes, above which there are two folds instead of five
PSEUDO_ROWS, STACKING_STEPS = 1.0, 60
UNEXPECTED = 0.1  # rows that constants are given on top: they bound what a row costs that no model expects
NEGLIGIBLE = 0.01  # weight of a candidate, relative to the best one, below which it is dropped
MIN_LOG = -30.0  # lower bound of log-probabilities
STATE = ("mix", "which", "maps", "centre", "scale", "axes", "nets", "losses", "rows", "shift")
KEYS = tuple(f"kept_{name}" for name in STATE)  # what a client keeps, in its state


@message("learners.Shared")
class Shared(NamedTuple):
    """The fitted learners and their weights over all clients."""

    theta: Float[Array, "k p"]
    weights: Float[Array, "k"]
    optimism: Float[Array, ""]  # by how much their loss on a training row is smaller than on a new one
    inverse: Float[Array, "learners q r"]  # of the second derivatives at the optimum of linear learners, or none
    centre: Float[Array, "d"]  # of the columns, for `inverse`
    calibration: Float[Array, "two"]  # temperature and floor, see `calibration`


@client("learners.calibration_losses", SUM, batched=False)
def calibration_losses(down: Shared, client: Client, *, trainer: dict, own: dict) -> CalibrationLosses:
    """Held-out log-losses of the client's version of the shared model, or of that itself, over a grid of calibrations."""
    learner = Trainer(**trainer)
    rows = learner._replace(hold_out=False).rows(client)
    log_bases = base_log_proba(learner, down, client.state, rows, own)
    client.memo["log_bases"] = log_bases
    held = learner.held(client) if learner.hold_out else to_numpy(client.w)
    return calibration.losses(log_bases[-1], to_numpy(rows.y), held.astype(np.float64))


@client("learners.personalise", TELL, batched=False)
def personalise(down: Shared, client: Client, *, trainer: dict, own: dict) -> None:
    """Choose among the shared model, the client's own versions of it and local models, by held-out rows; keep the result."""
    learner = Trainer(**trainer)
    rows = learner._replace(hold_out=False).rows(client)
    log_bases = client.memo.pop("log_bases", None)
    if log_bases is None:
        log_bases = base_log_proba(learner, down, client.state, rows, own)
    log_bases = calibrated(log_bases, Calibration(*map(float, down.calibration)))
    nets = to_numpy(client.state.pop(NETS, NO_NETS))
    optimism = np.full(len(log_bases), float(down.optimism))
    if own.get("theta") in client.state and not learner.hold_out and len(log_bases) > 1:
        optimism[1] += own_optimism(learner, to_numpy(client.state[own["theta"]]), to_numpy(client.w))
    keep(learner, client, log_bases, optimism, to_numpy(rows.x), nets)


def own_optimism(learner: Trainer, theta: np.ndarray, w: np.ndarray) -> float:
    """Parameters per row of learners that the client trained itself on all its rows (Akaike), see `optimism`."""
    free = theta.size * (1 - 1 / len(learner.labels))
    return 0.5 * free / max(float(w.sum()), 1.0)


def base_log_proba(learner: Trainer, down: Shared, state: dict, rows: Rows, own: dict) -> np.ndarray:  # (b, n, c)
    """Log-probabilities of the shared model and, if there are such, of the client's own version and of its group's network.

    Linear learners at their optimum are taken as they were without each row.
    """
    if len(down.inverse):
        return _left_out(learner, down, state, rows, own)
    x = rows.x
    bases = [mixed(learner, learner.merge(down.theta, state.get("norm")), down.weights, x)]
    if own.get("weights") in state or own.get("theta") in state:
        theta, weights = own_version(down, state, own)
        bases.append(mixed(learner, learner.merge(theta, state.get("norm")), weights, x))
    if GROUP_MODEL in state:
        bases.append(mixed(learner, state[GROUP_MODEL], np.ones(1), x))
    return np.stack(bases)


def _left_out(learner: Trainer, down: Shared, state: dict, rows: Rows, own: dict) -> np.ndarray:  # (b, n, c)
    """Log probabilities of each row by learners fitted without it."""
    x, y, w = (to_numpy(a) for a in (rows.x, rows.y, rows.w))
    log_p = to_numpy(learner.log_proba(down.theta, rows.x)).astype(np.float64)  # (k, c, n)
    ids = own.get("ids") or list(range(len(log_p)))
    share = exact.shares_of(state, own.get("weights", ""), ids, ())
    share = share if own.get("weights") in state else np.ones(len(log_p))
    centre = to_numpy(down.centre)
    without = [
        left_out.without_each(x, y, w * s, one.T, i, centre).T
        for s, one, i in zip(share, log_p, to_numpy(down.inverse))
    ]
    bases = [average_log_proba(np.stack(without), to_numpy(down.weights))]
    if own.get("theta") in state:
        bases.append(mixed(learner, *own_version(down, state, own), rows.x))
    elif own.get("weights") in state:
        bases.append(average_log_proba(np.stack(without), share))
    return np.stack(bases)


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


# ---- the choice ----


def keep(
    learner: Trainer, client: Client, log_bases: np.ndarray, optimism: Any, x: np.ndarray, nets: np.ndarray = NO_NETS
) -> None:
    """Choose, and write what is kept into the client's state; x (n, d) are the rows as learners take them.

    `optimism`, a number or one per base, is added to the losses of the bases.
    """
    refitted = to_numpy(client.state.pop(REFITTED, nets))
    held = learner.held(client) if learner.hold_out else to_numpy(client.w)
    live = held > 0
    if live.sum() < MIN_ROWS and len(log_bases):
        return
    log_nets = own_scores(learner, nets, x, log_bases, client.state)
    raw = features(learner, x, log_bases)[live]
    offsets = np.concatenate([log_bases, log_nets, np.zeros((1, *log_bases.shape[1:]))])[:, live].clip(min=MIN_LOG)
    w, y = held[live].astype(np.float64), codes(client.y, learner.labels, client.w)[live]
    many = live.sum() * len(learner.labels) > MANY_ROWS
    folds = fold_of(x[live], y, 2 if many else 5)
    alone = learner.learner == "linear"
    found = chosen(raw, y, w, offsets, len(log_bases), folds, optimism, alone)
    client.state.update({f"kept_{name}": value for name, value in found.items()})
    if len(nets):
        client.state["kept_nets"] = sound(learner, nets, refitted, x[live], y, w)


def chosen(
    raw: np.ndarray,
    y: np.ndarray,
    w: np.ndarray,
    offsets: np.ndarray,
    bases: int,
    folds: np.ndarray,
    optimism: Any,
    alone: bool,
) -> dict[str, np.ndarray]:
    """What the client keeps: weights of the candidates, their corrections, and held-out losses for the report."""
    space = features_of(raw, w)
    z = space.of(raw)
    plan = candidates(bases, z.shape[1] - 1, len(offsets) - 1 - bases, alone)
    enough = len(y) >= MIN_ROWS
    losses = held_out_losses(plan, z, y, w, offsets, folds) if enough else np.zeros((len(y), len(plan.kind)))
    extra = np.append(np.broadcast_to(optimism, bases), np.zeros(len(offsets) - bases))[plan.which]
    prior = prior_weights(plan.kind)
    mix = hedged(averaged(prior, losses + extra, w), np.array(plan.kind), w)
    kept = np.flatnonzero((mix > NEGLIGIBLE * mix.max()) | (np.array(plan.kind) == "constant"))
    maps = final_maps(plan, z, y, w, offsets, kept)
    reported = reported_losses(plan, losses + extra, prior, w, folds)
    kept_of = {"mix": mix[kept] / mix[kept].sum(), "which": plan.which[kept], "maps": maps, "losses": reported}
    return kept_of | {
        "centre": space.centre,
        "scale": space.scale,
        "axes": space.axes,
        "rows": np.asarray(float(w.sum())),
    }


def held_out_losses(
    plan: Candidates, z: np.ndarray, y: np.ndarray, w: np.ndarray, offsets: np.ndarray, folds: np.ndarray
) -> np.ndarray:  # (n, j)
    """-log P(y | x) of every row under every candidate fitted without the row's fold."""
    rows = np.arange(len(y))
    losses = -np.stack([log_softmax(offsets[which])[rows, y] for which in plan.which], 1)
    fitted = np.flatnonzero(plan.corrected)
    if not len(fitted):
        return losses
    parts = np.unique(folds)
    weights = np.repeat(np.stack([w * (folds != part) for part in parts]), len(fitted), 0)
    which, ridge = np.tile(plan.which[fitted], len(parts)), np.tile(plan.ridge[fitted], (len(parts), 1))
    maps = corrections.fit(Problem(z, y, weights, offsets, which, ridge), np.float32)
    for part, own in zip(parts, maps.reshape(len(parts), len(fitted), *maps.shape[1:])):
        out = folds == part
        scores = corrections.scores_of(z[out], offsets[:, out], plan.which[fitted], own)
        losses[np.ix_(out, fitted)] = -log_softmax(scores)[:, np.arange(out.sum()), y[out]].T
    return losses


def averaged(prior: np.ndarray, losses: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Weights of candidates from their held-out losses (n, j): half of them prior x likelihood, half stacked.

    The former settle on the best candidate, the latter maximise the likelihood of the average itself (Yao et al., 2018).
    """
    log_weights = np.log(prior) - w @ losses
    likely = np.exp(log_weights - log_weights.max())
    return 0.5 * likely / likely.sum() + 0.5 * stacked(prior, losses, w)


def hedged(mix: np.ndarray, kinds: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Weights of candidates with UNEXPECTED rows more for the constants among them."""
    constant = (kinds == "constant") / max((kinds == "constant").sum(), 1)
    return mix if not constant.any() else (w.sum() * mix + UNEXPECTED * constant) / (w.sum() + UNEXPECTED)


def stacked(prior: np.ndarray, losses: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Weights by EM of the likelihood of the average, with PSEUDO_ROWS rows that follow the prior."""
    likelihood = np.exp(losses.min(1, keepdims=True) - losses)
    mix = prior
    for _ in range(STACKING_STEPS):
        r = likelihood * mix
        mix = PSEUDO_ROWS * prior + (w / r.sum(1)) @ r
        mix = mix / mix.sum()
    return mix


def final_maps(
    plan: Candidates, z: np.ndarray, y: np.ndarray, w: np.ndarray, offsets: np.ndarray, kept: np.ndarray
) -> np.ndarray:
    """Corrections of the kept candidates, fitted to all rows; zeros for plain ones."""
    maps = np.zeros((len(kept), z.shape[1], offsets.shape[-1]))
    fitted = np.flatnonzero(plan.corrected[kept])
    if len(fitted):
        rows = np.repeat(w[None], len(fitted), 0)
        chosen = kept[fitted]
        maps[fitted] = corrections.fit(Problem(z, y, rows, offsets, plan.which[chosen], plan.ridge[chosen]))
    return maps


def reported_losses(
    plan: Candidates, losses: np.ndarray, prior: np.ndarray, w: np.ndarray, folds: np.ndarray
) -> np.ndarray:  # (3,)
    """Mean held-out loss (alone, shared, kept): each fold is scored by weights that the other folds gave."""
    kinds = np.array(plan.kind)
    alone, shared = kinds == "alone", (kinds == "plain") & (plan.which == 0)
    out = np.zeros(3)
    for i, which in enumerate((alone, shared, np.ones(len(prior), bool))):
        out[i] = _cross_fitted(losses[:, which], prior[which], kinds[which], w, folds) if which.any() else np.nan
    return out


def _cross_fitted(losses: np.ndarray, prior: np.ndarray, kinds: np.ndarray, w: np.ndarray, folds: np.ndarray) -> float:
    """The loss of the weighted candidates, with weights found without each fold."""
    total = 0.0
    for part in np.unique(folds):
        out = folds == part
        mix = hedged(averaged(prior, losses[~out], w[~out]), kinds, w[~out])
        total -= w[out] @ np.log((np.exp(-losses[out]) @ mix).clip(min=1e-300))
    return total / w.sum()


# ---- the report ----


def gain_table(comparison: Mapping[str, Mapping[str, float]]) -> str:
    """An HTML table of held-out log-losses by client: alone, shared, kept, and what taking part gains."""
    head = "".join(f"<th>{name}</th>" for name in ("client", "rows", "alone", "shared", "kept", "gain"))
    lines = []
    for name, row in comparison.items():
        numbers = [f"{row['rows']:.0f}", *(f"{row[key]:.3f}" for key in ("alone", "shared", "kept"))]
        cells = [escape(name), *numbers, f"{row['alone'] - row['kept']:+.3f}"]
        lines.append("".join(f"<td>{cell}</td>" for cell in cells))
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


# ---- predictions ----


def features(learner: Trainer, x: np.ndarray, log_bases: np.ndarray) -> np.ndarray:  # (n, r)
    """What corrections are linear in: the columns for linear learners, else the log-probabilities of the models."""
    if learner.learner == "linear":
        return x.astype(np.float64, copy=False)
    return np.concatenate(list(log_bases.clip(min=MIN_LOG)), 1)


def predict(learner: Trainer, own: dict[str, np.ndarray], x: np.ndarray, log_bases: np.ndarray) -> np.ndarray:  # (n, c)
    """Class probabilities of what a client keeps."""
    space = Features(own["kept_centre"], own["kept_scale"], own["kept_axes"])
    z = space.of(features(learner, x, log_bases))
    log_nets = own_scores(learner, own.get("kept_nets", NO_NETS), x, log_bases, own)
    offsets = np.concatenate([log_bases, log_nets, np.zeros((1, *log_bases.shape[1:]))]).clip(min=MIN_LOG)
    scores = corrections.scores_of(z, offsets, own["kept_which"].astype(int), own["kept_maps"])
    return np.einsum("j,jnc->nc", own["kept_mix"], np.exp(log_softmax(scores)))
