"""What a fitted FedGMM does with new rows, in this process: probabilities, densities, novelty, models of new clients.

Two SUMs at the end of a run: moments and a histogram of the training rows' leave-one-out log densities, from which the
novelty thresholds are read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binom

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, TELL, Client, client
from unpooled.errors import BadData, BadParameter
from unpooled.federation import Federation
from unpooled.learners import Trainer, exact, own_nets, personal
from unpooled.learners.estimator import LearnerEstimator
from unpooled.learners.labels import codes
from unpooled.learners.mixing import log_shares, responsibilities
from unpooled.learners.rows import held_out
from unpooled.maths import gaussian
from unpooled.maths.mixture import Params, fit_weights
from unpooled.models.fedgmm.embedding import Embedding, embed
from unpooled.models.fedgmm.leave_one_out import log_density_without
from unpooled.models.fedgmm.rounds import Joint, imputed
from unpooled.models.fedgmm.weighted_e_step import log_densities
from unpooled.tree import message

WATCH_RATE = 0.05  # false alarms of `watch`; up to twice as many count as the threshold's own error
MIN_HELD_OUT = 20  # held-out rows of all clients, below which leave-one-out densities are used
BINS = 4000  # of the histogram of log densities
RATES = np.array([0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2])  # false-alarm rates with a stored threshold


@message("fedgmm.Density")
class Density(NamedTuple):
    """The density of the inputs over all clients, and the range of the histogram."""

    gaussians: Params
    shares: Float[Array, "k"]
    rows: Float[Array, ""]  # training rows of all clients
    embedding: Embedding
    range: Float[Array, "2"]  # smallest and largest log density


@message("fedgmm.DensityMoments")
class DensityMoments(NamedTuple):
    n: Float[Array, "", ">=0 rows"]
    total: Float[Array, ""]
    squares: Float[Array, "", ">=0"]


@message("fedgmm.DensityCounts")
class DensityCounts(NamedTuple):
    n: Float[Array, "bins", ">=0 rows"]


@message("fedgmm.Shift")
class Shift(NamedTuple):
    levels: Float[Array, "rates"]  # novelty thresholds of held-out rows minus those of leave-one-out densities


def bin_edges(range: Array) -> np.ndarray:
    """(BINS + 1,) equally spaced log densities."""
    return np.linspace(float(range[0]), float(range[1]), BINS + 1)


def _log_density(down: Density, client: Client, shape: str, key: str = "") -> np.ndarray:
    """Leave-one-out log P(x) of a client's rows, (n,): under the shares of all clients, or with a key its own weights."""
    z, w = embed(to_numpy(client.x), down.embedding).astype(np.float64), to_numpy(client.w)
    weights = to_numpy(client.state[key]).sum(-1) if key else down.shares
    rows = float(w.sum()) if key else float(down.rows)
    counts = down.shares * float(down.rows)
    return log_density_without(down.gaussians, z, w, weights, shape, counts, rows)


def _held_out_log_density(down: Density, client: Client, shape: str) -> np.ndarray:
    """log P(x) of a client's rows under the shares of all clients, as of rows that the Gaussians have not seen."""
    z = embed(to_numpy(client.x), down.embedding).astype(np.float64)
    log_n = log_densities(down.gaussians, z, shape)
    return responsibilities(log_n + log_shares(down.shares, log_n))[1]


@client("fedgmm.density_moments", SUM, batched=False)
def density_moments(down: Density, client: Client, *, shape: str, kept_out: bool = False) -> DensityMoments:
    """Sum and sum of squares of the rows' log densities; with `kept_out` those of rows that the Gaussians have not seen."""
    s, w = _log_density(down, client, shape), to_numpy(client.w)
    if kept_out:
        s, w = _held_out_log_density(down, client, shape), w * held_out(client)
    return DensityMoments(w.sum(), (w * s).sum(), (w * s**2).sum())


