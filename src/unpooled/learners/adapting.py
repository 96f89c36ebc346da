"""Models of new clients without labels, and drift: which part of a fitted model inputs look like. One SUM, see `newcomers`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.errors import BadParameter
from unpooled.federation import Federation
from unpooled.learners import newcomers
from unpooled.learners.predictions import LearnerPredictions

NEGLIGIBLE = 0.01  # probability of a group, relative to the most probable one, below which its network is left out


class Adapting(LearnerPredictions):
    """What models of several parts do for clients without labels."""

    def describe_parts(self, fed: Federation, weights: str, ids: Sequence[int] | None = None) -> None:
        """One SUM: how the inputs of each part look, for clients without labels. `weights` is the key of the clients' own."""
        places = list(range(len(self.theta_))) if ids is None else [int(i) for i in ids]
        total = fed.sum(newcomers.part_moments.using(weights=weights, ids=places), None)
        self.parts_ = tuple(map(to_numpy, newcomers.parts_of(total)))

    def set_group_models(self, new: Any, X: Any, theta: str, weights: str) -> None:
        """Give the model `new` of a client without labels the networks of groups, weighted by how much their inputs look like X.

        They are `theta` and `weights` in its local state; `part_probabilities_` and `confidence_` say how sure that is.
        """
        p = self.groups_.probabilities(self._rows(X))
        kept = np.flatnonzero(p > NEGLIGIBLE * p.max())
        new.own_ = {**new.own_, theta: self.group_theta_[kept], weights: p[kept] / p[kept].sum()}
        new.part_probabilities_, new.confidence_ = p, float(p.max())

    def adapt_to_inputs(self, X: Any, weights: str) -> Any:
        """The model of a new client without labels: the part that its inputs look like, or the shared model.

        `part_probabilities_` and `confidence_` of the result say how sure that is.
        """
        p = newcomers.probabilities(newcomers.Parts(*self.parts_), self._rows(X).astype(np.float64))
        sure = bool(p.max() >= newcomers.SURE)
        new = self.with_own({weights: np.eye(len(p))[p.argmax()]} if sure else {})
        new.part_probabilities_, new.confidence_ = p, float(p.max())
        return new

    def watch(self, X: Any, client: str | None = None) -> dict[str, Any]:
        """Whether new rows of a client have left what it was assigned to; needs a model of several parts.

        Parameters
        ----------
        X : array-like of shape (n, d)
            New rows, without labels.
        client : str or None, default=None
            Whose; None is this personal model.

        Returns
        -------
        dict
            "moved": whether they have left it; "distance" of their means from the part's, in standard deviations; "part" that the
            client has, and "nearest" to the rows.
        """
        own = self.private(client)
        if not hasattr(self, "parts_"):
            raise BadParameter(
                f"{type(self).__name__} has one model for all clients: there is no part that rows could leave"
            )
        parts = newcomers.Parts(*self.parts_)
        apart = newcomers.distance(parts, self._rows(X).astype(np.float64))
        part = int(np.argmax(self.part_weights(own)))
        nearest = int(apart.argmin())
        moved = bool(
            apart[part] > newcomers.FAR and (nearest != part or len(apart) == 1 or apart.min() > newcomers.FAR)
        )
        return {"moved": moved, "distance": float(apart[part]), "part": part, "nearest": nearest}

    def part_weights(self, own: Mapping[str, np.ndarray]) -> np.ndarray:
        """A client's weights of the parts."""
        return self.with_own(dict(own)).models(None)[1]
