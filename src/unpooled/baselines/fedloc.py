"""FedLoc: a Gaussian process per client with common hyper-parameters, found by proximal ADMM; predictions are combined.

One SUM per round of hyper-parameters (d + 2 numbers per client). After the last round one GATHER of the clients'
Gaussian processes, whose inducing points are rows of the clients: **this baseline sends rows**. There is no global
Gaussian process: where clients hold different parts of the space, the combined experts fall back to the prior.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from unpooled import tree
from unpooled.arrays import Array, Float, to_numpy
from unpooled.baselines.regression import predict_by
from unpooled.client import GATHER, SUM, Client, client
from unpooled.data.tabled import DESIGN
from unpooled.errors import BadData
from unpooled.estimator import Estimator, rows_of
from unpooled.federation import Federation
from unpooled.maths.feature_maps import Leaves
from unpooled.models.regression import Scaling, check_targets, standard, standard_rows, standardise
from unpooled.parameters import above, at_least, not_below_zero, one_of
from unpooled.tree import message

SPEC = {"map": "scaled"}
PREDICTIONS = ("gpoe", "rbcm")


@message("fedloc.Consensus")
class Consensus(NamedTuple):
    """Down: how rows are standardised, and the common hyper-parameters."""

    scaling: Scaling
    leaves: Leaves  # log_scale (d,), log_signal, log_noise


@message("fedloc.Vote")
class Vote(NamedTuple):
    """Up: the client's hyper-parameters and its loss."""

    clients: Float[Array, "", ">=0"]
    leaves: Leaves  # theta + dual / rho
    loss: Float[Array, ""]


@message("fedloc.Expert")
class Expert(NamedTuple):
    """A client's sparse Gaussian process and its inducing points."""

    inducing: Float[Array, "m d"]  # standardised and scaled
    inner: Float[Array, "m m"]
    pull: Float[Array, "m"]


@message("fedloc.State")
class State(NamedTuple):
    """The state between rounds."""

    consensus: Consensus


@client("fedloc.admm_step", SUM, batched=False)
def admm_step(down: Consensus, client: Client, *, inducing: int, rho: float, lipschitz: float) -> Vote:
    """One step of ADMM on the client's hyper-parameters.

    theta = z - (gradient at z + dual) / (rho + L), then dual += rho (theta - z); the dual stays at the client.
    """
    x, y, w, _ = standard_rows(down.scaling, client, 0.0, 0)
    slope, loss = minus_evidence_slope(down.leaves, x, y, w, inducing)
    dual: Any = client.state.get("dual", tree.map(np.zeros_like, slope))
    move = {k: -(slope[k] + dual[k]) / (rho + lipschitz) for k in slope}  # theta - z
    dual = {k: dual[k] + rho * move[k] for k in slope}
    client.state["dual"] = dual
    vote = {k: down.leaves[k] + move[k] + dual[k] / rho for k in slope}  # theta + dual / rho
    return Vote(np.ones(()), vote, np.asarray(loss))


@client("fedloc.expert", GATHER, batched=False, in_process=True)
def expert(consensus: Consensus, client: Client, *, inducing: int) -> Expert:
    """The Gaussian process of this client's rows under the common hyper-parameters."""
    from unpooled.maths.torch_training import sparse_fit

    x, y, w, _ = standard_rows(consensus.scaling, client, 0.0, 0)
    points = np.exp(-consensus.leaves["log_scale"]) * spread_rows(x, inducing)
    known = sparse_fit(SPEC, {**consensus.leaves, "inducing": points}, (x, y, w))
    return Expert(points, to_numpy(known.inner), to_numpy(known.pull)[:, 0])


def spread_rows(x: np.ndarray, count: int) -> np.ndarray:
    """At most `count` rows of x (n, d), evenly spaced in their order."""
    return x[np.unique(np.linspace(0, len(x) - 1, min(count, len(x))).astype(int))]


def minus_evidence_slope(leaves: Leaves, x: Array, y: Array, w: Array, inducing: int) -> tuple[Leaves, float]:
    """(gradient by the hyper-parameters, value) of - log p(y).

    Inducing points are rows, so they are scaled by the length scales too.
    """
    import torch

    from unpooled.maths import fitc
    from unpooled.maths.torch_training import arrays, tensors

    at = tensors(leaves, learn=True)
    scale = torch.exp(-at["log_scale"])
    points = torch.as_tensor(spread_rows(x, inducing)) * scale
    rows, y, w = (torch.as_tensor(a) for a in (x, y, w))
    loss = -fitc.fit(rows * scale, y, w, points, at["log_signal"], at["log_noise"]).evidence
    slope = torch.autograd.grad(loss, list(at.values()))
    return arrays(dict(zip(at, slope))), float(loss.detach())


def first_leaves(d: int) -> Leaves:
    """The hyper-parameters before the first round, for rows of d features."""
    return {"log_scale": np.full(d, 0.5 * np.log(d)), "log_signal": np.zeros(()), "log_noise": np.asarray(-1.0)}


