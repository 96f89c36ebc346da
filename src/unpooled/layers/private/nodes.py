"""A privacy budget that nodes enforce: each node adds noise to its answers and accounts for them. The coordinator's side.

A look is one noisy answer; its cost is mu^2 of Gaussian differential privacy. The coordinator says what each look may cost and knows how
much noise a total then has. With masked sums each node adds its part of the noise, without them each adds all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from unpooled.client import Ask
from unpooled.errors import BadParameter
from unpooled.federation import Federation, Layer
from unpooled.layers.private.look import wanted_mu2
from unpooled.privacy.accountant import Accountant, BudgetSpent, check_epsilon
from unpooled.privacy.clipping import parse_bounds
from unpooled.privacy.sensitivity import sensitivity_of
from unpooled.tree import Tree

LEAST_LEFT = 1e-3  # share of the budget below which it counts as spent


class PrivateNodes(Layer):
    """A federation of nodes that add noise by their own policies.

    Parameters
    ----------
    inner : Federation
        The nodes.
    epsilon : float
        Epsilon that a fit may spend.
    delta : float
        The probability with which epsilon may be exceeded.
    bounds : dict of column to (low, high)
        Public bounds of every column; for a regression an entry "y" too.
    masked : bool
        Whether sums are masked, so that each node adds its part of the noise only.
    colluding : int, default=1
        Nodes that are assumed to tell the coordinator their noise.
    """

    def __init__(
        self,
        inner: Federation,
        *,
        epsilon: float,
        delta: float,
        bounds: Mapping[str, Any],
        masked: bool,
        colluding: int = 1,
    ):
        super().__init__(inner)
        check_epsilon(epsilon)
        names = [str(c) for c in inner.columns or [b for b in bounds if b != "y"]]
        target = {"y": bounds["y"]} if "y" in bounds and "y" not in names else {}
        self.bounds = parse_bounds({k: v for k, v in bounds.items() if k not in target}, names, len(names))
        self.target_bounds = parse_bounds(target, ["y"], 1)[0] if target else None
        self.masked, self.colluding = masked, colluding
        self.accountant = Accountant(epsilon, delta)

    @property
    def noise_factor(self) -> float:
        """Standard deviation of the noise of a total, relative to that of one look."""
        n = len(self.names)
        return float(np.sqrt(n / noise_holders(n, self.colluding) if self.masked else n))

    @property
    def mu2_for_fit(self) -> float:
        """mu^2 that all looks of one fit may cost together."""
        left = self.accountant.mu2_left
        if left < LEAST_LEFT * self.accountant.mu2_total:
            raise BudgetSpent(f"{self.accountant}: nothing is left for another fit, raise epsilon in [privacy]")
        return left

    def sum(self, ask: Ask, down: Tree) -> Tree:
        """A noisy total; refused if the question is not private or costs more than is left."""
        sensitivity_of(ask.name)
        mu2 = wanted_mu2(ask)
        if mu2 is None:
            raise BadParameter(f"{ask.name} was asked without saying what it may cost: fit a private model")
        self.accountant.check(mu2)
        total = self.inner.sum(ask, down)
        self.accountant.charge(mu2)
        return total

    def gather(self, ask: Ask, down: Tree) -> dict[str, Tree]:
        """Refused: single answers cannot be made private by noise on a total."""
        raise BadParameter(
            f"{ask.name} gathers single answers, which a private study does not let out: fit a private model"
        )

    def tell(self, ask: Ask, down: Tree) -> None:
        """Refused: a private study changes nothing at the nodes."""
        raise BadParameter(
            f"{ask.name} changes what clients keep, which a private study does not allow: fit a private model"
        )

    def restore(self, saved: Tree) -> None:
        """Restore what was charged; a run that starts afresh has spent nothing here, while the nodes' own accounts go on."""
        super().restore(saved.get("inner", {}) if saved else {})
        self.accountant.charges = [float(c) for c in saved["charges"]] if saved else []

    def snapshot(self) -> Tree:
        """The inner state and what has been charged, for a checkpoint."""
        return {"inner": self.inner.snapshot(), "charges": np.array(self.accountant.charges)}


def noise_holders(nodes: int, colluding: int) -> int:
    """The least number of nodes that answer a masked sum and do not reveal their noise, at least 1."""
    return max(1, 2 * nodes // 3 + 1 - colluding)
