"""The step that FedEM takes at the end of a round: how long it is, whether it waits, whether noise shortens it. Sends nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from unpooled import tree
from unpooled.layers.compression import usual_omega
from unpooled.models.fedem.server import Estimate, Move, State
from unpooled.tree import Tree

MAX_HALVINGS = 12
MAX_STALE_CHANGE = 0.1  # a longer step waits: change of the parameters times the fraction of rows missing from it
LOW_NOISE = 0.1  # a step with a smaller fraction of noise is EM's own and is never shortened


def next_move(model: Any, family: Any, state: State, found: Estimate, noise: float) -> Move:
    """The step of this round: none while it waits for more clients, shortened where noise made it long."""
    gamma = _gamma(model, state.round)
    move = _moved(family, state, found.field, gamma, 0)
    change = family.change(state.params, move.params)
    if _may_wait(model, state) and found.missing * change > MAX_STALE_CHANGE:
        return Move(0.0, 0, state.stats, state.params)
    if state.round == 0 or not _is_guarded(model, family, move, noise + found.missing):
        return move
    while move.halvings < MAX_HALVINGS and family.change(state.params, move.params) > model.guard:
        gamma = gamma / 2
        move = _moved(family, state, found.field, gamma, move.halvings + 1)
    return move


def _moved(family: Any, state: State, field: Tree, gamma: float, halvings: int) -> Move:
    """The step of length `gamma` along the field."""
    stats = tree.map(lambda s, h: s + gamma * h, state.stats, field)
    return Move(gamma, halvings, stats, family.maximize(stats, state.params))


def _gamma(model: Any, round: int) -> float:
    """The length of the step in this round, before it is shortened."""
    if model.step_size != "auto":
        return model.step_size * (1 + round) ** -model.decay
    if model._batch() is None or model._reduces():
        return 1.0
    return (1 + round) ** -0.6


def _may_wait(model: Any, state: State) -> bool:
    """Without memories earlier answers are lost, and there is nothing to wait for."""
    return model.fraction < 1 and model.memory != "none" and state.collected.rounds < model.patience


def _is_guarded(model: Any, family: Any, move: Move, noise: float) -> bool:
    """Whether a long step is shortened: it is noisy, or noise has pushed it out of the feasible set."""
    if model.guard is None:
        return False
    return noise > LOW_NOISE or (noise > 0 and family.project(move.stats)[1])


def noise_of_step(model: Any, quantiser: Any, state: State, n_clients: int) -> float:
    """The expected fraction of noise in a step; 1 where messages are not changes of the statistics of all rows."""
    whole_messages = model.memory == "none" and model._is_random(quantiser)
    if model._batch_now(state) is not None or whole_messages:
        return 1.0
    return float(np.sqrt(usual_omega(quantiser, size(state)) / n_clients))


def size(state: State) -> int:
    """The number of numbers in the statistics."""
    return tree.flatten(state.stats).size
