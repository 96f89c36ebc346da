"""Predictions of classifiers made of learners, for all clients or one, in this process. Nothing is sent."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from unpooled.arrays import to_numpy
from unpooled.errors import BadParameter, suggest
from unpooled.estimator import Estimator, rows_of
from unpooled.learners import personal
from unpooled.learners.bases import in_equal_units
from unpooled.learners.calibration import NONE, Calibration, calibrated, calibrated_bases
from unpooled.learners.mixing import normalised
from unpooled.learners.own_nets import GROUP_MODEL
from unpooled.learners.trainer import Trainer

OWN_MODELS = {"theta", "own", "model"}  # names that models of clients have in their state


class LearnerPredictions(ClassifierMixin, Estimator):
    """Predictions by the shared learners, or by what a client keeps; needs the attributes that a fit sets."""

    classes_: np.ndarray  # (classes,)
    theta_: np.ndarray  # (k, p)
    trainer_: dict[str, Any]
    clients_: dict[str, dict[str, np.ndarray]]
    own_: dict[str, np.ndarray]  # local state of a personal model; empty for the shared one
    calibration_: Calibration = NONE
    one_calibration_: Sequence[Calibration] = ()  # of `one_theta_`
    one_theta_: np.ndarray = np.zeros((0, 0))  # one learner of all rows, among several, for the clients' choices

    @property
    def takes_missing(self) -> bool:
        """Whether rows may have missing values."""
        return False

    def predict(self, X: Any, client: str | None = None) -> np.ndarray:
        """The most probable class of each row.

        Parameters
        ----------
        X : array-like of shape (n, d)
        client : str or None, default=None
            Whose personal model predicts; None takes the shared one.

        Returns
        -------
        labels : ndarray of shape (n,)
        """
        best = self.predict_proba(X, client).argmax(-1)
        return self.classes_[best]

    def predict_proba(self, X: Any, client: str | None = None) -> np.ndarray:
        """Class probabilities: the learners' probabilities averaged by the client's weights.

        Parameters
        ----------
        X : array-like of shape (n, d)
        client : str or None, default=None
            Whose personal model predicts; None takes the shared one.

        Returns
        -------
        proba : ndarray of shape (n, classes)
            Within [0, 1]; rows sum to 1.
        """
        x = self._rows(X)
        own = self.private(client)
        if "kept_mix" in own:
            log_bases = self._calibrated(self._bases(x, own))
            return normalised(personal.predict(Trainer(**self.trainer_), own, self._columns(x), log_bases))
        log_p = self._log_base(x, own)
        return normalised(np.exp(calibrated(log_p, self.calibration_) if len(self.theta_) == 1 else log_p))

    def _bases(self, x: np.ndarray, own: dict) -> np.ndarray:  # (b, n, classes)
        """Log-probabilities of the shared model and, if the client has them, of its own version and of its group's network."""
        bases = [self._log_base(x, {key: own[key] for key in ("norm",) if key in own})]
        if self._has_version(own):
            bases.append(self._log_base(x, own))
        if GROUP_MODEL in own:
            bases.append(self.log_proba(x, own[GROUP_MODEL])[0].T)
        bases += [log_p.T for log_p in self.log_proba(x, self.one_theta_)] if len(self.one_theta_) else []
        return np.stack(bases)

    def _calibrated(self, log_bases: np.ndarray) -> np.ndarray:
        """The bases of what clients keep, calibrated."""
        return in_equal_units(calibrated_bases(log_bases, self._calibrations), len(self.one_theta_))

    @property
    def _calibrations(self) -> list[Calibration]:
        """The calibrations of the model and of the one learner of all rows beside it."""
        return [self.calibration_, *self.one_calibration_]

    def _has_version(self, own: dict) -> bool:
        """Whether a client's state makes a version of the model of its own: weights of several learners, or a model."""
        names = set(own) - {"norm", GROUP_MODEL} - set(personal.KEYS)
        return bool(names if len(self.theta_) > 1 else names & OWN_MODELS)

    def _log_base(self, x: np.ndarray, own: dict) -> np.ndarray:  # (n, classes)
        """Log-probabilities of the model with the local state `own`, before any choice of the client."""
        theta, weights = self.with_own(own).models(None)
        return personal.average_log_proba(self.log_proba(x, theta), weights)

    def _columns(self, x: np.ndarray) -> np.ndarray:
        """Rows as learners take them."""
        return x

    def models(self, client: str | None) -> tuple[np.ndarray, np.ndarray]:
        """(theta (k, p), weights (k,)) used for a client, or for all if None; here the shared ones with equal weights."""
        theta = Trainer(**self.trainer_).merge(self.theta_, self.private(client).get("norm"))
        return theta, np.full(len(theta), 1 / len(theta))

    def log_proba(self, x: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """log P_k(class | x) as (k, classes, n), computed on the trainer's device."""
        trainer = Trainer(**self.trainer_)
        if trainer.net.needs_torch or trainer.device:
            import torch

            dtype = torch.float32 if trainer.net.needs_torch else None
            tensor = torch.as_tensor(x, dtype=dtype, device=trainer.device or "cpu")
            return to_numpy(trainer.log_proba(theta, tensor)).astype(np.float64)
        return trainer.log_proba(theta, x).astype(np.float64)

    # ---- personal models ----

    def private(self, client: str | None) -> dict[str, np.ndarray]:
        """The local state of a client of this process; with None, that of this personal model (empty for the shared one)."""
        check_is_fitted(self)
        if client is None:
            return self.own_
        if client not in self.clients_:
            raise BadParameter(
                f"this process has no local state for client {client!r}: {suggest(client, self.clients_)}"
            )
        return self.clients_[client]

    @property
    def personal_(self) -> Mapping[str, Any]:
        """The personal model of each client of this process: the shared parts with the client's local state."""
        check_is_fitted(self)
        return {name: self.with_own(own) for name, own in self.clients_.items()}

    def with_own(self, own: dict[str, np.ndarray]) -> Any:
        """A copy of this model with the local state `own`."""
        personal = copy.copy(self)
        personal.own_ = own
        return personal

    def _rows(self, X: Any) -> np.ndarray:
        """X as an array with the columns of the fit."""
        check_is_fitted(self)
        finite = "allow-nan" if self.takes_missing else True
        return rows_of(self, X, ensure_all_finite=finite, dtype=[np.float64, np.float32])