@client("fedgmm.density_counts", SUM, batched=False)
def density_counts(down: Density, client: Client, *, shape: str, key: str) -> DensityCounts:
    """A histogram of the rows' log densities; the client keeps the thresholds of its own density in its state."""
    s, w = _log_density(down, client, shape), to_numpy(client.w)
    if key in client.state:
        client.state["novelty"] = -np.quantile(_log_density(down, client, shape, key)[w > 0], RATES)
    return _histogram(s, w, down.range)


@client("fedgmm.held_out_counts", SUM, batched=False)
def held_out_counts(down: Density, client: Client, *, shape: str) -> DensityCounts:
    """A histogram of the log densities of the rows that the Gaussians have not seen."""
    w = to_numpy(client.w) * held_out(client)
    return _histogram(_held_out_log_density(down, client, shape), w, down.range)


@client("fedgmm.shift_thresholds", TELL, batched=False)
def shift_thresholds(down: Shift, client: Client) -> None:
    """Correct the client's own thresholds by what held-out rows of all clients have shown of leave-one-out densities."""
    if "novelty" in client.state:
        client.state["novelty"] = to_numpy(client.state["novelty"]) + to_numpy(down.levels)


def _histogram(s: np.ndarray, w: np.ndarray, range: Array) -> DensityCounts:
    return DensityCounts(np.histogram(s.clip(*range), bins=bin_edges(range), weights=w)[0].astype(np.float64))


@message("fedgmm.Fitted")
class Fitted(NamedTuple):
    """The fitted model, for the choice of each client."""

    joint: Joint
    embedding: Embedding
    single: Float[Array, "singles p"]  # a single learner of all rows, or none
    inverse: Float[
        Array, "learners q r"
    ]  # of the second derivatives of a single learner (the model's own, or `single`), or none
    optimism: Float[
        Array, ""
    ]  # by how much the log-loss of a training row is smaller than of a new one, without `inverse`
    ratio: Float[Array, ""]  # parameters of the model's learners by those of a single one


@client("fedgmm.personalise", TELL, batched=False)
def personalise(down: Fitted, client: Client, *, trainer: dict, shape: str, key: str) -> None:
    """Choose among the shared model, the client's own mixture and local models, by held-out rows; keep the result."""
    learner = Trainer(**trainer)
    own = {key: to_numpy(client.state[key])} if key in client.state else {}
    z = embed(to_numpy(client.x), down.embedding).astype(np.float64)
    log_n = log_densities(down.joint.gaussians, z, shape)
    rows = learner._replace(hold_out=False).rows(client)
    x = to_numpy(rows.x)
    x = imputed(x, down.joint.gaussians, shape) if down.embedding.axes.shape[-1] == 0 else x
    theta = learner.merge(down.joint.theta, client.state.get("norm"))
    log_learners = to_numpy(learner.log_proba(theta, learner.placed(x))).astype(np.float64)
    weights = [to_numpy(down.joint.shares), *own.values()]
    bases = [mixture_log_proba(log_n[:, :, None] + log_shares(pi, log_n), log_learners) for pi in weights]
    if len(down.single):
        bases.append(personal.mixed(learner, down.single, np.ones(1), learner.placed(x)))
    nets = to_numpy(client.state.pop(own_nets.STATE, own_nets.NO_NETS))
    own_parameters = 0.5 * (weights[0].size - 1) / max(float(to_numpy(client.w).sum()), 1.0)
    log_bases, optimism = np.stack(bases), np.array([float(down.optimism)] * len(bases))
    optimism[1 : len(weights)] += own_parameters
    if len(down.inverse):
        log_bases, optimism = _without_each_row(down, rows, x, log_bases, len(weights), own_parameters)
    personal.keep(learner, client, log_bases, optimism, x, nets)


def _without_each_row(
    down: Fitted, rows: Any, x: np.ndarray, log_bases: np.ndarray, mixtures: int, own_parameters: float
) -> tuple[np.ndarray, np.ndarray]:
    """(log-probabilities with the single learner as it were without each row, what is added to the losses of the bases).

    The mixture's losses on rows that it was fitted to are as much too small as the single learner's, times its parameters.
    """
    y, w = to_numpy(rows.y), to_numpy(rows.w).astype(np.float64)
    last = log_bases[-1].copy()
    left = exact.without_each(x, y, w, last, to_numpy(down.inverse)[0], to_numpy(down.embedding.mean))
    if not len(down.single):  # the model itself has a single learner
        return np.stack([left] * mixtures), np.zeros(mixtures)
    picked = np.arange(len(y)), y
    found = max(float(w @ (last[picked] - left[picked])) / max(float(w.sum()), 1.0), 0.0) * float(down.ratio)
    optimism = np.array([*[found, found + own_parameters][:mixtures], 0.0])
    return np.concatenate([log_bases[:-1], left[None]]), optimism