class FedLoc(RegressorMixin, Estimator):
    """Gaussian processes of the clients with common hyper-parameters, combined as experts.

    Parameters
    ----------
    rho : float, default=1000.0
        Penalty of proximal ADMM; larger values take smaller steps.
    lipschitz : float or None, default=None
        Proximal constant of ADMM; None: 10 rho.
    n_inducing : int, default=50
        Rows of a client that its FITC approximation uses as inducing points; with all of them it is exact.
    combine : {"gpoe", "rbcm"}, default="gpoe"
        How predictions are combined: generalised product of experts, or robust Bayesian committee machine.
    max_iter : int, default=100
        Largest number of rounds.
    tol : float, default=1e-4
        Largest change of a hyper-parameter below which rounds stop.
    missing : {"impute", "refuse"}, default="impute"
        Whether missing values are replaced by the mean over all clients, with a warning, or refused.
    random_state : int or None, default=None
        Unused; the fit is not random.

    Attributes
    ----------
    consensus_ : Consensus
        Scaling and common hyper-parameters.
    experts_ : dict of str to Expert
        The Gaussian process of each client.
    n_sums_ : int
        SUMs asked in all.

    References
    ----------
    Yin et al., FedLoc: federated learning framework for data-driven cooperative localization and location data
    processing, 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled.baselines import FedLoc
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(60, 2))
    >>> y = x[:, 0] + 0.1 * rng.normal(size=60)
    >>> model = FedLoc(n_inducing=10, max_iter=2).fit(x, y, by=np.arange(60) % 3)
    >>> model.predict(x).shape
    (60,)
    """

    encoding = DESIGN

    def __init__(
        self,
        rho: float = 1000.0,
        *,
        lipschitz: float | None = None,
        n_inducing: int = 50,
        combine: str = "gpoe",
        max_iter: int = 100,
        tol: float = 1e-4,
        missing: str = "impute",
        random_state: Any = None,
    ):
        self.rho = rho
        self.lipschitz = lipschitz
        self.n_inducing = n_inducing
        self.combine = combine
        self.max_iter = max_iter
        self.tol = tol
        self.missing = missing
        self.random_state = random_state

    def check(self, fed: Federation) -> None:
        """Refuse unknown options and parameters out of range."""
        check_targets(fed)
        one_of("combine", self.combine, PREDICTIONS)
        one_of("missing", self.missing, ("impute", "refuse"))
        above("rho", self.rho, 0)
        if self.lipschitz is not None:
            above("lipschitz", self.lipschitz, 0)
        at_least("n_inducing", self.n_inducing, 1)
        at_least("max_iter", self.max_iter, 0)
        not_below_zero("tol", self.tol)

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        """Standardise the rows; the hyper-parameters before the first round."""
        scaling, _ = standardise(fed, 0.0, 0, self.missing)
        d = len(scaling.x_mean)
        o = len(scaling.y_mean)
        if o != 1:
            raise BadData(f"y has {o} outputs but FedLoc predicts one: fit one model for each")
        return State(Consensus(scaling, first_leaves(d)))

    def step(self, fed: Federation, state: State) -> tuple[State, dict]:
        """One SUM of the clients' hyper-parameters, averaged."""
        lipschitz = 10 * self.rho if self.lipschitz is None else self.lipschitz
        ask = admm_step.using(inducing=int(self.n_inducing), rho=float(self.rho), lipschitz=float(lipschitz))
        votes = tree.map(to_numpy, fed.sum(ask, state.consensus))
        leaves = tree.map(lambda a: a / votes.clients, votes.leaves)
        moved = np.abs(tree.flatten(leaves) - tree.flatten(state.consensus.leaves)).max()
        info = {"sums": 1, "loss": float(votes.loss), "moved": float(moved)}
        return State(state.consensus._replace(leaves=leaves)), info

    def done(self, state: State, history: list[dict]) -> bool:
        """Whether no hyper-parameter moved by `tol` or more."""
        return history[-1]["moved"] < self.tol

    def finish(self, fed: Federation, state: State) -> None:
        """One GATHER of the clients' Gaussian processes."""
        self.consensus_ = state.consensus
        self.n_features_in_ = len(state.consensus.scaling.x_mean)
        self.n_sums_ = 2 + len(self.history_)
        found = fed.gather(expert.using(inducing=int(self.n_inducing)), state.consensus)
        self.experts_ = {name: tree.map(to_numpy, e) for name, e in found.items()}

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict by the clients' Gaussian processes, combined.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows to predict.
        return_std : bool, default=False
            Whether to return the standard deviation of y too.

        Returns
        -------
        mean : array of shape (n_samples,)
            Predictions.
        std : array of shape (n_samples,)
            Only with `return_std=True`.
        """
        check_is_fitted(self, "experts_")
        X = rows_of(self, X, dtype=np.float64, ensure_all_finite="allow-nan")
        scaling = self.consensus_.scaling
        leaves = self.consensus_.leaves
        mean, latent = self._each(standard(scaling, X))  # (clients, q) each
        # reduction of entropy from the prior, per expert and row
        gained = 0.5 * (leaves["log_signal"] - np.log(latent))
        weight = gained if self.combine == "rbcm" else np.full_like(mean, 1 / len(mean))
        precision = (weight / latent).sum(0)
        if self.combine == "rbcm":
            precision = np.maximum(precision + (1 - weight.sum(0)) * np.exp(-leaves["log_signal"]), 1e-12)
        mean = scaling.y_mean[0] + scaling.y_scale[0] * (weight * mean / latent).sum(0) / precision
        std = scaling.y_scale[0] * np.sqrt(1 / precision + np.exp(leaves["log_noise"]))
        return (mean, std) if return_std else mean

    def _each(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(mean, variance of the function) (clients, q) by each expert at standardised rows x (q, d)."""
        leaves = self.consensus_.leaves
        found = [
            predict_by(SPEC, {**leaves, "inducing": e.inducing}, e.inner, e.pull, x) for e in self.experts_.values()
        ]
        latent = np.stack([variance for _, variance in found]) - np.exp(leaves["log_noise"])
        return np.stack([mean for mean, _ in found]), np.maximum(latent, 1e-12)
