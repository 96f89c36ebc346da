"""A round of FedBNR at the server, after the SUM of the last layer's statistics: one SUM more.

`exact_step` follows the gradient of the evidence of all rows (`fedbnr.gradient`); `local_step` averages or distils kernels that clients
have trained (`fedbnr.train`). Both judge the round by rows that are not fitted.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.federation import Federation
from unpooled.maths import bayes_linear, descent
from unpooled.maths.bayes_linear import Posterior, Stats
from unpooled.models.fedbnr.kernel_learning import Checked, Question, Task, Trained, check_held, gradient, train
from unpooled.models.fedbnr.last_map import with_theta
from unpooled.models.fedbnr.round_choice import SERVER_SHARE, Best, ServerRows, judge, server_rows
from unpooled.models.fedbnr.state import State
from unpooled.models.regression import Design
from unpooled.tree import Tree


def exact_step(model: Any, fed: Federation, state: State, stats: Stats) -> tuple[State, dict]:
    """One SUM of the evidence's gradient, then a step of the optimiser."""
    post = bayes_linear.posterior(stats)
    value = -float(post.log_evidence.sum() / stats.n)
    info = {"loglik": -value, "noise": float(np.sqrt(post.noise_variance.mean())), "sums": 2}
    opt = state.optimiser
    if isinstance(opt, descent.LBFGS) and not descent.wants_gradient(opt, value):
        return moved(state, descent.shorten(opt)), info | {"sums": 1}
    question = Question(state.design, post, bayes_linear.slopes(post))
    answer = tree.map(to_numpy, fed.sum(gradient.using(**model._asks()), question))
    down = -tree.flatten(answer.theta) / float(stats.n)
    state, seen = _judged(model, state, stats, post, answer.held)
    if isinstance(opt, descent.LBFGS):
        opt = descent.keep(opt, value, down)
    else:
        rate = model.learning_rate * descent.warm_cosine(opt.taken, model.max_iter)
        opt = descent.adam_step(opt, down, rate, decay=model.weight_decay)
    return moved(state, opt), info | seen


def moved(state: State, optimiser: Tree) -> State:
    """The state at the optimiser's new point."""
    theta = tree.unflatten(optimiser.at, state.design.kernel.theta)
    return state._replace(design=with_theta(state.design, theta), optimiser=optimiser)


def local_step(model: Any, fed: Federation, state: State, stats: Stats) -> tuple[State, dict]:
    """One SUM of kernels trained at the clients, averaged or distilled."""
    post = model._posterior(stats, state)
    info = {
        "loglik": float(post.log_evidence.sum() / stats.n),
        "noise": float(np.sqrt(post.noise_variance.mean())),
        "sums": 2,
    }
    rows, _ = rows_at_server(model, state.design)
    task = Task(state.design, post, np.asarray(state.log_noise), np.asarray(state.log_prior), rows.x)
    ask = train.using(**model._asks(), epochs=int(model.local_epochs), rate=float(model.local_rate))
    answer = tree.map(to_numpy, fed.sum(ask, task))
    state, seen = _judged(model, state, stats, post, answer.held)
    state = _distilled(model, state, answer) if model.kernel == "distill" else _averaged(state, answer)
    return state, info | seen


def _distilled(model: Any, state: State, answer: Trained) -> State:
    """Kernel, noise and prior distilled on the server's rows, towards the mean Gram matrix of the clients."""
    from unpooled.models.fedbnr.distillation import distil

    rows, _ = rows_at_server(model, state.design)
    leaves = {
        **state.design.kernel.theta,
        "log_noise": np.asarray(state.log_noise),
        "log_prior": np.asarray(state.log_prior),
    }
    found = distil(
        model._spec(), leaves, state.design.kernel.omega, (rows.x, rows.y), answer.gram / answer.clients,
        weight=model.distill_weight, steps=model.distill_steps, rate=model.distill_rate,
    )  # fmt: skip
    log_noise = float(found.pop("log_noise"))
    log_prior = float(found.pop("log_prior"))
    return state._replace(design=with_theta(state.design, found), log_noise=log_noise, log_prior=log_prior)


def rows_at_server(model: Any, design: Design) -> tuple[ServerRows, ServerRows]:
    """The server's rows to distil on, and those to choose the round with."""
    return server_rows(design, model.server_data, SERVER_SHARE if model.kernel == "distill" else 0.0)


def _judged(model: Any, state: State, stats: Stats, post: Posterior, held: Checked) -> tuple[State, dict]:
    """The state with its best round so far, and the errors of this round on held-out rows."""
    kernel = state.design.kernel
    if model.server_data is not None:
        x, y, group = rows_at_server(model, state.design)[1]
        held = check_held(post, model._spec(), kernel, x, y, np.ones(len(x)), group)
    now = Best(kernel.theta, stats, state.log_noise, state.log_prior, math.inf, state.round)
    best, seen = judge(state.best, now, held, state.design.scaling.y_scale)
    return state._replace(best=best), seen


def _averaged(state: State, answer: Trained) -> State:
    """The unweighted mean over clients, as published."""
    mean = tree.map(lambda a: a / answer.clients, answer)
    design = with_theta(state.design, mean.theta)
    return state._replace(design=design, log_noise=float(mean.log_noise), log_prior=float(mean.log_prior))


def overflowed(fed: Federation) -> bool:
    """Whether answers of the last round were refused because features overflowed."""
    last = [r.reason for r in fed.journal.refusals if r.round == fed.journal.round]
    return bool(last) and all("NaN" in reason or "infinite" in reason for reason in last)
