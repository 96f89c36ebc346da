"""The server's part of a round of FedConceptEM: what goes down, and label tables, running sums and convergence. Nothing is sent here."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from unpooled.arrays import Array, to_numpy
from unpooled.models.fedconceptem.label_tables import label_shares
from unpooled.models.fedconceptem.removal import Convergence, ModelRemoval, RunningSums, State
from unpooled.models.fedconceptem.rounds import Down, RoundOptions, Up, noise_sd

CHANGE_DECAY = 0.7  # per round, of the running changes by which convergence is judged
LAST_TEMPERED = 2 / 3  # inverse temperature at the end of annealing; concepts are separate by then, and it jumps to 1


class ServerSteps(ModelRemoval):
    """The server's part of a round, by the parameters of `FedConceptEM`."""

    extra: int
    fraction: float
    settle: float
    weighting: str
    anneal: float
    average: float
    e_steps: int
    full_steps: bool
    label_memory: float
    adam: bool
    noise: float | Mapping[str, float]

    def _given_models(self) -> int:
        """The number of models to begin with, where `n_concepts` is a number."""
        return int(self.n_concepts) + self.extra

    def _options(self, state: State) -> RoundOptions:
        """Options of a round's question."""
        return RoundOptions(
            state.models,
            self._inverse_temperature(state.round),
            self.weighting,
            self.e_steps,
            self.full_steps,
            self.adam,
            self.noise,
        )

    def _inverse_temperature(self, round: int) -> float:
        """Factor of the log-likelihoods in the E-step: rises from 0 to LAST_TEMPERED while annealing, then 1."""
        last = self.anneal * self.max_iter
        return LAST_TEMPERED * round / last if round < last else 1.0

    def _down(self, state: State) -> Down:
        """What goes down: models, label shares and the models' ids."""
        return Down(state.theta, label_shares(state.table, state.table_variance), state.ids)

    def _next_mean(self, state: State, theta: Array) -> Array:
        """The mean of the models of the last rounds (`average`), `theta` included."""
        rounds = state.round + 1 - round((1 - self.average) * self.max_iter)
        return theta if rounds <= 1 else state.mean_theta + (theta - state.mean_theta) / rounds

    def _next_table(self, state: State, table: Array, names: list[str]) -> tuple[Array, float]:
        """The label table smoothed over rounds, and the variance of its noise.

        A table of the last round alone makes rows jump to the model where their label was rare, and back.
        """
        memory = self.label_memory if state.round else 0.0
        drawn = sum(noise_sd(self.noise, name) ** 2 for name in names)
        variance = memory**2 * state.table_variance + (1 - memory) ** 2 * drawn
        return memory * state.table + (1 - memory) * table, variance

    def _shares_of_all(self, state: State) -> list[float]:
        """Shares of the models that the run began with, 0 for removed ones."""
        out = np.zeros(state.models)
        out[to_numpy(state.ids)] = to_numpy(state.shares)
        return out.tolist()

    def _next_sums(self, state: State, total: Up) -> RunningSums:
        """Sums that remember clients who were absent."""
        memory = 1 - self.fraction if state.round else 0.0
        return RunningSums(*(memory * old + getattr(total, name) for name, old in state.sums._asdict().items()))

    def _next_convergence(self, before: Convergence, total: Up) -> Convergence:
        """The running changes; a cohort is a fraction of the clients, and the others have not changed meanwhile."""
        rows = total.mass.sum()
        decay = CHANGE_DECAY**self.fraction
        shares = decay * before.share_changes + self.fraction * total.mass_change / rows
        information = decay * before.information_change + self.fraction * float(total.loglik_change / rows)
        rising = abs(information) > self.settle * max(float(total.loglik / rows), 0.0)
        quiet = not rising and np.abs(shares).max() <= self.settle
        return Convergence(shares, information, before.quiet_rounds + self.fraction if quiet else 0.0)
