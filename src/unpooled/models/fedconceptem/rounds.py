"""The client side of FedConceptEM: an E-step over the concepts, then local epochs weighted by responsibilities.

One SUM per round: k models, a k x classes table of labels, and a few numbers per model. The client's weights omega of the
concepts, its responsibilities and its diagnosis stay in its state.
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

EXCLUDED = -1e30  # log-probability of a model that is left out on trial
REFITS = 4  # EM steps on a client's weights when a model is left out on trial
ADAM = (1.0, 0.9, 0.99, 1e-8)  # step size, decay of the first and of the second moment, epsilon


@message("fedconceptem.Down")
class Down(NamedTuple):
    """The models of a round."""

    theta: Float[Array, "k p"]
    labels: Float[Array, "k classes"]  # P_k(y), from the previous round
    ids: Int[Array, "k"]  # index of each model among those that the run began with


@message("fedconceptem.Up")
class Up(NamedTuple):
    """A client's answer."""

    theta: Float[Array, "k p"]  # sum of weight x model
    weight: Float[Array, "k", ">=0 rows"]  # weight of each model in the average: its rows, or all rows of the client
    mass: Float[Array, "k", ">=0 rows"]  # sum of responsibilities
    table: Float[Array, "k classes"]  # the same by label, plus the client's noise
    loss: Float[Array, "k"]  # by how much the client's log-likelihood falls without the model
    loglik: Float[Array, ""]  # sum of log sum_k omega_k P_k(y | x) / P_k(y)
    mass_change: Float[Array, "k"]  # mass minus its value when the client last took part
    loglik_change: Float[Array, ""]  # loglik minus its value when the client last took part


@message("fedconceptem.SingleClass")
class SingleClass(NamedTuple):
    """How many clients have one class only."""

    clients: Float[Array, "", ">=0"]  # 1 if all labels of the client are equal


class RoundOptions(NamedTuple):
    """What a round needs beside the models and the trainer; it travels as plain JSON."""

    models: int  # number of models that the run began with
    inverse_temperature: float  # factor of the log-likelihoods in the E-step: below 1 while annealing
    weighting: str
    e_steps: int
    full_steps: bool
    adam: bool
    noise: float | Mapping[str, float]


# ---- questions ----


@client("fedconceptem.initialise", SUM, batched=False)
def initialise(down: None, client: Client, *, models: int, ids: list | None = None) -> SingleClass:
    """Set equal weights of the models, or take those at the places `ids` of weights found before; count a single class."""
    if ids is None:
        client.state["omega"] = np.full(models, 1 / models)
        client.state["found"] = np.asarray(-1)
    else:
        client.state["omega"] = shares(to_numpy(client.state["omega"])[ids])
        client.state["found"] = np.asarray(client.state["omega"].argmax())
    client.state.pop("own_intercepts", None)
    return SingleClass(np.asarray(float(len(np.unique(to_numpy(client.y))) == 1)))


@client("fedconceptem.concept_round", SUM)
def concept_round(down: Down, client: Client, *, trainer: dict, options: dict) -> Up:
    """E-step, local epochs of every model weighted by its responsibilities, and the labels of each model."""
    learner = Trainer(**trainer)
    plan = RoundOptions(**options)
    rows = learner.rows(client)
    theta = learner.with_own(down.theta, client, rows.x)
    ids = to_numpy(down.ids)
    log_i = information(learner, theta, rows, down.labels)  # (..., n, k)
    omega_before = own_omega(client, ids)
    r, norm = e_steps(log_i, omega_before, rows.w, plan.e_steps, plan.inverse_temperature)
    if plan.adam:
        r = adam_step(client, r, ids, plan.models)
    n = mass(r, rows.w)
    store_weights(client, ids, plan.models, shares(n), log_i, rows)
    idle = IDLE if plan.weighting == "mass" else 0.0
    trained = learner.train(theta, client, rows, row_weights(r, n, plan.full_steps), idle=idle)
    theta = learner.keep_own(trained, client, down.theta)
    weight = n if plan.weighting == "mass" else 0 * n + rows.w.sum(-1)[..., None]
    table = label_table(r, rows, len(learner.labels))
    loglik = learner.reported(norm, client, rows)
    loss = loss_without_each(log_i, learner.judging_weights(client, rows))
    statistics = _float64(weight, n, table, loss, loglik)
    return _answer(client, weight[..., None] * theta, statistics, omega_before, plan.noise)


