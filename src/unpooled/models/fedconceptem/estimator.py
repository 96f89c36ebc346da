"""FedConceptEM: one model a concept under label skew, feature skew and concept shift together; one SUM a round.

A row belongs to model k with r = softmax(log omega_ck + log P_k(y | x) - log P_k(y)): dividing by P_k(y) keeps clients
that merely see other labels together, and only those who label the same input differently apart. Costs k models and a
k x classes table down and up; omega_c never leaves its client.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from math import ceil
from typing import Any, NamedTuple

import numpy as np
from scipy.special import chdtri

from unpooled.arrays import Array, like, to_numpy
from unpooled.client import Client
from unpooled.errors import BadParameter, DataWarning
from unpooled.estimator import Info
from unpooled.federation import Federation
from unpooled.learners import Trainer, as_option
from unpooled.learners.estimator import LearnerEstimator
from unpooled.learners.mixing import average, log_shares, responsibilities
from unpooled.maths.mixture import fit_weights
from unpooled.models.fedconceptem.rounds import Down, Up, begin, concept_round, fine_tune, information, label_sd
from unpooled.report import concepts as diagnosis
from unpooled.tree import message

WEIGHTINGS = ("mass", "clients")
LEAST_LABEL = (
    0.1  # P_k(y) is at least this part of an equal share: a label that k has never met is rare, not impossible
)
LAST = 7 / 8  # of a run: by then extra models are gone, whether it has settled or not
MEMORY = 0.7  # of what has moved, by which a run is seen to have settled
TRUST = 2 / 3  # by how much rows count at the end of annealing: by then concepts have come apart, and the rest is slow
NOBODY = 0.01  # of all rows: models that answer for fewer, all together, may go at once
CHANCE = 1e-3  # a model's labels differ from those of all only where noise alone would make them so more seldom


@message("fedconceptem.Heard")
class Heard(NamedTuple):
    """Sums over about as many rows as all clients have: with few clients a round, those heard before count less and less."""

    mass: Array  # (k,) rows each model answers for
    loss: Array  # (k,) log-likelihood lost without it
    loglik: float


@message("fedconceptem.Calm")
class Calm(NamedTuple):
    """Whether a run has settled. What moved is told by each client against its own last time: who is asked in a round
    moves nothing.
    """

    shares: Array  # (k,) how far they have moved lately
    information: float  # the same, a row
    rounds: float  # of all clients, since anything moved or a model went


@message("fedconceptem.State")
class State(NamedTuple):
    trainer: dict
    theta: Array  # (k, p)
    mean: Array  # (k, p) of those of the last rounds; before them, the same
    table: Array  # (k, classes) rows by model and label
    blur: float  # the variance of the noise in each of its cells
    ids: Array  # (k,) which of the first models
    heard: Heard
    calm: Calm
    round: int

    @property
    def shares(self) -> Array:
        """(k,) of all rows."""
        return self.heard.mass / self.heard.mass.sum()


class FedConceptEM(LearnerEstimator):
    """Robust classification where sites may disagree on what a label means (Guo et al. 2023).

    n_concepts : how many models; with `adaptive`, how many to begin with.
    extra : models more than that in the first rounds, of which the least missed go once the run has settled, or else
    one after the other before the last eighth of it: with a few to spare no two concepts get stuck in one model.
    adaptive : remove models that are not needed, once the shares have settled: those below `delta` of all rows, and
    those whose own rows lose less than the part `spare` of their information (nats a row) without them.
    patience, settle : settled means that for `patience` rounds no share has moved by more than `settle`, and the mean
    information by no more than that part of itself. With `fraction` < 1 as many rounds count as one as ask all clients.
    weighting : models are averaged by the rows they answer for ("mass") or by rows ("clients", the authors' code).
    anneal : in this part of the run what rows say for a model counts only in part, at first not at all (deterministic
    annealing): 0.5 where clients take few steps a round, since models that know little divide clients by chance.
    average : the models handed out are the mean of those of this last part of the run, and not of its last round alone:
    0.05 where the rate does not fall to 0, since any single step may be a bad one.
    e_steps : passes of EM on a client's own weights in a round, which cost no exchange; the paper has one, and so have
    the rounds of `anneal`.
    full_steps : whether a model's local steps are as long with many models as with one; in the paper they shrink with
    its share of the client's rows.
    label_memory : how much of the label table of the rounds before stays in each round's; the paper has 0.
    adam : move responsibilities by Adam (appendix D.1).
    noise : standard deviation of the Gaussian noise each client adds to its label table; a dict gives each its own. What
    it may have made of the tables is not believed. It is drawn from the client's generator, whose seed the server
    knows: it hides the table from others, not from it.
    fine_tune : local epochs after the run that make each client's model its own (the -FT variant).
    fine_tune_lr : their rate; None: a tenth of `lr`, since what the run has learnt should be kept.
    The other parameters: see `LearnerEstimator`.
    """

    def __init__(
        self,
        n_concepts: int = 3,
        adaptive: bool = False,
        *,
        extra: int = 0,
        delta: float = 0.05,
        spare: float = 0.1,
        patience: int = 5,
        settle: float = 0.03,
        weighting: str = "mass",
        anneal: float = 0.0,
        average: float = 0.0,
        e_steps: int = 5,
        full_steps: bool = True,
        label_memory: float = 0.7,
        adam: bool = False,
        noise: float | Mapping[str, float] = 0.0,
        fine_tune: int = 0,
        fine_tune_lr: float | None = None,
        **parameters: Any,
    ):
        super().__init__(**parameters)
        self.n_concepts = n_concepts
        self.adaptive = adaptive
        self.extra = extra
        self.delta = delta
        self.spare = spare
        self.patience = patience
        self.settle = settle
        self.weighting = weighting
        self.anneal = anneal
        self.average = average
        self.e_steps = e_steps
        self.full_steps = full_steps
        self.label_memory = label_memory
        self.adam = adam
        self.noise = noise
        self.fine_tune = fine_tune
        self.fine_tune_lr = fine_tune_lr

    # ---- the run ----

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        trainer, k = self.trainer(fed), self._first
        alone = int(fed.sum(begin.using(models=k), None).one_class)
        if alone:
            text = f"{alone} of {len(fed.names)} clients hold one class only: see certainty_ before you trust their concept"
            warnings.warn(text, DataWarning, stacklevel=2)
        table = np.ones((k, len(trainer.labels)))
        heard, calm = Heard(np.ones(k), np.zeros(k), 0.0), Calm(np.zeros(k), 0.0, 0.0)
        theta = trainer.start(rng, k)
        return State(as_option(trainer), theta, theta, table, 0.0, np.arange(k), heard, calm, 0)

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        how = self.at_round(state.trainer, state.round + 1)
        plan = {name: getattr(self, name) for name in ("weighting", "e_steps", "full_steps", "adam", "noise")}
        plan |= {"models": self._first, "trust": self._trust(state.round)}
        asked = self.cohort(fed)
        total = asked.sum(concept_round.using(trainer=how, plan=plan), self._down(state))
        theta = average(total.theta, like(total.weight, total.theta), state.theta)
        mean = self._mean(state, theta)
        heard = self._heard(state, total)
        calm = self._calmer(state.calm, total) if plan["trust"] == 1 else state.calm
        table, blur = self._table(state, total.table, asked.names)
        state = State(state.trainer, theta, mean, table, blur, state.ids, heard, calm, state.round + 1)
        info = {"loglik": float(total.loglik / total.mass.sum()), "shares": self._shares_of_all(state)}
        if self.adaptive or len(state.ids) > self.n_concepts:
            state = self._without_spare(state)
        return state, info | {"n_concepts": len(state.ids)}

    def finish(self, fed: Federation, state: State) -> None:
        state = state._replace(theta=state.mean)
        if self.fine_tune:
            fed.tell(fine_tune.using(trainer=self._tuning(state.trainer)), self._down(state))
        self.describe(fed, state.trainer, state.theta, "omega", "fit", "votes", "theta", "norm")
        ids = to_numpy(state.ids)
        for own in self.clients_.values():
            own |= {key: own[key][ids] for key in ("omega", "fit", "votes") if key in own}
            own["omega"] = own["omega"] / own["omega"].sum()
        self.n_concepts_, self.kept_ = len(ids), ids  # which of the models that the run began with
        self.weights_ = to_numpy(state.shares)
        self.label_shares_ = label_shares(state.table, state.blur)
        self.concepts_ = {name: int(own["omega"].argmax()) for name, own in self.clients_.items()}
        self.certainty_ = {name: float(own["omega"].max()) for name, own in self.clients_.items()}

    # ---- the server's part of a round ----

    @property
    def _first(self) -> int:
        """How many models the run begins with."""
        return self.n_concepts + self.extra

    def _trust(self, round: int) -> float:
        """What rows say counts by this much."""
        last = self.anneal * self.max_iter
        return TRUST * round / last if round < last else 1.0

    def _mean(self, state: State, theta: Array) -> Array:
        """The mean model of the last rounds, those of `average`, with `theta` as one more."""
        rounds = state.round + 1 - round((1 - self.average) * self.max_iter)
        return theta if rounds <= 1 else state.mean + (theta - state.mean) / rounds

    def _room(self, round: int) -> int:
        """For how many models there is room: all in three quarters of the run, before its last eighth no more than were
        asked for. Strong noise on the label tables may keep a run from ever settling.
        """
        part = 8 * (LAST - round / self.max_iter)
        return self.n_concepts + ceil(self.extra * min(max(part, 0.0), 1.0))

    def _down(self, state: State) -> Down:
        return Down(state.theta, label_shares(state.table, state.blur), state.ids)

    def _table(self, state: State, found: Array, asked: list[str]) -> tuple[Array, float]:
        """Rows by label and model, and the noise in them; the rounds before count less and less: alone the last table
        makes rows jump to where their label was rare, and back.
        """
        slow = self.label_memory if state.round else 0.0
        drawn = sum(label_sd(self.noise, name) ** 2 for name in asked)
        return slow * state.table + (1 - slow) * found, slow**2 * state.blur + (1 - slow) ** 2 * drawn

    def _shares_of_all(self, state: State) -> list[float]:
        """Shares by the models that the run began with, 0 for those that are gone."""
        out = np.zeros(self._first)
        out[to_numpy(state.ids)] = to_numpy(state.shares)
        return out.tolist()

    def _heard(self, state: State, total: Up) -> Heard:
        slow = 1 - self.fraction if state.round else 0.0
        return Heard(*(slow * old + getattr(total, name) for name, old in state.heard._asdict().items()))

    def _calmer(self, calm: Calm, total: Up) -> Calm:
        """A cohort speaks for its part of the clients: the others have not moved meanwhile."""
        part, slow, rows = self.fraction, MEMORY**self.fraction, total.mass.sum()
        shares = slow * calm.shares + part * total.moved / rows
        information = slow * calm.information + part * float(total.gained / rows)
        rising = abs(information) > self.settle * max(float(total.loglik / rows), 0.0)
        still = not rising and np.abs(shares).max() <= self.settle
        return Calm(shares, information, calm.rounds + part if still else 0.0)

    def _without_spare(self, state: State) -> State:
        """Algorithm 2 once the run has settled: models that are hardly used go, and then the one that is least missed."""
        settled = state.calm.rounds >= self.patience - 1e-9
        if len(state.ids) == 1 or not (settled or len(state.ids) > self._room(state.round)):
            return state
        stay = self._needed(state.heard, state.shares)
        if stay.all():
            return state
        calm = Calm(state.calm.shares[stay], state.calm.information, 0.0)
        heard = state.heard._replace(mass=state.heard.mass[stay], loss=state.heard.loss[stay])
        kept = {name: getattr(state, name)[stay] for name in ("theta", "mean", "table", "ids")}
        return state._replace(heard=heard, calm=calm, **kept)

    def _needed(self, heard: Heard, shares: Array) -> np.ndarray:
        """Which models stay (k,). Where there are more than were asked for, the one that all rows together miss least
        goes, and not the one that its own rows do: a few odd rows may miss theirs more than a concept misses its own.
        """
        too_many = len(shares) - self.n_concepts
        stay = shares >= self.delta if self.adaptive else ~idle(shares, too_many)
        by_row = heard.loss / np.maximum(heard.mass, 1e-12)
        if stay.all() and too_many > 0:
            stay[heard.loss.argmin()] = False
        elif stay.all() and by_row.min() < self.spare * heard.loglik / heard.mass.sum():
            stay[by_row.argmin()] = False
        return stay

    # ---- with new rows, in this process ----

    def models(self, client: str | None) -> tuple[np.ndarray, np.ndarray]:
        theta, _ = super().models(client)
        own = self.private(client)
        return own.get("theta", theta), own.get("omega", self.weights_)

    def adapt(self, X: Any, y: Any = None) -> FedConceptEM:
        """The personal model of a client never seen: its weights by EM with P_k(y), the models as they are."""
        x = self._rows(X)
        if y is None:
            text = "a new client without labels cannot be told its concept: it gets the weights of all clients together"
            warnings.warn(text, DataWarning, stacklevel=2)
            return self.with_own({"omega": self.weights_})
        how, new = Trainer(**self.trainer_), Client("new", x, np.asarray(y))
        rows = how.rows(new)
        log_i = information(how, self.theta_, rows, self.label_shares_)
        own = {"omega": fit_weights(to_numpy(log_i).astype(np.float64), self.weights_)}
        if self.fine_tune:
            r, _ = responsibilities(log_i + log_shares(own["omega"], rows.x))
            own["theta"] = to_numpy(Trainer(**self._tuning(self.trainer_)).train(self.theta_, new, rows, r))
        return self.with_own(own)

    def _tuning(self, trainer: dict) -> dict:
        lr = self.lr / 10 if self.fine_tune_lr is None else self.fine_tune_lr
        return as_option(Trainer(**trainer), epochs=self.fine_tune, lr=lr, keep_momentum=False)

    # ---- diagnosis ----

    def report_figures(self) -> dict[str, str]:
        """What the report of a run shows of the concepts."""
        return diagnosis.figures(self)

    def explain(self, client: str) -> str:
        """A sentence: which concept, how sure, what would change it."""
        return diagnosis.sentence(client, self.private(client))

    # ---- refusals ----

    def check(self, fed: Federation) -> None:
        super().check(fed)
        k = self.n_concepts
        if self.weighting not in WEIGHTINGS:
            raise BadParameter(f"weighting={self.weighting!r} is not known: use one of {', '.join(WEIGHTINGS)}")
        if not 1 <= k <= len(fed.names):
            raise BadParameter(
                f"n_concepts={k!r} should be between 1 and the number of clients, {len(fed.names)}: no client can be of two"
            )
        if self.adaptive and not 0 <= self.delta < 1 / self._first:
            raise BadParameter(
                f"delta={self.delta!r} could remove all {self._first} models: choose it below {1 / self._first:.3g}"
            )
        for name in ("anneal", "average"):
            if not 0 <= getattr(self, name) <= 1:
                raise BadParameter(f"{name}={getattr(self, name)!r} should be a part of the run, between 0 and 1")
        sds = self.noise.values() if isinstance(self.noise, Mapping) else [self.noise]
        if any(sd < 0 for sd in sds):
            raise BadParameter(f"noise={self.noise!r} holds a negative standard deviation: give 0 or more")


def idle(shares: np.ndarray, most: int) -> np.ndarray:
    """Which models (k,) hardly any row uses, not even all of them together: at most the `most` smallest."""
    order = np.argsort(shares)[: max(most, 0)]
    out = np.zeros(len(shares), bool)
    out[order] = np.cumsum(shares[order]) < NOBODY
    return out


def label_shares(table: Array, blur: float = 0.0) -> np.ndarray:
    """P_k(y) (k, classes) from rows by model and label, with noise of variance `blur` or none; each row sums to one."""
    counts = to_numpy(table).astype(np.float64)
    counts = beyond_noise(counts, blur) if blur else counts
    total = np.maximum(counts.sum(-1, keepdims=True), 1e-12)
    p = np.maximum(counts / total, LEAST_LABEL / counts.shape[-1])
    return p / p.sum(-1, keepdims=True)


def beyond_noise(counts: np.ndarray, blur: float) -> np.ndarray:
    """Counts (k, classes) by what they tell: a model has the labels of all where its distance from them may be noise of
    variance `blur` in each cell, and is else drawn to them as James and Stein do.

    What is common to all models says nothing about which of them a row belongs to; noise that differs between two
    models of one concept would make clients swap them in every round.
    """
    of_all = np.maximum(counts.sum(0), 0.0)
    usual = counts.sum(-1, keepdims=True) * of_all / max(of_all.sum(), 1e-12)
    length = ((counts - usual) ** 2).sum(-1, keepdims=True)
    noise = counts.shape[-1] * blur
    told = length > blur * chdtri(counts.shape[-1], CHANCE)
    return usual + np.where(told, 1 - noise / np.maximum(length, noise), 0.0) * (counts - usual)
