"""What each client keeps of a fitted FedGMM: one SUM of held-out losses calibrates it, then one TELL lets clients choose.

See `learners.personal`: candidates are the shared mixture, the client's own mixture, a single learner of all rows, and local models.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled import tree
from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, TELL, Client, client
from unpooled.learners import Trainer, calibration, left_out, personal
from unpooled.learners.calibration import CalibrationLosses, calibrated_bases
from unpooled.learners.labels import codes
from unpooled.learners.mixing import log_shares, responsibilities
from unpooled.learners.own_nets import GROUP_MODEL
from unpooled.models.fedgmm.embedding import Embedding, embed
from unpooled.models.fedgmm.rounds import Joint, imputed
from unpooled.models.fedgmm.weighted_e_step import log_densities
from unpooled.tree import message


@message("fedgmm.Fitted")
class Fitted(NamedTuple):
    """The fitted model, for the choice of each client."""

    joint: Joint
    embedding: Embedding
    single: Float[Array, "singles p"]  # a single learner of all rows, or none
    # of second derivatives, see `left_out.inverses_of`; of a single learner, or none
    inverse: Float[Array, "learners blocks q r"]
    # by how much the log-loss of a training row is smaller than of a new one, without `inverse`
    optimism: Float[Array, ""]
    ratio: Float[Array, ""]  # parameters of the model's learners by those of a single one
    calibration: Float[Array, "models two"]  # temperature and floor, of the mixtures and of `single`
    spread: Float[Array, "columns"]  # deviations of the columns over all clients, for linear learners, or none
    # shares and losses that all clients say of the candidates, see `personal.CandidateShares`
    said: Float[Array, "both listed"]
    said_rows: Float[Array, ""]  # rows of these clients, 0 if none was asked


@client("fedgmm.calibration_losses", SUM, batched=False)
def calibration_losses(down: Fitted, client: Client, *, trainer: dict, shape: str, key: str) -> CalibrationLosses:
    """Log-losses of the client's mixture and of a single learner beside it over a grid of calibrations."""
    learner = Trainer(**trainer)
    log_bases, _, _ = bases(learner, down, client, shape, key)
    held = learner.held(client) if learner.hold_out else to_numpy(client.w)
    y = codes(client.y, learner.labels, client.w)
    return calibration.losses(log_bases[-1 - len(down.single) :], y, held.astype(np.float64))


@client("fedgmm.judge_candidates", SUM, batched=False)
def judge_candidates(down: Fitted, client: Client, *, trainer: dict, shape: str, key: str) -> personal.CandidateShares:
    """How well each candidate explains the client's rows, for the prior of the others."""
    found = client.memo["judged"] = judged(down, client, trainer, shape, key)
    return tree.at(personal.said_by(found, 1), 0)


@client("fedgmm.personalise", TELL, batched=False)
def personalise(down: Fitted, client: Client, *, trainer: dict, shape: str, key: str) -> None:
    """Choose among the shared model, the client's own mixture and local models, by held-out rows; keep the result."""
    found = client.memo.pop("judged", None) or judged(down, client, trainer, shape, key)
    personal.keep(Trainer(**trainer), [client], found, down)


def judged(down: Fitted, client: Client, trainer: dict, shape: str, key: str) -> personal.Judged:
    """The candidates and their losses at the client's rows."""
    learner = Trainer(**trainer)
    log_bases, optimism, x = bases(learner, down, client, shape, key)
    log_bases = calibrated_bases(log_bases, down.calibration)
    return personal.judge([personal.evidence(learner, client, log_bases, optimism, x, to_numpy(down.spread))])


def bases(
    learner: Trainer, down: Fitted, client: Client, shape: str, key: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(log-probabilities (b, n, c) of the shared model, the client's own mixture, its group's network and a single learner, what is
    added to their losses (b,), rows as learners take them (n, d)).
    """
    several = len(down.joint.theta) > 1  # the weights of a single learner do not matter
    own_weights = {key: to_numpy(client.state[key])} if several and key in client.state else {}
    z = embed(to_numpy(client.x), down.embedding).astype(np.float64)
    log_n = log_densities(down.joint.gaussians, z, shape)
    rows = learner._replace(hold_out=False).rows(client)
    x = to_numpy(rows.x)
    x = imputed(x, down.joint.gaussians, shape) if down.embedding.axes.shape[-1] == 0 else x
    theta = learner.merge(down.joint.theta, client.state.get("norm"))
    log_learners = to_numpy(learner.log_proba(theta, learner.placed(x))).astype(np.float64)
    weights = [to_numpy(down.joint.shares), *own_weights.values()]
    found = [mixture_log_proba(log_n[:, :, None] + log_shares(pi, log_n), log_learners) for pi in weights]
    if GROUP_MODEL in client.state:
        found.append(personal.mixed(learner, client.state[GROUP_MODEL], np.ones(1), learner.placed(x)))
    if len(down.single):
        found.append(personal.mixed(learner, down.single, np.ones(1), learner.placed(x)))
    own_parameters = 0.5 * (weights[0].size - 1) / max(float(to_numpy(client.w).sum()), 1.0)
    log_bases = np.stack(found)
    optimism = np.array([float(down.optimism)] * len(found))
    optimism[1 : len(weights)] += own_parameters
    if len(down.inverse):
        log_bases, optimism = _without_each_row(down, rows, x, log_bases, len(weights), own_parameters)
    return log_bases, optimism, x


def _without_each_row(
    down: Fitted, rows: Any, x: np.ndarray, log_bases: np.ndarray, mixtures: int, own_parameters: float
) -> tuple[np.ndarray, np.ndarray]:
    """(log-probabilities with leave-one-out predictions of the single learner, what is added to the losses of the bases).

    A mixture's losses on its training rows are too small by the single learner's excess, times the ratio of their parameters.
    """
    y = to_numpy(rows.y)
    w = to_numpy(rows.w).astype(np.float64)
    last = log_bases[-1].copy()
    left = left_out.without_each(x, y, w, last, to_numpy(down.inverse)[0], to_numpy(down.embedding.mean))
    if not len(down.single):  # the model itself has a single learner
        return np.stack([left] * mixtures), np.zeros(mixtures)
    picked = np.arange(len(y)), y
    found = max(float(w @ (last[picked] - left[picked])) / max(float(w.sum()), 1.0), 0.0) * float(down.ratio)
    optimism = np.array([*[found, found + own_parameters][:mixtures], 0.0])
    return np.concatenate([log_bases[:-1], left[None]]), optimism


def mixture_log_proba(log_pairs: np.ndarray, log_learners: np.ndarray) -> np.ndarray:  # (n, classes)
    """Log-probabilities of classes: learners (m, classes, n) weighted by the responsibilities of their pairs (n, k, m)."""
    r, _ = responsibilities(log_pairs.reshape(len(log_pairs), -1))
    by_learner = r.reshape(log_pairs.shape).sum(1)  # (n, m)
    return np.log(np.einsum("nm,mcn->nc", by_learner, np.exp(log_learners)).clip(min=1e-300))