def mixture_log_proba(log_pairs: np.ndarray, log_learners: np.ndarray) -> np.ndarray:  # (n, classes)
    """Log-probabilities of classes: learners (m, classes, n) weighted by the responsibilities of their pairs (n, k, m)."""
    r, _ = responsibilities(log_pairs.reshape(len(log_pairs), -1))
    by_learner = r.reshape(log_pairs.shape).sum(1)  # (n, m)
    return np.log(np.einsum("nm,mcn->nc", by_learner, np.exp(log_learners)).clip(min=1e-300))


def _range(moments: DensityMoments) -> np.ndarray:
    """(2,) the range of a histogram of log densities."""
    mean = float(moments.total / moments.n)
    sd = np.sqrt(max(float(moments.squares / moments.n) - mean**2, 1e-12))
    return np.array([mean - 12 * sd, mean + 6 * sd])


def _levels(counts: DensityCounts, range: Array) -> np.ndarray:
    """Novelty scores that a share RATES of the counted rows exceeds."""
    n = to_numpy(counts.n)
    below = np.concatenate([[0.0], np.cumsum(n)])
    distinct = np.concatenate([[True], np.diff(below) > 0])
    wanted = RATES * (below[-1] + 1) - 0.5  # the quantile of the next row, not of those counted
    return -np.interp(wanted, below[distinct], bin_edges(range)[distinct])


