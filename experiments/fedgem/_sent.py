"""A model fitted over compressed answers, which then says what they took."""

from __future__ import annotations

from typing import Any

import numpy as np

import unpooled as up


class Sent:
    """`model` over `Compressed(..., **how)`: the model's results, and `sent_` with exchanges and megabytes of all clients."""

    def __init__(self, model: Any, **how: Any):
        self.model, self.how = model, how

    def fit(self, rows: dict[str, np.ndarray]) -> Sent:
        fed = up.Compressed(up.federate(rows), **self.how)
        self.model.fit(fed)
        self.labels_, self.structure_, self.history_ = self.model.labels_, self.model.structure_, self.model.history_
        sums = fed.journal.exchanges
        self.sent_ = {"exchanges": len(sums), "mb_up": sum(e.bytes_up for e in sums) / 1e6}
        return self
