"""`Plausible(fed)`: answers that no honest client could give are refused; clients that dominate a total are named. Sends nothing.

It looks at counts of rows, which schemas mark, and at second moments (`layers.moments`). It needs to see single answers, so under
`SecureSum` it has nothing to look at. There each node checks itself, which protects against mistakes but not against a dishonest node.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.client import SUM, Ask
from unpooled.errors import BadParameter, DataWarning
from unpooled.federation import Federation, Layer
from unpooled.layers.moments import impossible
from unpooled.privacy.clipping import parse_bounds
from unpooled.tree import SchemaError, Tree

ROUNDING = 1e-6  # relative: sums of weights round
DOMINATES = 0.8  # a share of all rows from which a client is warned about, where there are several


class Plausible(Layer):
    """Refuse counts above a client's own rows, and report each client's share of the total.

    Parameters
    ----------
    inner : Federation
        Whose answers are looked at.
    max_share : float, default=1.0
        The largest part of all rows that one client may bring; an answer with more is refused once all have been heard.
    ranges : dict of str to (low, high), default=None
        What values the columns can have, every column named. Means of complete rows must lie in them.

    Attributes
    ----------
    rows : dict of str to float
        The rows that each client declared: the largest count in its first answer.
    shares : dict of str to float
        Each client's part of the declared rows.

    Examples
    --------
    >>> import numpy as np
    >>> import unpooled as up
    >>> from unpooled.layers.plausible import Plausible
    >>> sites = {name: np.random.default_rng(i).normal(size=(50 * (i + 1), 2)) for i, name in enumerate("abc")}
    >>> fed = Plausible(up.federate(sites))
    >>> _ = up.GaussianMixture(2, random_state=0, max_iter=3, tol=0.1).fit(fed)
    >>> {name: round(share, 2) for name, share in fed.shares.items()}
    {'a': 0.17, 'b': 0.33, 'c': 0.5}
    """

    def __init__(self, inner: Federation, *, max_share: float = 1.0, ranges: Mapping[str, Any] | None = None):
        super().__init__(inner)
        if not 0 < max_share <= 1:
            raise BadParameter(f"max_share={max_share!r} must be above 0 and at most 1: it is a part of all rows")
        self.max_share = max_share
        names = inner.columns if inner.columns is not None else list(ranges or ())
        self.ranges = None if ranges is None else parse_bounds(ranges, names, len(names))
        self.rows: dict[str, float] = {}
        self._warned: set[str] = set()

    @property
    def shares(self) -> dict[str, float]:
        """The part of all rows that each client brings, as far as its answers say."""
        total = sum(self.rows.values())
        return {name: rows / total for name, rows in sorted(self.rows.items())} if total else {}

    def sum(self, ask: Ask, down: Tree) -> Tree:
        """Ask, refuse answers that no rows can have, and warn of a client that dominates."""
        total = self.inner.sum(self._watched(ask, down), down)
        self._warn()
        return total

    def restore(self, saved: Tree) -> None:
        """Go back to a checkpoint; what was counted and warned of is forgotten."""
        super().restore(saved)
        self.rows.clear()
        self._warned.clear()

    def _watched(self, ask: Ask, down: Tree) -> Ask:
        """The question with a check of each single answer; masked answers cannot be checked."""
        if ask.kind != SUM or ask.on_totals:
            return ask
        return replace(ask, inspect=lambda up, name: self._inspect(ask, down, up, name))

    def _inspect(self, ask: Ask, down: Tree, up: Tree, name: str) -> None:
        """Refuse one client's answer if no rows can have it; coarse answers of a layer may be a little off."""
        wrong = "" if ask.steps else impossible(up, down, self.ranges)
        if wrong:
            raise SchemaError(f"{name!r} answers {ask.name} with {wrong}: no rows can have them")
        if any(True for _ in tree.row_schemas(ask.types[1])):
            self._inspect_counts(ask, up, name)

    def _inspect_counts(self, ask: Ask, up: Tree, name: str) -> None:
        """Refuse counts that cannot be true."""
        largest = max((float(to_numpy(c).max(initial=0.0)) for c in tree.row_counts(up, ask.types[1])), default=0.0)
        declared = self.rows.setdefault(name, largest)
        if largest > declared * (1 + ROUNDING):
            raise SchemaError(f"{name!r} counts {largest:g} rows and declared {declared:g}: its answer cannot be true")
        heard_all = len(self.rows) >= len(self.names) > 1
        if heard_all and self.shares[name] > self.max_share:
            raise SchemaError(
                f"{name!r} would bring {self.shares[name]:.0%} of all rows, max_share={self.max_share:g}: it is left out"
            )

    def _warn(self) -> None:
        """Warn once of every client that brings most of the rows."""
        for name, share in self.shares.items():
            if len(self.rows) > 2 and share > DOMINATES and name not in self._warned:
                self._warned.add(name)
                text = f"{name!r} brings {share:.0%} of all rows: what is fitted is mostly its own, see max_share="
                warnings.warn(text, DataWarning, stacklevel=4)
