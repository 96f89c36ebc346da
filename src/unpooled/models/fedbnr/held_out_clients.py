"""Whole clients held out: what they say of a model is what a client never seen would say. It costs no further SUM.

A question about held-out rows goes to all clients at once, as ever: to those held out with a share of 1 (all their rows check), to the
others with a share of 0 (all their rows fit).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unpooled import tree
from unpooled.client import Ask
from unpooled.errors import BadParameter, DataWarning
from unpooled.federation import Federation, Layer
from unpooled.tree import Tree

ENOUGH = 10  # clients held out, if they are at most a third of all: fewer say little about the next


class HeldClients(Layer):
    """A federation some of whose clients only check what the others fit."""

    def __init__(self, inner: Federation, held: Sequence[str]):
        super().__init__(inner)
        rest = [name for name in inner.names if name not in set(held)]
        fewer = min(len(held), len(rest))
        if inner.min_clients > fewer:
            raise BadParameter(
                f"recalibrate='clients' asks {len(held)} clients apart from the other {len(rest)}: "
                f"lower min_clients={inner.min_clients} to {fewer}"
            )
        self.held, self.fit = inner.only(held), inner.only(rest)

    def sum(self, ask: Ask, down: Tree) -> Tree:
        if not ask.options.get("share"):
            return super().sum(ask, down)
        total = self.fit.sum(ask.using(share=0.0), down)
        return tree.add(total, self.held.sum(ask.using(share=1.0), down))


def choose(names: Sequence[str], share: float, seed: int) -> list[str]:
    """The clients to hold out: a share of them, at least ten or a third."""
    if len(names) < 3:
        raise BadParameter(
            f"recalibrate='clients' holds out whole clients but there are {len(names)}: it needs 3, better 30; use True instead"
        )
    size = max(math.ceil(share * len(names)), min(ENOUGH, len(names) // 3))
    order = np.random.default_rng(seed).permutation(sorted(names))
    return sorted(str(name) for name in order[: min(size, len(names) - 1)])


def warn_if_nothing_carries_over(row: Mapping[str, Any]) -> None:
    """Where clients held out are predicted no better than by one number for all, the next client will not be either."""
    if row["val_rmse"] >= row["val_spread"]:
        warnings.warn(
            f"clients held out are predicted with an error of {row['val_rmse']:.4g}, and the mean of all targets would do with "
            f"{row['val_spread']:.4g}: what was learned does not carry over to clients never seen; try BayesianRegression, or leave out "
            "columns that tell clients apart",
            DataWarning,
            stacklevel=2,
        )
