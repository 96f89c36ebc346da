"""What a fitted FedGMM can do with new rows, in this process: predict, densities, novelty, a model for a new client.

One exchange: a SUM of counts of training rows by log density, from which false-alarm thresholds are read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.errors import BadData, BadParameter
from unpooled.federation import Federation
from unpooled.learners import Trainer
from unpooled.learners.estimator import LearnerEstimator
from unpooled.learners.mixing import log_shares, responsibilities
from unpooled.learners.rows import codes
from unpooled.maths import gaussian
from unpooled.maths.mixture import Params, fit_weights
from unpooled.models.fedgmm.rounds import Joint, Lens, embedded, filled
from unpooled.models.fedgmm.weighted_e_step import log_densities
from unpooled.tree import message

BINS = 4000  # of the histogram of log densities
RATES = np.array(
    [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2]
)  # false alarms a client keeps thresholds for


@message("fedgmm.Density")
class Density(NamedTuple):
    """The marginal density, and where to count."""

    gaussians: Params
    shares: Float[Array, "k"]
    lens: Lens
    range: Float[Array, "2"]  # log densities between which bins lie


@message("fedgmm.Spread")
class Spread(NamedTuple):
    n: Float[Array, "", ">=0 rows"]
    total: Float[Array, ""]
    squares: Float[Array, "", ">=0"]


@message("fedgmm.Counts")
class Counts(NamedTuple):
    n: Float[Array, "bins", ">=0 rows"]


def edges_of(range: Array) -> np.ndarray:
    """(BINS + 1,) between two log densities."""
    return np.linspace(float(range[0]), float(range[1]), BINS + 1)


def _log_density(down: Density, client: Client, shape: str, key: str = "") -> np.ndarray:
    """log P(x) of a client's rows, (n,), under the shares of all or, with a key, its own."""
    z = embedded(to_numpy(client.x), down.lens)
    weights = to_numpy(client.state[key]).sum(-1) if key else down.shares
    log_n = log_densities(down.gaussians, z, shape)
    return responsibilities(log_n + log_shares(weights, log_n))[1]


@client("fedgmm.density_spread", SUM, batched=False)
def density_spread(down: Density, client: Client, *, shape: str) -> Spread:
    """Sum and sum of squares of the log-densities of the rows."""
    s, w = _log_density(down, client, shape), to_numpy(client.w)
    return Spread(w.sum(), (w * s).sum(), (w * s**2).sum())


@client("fedgmm.density_counts", SUM, batched=False)
def density_counts(down: Density, client: Client, *, shape: str, key: str) -> Counts:
    """How many rows in each bin; the client keeps the thresholds of its own density."""
    s, w = _log_density(down, client, shape), to_numpy(client.w)
    if key in client.state:
        client.state["novelty"] = -np.quantile(_log_density(down, client, shape, key)[w > 0], RATES)
    edges = edges_of(down.range)
    return Counts(np.histogram(s.clip(*down.range), bins=edges, weights=w)[0].astype(np.float64))


