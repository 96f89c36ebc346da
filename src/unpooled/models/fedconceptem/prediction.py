"""What a fitted FedConceptEM does with new rows, in this process: predictions, new clients, a sentence on a client. Nothing is sent."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.client import Client
from unpooled.errors import DataWarning
from unpooled.learners import Trainer
from unpooled.learners.estimator import LearnerEstimator
from unpooled.learners.mixing import log_shares, responsibilities
from unpooled.maths.mixture import fit_weights
from unpooled.models.fedconceptem.rounds import information
from unpooled.report import concepts as diagnosis


class ConceptPredictions(LearnerEstimator):
    """Predictions by the models of the concepts; needs the attributes that a fit sets."""

    fine_tune: int
    fine_tune_lr: float | None
    weights_: np.ndarray
    label_shares_: np.ndarray
    group_theta_: np.ndarray

    def models(self, client: str | None) -> tuple[np.ndarray, np.ndarray]:
        """A client's models and weights; the shared ones where it has none."""
        theta, _ = super().models(client)
        own = self.private(client)
        return own.get("theta", theta), own.get("omega", self.weights_)

    def adapt(self, X: Any, y: Any = None) -> Any:
        """The personal model of a new client: EM on its weights; the models stay fixed.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : array-like of shape (n,) or None, default=None
            The labels, which determine the concept. Without them networks of groups of clients are weighted by how much these
            clients' inputs look alike or, if there are none, it is the concept whose clients' inputs do; where inputs do not
            differ, the weights of all clients together, with a warning. `confidence_` says how sure it is.

        Returns
        -------
        model : FedConceptEM
        """
        x = self._rows(X)
        if y is None:
            return self._by_inputs(X)
        trainer = Trainer(**self.trainer_)
        new = Client("new", x, np.asarray(y))
        rows = trainer.rows(new)
        log_i = information(trainer, self.theta_, rows, self.label_shares_)
        own = {"omega": fit_weights(to_numpy(log_i).astype(np.float64), self.weights_)}
        if self.fine_tune:
            r, _ = responsibilities(log_i + log_shares(own["omega"], rows.x))
            own["theta"] = to_numpy(self._tuning(trainer).train(self.theta_, new, rows, r))
        return self.with_own(own)

    def _by_inputs(self, X: Any) -> Any:
        """The model of a client without labels, by what its inputs look like."""
        if self.groups_ is not None:
            new = self.with_own({})
            self.set_group_models(new, X, "theta", "omega")
            return new
        new = self.adapt_to_inputs(X, "omega")
        if not new.own_:
            text = f"inputs alone leave the concept open (probability {new.confidence_:.2f}): the weights of all clients are used"
            warnings.warn(text, DataWarning, stacklevel=3)
            new.own_ = {"omega": self.weights_}
        return new

    def _tuning(self, trainer: Trainer) -> Trainer:
        """The trainer of the fine-tuning epochs."""
        lr = trainer.lr / 10 if self.fine_tune_lr is None else self.fine_tune_lr
        return trainer._replace(epochs=self.fine_tune, lr=lr, keep_momentum=False)

    # ---- diagnosis ----

    def report_figures(self) -> dict[str, str]:
        """The figures of the concepts in a run's report, by title."""
        return diagnosis.figures(self) | super().report_figures()

    def explain(self, client: str) -> str:
        """One sentence on a client: its concept, how certain that is, and what would change it."""
        return diagnosis.sentence(client, self.private(client))
