"""What a client does in a round of FedConceptEM: who answers for which row, and local epochs weighted by it.

Up goes one SUM: k models, a k x classes table of labels, and a few numbers a model. The weights omega of the concepts,
how each row is shared out and what the diagnosis needs stay with the client.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, Int, like, namespace, to_numpy
from unpooled.client import SUM, TELL, Client, client
from unpooled.learners import IDLE, Rows, Trainer
from unpooled.learners.mixing import log_shares, mass, responsibilities, shares
from unpooled.tree import message

NEVER = -1e30  # the log-probability of a model that is left out
REFITS = 4  # passes of EM on a client's weights when a model is left out on trial
ADAM = (1.0, 0.9, 0.99, 1e-8)  # step, memory of the slope, memory of its square, epsilon


@message("fedconceptem.Down")
class Down(NamedTuple):
    theta: Float[Array, "k p"]
    labels: Float[Array, "k classes"]  # P_k(y), of the round before
    ids: Int[Array, "k"]  # which of the models that the run began with


@message("fedconceptem.Up")
class Up(NamedTuple):
    theta: Float[Array, "k p"]  # sum of weight x model
    weight: Float[Array, "k", ">=0 rows"]  # rows of k, or of the client: by what models are averaged
    mass: Float[Array, "k", ">=0 rows"]  # rows each model answers for
    table: Float[Array, "k classes"]  # those rows by label; negative where the client's noise is
    loss: Float[Array, "k"]  # log-likelihood that the client's rows would lose without the model
    loglik: Float[Array, ""]  # sum of log sum_k omega_k P_k(y | x) / P_k(y)
    moved: Float[Array, "k"]  # mass, less what it was when the client last took part
    gained: Float[Array, ""]  # loglik, the same


@message("fedconceptem.Begun")
class Begun(NamedTuple):
    one_class: Float[Array, "", ">=0"]  # 1 where all labels are the same


@client("fedconceptem.begin", SUM, batched=False)
def begin(down: None, client: Client, *, models: int) -> Begun:
    """The client takes equal weights; says whether it has one class only."""
    client.state["omega"] = np.full(models, 1 / models)
    return Begun(np.asarray(float(len(np.unique(to_numpy(client.y))) == 1)))


@client("fedconceptem.concept_round", SUM)
def concept_round(down: Down, client: Client, *, trainer: dict, plan: dict) -> Up:
    """The concepts' models after local epochs, weighted by the rows they answer for; labels by model."""
    how = Trainer(**trainer)
    rows = how.rows(client)
    theta = how.with_own(down.theta, client, rows.x)
    ids = to_numpy(down.ids)
    log_i = information(how, theta, rows, down.labels)  # (..., n, k)
    before = own_omega(client, ids)
    r, norm = e_steps(log_i, before, rows.w, plan["e_steps"], plan["trust"])
    if plan["adam"]:
        r = moved_by_adam(client, r, ids, plan["models"])
    n = mass(r, rows.w)
    keep(client, ids, plan["models"], shares(n), log_i, rows)
    idle = IDLE if plan["weighting"] == "mass" else 0.0
    theta = how.keep_own(how.train(theta, client, rows, strength(r, n, plan), idle=idle), client, down.theta)
    weight = n if plan["weighting"] == "mass" else 0 * n + rows.w.sum(-1)[..., None]
    table = label_table(r, rows, len(how.labels))
    small = (weight, n, table, lost_without(log_i, rows.w), (rows.w * norm).sum(-1))
    weight_, n_, table_, loss, loglik = (to_numpy(a).astype(np.float64) for a in small)
    moved = n_ - before * n_.sum(-1, keepdims=True)
    gained = loglik - to_numpy(client.state.get("loglik", 0 * loglik))
    client.state["loglik"] = loglik
    table_ = table_ + label_noise(client, table_, plan["noise"])
    return Up(weight[..., None] * theta, weight_, n_, table_, loss, loglik, moved, gained)


@client("fedconceptem.fine_tune", TELL)
def fine_tune(down: Down, client: Client, *, trainer: dict) -> None:
    """The client trains the models on its own rows and keeps them."""
    how = Trainer(**trainer)
    rows = how.rows(client)
    theta = how.with_own(down.theta, client, rows.x)
    log_omega = log_shares(own_omega(client, to_numpy(down.ids)), rows.x)
    r, _ = responsibilities(information(how, theta, rows, down.labels) + log_omega[..., None, :])
    client.state["theta"] = to_numpy(how.train(theta, client, rows, r))


# ---- the E-step ----


def information(how: Trainer, theta: Array, rows: Rows, labels: Array) -> Array:
    """log P_k(y | x) / P_k(y): (..., n, k)."""
    log_labels = namespace(rows.x).log(like(labels, rows.x))  # (k, classes)
    return how.log_likelihood(theta, rows) - log_labels.T[rows.y]