class FedGMMFace(LearnerEstimator):
    """Needs what `describe` and `set_joint` set."""

    covariance_type: str
    start_: str  # the key of the candidate that won

    def set_joint(self, joint: Joint, lens: Lens, shape: str) -> None:
        self.shares_ = to_numpy(joint.shares)  # (k, m) of all rows
        self.weights_, self.means_ = (to_numpy(a) for a in joint.gaussians[:2])
        self.covariances_ = to_numpy(gaussian.unpack_covs(joint.gaussians.covs, shape))
        self.lens_mean_, self.lens_axes_, self.lens_rest_ = map(to_numpy, lens)

    def set_thresholds(self, fed: Federation) -> None:
        """Two SUMs: mean and spread of log densities, then a histogram of them."""
        down = Density(self._gaussians(), self.shares_.sum(1), self._lens(), np.zeros(2))
        seen = fed.sum(density_spread.using(shape=self.covariance_type), down)
        mean = float(seen.total / seen.n)
        width = np.sqrt(max(float(seen.squares / seen.n) - mean**2, 1e-12))
        down = down._replace(range=np.array([mean - 12 * width, mean + 6 * width]))
        ask = density_counts.using(shape=self.covariance_type, key=f"pi-{self.start_}")
        below = np.cumsum(to_numpy(fed.sum(ask, down).n))
        edges = edges_of(down.range)[1:]
        self.novelty_levels_ = -np.interp(RATES * below[-1], below, edges)
        for c in fed.here():  # over a network the thresholds stay with the clients
            if c.name in self.clients_ and "novelty" in c.state:
                self.clients_[c.name]["novelty"] = to_numpy(c.state["novelty"])

    # ---- probabilities ----

    def predict_proba(self, X: Any, client: str | None = None) -> np.ndarray:
        """P(class | x) by equation 3: learners weighted by their Gaussians' responsibility for the row; (n, classes)."""
        x = self._rows(X)
        pairs = self._log_pairs(x, client)  # (n, k, m)
        r, _ = responsibilities(pairs.reshape(len(x), -1))
        by_learner = r.reshape(pairs.shape).sum(1)  # (n, m)
        return np.einsum("nm,mcn->nc", by_learner, np.exp(self._learners(x, client)))

    def log_density(self, X: Any, client: str | None = None) -> np.ndarray:
        """log P(x), (n,): under a client's own weights, or those of all."""
        pairs = self._log_pairs(self._rows(X), client)
        return responsibilities(pairs.reshape(len(pairs), -1))[1]

    def log_joint(self, X: Any, y: Any, client: str | None = None) -> np.ndarray:
        """log P(x, y), (n,)."""
        x = self._rows(X)
        pairs = self._log_pairs(x, client) + self._log_labels(x, y, client)[:, None, :]
        return responsibilities(pairs.reshape(len(x), -1))[1]

    def log_conditional(self, X: Any, y: Any, client: str | None = None) -> np.ndarray:
        """log P(y | x), (n,)."""
        return self.log_joint(X, y, client) - self.log_density(X, client)

    def _log_pairs(self, x: np.ndarray, client: str | None) -> np.ndarray:
        """log pi(k, j) + log N_k(z), (n, k, m)."""
        log_n = log_densities(self._gaussians(), embedded(x, self._lens()).astype(np.float64), self.covariance_type)
        pi = self.private(client).get("pi", self.shares_)
        return log_n[:, :, None] + log_shares(pi, log_n)

    def _learners(self, x: np.ndarray, client: str | None) -> np.ndarray:
        """log P_j(class | x), (m, classes, n)."""
        theta = Trainer(**self.trainer_).merge(self.theta_, self.private(client).get("norm"))
        if self.lens_axes_.shape[1] == 0:
            x = filled(x, self._gaussians(), self.covariance_type)
        return self.log_proba(x, theta)

    def _log_labels(self, x: np.ndarray, y: Any, client: str | None) -> np.ndarray:
        """log P_j(y | x), (n, m)."""
        y = np.asarray(y)
        if y.shape != (len(x),):
            raise BadData(f"y has shape {y.shape} but there are {len(x)} rows: give one label a row")
        return self._learners(x, client)[:, codes(y, self.classes_.tolist()), np.arange(len(x))].T

    def _gaussians(self) -> Params:
        return Params(self.weights_, self.means_, gaussian.pack_covs(self.covariances_, self.covariance_type))

    def _lens(self) -> Lens:
        return Lens(self.lens_mean_, self.lens_axes_, self.lens_rest_)

    # ---- novelty and new clients ----

    def novelty(self, X: Any, y: Any = None, client: str | None = None) -> np.ndarray:
        """How strange rows are, (n,): minus log P(x), or minus log P(x, y) where labels are given."""
        return -self.log_density(X, client) if y is None else -self.log_joint(X, y, client)

    def threshold(self, false_alarms: float = 0.05, client: str | None = None) -> float:
        """The novelty that this share of the training rows exceeds, of all clients or of one."""
        if not RATES[0] <= false_alarms <= RATES[-1]:
            raise BadParameter(f"false_alarms={false_alarms!r} must be between {RATES[0]} and {RATES[-1]}")
        levels = self.private(client).get("novelty", self.novelty_levels_)
        return float(np.interp(np.log(false_alarms), np.log(RATES), levels))

    def is_novel(self, X: Any, false_alarms: float = 0.05, client: str | None = None) -> np.ndarray:
        """Whether rows are stranger than all but this share of the training rows, (n,) bool."""
        return self.novelty(X, client=client) > self.threshold(false_alarms, client)

    def adapt(self, X: Any, y: Any = None) -> Any:
        """The personal model of a client never seen: EM on its weights alone, in this process; without labels, by x alone.

        Its thresholds are those of its own rows.
        """
        x = self._rows(X)
        flat = self.with_own({"pi": np.ones_like(self.shares_)})
        pairs = flat._log_pairs(x, None)
        if y is not None:
            pairs = pairs + self._log_labels(x, y, None)[:, None, :]
        begin = (self.shares_ + 1e-3) / (self.shares_ + 1e-3).sum()
        pi = fit_weights(pairs.reshape(len(x), -1), begin.ravel(), tol=1e-6).reshape(begin.shape)
        own = self.with_own({"pi": pi})
        return self.with_own({"pi": pi, "novelty": np.quantile(own.novelty(x), 1 - RATES)})