class JointModelPredictions(LearnerEstimator):
    """Predictions of a joint model of inputs and labels; needs the attributes that `describe` and `set_joint` set."""

    covariance_type: str
    single_: np.ndarray
    novelty_rows: str
    start_: str  # key of the chosen candidate

    def set_joint(self, joint: Joint, embedding: Embedding, shape: str) -> None:
        """Set the fitted parameters."""
        self.shares_ = to_numpy(joint.shares)
        self.weights_, self.means_ = (to_numpy(a) for a in joint.gaussians[:2])
        self.covariances_ = to_numpy(gaussian.unpack_covs(joint.gaussians.covs, shape))
        self.embedding_mean_, self.embedding_axes_, self.embedding_residual_ = map(to_numpy, embedding)

    def set_thresholds(self, fed: Federation, rows: float) -> None:
        """Two SUMs: moments of the log densities of the training rows, then a histogram of them."""
        down = Density(self._gaussians(), self.shares_.sum(1), np.asarray(rows), self._embedding(), np.zeros(2))
        moments = fed.sum(density_moments.using(shape=self.covariance_type), down)
        down = down._replace(range=_range(moments))
        ask = density_counts.using(shape=self.covariance_type, key=f"pi-{self.start_}")
        self.novelty_levels_ = _levels(fed.sum(ask, down), down.range)
        if self.novelty_rows == "held-out":
            self._shift_levels(fed, down)
        for c in fed.here():  # over a network the thresholds stay with the clients
            if c.name in self.clients_ and "novelty" in c.state:
                self.clients_[c.name]["novelty"] = to_numpy(c.state["novelty"])

    def _shift_levels(self, fed: Federation, down: Density) -> None:
        """Thresholds from rows that the Gaussians have not seen: two SUMs, and one TELL for the thresholds of clients."""
        moments = fed.sum(density_moments.using(shape=self.covariance_type, kept_out=True), down)
        if float(moments.n) < MIN_HELD_OUT:
            return
        down = down._replace(range=_range(moments))
        levels = _levels(fed.sum(held_out_counts.using(shape=self.covariance_type), down), down.range)
        fed.tell(shift_thresholds, Shift(levels - self.novelty_levels_))
        self.novelty_levels_ = levels

    # ---- probabilities ----

    def predict_proba(self, X: Any, client: str | None = None) -> np.ndarray:
        """Class probabilities: learners weighted by their Gaussians' responsibilities for the row (equation 3).

        Parameters
        ----------
        X : array-like of shape (n, d)
        client : str or None, default=None
            Whose weights are used; None takes those of all clients together.

        Returns
        -------
        proba : ndarray of shape (n, classes)
            Within [0, 1]; rows sum to 1.
        """
        return super().predict_proba(X, client)

    def _log_base(self, x: np.ndarray, own: dict) -> np.ndarray:
        model = self.with_own(own)
        log_joint, log_learners = model._log_pairs(x, None), model._log_learners(x, None)
        return mixture_log_proba(log_joint, log_learners)

    def _columns(self, x: np.ndarray) -> np.ndarray:
        return imputed(x, self._gaussians(), self.covariance_type) if self.embedding_axes_.shape[1] == 0 else x

    def _has_version(self, own: dict) -> bool:
        return "pi" in own

    def _bases(self, x: np.ndarray, own: dict) -> np.ndarray:
        bases = super()._bases(x, own)
        if not len(self.single_):
            return bases
        return np.concatenate([bases, np.swapaxes(self.log_proba(self._columns(x), self.single_), 1, 2)])

    def choose_personal(self, fed: Federation, best: Any, single: Any) -> None:
        """Let each client choose what it keeps: one TELL. `single` is the candidate of a single learner, if there is one."""
        if self.personalize == "auto":
            inverse, ratio = np.zeros((0, 0, 0)), 1.0
            if single is not None:
                inverse = np.linalg.inv(gaussian.unpack_triangle(to_numpy(single.curvature)))[None]
                ratio = max(best.parameters / max(single.parameters, 1.0), 1.0)
            joint = Joint(self._gaussians(), self.theta_, self.shares_)
            down = Fitted(joint, self._embedding(), self.single_, inverse, self._optimism(fed), np.asarray(ratio))
            if self.trainer_["hold_out"]:
                own = {"weights": f"pi-{self.start_}", "pairs": True}
                ask = own_nets.train_own.using(trainer=self.trainer_, own=own, epochs=self._epochs_alone)
                fed.tell(ask, own_nets.Version(self.theta_, self.shares_.sum(0)))
            options = {"shape": self.covariance_type, "key": f"pi-{self.start_}"}
            fed.tell(personalise.using(trainer=self.trainer_, **options), down)
        self._describe_choices(fed)

    def log_density(self, X: Any, client: str | None = None) -> np.ndarray:
        """log P(x), (n,), under a client's own weights or those of all clients together."""
        log_joint = self._log_pairs(self._rows(X), client)
        return responsibilities(log_joint.reshape(len(log_joint), -1))[1]

    def log_joint(self, X: Any, y: Any, client: str | None = None) -> np.ndarray:
        """log P(x, y), (n,), under a client's own weights or those of all clients together."""
        x = self._rows(X)
        log_joint = self._log_pairs(x, client) + self._log_labels(x, y, client)[:, None, :]
        return responsibilities(log_joint.reshape(len(x), -1))[1]

    def log_conditional(self, X: Any, y: Any, client: str | None = None) -> np.ndarray:
        """log P(y | x), (n,), under a client's own weights or those of all clients together."""
        return self.log_joint(X, y, client) - self.log_density(X, client)

    def _log_pairs(self, x: np.ndarray, client: str | None) -> np.ndarray:
        """log pi(k, j) + log N_k(z), (n, k, m)."""
        z = embed(x, self._embedding()).astype(np.float64)
        log_n = log_densities(self._gaussians(), z, self.covariance_type)
        pi = self.private(client).get("pi", self.shares_)
        return log_n[:, :, None] + log_shares(pi, log_n)

    def _log_learners(self, x: np.ndarray, client: str | None) -> np.ndarray:
        """log P_j(class | x), (m, classes, n)."""
        theta = Trainer(**self.trainer_).merge(self.theta_, self.private(client).get("norm"))
        if self.embedding_axes_.shape[1] == 0:
            x = imputed(x, self._gaussians(), self.covariance_type)
        return self.log_proba(x, theta)

    def _log_labels(self, x: np.ndarray, y: Any, client: str | None) -> np.ndarray:
        """log P_j(y | x), (n, m)."""
        y = np.asarray(y)
        if y.shape != (len(x),):
            raise BadData(f"y has shape {y.shape} but there are {len(x)} rows: give one label per row")
        return self._log_learners(x, client)[:, codes(y, self.classes_.tolist()), np.arange(len(x))].T

    def _gaussians(self) -> Params:
        return Params(self.weights_, self.means_, gaussian.pack_covs(self.covariances_, self.covariance_type))

    def _embedding(self) -> Embedding:
        return Embedding(self.embedding_mean_, self.embedding_axes_, self.embedding_residual_)

    # ---- novelty and new clients ----

    def novelty(self, X: Any, y: Any = None, client: str | None = None) -> np.ndarray:
        """Novelty scores, (n,): -log P(x), or -log P(x, y) if labels are given."""
        return -self.log_density(X, client) if y is None else -self.log_joint(X, y, client)

    def threshold(self, false_alarms: float = 0.05, client: str | None = None) -> float:
        """The novelty score that a share `false_alarms` of new rows is expected to exceed.

        It is a quantile of the leave-one-out scores of the training rows, of all clients or of one.
        """
        if not RATES[0] <= false_alarms <= RATES[-1]:
            raise BadParameter(f"false_alarms={false_alarms!r} must be between {RATES[0]} and {RATES[-1]}")
        levels = self.private(client).get("novelty", self.novelty_levels_)
        return float(np.interp(np.log(false_alarms), np.log(RATES), levels))

    def is_novel(self, X: Any, false_alarms: float = 0.05, client: str | None = None) -> np.ndarray:
        """Whether the novelty score of each row is above the threshold, (n,) bool.

        Parameters
        ----------
        X : array-like of shape (n, d)
        false_alarms : float, default=0.05
            Expected share of alarms among rows like those of training, between 0.0005 and 0.2.
        client : str or None, default=None
            Whose weights and threshold are used; None takes those of all clients together.
        """
        return self.novelty(X, client=client) > self.threshold(false_alarms, client)

    def watch(self, X: Any, client: str | None = None) -> dict[str, Any]:
        """Whether new rows of a client have left what it was fitted to: more of them are novel than should be.

        Parameters
        ----------
        X : array-like of shape (n, d)
            New rows, without labels.
        client : str or None, default=None
            Whose density they are judged by; None takes that of all clients, or of this personal model.

        Returns
        -------
        dict
            "moved": whether they have left it (below 1 in 1,000 by chance); "alarms", the share of novel rows where 5 % is expected;
            "p_value" of so many.
        """
        novel = self.is_novel(X, WATCH_RATE, client)
        p_value = float(binom.sf(novel.sum() - 1, len(novel), 2 * WATCH_RATE))
        return {"moved": p_value < 1e-3, "alarms": float(novel.mean()), "p_value": p_value}

    def adapt(self, X: Any, y: Any = None) -> Any:
        """The personal model of a new client: EM on its weights, with Gaussians and learners as they are.

        Its novelty thresholds are quantiles of the scores of `X`.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : array-like of shape (n,) or None, default=None
            Without labels the weights are fitted to the inputs alone.

        Returns
        -------
        model : FedGMM
        """
        x = self._rows(X)
        unweighted = self.with_own({"pi": np.ones_like(self.shares_)})
        log_joint = unweighted._log_pairs(x, None)
        if y is not None:
            log_joint = log_joint + self._log_labels(x, y, None)[:, None, :]
        initial = (self.shares_ + 1e-3) / (self.shares_ + 1e-3).sum()
        pi = fit_weights(log_joint.reshape(len(x), -1), initial.ravel(), tol=1e-6).reshape(initial.shape)
        own = self.with_own({"pi": pi})
        return self.with_own({"pi": pi, "novelty": np.quantile(own.novelty(x), 1 - RATES)})