def e_steps(log_i: Array, omega: Array, w: Array, times: int, trust: float = 1.0) -> tuple[Array, Array]:
    """(responsibilities (..., n, k), log-likelihoods (..., n)) after some passes of EM on the client's weights; one, in
    which what rows say counts only in part, as long as the models cannot be trusted in full.
    """
    if trust < 1:
        log_omega = log_shares(omega, log_i)[..., None, :]
        return responsibilities(trust * log_i + log_omega)[0], responsibilities(log_i + log_omega)[1]
    r, norm = responsibilities(log_i + log_shares(omega, log_i)[..., None, :])
    for _ in range(times - 1):
        omega = shares(mass(r, w))
        r, norm = responsibilities(log_i + log_shares(omega, log_i)[..., None, :])
    return r, norm


def strength(r: Array, n: Array, plan: dict) -> Array:
    """By what each row counts in training: r, or r over the model's share at the client, where that is above an equal
    one: the step is then as long with many models as with one.
    """
    if not plan["full_steps"]:
        return r
    return r / shares(n).clip(min=1 / n.shape[-1])[..., None, :]


def own_omega(client: Client, ids: np.ndarray) -> np.ndarray:
    """The client's weights (..., k) of the models that are left."""
    omega = client.state.get("omega")
    if omega is None:
        return np.full((*client.w.shape[:-1], len(ids)), 1 / len(ids))
    return shares(to_numpy(omega)[..., ids])


def label_table(r: Array, rows: Rows, classes: int) -> Array:
    """(..., k, classes): the rows each model answers for, by label."""
    xp = namespace(r)
    codes = like(np.arange(classes), rows.y)
    hot = like(rows.y[..., None] == codes, r)  # (..., n, classes)
    return xp.swapaxes(r * rows.w[..., None], -1, -2) @ hot


def label_noise(client: Client, table: np.ndarray, noise: float | Mapping[str, float]) -> np.ndarray | float:
    """Gaussian noise of the standard deviation that the client has chosen, from its own generator."""
    if not noise:
        return 0.0
    names = client.members or (client.name,)
    drawn = [label_sd(noise, n) * rng.normal(size=table.shape[-2:]) for n, rng in zip(names, client.rngs)]
    return np.stack(drawn).reshape(table.shape)


def label_sd(noise: float | Mapping[str, float], name: str) -> float:
    """The standard deviation that a client has chosen."""
    return noise.get(name, 0.0) if isinstance(noise, Mapping) else noise


def lost_without(log_i: Array, w: Array) -> Array:
    """(..., k): by how much the client's log-likelihood falls if model k goes and its weights are fitted anew."""
    k = log_i.shape[-1]
    if k == 1:
        return 0 * log_i.sum(-2)
    xp = namespace(log_i)
    gone = like(np.concatenate([np.zeros((1, k)), NEVER * np.eye(k)]), log_i)  # (1 + k, k): nobody, or one, left out
    joint = log_i[..., None, :, :] + gone[:, None, :]  # (..., 1 + k, n, k)
    w = w[..., None, :]
    omega = shares(like(xp.exp(gone), log_i))[:, None, :]
    for _ in range(REFITS):
        r, norm = responsibilities(joint + xp.log(omega.clip(min=1e-30)))
        omega = shares(mass(r, w))[..., None, :]
    total = (w * norm).sum(-1)  # (..., 1 + k)
    return total[..., :1] - total[..., 1:]


def moved_by_adam(client: Client, r: Array, ids: np.ndarray, models: int) -> Array:
    """Responsibilities as Adam's step from the last ones towards `r` (appendix D.1); its memory stays."""
    step, beta1, beta2, eps = ADAM
    found = to_numpy(r).astype(np.float64)
    shape = (*found.shape[:-1], models)
    before, slope, square = (_rows_of(client.state.get(key), shape)[..., ids] for key in ("r", "slope", "square"))
    before = shares(before)
    g = before - found
    slope = (1 - beta1) * g + beta1 * slope
    square = (1 - beta2) * g**2 + beta2 * square
    new = before - step * (slope / (1 - beta1)) / (np.sqrt(square / (1 - beta2)) + eps)
    new = shares(new.clip(min=0))
    for key, value in (("r", new), ("slope", slope), ("square", square)):
        client.state[key] = _among(value, ids, models)
    return like(new, r)


def _rows_of(kept: Any, shape: tuple[int, ...]) -> np.ndarray:
    """What the client kept of its rows, cut or filled up to the padding of today."""
    out = np.zeros(shape)
    if kept is not None:
        n = min(kept.shape[-2], shape[-2])
        out[..., :n, :] = to_numpy(kept)[..., :n, :]
    return out


def _among(values: np.ndarray, ids: np.ndarray, models: int) -> np.ndarray:
    """(..., k) in the places of the models that the run began with."""
    out = np.zeros((*values.shape[:-1], models))
    out[..., ids] = values
    return out


def keep(client: Client, ids: np.ndarray, models: int, omega: Array, log_i: Array, rows: Rows) -> None:
    """What stays: the weights; for the diagnosis the mean information and how many rows speak for each model."""
    xp = namespace(log_i)
    total = rows.w.sum(-1)[..., None]
    first = like(log_i == xp.amax(log_i, axis=-1, keepdims=True), log_i)
    kept = {"omega": omega, "fit": mass(log_i, rows.w) / total, "votes": mass(first, rows.w)}
    for key, value in kept.items():
        client.state[key] = _among(to_numpy(value).astype(np.float64), ids, models)
