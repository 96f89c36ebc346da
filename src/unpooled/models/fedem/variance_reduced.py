"""VR-FedEM: FedEM whose clients keep their statistics and add their change on a minibatch; one SUM per round."""

from __future__ import annotations

from unpooled.models.fedem.estimator import FedEM


class VRFedEM(FedEM):
    """FedEM with variance reduction: each client keeps its statistics and adds their change on a minibatch.

    Parameters
    ----------
    batch_size : int, default=32
        Rows that a client uses in a round, between two passes over all its rows.
    epoch : int, default=20
        Rounds between two passes over all rows.
    **others
        The other parameters, and the attributes, are those of `FedEM`.

    References
    ----------
    Dieuleveut, Fort, Moulines and Robin, Federated-EM with heterogeneity mitigation and variance reduction, NeurIPS 2021.

    Examples
    --------
    >>> import numpy as np
    >>> import unpooled as up
    >>> rng = np.random.default_rng(0)
    >>> sites = {name: rng.normal(rng.choice([0.0, 8.0], size=(400, 1)), size=(400, 2)) for name in "abcd"}
    >>> model = up.VRFedEM({"name": "gaussian", "n_components": 2}, tol=1e-3, random_state=0).fit(sites)
    >>> model.converged_
    True
    >>> np.sort(model.params_.means[:, 0]).round().tolist()
    [0.0, 8.0]
    """

    def _batch(self) -> int | None:
        """Rows per minibatch."""
        return self.batch_size or 32

    def _rounds_per_epoch(self) -> int:
        """Rounds between two refreshes of the clients' statistics."""
        return self.epoch or 20
