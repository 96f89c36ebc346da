"""Every client alone: a mixture of its own rows and nothing sent but what this process reads. No cluster is shared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.data.checks import check_complete
from unpooled.errors import BadParameter, suggest
from unpooled.estimator import Estimator, Info
from unpooled.federation import Federation
from unpooled.maths import local_mixture, mixture
from unpooled.maths.mixture import Params
from unpooled.tree import message


@message("local_em.Count")
class Count(NamedTuple):
    k: Float[Array, "", ">=0"]


@client("local_em.fit_alone", SUM, batched=False)
def fit_alone(nothing: None, client: Client, *, sizes: dict, max_local: int) -> Count:
    x, w = to_numpy(client.x).astype(float), to_numpy(client.w).astype(float)
    k = sizes.get(client.name)
    found = local_mixture.fit(x[w > 0], w[w > 0], client.rng, range(k, k + 1) if k else range(1, max_local + 1))
    client.state["alone"] = {"params": found.params, "shape": found.shape}
    return Count(np.asarray(float(len(found.params.weights))))


class LocalEM(Estimator):
    """A mixture a client; `n_components` by BIC, or a mapping from client to number. Clusters of different clients are different."""

    max_iter = 1

    def __init__(
        self, n_components: Mapping[str, int] | str = "auto", *, max_local: int = 10, random_state: Any = None
    ):
        self.n_components = n_components
        self.max_local = max_local
        self.random_state = random_state

    def check(self, fed: Federation) -> None:
        check_complete(fed.here())

    def init(self, fed: Federation, rng: np.random.Generator) -> tuple:
        return ()

    def step(self, fed: Federation, state: tuple) -> tuple[tuple, Info]:
        sizes = dict(self.n_components) if isinstance(self.n_components, Mapping) else {}
        total = fed.sum(fit_alone.using(sizes=sizes, max_local=self.max_local), None)
        return (), {"components": float(total.k)}

    def finish(self, fed: Federation, state: tuple) -> None:
        kept = {c.name: c.state for c in fed.here() if "alone" in c.state}
        self.models_: dict[str, tuple[Params, str, int]] = {}
        first = 0
        for name in sorted(kept):
            params = kept[name]["alone"]["params"]
            self.models_[name] = (params, kept[name]["alone"]["shape"], first)
            first += len(params.weights)
        self.n_components_ = first
        here = fed.here()
        self.labels_ = {c.name: self.predict(c.x, client=c.name) for c in here}

    def predict(self, X: Any, client: str | None = None) -> np.ndarray:
        if client not in self.models_:
            raise BadParameter(f"LocalEM has no model for client {client!r}: {suggest(client, self.models_)}")
        params, shape, first = self.models_[client]
        return first + mixture.log_joint(params, np.asarray(X, dtype=float), shape).argmax(-1)