def _answer(client: Client, theta: Array, statistics: list[np.ndarray], omega_before: np.ndarray, noise: Any) -> Up:
    """The statistics of a round, their changes since the client last took part, and noise on the label table."""
    weight, n, table, loss, loglik = statistics
    mass_change = n - omega_before * n.sum(-1, keepdims=True)
    loglik_change = loglik - to_numpy(client.state.get("loglik", 0 * loglik))
    client.state["loglik"] = loglik
    table = table + label_noise(client, table, noise)
    return Up(theta, weight, n, table, loss, loglik, mass_change, loglik_change)


def _float64(*arrays: Array) -> list[np.ndarray]:
    """Arrays in 64 bit floats."""
    return [to_numpy(a).astype(np.float64) for a in arrays]


@client("fedconceptem.fine_tune", TELL)
def fine_tune(down: Down, client: Client, *, trainer: dict) -> None:
    """Train the models on the client's own rows and keep them in its state."""
    learner = Trainer(**trainer)
    rows = learner.rows(client)
    theta = learner.with_own(down.theta, client, rows.x)
    log_omega = log_shares(own_omega(client, to_numpy(down.ids)), rows.x)
    r, _ = responsibilities(information(learner, theta, rows, down.labels) + log_omega[..., None, :])
    client.state["theta"] = to_numpy(learner.train(theta, client, rows, r))


# ---- the E-step ----


def information(learner: Trainer, theta: Array, rows: Rows, labels: Array) -> Array:
    """log P_k(y | x) - log P_k(y): (..., n, k)."""
    log_labels = namespace(rows.x).log(like(labels, rows.x))  # (k, classes)
    return learner.log_likelihood(theta, rows) - log_labels.T[rows.y]


def e_steps(log_i: Array, omega: Array, w: Array, steps: int, inverse_temperature: float = 1.0) -> tuple[Array, Array]:
    """(responsibilities (..., n, k), log-likelihoods (..., n)) after EM steps on the client's weights.

    With an inverse temperature below 1 there is one step, whose responsibilities are those of the tempered likelihood; the
    log-likelihoods are not tempered.
    """
    if inverse_temperature < 1:
        log_omega = log_shares(omega, log_i)[..., None, :]
        r, _ = responsibilities(inverse_temperature * log_i + log_omega)
        return r, responsibilities(log_i + log_omega)[1]
    r, norm = responsibilities(log_i + log_shares(omega, log_i)[..., None, :])
    for _ in range(steps - 1):
        omega = shares(mass(r, w))
        r, norm = responsibilities(log_i + log_shares(omega, log_i)[..., None, :])
    return r, norm


def row_weights(r: Array, n: Array, full_steps: bool) -> Array:
    """The weight of each row in training: r, or with `full_steps` r divided by the model's share of the client's rows.

    The share is bounded below by 1 / k. SGD steps are then as long with many models as with one.
    """
    if not full_steps:
        return r
    return r / shares(n).clip(min=1 / n.shape[-1])[..., None, :]


def own_omega(client: Client, ids: np.ndarray) -> np.ndarray:
    """The client's weights (..., k) of the remaining models."""
    omega = client.state.get("omega")
    if omega is None:
        return np.full((*client.w.shape[:-1], len(ids)), 1 / len(ids))
    return shares(to_numpy(omega)[..., ids])


def label_table(r: Array, rows: Rows, classes: int) -> Array:
    """(..., k, classes): weighted rows of each model by label."""
    xp = namespace(r)
    codes = like(np.arange(classes), rows.y)
    one_hot = like(rows.y[..., None] == codes, r)  # (..., n, classes)
    return xp.swapaxes(r * rows.w[..., None], -1, -2) @ one_hot


