"""The state of a FedConceptEM run at the server, and which models are removed from it. Nothing is sent."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array
from unpooled.learners import Trainer
from unpooled.tree import message

PRUNED_BY = 7 / 8  # of a run: by then extra models are removed, whether it has converged or not
UNUSED = 0.01  # of all rows: models that together have a smaller share are removed at once
SMALL = 0.05  # of all rows: a smaller share may be a few clients with odd inputs, for which a concept was found


@message("fedconceptem.RunningSums")
class RunningSums(NamedTuple):
    """Sums over about as many rows as all clients have; with cohorts, earlier rounds count less and less."""

    mass: Array  # (k,) rows of each model
    loss: Array  # (k,) log-likelihood lost without it
    loglik: float


@message("fedconceptem.Convergence")
class Convergence(NamedTuple):
    """Whether a run has converged, from changes of each client since it last took part: cohorts do not disturb it."""

    share_changes: Array  # (k,) running changes of the models' shares
    information_change: float  # running change of the mean information per row
    quiet_rounds: float  # rounds of all clients without a change above `settle`


@message("fedconceptem.State")
class State(NamedTuple):
    """The run at the server."""

    trainer: Trainer
    theta: Array  # (k, p)
    mean_theta: Array  # (k, p) mean over the last rounds; before them, theta
    table: Array  # (k, classes) rows by model and label
    table_variance: float  # variance of the noise in each cell of the table
    ids: Array  # (k,) index of each model among the first ones
    sums: RunningSums
    convergence: Convergence
    round: int
    models: int  # at the beginning

    @property
    def shares(self) -> Array:
        """(k,) share of all rows of each model."""
        return self.sums.mass / self.sums.mass.sum()


class ModelRemoval:
    """Removing models that are not needed, by the parameters of `FedConceptEM`."""

    n_concepts: int | str
    adaptive: bool
    patience: int
    max_iter: int

    @property
    def _finds_concepts(self) -> bool:
        """Whether the number of concepts is found."""
        return self.adaptive or isinstance(self.n_concepts, str)

    @property
    def _most(self) -> int | None:
        """The most concepts that may be found; None for any number."""
        return None if isinstance(self.n_concepts, str) else int(self.n_concepts)

    def _wanted(self, state: State) -> int:
        """The number of models to end with, at most."""
        return state.models if self._finds_concepts else int(self.n_concepts)

    def _max_models(self, state: State) -> int:
        """The largest number of models in a round: all for three quarters of the run, then fewer, and `n_concepts` in its
        last eighth. Strong noise on the label tables may keep a run from converging.
        """
        left = 8 * (PRUNED_BY - state.round / self.max_iter)
        wanted = self._wanted(state)
        return wanted + ceil((state.models - wanted) * min(max(left, 0.0), 1.0))

    def _pruned(self, state: State) -> State:
        """The run without models that are not needed, once it has converged or the last rounds begin."""
        converged = state.convergence.quiet_rounds >= self.patience - 1e-9
        if len(state.ids) == 1 or not (converged or len(state.ids) > self._max_models(state)):
            return state
        keep = self._models_to_keep(state.sums, state.shares)
        if keep.all():
            return state
        convergence = Convergence(state.convergence.share_changes[keep], state.convergence.information_change, 0.0)
        sums = state.sums._replace(mass=state.sums.mass[keep], loss=state.sums.loss[keep])
        kept = {name: getattr(state, name)[keep] for name in ("theta", "mean_theta", "table", "ids")}
        return state._replace(sums=sums, convergence=convergence, **kept)

    def _models_to_keep(self, sums: RunningSums, shares: Array) -> np.ndarray:
        """Which models stay, (k,) bool: where the number was found, all but `odd_models`; else all but unused ones and the least missed.

        With more models than wanted, the one with the smallest total loss is removed, not the one with the smallest
        loss per row: a few outliers may need their model more, per row, than a concept needs its own.
        """
        if self._finds_concepts:
            return ~odd_models(sums, shares)
        surplus = len(shares) - int(self.n_concepts)
        keep = ~unused_models(shares, surplus)
        if keep.all() and surplus > 0:
            keep[sums.loss.argmin()] = False
        return keep


def odd_models(sums: RunningSums, shares: np.ndarray) -> np.ndarray:
    """Which models (k,) have a SMALL share of the rows, and rows about which the other models tell something too; at most one.

    The other models contradict the labels of a concept of their own, so that its rows lose more than all their information.
    """
    loss_per_row = sums.loss / np.maximum(sums.mass, 1e-12)
    odd = (shares < SMALL) & (loss_per_row < sums.loglik / sums.mass.sum())
    return odd & (shares == np.where(odd, shares, np.inf).min())


def unused_models(shares: np.ndarray, most: int) -> np.ndarray:
    """Which models (k,) have, all together, less than a share UNUSED of the rows: at most the `most` smallest."""
    order = np.argsort(shares)[: max(most, 0)]
    out = np.zeros(len(shares), bool)
    out[order] = np.cumsum(shares[order]) < UNUSED
    return out
