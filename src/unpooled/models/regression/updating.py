"""Adding clients to a fitted last layer, and removing them: one SUM of second moments each. Feature map and scaling stay."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import _check_n_features, check_is_fitted

from unpooled import tree
from unpooled.data.federate import as_federation, federate
from unpooled.errors import BadData, BadParameter, suggest
from unpooled.estimator import Estimator
from unpooled.federation import Federation, is_federation
from unpooled.maths.bayes_linear import Stats
from unpooled.models.regression.design import Design
from unpooled.models.regression.scaling import check_targets


class UpdatedLastLayer(Estimator):
    """Base class of regressions whose last layer can be updated.

    A subclass defines `_ask(fed)`, which returns the sums of a federation's rows, and `_settle(design, stats)`, which sets the posterior.
    """

    design_: Design
    stats_: Stats

    def _ask(self, fed: Federation) -> Stats:
        """To be given by the model: one SUM of second moments."""
        raise NotImplementedError("abstract")

    def _settle(self, design: Design, stats: Stats) -> None:
        """To be given by the model: set the posterior."""
        raise NotImplementedError("abstract")

    def partial_fit(self, data: Any, y: Any = None, *, by: Any = None, sample_weight: Any = None) -> Any:
        """Add rows of new clients to the last layer: one SUM.

        The first call is `fit`. Features, scaling and recalibration stay as they are.

        Parameters
        ----------
        data : dict, list, frame, folder, Federation or array
            Rows as in `fit`.
        y : array, optional
            Targets, where `data` is an array.
        by : array, optional
            Client of each row, where `data` is an array.
        sample_weight : array, optional
            Weight of each row.

        Returns
        -------
        self : object
            The updated estimator.
        """
        self._check_sums_kept()
        if not hasattr(self, "stats_"):
            return self.fit(data, y, by=by, sample_weight=sample_weight)
        fed = as_federation(data, y, by=by, sample_weight=sample_weight)
        check_targets(fed)
        for c in fed.here()[:1]:  # all have the same columns
            _check_n_features(self, c.x, reset=False)
        self._settle(self.design_, tree.add(self.stats_, self._ask(fed)))
        return self

    def forget(self, client: str, data: Any = None) -> Any:
        """Remove a client's rows from the last layer, as if they had not been fitted: one SUM of that client alone.

        Features, scaling and recalibration stay as they are.

        Parameters
        ----------
        client : str
            Name of the client.
        data : tuple (X, y), Federation or None, default=None
            The client's rows, or a federation it is part of; None: the federation of the last `fit`.

        Returns
        -------
        self : object
            The updated estimator.
        """
        self._check_sums_kept()
        check_is_fitted(self, "stats_")
        fed = self._federation_of(client, data)
        rest = tree.map(lambda a, b: a - b, self.stats_, self._ask(fed))
        if rest.n < 2:
            raise BadData(f"without client {client!r} fewer than 2 rows are left: fit again on other data instead")
        self._settle(self.design_, rest._replace(yy=np.maximum(rest.yy, 0.0)))
        return self

    def _check_sums_kept(self) -> None:
        """Refuse a private fit, which keeps no exact sums."""
        if hasattr(self, "posterior_"):
            raise BadParameter("a private fit keeps no exact sums to add to or to subtract from: fit again instead")

    def _federation_of(self, client: str, data: Any) -> Federation:
        """The federation that holds a client's rows."""
        if not isinstance(client, str):
            raise BadParameter(
                f"client should be the name of a client, not a {type(client).__name__}: give its rows as data=(X, y)"
            )
        if data is None:
            fed = getattr(self, "_fed", None)
        elif is_federation(data):
            fed = data
        else:
            fed = federate({client: data} if isinstance(data, tuple) else data)
        if fed is None or client not in fed.names:
            known = "" if fed is None else f" ({suggest(client, fed.names)})"
            raise BadParameter(f"client {client!r} is not in the federation to be asked{known}: give its data=(X, y)")
        return fed.only([client])
