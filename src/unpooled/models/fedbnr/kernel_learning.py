"""The questions that learn a kernel: one SUM of gradients (`gradient`), or one of locally trained kernels (`train`).

`gradient` sends as many numbers as theta has; `train` as many, or the Gram matrix of the server's rows. Both include the errors on the
held-out rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float
from unpooled.client import SUM, Client, client
from unpooled.maths import bayes_linear
from unpooled.maths.bayes_linear import Posterior, Slopes
from unpooled.maths.feature_maps import Kernel, Leaves, features
from unpooled.models.regression import Design, group_of, standard_rows
from unpooled.tree import message


@message("fedbnr.Checked")
class Checked(NamedTuple):
    """Errors on held-out rows."""

    n: Float[Array, "", ">=0 rows"]
    squares: Float[Array, "o", ">=0"]
    absolute: Float[Array, "o", ">=0"]  # absolute errors of standardised targets, summed: they choose the round
    nlpd: Float[Array, "o"]  # minus the log density, summed
    spread: Float[Array, "o", ">=0"]  # squared targets, summed: the error of predicting the mean


@message("fedbnr.Question")
class Question(NamedTuple):
    """Down: what `gradient` needs."""

    design: Design
    posterior: Posterior
    slopes: Slopes


@message("fedbnr.Gradient")
class Gradient(NamedTuple):
    """Up: a part of the gradient, and errors on held-out rows."""

    theta: Leaves
    held: Checked


@message("fedbnr.Task")
class Task(NamedTuple):
    """Down: what `train` needs."""

    design: Design
    posterior: Posterior
    log_noise: Float[Array, ""]
    log_prior: Float[Array, ""]
    rows: Float[Array, "s d"]  # the server's rows to distil on; none to average


@message("fedbnr.Trained")
class Trained(NamedTuple):
    """Up: locally trained kernels, summed over clients."""

    clients: Float[Array, "", ">=0"]
    theta: Leaves
    log_noise: Float[Array, ""]
    log_prior: Float[Array, ""]
    gram: Float[Array, "s s"]  # of the server's rows under the client's kernel
    held: Checked


# ---- questions ----


@client("fedbnr.gradient", SUM, adds=True, batched=False)
def gradient(question: Question, client: Client, *, spec: dict, share: float, seed: int) -> Gradient:
    """This client's part of the gradient of the log evidence of all clients, by theta."""
    from unpooled.maths.torch_training import pullback

    x, y, w, held = standard_rows(question.design.scaling, client, share, seed)
    fit = w > 0
    group = group_of(question.design, client)
    post = question.posterior
    fit_group = None if group is None else group[fit]

    def slope(z: Array) -> Array:
        """The gradient by the features z of the rows that are fitted."""
        z, targets = bayes_linear.apart(post, z, y[fit], fit_group)
        return bayes_linear.cotangent(question.slopes, z, targets, w[fit])

    theta = pullback(spec, question.design.kernel, x[fit], slope)
    return Gradient(theta, check_held(post, spec, question.design.kernel, x, y, held, group))


@client("fedbnr.train", SUM)
def train(task: Task, client: Client, *, spec: dict, share: float, seed: int, epochs: int, rate: float) -> Trained:
    """Local Adam steps on the client's own evidence, starting at the global kernel."""
    from unpooled.maths.torch_training import descend

    kernel = task.design.kernel
    x, y, w, held = standard_rows(task.design.scaling, client, share, seed)
    leaves = {**kernel.theta, "log_noise": task.log_noise, "log_prior": task.log_prior}
    mine = descend(spec, leaves, kernel.omega, (x, y, w), loss="evidence", epochs=epochs, rate=rate)
    log_noise = mine.pop("log_noise")
    log_prior = mine.pop("log_prior")
    checked = check_held(task.posterior, spec, kernel, x, y, held)
    clients = (w.sum(-1) > 0).astype(np.float64)  # a client whose rows are all held out does not count
    rows = np.array(np.broadcast_to(task.rows, (*w.shape[:-1], *task.rows.shape)))  # torch needs a writable array
    z = features(spec, Kernel(mine, kernel.omega), rows)
    gram = z @ z.swapaxes(-1, -2)
    distil = task.rows.shape[0] > 0  # then only Gram matrices are sent, not kernels
    theta = {k: _scaled(v, 0 * clients if distil else clients) for k, v in mine.items()}
    log_noise = _scaled(log_noise, clients)
    log_prior = _scaled(log_prior, clients)
    return Trained(clients, theta, log_noise, log_prior, _scaled(gram, clients), checked)


def _scaled(values: Array, counts: Array) -> Array:
    """Values (..., *) times counts (...)."""
    return values * counts.reshape(counts.shape + (1,) * (values.ndim - counts.ndim))


def check_held(
    post: Posterior, spec: dict, kernel: Kernel, x: Array, y: Array, held: Array, group: Array | None = None
) -> Checked:
    """Errors on the rows of weight `held` (..., n); clients may be stacked."""
    if held.ndim == 1:  # most rows have no weight
        some = held > 0
        group = None if group is None else group[some]
        x, y, held = x[some], y[some], held[some]
    mean, variance = bayes_linear.predict(post, features(spec, kernel, x), group)
    squares = (y - mean) ** 2
    nlpd = 0.5 * (np.log(2 * np.pi * variance) + squares / variance)
    each = squares, np.abs(y - mean), nlpd, y**2
    return Checked(held.sum(-1), *((held[..., None] * v).sum(-2) for v in each))
