"""Whole clients held out: how well they are predicted tells how well a client never seen will be. Sends nothing of its own.

A question about held-out rows is asked of the clients held out with a share of 1 (all their rows are held out), and of the others with a
share of 0 (all their rows are fitted); the two totals are added.
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

MIN_HELD = 10  # clients held out, if they are at most a third of all: fewer say little about the next one


class HeldClients(Layer):
    """A federation in which some clients are held out and the others are fitted."""

    def __init__(self, inner: Federation, held: Sequence[str]):
        super().__init__(inner)
        rest = [name for name in inner.names if name not in set(held)]
        smaller = min(len(held), len(rest))
        if inner.min_clients > smaller:
            raise BadParameter(
                f"recalibrate='clients' asks {len(held)} clients apart from the other {len(rest)}: "
                f"lower min_clients={inner.min_clients} to {smaller}"
            )
        try:
            self.held, self.fit = inner.only(held), inner.only(rest)
        except BadParameter as error:
            raise BadParameter(
                "recalibrate='clients' asks some clients apart from the others, which masked sums do not allow: use recalibrate=True, "
                "or BayesianRegression(recalibrate='clients')"
            ) from error

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
    size = max(math.ceil(share * len(names)), min(MIN_HELD, len(names) // 3))
    order = np.random.default_rng(seed).permutation(sorted(names))
    return sorted(str(name) for name in order[: min(size, len(names) - 1)])


def warn_if_no_better_than_the_mean(row: Mapping[str, Any]) -> None:
    """Warn where held-out clients are predicted no better than by the mean of all targets."""
    if row["val_rmse"] >= row["val_spread"]:
        warnings.warn(
            f"clients held out are predicted with an error of {row['val_rmse']:.4g}, the mean of all targets has "
            f"{row['val_spread']:.4g}: the model does not generalise to clients never seen; try BayesianRegression, or leave out "
            "columns that identify clients",
            DataWarning,
            stacklevel=2,
        )
