"""What a fitted FedGMM does with new rows, in this process: probabilities, densities, novelty, models of new clients."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import binom

from unpooled.arrays import to_numpy
from unpooled.errors import BadData, BadParameter
from unpooled.federation import Federation, find_layer
from unpooled.learners import Trainer, calibration, left_out, own_nets, personal
from unpooled.learners.calibration import NONE
from unpooled.learners.estimator import LearnerEstimator
from unpooled.learners.label_shift import label_shares
from unpooled.learners.labels import codes
from unpooled.learners.mixing import log_shares, responsibilities
from unpooled.maths import gaussian
from unpooled.maths.mixture import Params, fit_weights
from unpooled.models.fedgmm.choice import (
    Fitted,
    calibration_losses,
    judge_candidates,
    mixture_log_proba,
    personalise,
)
from unpooled.models.fedgmm.embedding import Embedding, embed
from unpooled.models.fedgmm.novelty import RATES, Density, thresholds
from unpooled.models.fedgmm.rounds import Joint, imputed
from unpooled.models.fedgmm.weighted_e_step import log_densities
from unpooled.models.initialization import column_sums

GROUP_THETA, GROUP_WEIGHTS = "group_theta", "group_weights"  # local state of a new client without labels
WATCH_RATE = 0.05  # false alarms of `watch`; up to twice as many count as the threshold's own error


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
        """Thresholds of novelty scores, of all clients and of each: two or three SUMs, see `novelty`."""
        down = Density(self._gaussians(), self.shares_.sum(1), np.asarray(rows), self._embedding(), np.zeros(2))
        kept_out = self.novelty_rows == "held-out"
        self.novelty_levels_ = thresholds(fed, down, self.covariance_type, f"pi-{self.start_}", kept_out)
        for c in fed.here():  # over a network the thresholds stay with the clients
            if c.name in self.clients_ and "novelty" in c.state:
                self.clients_[c.name]["novelty"] = to_numpy(c.state["novelty"])

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
        """Log probabilities of the classes under a client's weights."""
        if GROUP_THETA in own:
            return personal.average_log_proba(self.log_proba(self._columns(x), own[GROUP_THETA]), own[GROUP_WEIGHTS])
        model = self.with_own(own)
        log_joint = model._log_pairs(x, None)
        log_learners = model._log_learners(x, None)
        return mixture_log_proba(log_joint, log_learners)

    def _columns(self, x: np.ndarray) -> np.ndarray:
        """Rows with missing values filled in by the Gaussians."""
        if self.embedding_axes_.shape[1]:
            return x
        return imputed(x, self._gaussians(), self.covariance_type)

    def _has_version(self, own: dict) -> bool:
        """Whether a client has weights of its own, which do not matter for a single learner."""
        return "pi" in own and len(self.theta_) > 1

    def _bases(self, x: np.ndarray, own: dict) -> np.ndarray:
        """Log probabilities of all models that a client chooses among."""
        bases = super()._bases(x, own)
        if not len(self.single_):
            return bases
        of_single = self.log_proba(self._columns(x), self.single_)
        return np.concatenate([bases, np.swapaxes(of_single, 1, 2)])

    def choose_personal(self, fed: Federation, best: Any, single: Any) -> None:
        """Let each client choose what it keeps: one TELL. `single` is the candidate of a single learner, if there is one."""
        if self.personalize == "auto":
            self._ask_for_choices(fed, self._for_choices(fed, best, single))
        self._describe_choices(fed)

    def _for_choices(self, fed: Federation, best: Any, single: Any) -> Fitted:
        """What clients need to choose, before calibration: the model and, if there is one, the single learner."""
        inverse = np.zeros((0, 0, 0, 0))
        ratio = 1.0
        if single is not None:
            second = gaussian.unpack_triangle(to_numpy(single.curvature))
            inverse = left_out.inverses_of(second[None], len(self.classes_))
            ratio = max(best.parameters / max(single.parameters, 1.0), 1.0)
        return Fitted(
            Joint(self._gaussians(), self.theta_, self.shares_),
            self._embedding(),
            self.single_,
            inverse,
            self._optimism(fed),
            np.asarray(ratio),
            np.array([NONE] * (1 + len(self.single_))),
            self._column_spread(fed),
            *personal.NOTHING_SAID,
        )

    def _ask_for_choices(self, fed: Federation, down: Fitted) -> None:
        """Calibrate by one SUM, judge the candidates by another, then let clients choose."""
        holds_out = self.trainer_["hold_out"]
        if holds_out:
            ask = own_nets.train_own.using(trainer=self.trainer_, own=self._own_weights, epochs=self._epochs_alone)
            labels = label_shares(fed, self.trainer_["labels"])
            fed.tell(ask, own_nets.Version(self.theta_, self.shares_.sum(0), labels))
        options: dict[str, Any] = {
            "shape": self.covariance_type,
            "key": f"pi-{self.start_}",
            "trainer": self.trainer_,
        }
        if holds_out or len(down.inverse):
            found = calibration.best(fed.sum(calibration_losses.using(**options), down))
            self.calibration_, *self.one_calibration_ = found
        down = down._replace(calibration=np.array(self._calibrations))
        if len(down.inverse):
            said = fed.sum(judge_candidates.using(**options), down)
            down = down._replace(said=np.stack([said.shares, said.losses]), said_rows=said.rows)
        fed.tell(personalise.using(**options), down)

    def _mean_of_columns(self, fed: Federation) -> np.ndarray | None:
        """Means of the columns over all clients; None where there are gaps, which the Gaussians fill in."""
        sums = fed.sum(column_sums, None)
        rows = float(sums.rows)
        is_complete = (to_numpy(sums.seen) == rows).all()
        return to_numpy(sums.x) / rows if is_complete else None

    @property
    def _own_weights(self) -> dict[str, Any]:
        """Where a client's own weights of the pairs are in its state, see `own_nets.own_version`."""
        return {"weights": f"pi-{self.start_}", "pairs": True}

    def _column_spread(self, fed: Federation) -> np.ndarray:  # (d,), or none
        """Deviations of the columns over all clients, for linear learners: of the Gaussians, or by one SUM where they are of few axes."""
        if self.learner != "linear":
            return np.zeros(0)
        if self.embedding_axes_.shape[1] or find_layer(fed, "find_moments") is not None:
            return self._spread(fed, self.embedding_mean_)
        covs = to_numpy(gaussian.full_covs(self._gaussians(), self.covariance_type))
        within = np.diagonal(covs, axis1=-2, axis2=-1)
        mean = self.weights_ @ self.means_
        return np.sqrt(self.weights_ @ (within + (self.means_ - mean) ** 2))

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
        """The fitted Gaussians, packed."""
        return Params(self.weights_, self.means_, gaussian.pack_covs(self.covariances_, self.covariance_type))

    def _embedding(self) -> Embedding:
        """The fitted embedding."""
        return Embedding(self.embedding_mean_, self.embedding_axes_, self.embedding_residual_)

    # ---- novelty and new clients ----

    def novelty(self, X: Any, y: Any = None, client: str | None = None) -> np.ndarray:
        """Novelty scores, (n,): -log P(x), or -log P(x, y) if labels are given."""
        return -self.log_density(X, client) if y is None else -self.log_joint(X, y, client)

    def threshold(self, false_alarms: float = 0.05, client: str | None = None) -> float:
        """The novelty score that a share `false_alarms` of new rows is expected to exceed.

        It is a quantile of the scores of rows held out and of leave-one-out scores, of all clients or of one.
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
        """The personal model of a new client: EM on its weights; Gaussians and learners stay fixed.

        Its novelty thresholds are quantiles of the scores of `X`.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : array-like of shape (n,) or None, default=None
            Without labels the weights are fitted to the inputs alone; `confidence_` says how surely these tell the learner of a row.
            Where there are networks for groups of clients, it predicts by these, weighted by how much the clients' inputs look
            alike; `confidence_` is then the probability of the most probable group.

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
        personal = self.with_own({"pi": pi})
        new = self.with_own({"pi": pi, "novelty": np.quantile(personal.novelty(X), 1 - RATES)})
        if y is None:
            new.confidence_ = self._sure_of_learners(log_joint + log_shares(pi, log_joint))
        if y is None and self.groups_ is not None:
            self.set_group_models(new, X, GROUP_THETA, GROUP_WEIGHTS)
        return new

    def _sure_of_learners(self, log_pairs: np.ndarray) -> float:
        """How surely inputs tell the learner of a row: the largest share of a learner in a row's pairs (n, k, m), mean over rows."""
        r, _ = responsibilities(log_pairs.reshape(len(log_pairs), -1))
        return float(r.reshape(log_pairs.shape).sum(1).max(1).mean())
