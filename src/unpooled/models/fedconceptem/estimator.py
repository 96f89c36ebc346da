"""FedConceptEM: one model per concept under label skew, feature skew and concept shift together; one SUM per round.

A row belongs to model k with r = softmax(log omega_ck + log P_k(y | x) - log P_k(y)). Dividing by P_k(y) keeps clients
together that merely have other labels; only clients that label the same input differently are separated. A round sends k
models and a k x classes table in either direction; omega_c never leaves its client.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from unpooled.arrays import like, to_numpy
from unpooled.errors import BadParameter, DataWarning
from unpooled.estimator import Info
from unpooled.federation import Federation
from unpooled.learners import as_option
from unpooled.learners.mixing import average
from unpooled.models.fedconceptem.discovery import discover
from unpooled.models.fedconceptem.label_tables import label_shares
from unpooled.models.fedconceptem.prediction import ConceptPredictions
from unpooled.models.fedconceptem.removal import Convergence, RunningSums, State
from unpooled.models.fedconceptem.rounds import concept_round, fine_tune, initialise
from unpooled.models.fedconceptem.server_steps import ServerSteps

WEIGHTINGS = ("mass", "clients")
POSSIBLE = 0.2  # weight of a model from which on it may be a client's concept
CLEAR = 0.1  # difference of two models' mean information, relative to the larger, that tells which one a client has


class FedConceptEM(ServerSteps, ConceptPredictions):
    """Classification where clients may disagree on what a label means: one model per concept.

    Every client has weights over the models; clients that label alike end up with the same one.

    Parameters
    ----------
    n_concepts : int or "auto", default="auto"
        Number of models. "auto" finds the number, and first weights of each client, by
        linear probes before the first round (see `fedconceptem.discovery`); where nearly every client seems to have a concept of its
        own it is 1, and the clients' choices (`personalize`) do the rest.
    adaptive : bool, default=False
        Whether a given `n_concepts` is the most models there may be, and their number is found as with "auto".
    extra : int, default=0
        Additional models at the beginning. Those missed least are removed once the run has converged, at the latest one
        after the other before its last eighth. A few extra models keep two concepts from sharing one model.
    patience : int, default=5
        Rounds without change after which a run counts as converged; with `fraction` < 1, rounds of all clients.
    settle : float, default=0.03
        What counts as a change: of a model's share in absolute terms, of the mean information in relative terms.
    weighting : {"mass", "clients"}, default="mass"
        Whether models are averaged by their own rows at a client, or by all rows of a client (the authors' code).
    anneal : float, default=0.0
        Fraction of the run with deterministic annealing: log-likelihoods are multiplied by a factor that rises from 0. Use
        0.5 where clients take few steps per round, since untrained models divide clients at random.
    average : float, default=0.0
        Fraction of the run, at its end, over which the final models are averaged. Use 0.05 where the learning rate does not
        decay to 0.
    e_steps : int, default=5
        EM steps on a client's weights per round, which cost no communication; the paper has one. While annealing there is
        one.
    full_steps : bool, default=True
        Whether a model's SGD steps are as long with many models as with one; in the paper they shrink with the model's
        share of the client's rows.
    label_memory : float, default=0.7
        Weight of the previous label table in each round's; the paper has 0.
    adam : bool, default=False
        Whether responsibilities are moved by Adam (appendix D.1 of the paper).
    noise : float or mapping of str to float, default=0.0
        Standard deviation of the Gaussian noise that clients add to their label tables, for all or per client. Differences
        between tables that may be noise are ignored. A node draws it from a secret of its own; in a simulation
        it comes from the seed.
    fine_tune : int, default=0
        Local epochs after the run that make each client's models its own (the -FT variant).
    fine_tune_lr : float or None, default=None
        Their learning rate; None is lr / 10.
    learner : str or callable, default="linear"
        "linear", "mlp", "cnn", "resnet18", "mobilenet_v2", or a function (inputs, classes) -> torch module.
    hidden : sequence of int, default=(64,)
        Widths of the hidden layers of an mlp.
    norm : {"group", "average", "local"}, default="group"
        What happens to BatchNorm in a torch module.
    local_epochs, batch_size : int or "auto", default="auto"
        Epochs per round at a client, and rows per minibatch; "auto" is 1 and 128 with a given `lr`, else 2 and 32.
    lr : float or "auto", default="auto"
        Learning rate of SGD; "auto" finds it in the rounds themselves.
    momentum, weight_decay : float, default=0.9 and 0.0
        Of SGD.
    schedule : {"constant", "cosine", "sqrt"}, default="constant"
        The learning rate over rounds.
    keep_momentum : bool, default=False
        Whether a client keeps its velocity from round to round.
    max_iter : int, default=100
        Largest number of rounds. Networks for groups of clients, see `group_theta_`, take half as many again as the run took.
    tol : float or "auto", default="auto"
        With lr="auto", the relative gain of the held-out log-likelihood that counts as one ("auto": 1e-3). With a given rate, stop
        when the log-likelihood per row changes by less; "auto" runs all rounds.
    classes : sequence or None, default=None
        All classes; None takes those of the clients.
    fraction : float, default=1.0
        Share of the clients that take part in a round.
    random_state : int or None, default=None
        Seed of all random draws.
    device : str or None, default=None
        A torch device; None is NumPy where possible.
    C : float, default=1.0
        Inverse strength of the ridge penalty of linear learners with lr="auto".
    personalize : {"auto", "none"}, default="auto"
        Whether each client chooses, by its own held-out rows, between the shared models, its own versions of them and local models.

    Attributes
    ----------
    n_concepts_ : int
        Number of models at the end.
    concepts_ : dict of str to int
        The concept of each client of this process.
    certainty_ : dict of str to float
        The weight of that concept.
    weights_ : ndarray of shape (n_concepts_,)
        Share of all rows of each model.
    label_shares_ : ndarray of shape (n_concepts_, classes)
        P_k(y).
    kept_ : ndarray of shape (n_concepts_,)
        Indices of the remaining models among those that the run began with.
    clients_ : dict of str to dict
        Local state of each client of this process: weights `omega`, mean information `fit`, rows `votes` per model.
    group_theta_ : ndarray of shape (groups, p)
        With networks, where clients' inputs differ: a network for each group of clients whose inputs look alike.
    classes_, theta_, trainer_, personal_, n_features_in_, history_
        See `unpooled.learners.estimator.LearnerEstimator`.

    References
    ----------
    Guo, Tang and Lin (2023), Find Your Optimal Assignments On-the-fly: A Holistic Framework for Clustered Federated
    Learning; also as FedRC: Tackling Diverse Distribution Shifts Challenge in Federated Learning by Robust Clustering.

    Examples
    --------
    Four clients; two of them use the labels the other way round.

    >>> import numpy as np
    >>> import unpooled as up
    >>> rng = np.random.default_rng(0)
    >>> def rows(swapped):
    ...     x = rng.normal(size=(80, 2))
    ...     return x, (x[:, 0] > 0).astype(int) ^ swapped
    >>> data = {name: rows(swapped) for name, swapped in zip("abcd", (0, 1, 0, 1))}
    >>> model = up.FedConceptEM(2, lr=0.5, batch_size=20, max_iter=20, random_state=0).fit(data)
    >>> model.concepts_["a"] == model.concepts_["c"] != model.concepts_["b"] == model.concepts_["d"]
    True
    >>> model.predict([[2.0, 0.0]], client="a"), model.predict([[2.0, 0.0]], client="b")
    (array([1]), array([0]))
    """

    def __init__(
        self,
        n_concepts: int | str = "auto",
        adaptive: bool = False,
        *,
        extra: int = 0,
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
        """Find the concepts where their number is not given, and warn of clients with one class."""
        trainer = self.trainer(fed)
        finds = self._finds_concepts
        ids = discover(fed, as_option(trainer), rng, self._most) if finds else list(range(self._given_models()))
        k = len(ids)
        ask = initialise.using(models=k, ids=ids if finds and k > 1 else None)
        single = int(fed.sum(ask, None).clients)
        if single:
            text = f"{single} of {len(fed.names)} clients have one class only: see certainty_ before you trust their concept"
            warnings.warn(text, DataWarning, stacklevel=2)
        table = np.ones((k, len(trainer.labels)))
        sums = RunningSums(np.ones(k), np.zeros(k), 0.0)
        convergence = Convergence(np.zeros(k), 0.0, 0.0)
        theta = np.repeat(to_numpy(trainer.start(rng, 1)), k, 0) if finds else trainer.start(rng, k)
        return State(trainer, theta, theta, table, 0.0, np.arange(k), sums, convergence, 0, k)

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        """One round: responsibilities and local epochs at the clients, then averages."""
        trainer = self.at_round(state.trainer, state.round + 1)
        options = self._options(state)
        cohort = self.cohort(fed)
        question = concept_round.using(trainer=trainer, options=options._asdict())
        total = cohort.sum(question, self._down(state))
        theta = average(total.theta, like(total.weight, total.theta), state.theta)
        tempered = options.inverse_temperature < 1
        table, variance = self._next_table(state, total.table, cohort.names)
        convergence = state.convergence if tempered else self._next_convergence(state.convergence, total)
        state = state._replace(
            theta=theta,
            mean_theta=self._next_mean(state, theta),
            table=table,
            table_variance=variance,
            sums=self._next_sums(state, total),
            convergence=convergence,
            round=state.round + 1,
        )
        info = {"loglik": float(total.loglik / total.mass.sum()), "shares": self._shares_of_all(state)}
        state = self._pruned(state)
        return state, info | {"n_concepts": len(state.ids)}

    def finish(self, fed: Federation, state: State) -> None:
        """Fine-tune where asked, and set the fitted attributes."""
        state = state._replace(theta=state.mean_theta)
        if self.fine_tune:
            fed.tell(fine_tune.using(trainer=as_option(self._tuning(state.trainer))), self._down(state))
        ids = to_numpy(state.ids)
        theta = state.theta if self.fine_tune else self.polish(fed, state.theta, state.trainer, "omega", ids.tolist())
        self.describe(fed, state.trainer, theta, "omega", "fit", "votes", "found", "theta", "norm")
        self._describe_concepts(state, ids)
        self.describe_parts(fed, "omega", ids.tolist())
        names: dict[str, Any] = {"weights": "omega", "ids": ids.tolist(), "theta": "theta"}
        if not self.fine_tune:
            self.fit_groups(fed, self.weights_, **names)
        self.personalise(fed, self.weights_, **names)

    def _describe_concepts(self, state: State, ids: np.ndarray) -> None:
        """Set the attributes of the concepts; clients' weights are of the models that are left."""
        for own in self.clients_.values():
            own |= {key: own[key][ids] for key in ("omega", "fit", "votes") if key in own}
            own["omega"] = own["omega"] / own["omega"].sum()
        self.n_concepts_ = len(ids)
        self.kept_ = ids
        self.concepts_ = {}
        self.certainty_ = {}
        self.weights_ = to_numpy(state.shares)
        self.label_shares_ = label_shares(state.table, state.table_variance)
        at = {int(i): place for place, i in enumerate(ids)}
        for name, own in self.clients_.items():
            found = at.get(int(own.pop("found", -1)))
            self.concepts_[name] = concept_of(own["omega"], own.get("fit"), found)
            self.certainty_[name] = float(own["omega"][self.concepts_[name]])

    # ---- bad parameters ----

    def check(self, fed: Federation) -> None:
        """Refuse parameters that do not exist or do not go together."""
        super().check(fed)
        if self.weighting not in WEIGHTINGS:
            raise BadParameter(f"weighting={self.weighting!r} is not known: use one of {', '.join(WEIGHTINGS)}")
        self._check_number(len(fed.names))
        for name in ("anneal", "average"):
            if not 0 <= getattr(self, name) <= 1:
                raise BadParameter(f"{name}={getattr(self, name)!r} should be a fraction of the run, between 0 and 1")
        sds = self.noise.values() if isinstance(self.noise, Mapping) else [self.noise]
        if any(sd < 0 for sd in sds):
            raise BadParameter(f"noise={self.noise!r} has a negative standard deviation: give 0 or more")

    def _check_number(self, clients: int) -> None:
        """Refuse a number of concepts that is not possible."""
        k = self.n_concepts
        if self._finds_concepts and self.extra:
            given = "n_concepts='auto'" if isinstance(k, str) else "adaptive=True"
            raise BadParameter(
                f"extra={self.extra!r} is for a number that is not searched for: leave it at 0 with {given}"
            )
        if isinstance(k, str):
            if k != "auto":
                raise BadParameter(f"n_concepts={k!r} must be a whole number or 'auto'")
            return
        if k < 1 or (k > clients and not self.adaptive):
            raise BadParameter(
                f"n_concepts={k!r} should be between 1 and the number of clients, {clients}: each client has one concept"
            )


def concept_of(omega: np.ndarray, fit: np.ndarray | None, found: int | None = None) -> int:
    """A client's concept: the model of the largest weight (k,) or, where several weights are POSSIBLE, the one that fits all rows best.

    The concept that was found before the rounds, if any, stays where no model fits clearly better. Weights are shares of rows: where
    concepts agree on most labels of a client, they hardly tell which one it has, and nor do models that are not trained to the end.
    """
    possible = omega >= POSSIBLE
    if found is not None:
        possible[found] = True
    if fit is None or possible.sum() < 2:
        return int(omega.argmax())
    best = int(np.where(possible, fit, -np.inf).argmax())
    return best if found is None or fit[best] - fit[found] > CLEAR * abs(fit[best]) else found