def label_noise(client: Client, table: np.ndarray, noise: float | Mapping[str, float]) -> np.ndarray | float:
    """Gaussian noise of the client's standard deviation, drawn at a node from its own secret."""
    if not noise:
        return 0.0
    names = client.members or (client.name,)
    drawn = [noise_sd(noise, n) * rng.normal(size=table.shape[-2:]) for n, rng in zip(names, client.secret_rngs)]
    return np.stack(drawn).reshape(table.shape)


def noise_sd(noise: float | Mapping[str, float], name: str) -> float:
    """The standard deviation of a client's noise."""
    return noise.get(name, 0.0) if isinstance(noise, Mapping) else noise


def loss_without_each(log_i: Array, w: Array) -> Array:
    """(..., k): the fall of the client's log-likelihood if model k is left out and the weights are fitted again."""
    k = log_i.shape[-1]
    if k == 1:
        return 0 * log_i.sum(-2)
    xp = namespace(log_i)
    excluded = like(np.concatenate([np.zeros((1, k)), EXCLUDED * np.eye(k)]), log_i)  # (1 + k, k): none, or one
    joint = log_i[..., None, :, :] + excluded[:, None, :]  # (..., 1 + k, n, k)
    w = w[..., None, :]
    omega = shares(like(xp.exp(excluded), log_i))[:, None, :]
    for _ in range(REFITS):
        r, norm = responsibilities(joint + xp.log(omega.clip(min=1e-30)))
        omega = shares(mass(r, w))[..., None, :]
    total = (w * norm).sum(-1)  # (..., 1 + k)
    return total[..., :1] - total[..., 1:]


# ---- responsibilities moved by Adam ----


def adam_step(client: Client, r: Array, ids: np.ndarray, models: int) -> Array:
    """Responsibilities after an Adam step from the previous ones towards `r` (appendix D.1); moments stay in the state."""
    step, beta1, beta2, eps = ADAM
    target = to_numpy(r).astype(np.float64)
    shape = (*target.shape[:-1], models)

    def stored(key: str) -> np.ndarray:
        """An array of the state, for the remaining models."""
        return _fit_rows(client.state.get(key), shape)[..., ids]

    before = shares(stored("r"))
    gradient = before - target
    first = (1 - beta1) * gradient + beta1 * stored("slope")
    second = (1 - beta2) * gradient**2 + beta2 * stored("square")
    new = before - step * (first / (1 - beta1)) / (np.sqrt(second / (1 - beta2)) + eps)
    new = shares(new.clip(min=0))
    client.state["r"] = _among_all_models(new, ids, models)
    client.state["slope"] = _among_all_models(first, ids, models)
    client.state["square"] = _among_all_models(second, ids, models)
    return like(new, r)


def _fit_rows(stored: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Stored values per row, cut or filled with zeros to the current number of rows with padding."""
    out = np.zeros(shape)
    if stored is not None:
        n = min(stored.shape[-2], shape[-2])
        out[..., :n, :] = to_numpy(stored)[..., :n, :]
    return out


# ---- what stays at the client ----


def _among_all_models(values: np.ndarray, ids: np.ndarray, models: int) -> np.ndarray:
    """(..., k) at the positions `ids` of (..., models), zeros elsewhere."""
    out = np.zeros((*values.shape[:-1], models))
    out[..., ids] = values
    return out


def store_weights(client: Client, ids: np.ndarray, models: int, omega: Array, log_i: Array, rows: Rows) -> None:
    """Keep the weights and, for the diagnosis, each model's mean information and the rows for which it is the best."""
    xp = namespace(log_i)
    total = rows.w.sum(-1)[..., None]
    is_best = like(log_i == xp.amax(log_i, axis=-1, keepdims=True), log_i)
    kept = {"omega": omega, "fit": mass(log_i, rows.w) / total, "votes": mass(is_best, rows.w)}
    for key, value in kept.items():
        client.state[key] = _among_all_models(to_numpy(value).astype(np.float64), ids, models)
