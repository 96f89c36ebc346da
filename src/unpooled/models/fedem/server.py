"""FedEM at the server: what it keeps from round to round, and how answers become an estimate of the statistics of all rows.

Nothing is sent from here. Everything is in standardised units.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled import tree
from unpooled.models.fedem.client import Contribution
from unpooled.tree import Tree, message


@message("fedem.Collected")
class Collected(NamedTuple):
    """The answers since the parameters last moved."""

    version: int  # how often the parameters have moved
    rounds: int  # since the last move
    known_rows: float  # rows of the clients that had answered before the move
    updated_rows: float  # rows of those among them that have answered since
    memory: Tree  # sum of the memories at the move, with clients that joined since
    change: Tree  # sum of the changes that arrived since


@message("fedem.Progress")
class Progress(NamedTuple):
    """The last log-likelihood of all rows, and the parameters at which it was highest."""

    loglik: float  # per row
    rows: float
    round: int
    converged: bool
    best: float  # per row
    best_params: Tree
    returns: int  # how often the fit has gone back to them


@message("fedem.State")
class State(NamedTuple):
    """What the server carries from round to round."""

    params: Tree
    stats: Tree  # S
    memory: Tree  # sum over clients of rows x V
    rows: float  # of all clients that have answered
    shift: np.ndarray  # (d,)
    unit: np.ndarray  # (d,)
    round: int
    collected: Collected
    progress: Progress


class Estimate(NamedTuple):
    """What the server knows after the answers of a round."""

    field: Tree  # mean statistics of all rows at the current parameters, minus S
    memory: Tree
    rows: float
    collected: Collected

    @property
    def missing(self) -> float:
        """The fraction of rows whose clients have not answered about the current parameters."""
        return (self.collected.known_rows - self.collected.updated_rows) / self.rows


class Move(NamedTuple):
    """A step of the statistics and the parameters."""

    step_size: float  # 0: wait for more clients
    halvings: int
    stats: Tree
    params: Tree


def begin(params: Tree, stats: Tree, shift: np.ndarray, unit: np.ndarray) -> State:
    """The state before the first round."""
    zeros = tree.map(np.zeros_like, stats)
    collected = Collected(0, 0, 0.0, 0.0, zeros, zeros)
    return State(
        params, stats, zeros, 0.0, shift, unit, 0, collected, Progress(-np.inf, 0.0, 0, False, -np.inf, params, 0)
    )


def estimate(state: State, total: Contribution, alpha: float, reference: Tree) -> Estimate:
    """The mean field from all answers since the last move.

    Clients that have not answered are assumed to have changed as those that have. `reference` is what memories are relative to:
    S for memories of statistics, zeros for memories of the field.
    """
    past = state.collected
    rows = state.rows + float(total.first_rows)
    updated_rows = past.updated_rows + float(total.updated_rows)
    scale = past.known_rows / updated_rows if updated_rows else 1.0
    change = tree.map(np.add, past.change, total.change)
    means = tree.map(lambda v, c, f: (v + scale * c + f) / rows, past.memory, change, total.first)
    field = tree.map(np.subtract, means, reference)
    joined = float(alpha > 0)  # without memories newcomers leave nothing behind
    memory = tree.map(lambda v, c, f: v + alpha * c + joined * f, state.memory, total.change, total.first)
    memory_at_move = tree.map(lambda v, f: v + joined * f, past.memory, total.first)
    collected = Collected(past.version, past.rounds + 1, past.known_rows, updated_rows, memory_at_move, change)
    return Estimate(field, memory, rows, collected)


def after_move(found: Estimate) -> Collected:
    """Nothing has been collected about the new parameters yet."""
    zeros = tree.map(np.zeros_like, found.memory)
    return Collected(found.collected.version + 1, 0, found.rows, 0.0, found.memory, zeros)


def returned(state: State, params: Tree, stats: Tree) -> State:
    """The state at other parameters and their statistics; memories stay, and all clients are asked anew."""
    zeros = tree.map(np.zeros_like, state.memory)
    collected = Collected(state.collected.version + 1, 0, state.rows, 0.0, state.memory, zeros)
    return state._replace(params=params, stats=stats, collected=collected)


def squared_norm(t: Tree) -> float:
    """The sum of squares of all numbers in a tree."""
    return float(np.sum(tree.flatten(t) ** 2))
