"""Greedy agglomeration: merge the pair with the largest gain, for any definition of gain; sends nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from unpooled.tree import message

Gains = Callable[[np.ndarray, np.ndarray], np.ndarray]  # (i, j), both (p,) -> gain of each pair
Join = Callable[[int, int], None]  # merges j into i


@message("open_mixture.Merges")
class Merges(NamedTuple):
    """A dendrogram: step s merges nodes `left[s]` and `right[s]` into node `leaves + s`."""

    leaves: int
    left: np.ndarray  # (s,) int
    right: np.ndarray  # (s,) int
    gain: np.ndarray  # (s,)

    def labels(self, clusters: int) -> np.ndarray:
        """(leaves,) the cluster of every leaf when merging stops at this many clusters."""
        return self.after(max(self.leaves - clusters, 0))

    def after(self, steps: int) -> np.ndarray:
        """(leaves,) the cluster of every leaf after this many steps, numbered by first appearance."""
        root = np.arange(self.leaves + len(self.left))
        for s in range(min(steps, len(self.left)) - 1, -1, -1):  # from the last merge down, so that roots are final
            root[[self.left[s], self.right[s]]] = root[self.leaves + s]
        _, first, inverse = np.unique(root[: self.leaves], return_index=True, return_inverse=True)
        return np.argsort(np.argsort(first))[inverse]

    def best(self) -> int:
        """The number of clusters at which the sum of gains is largest."""
        total = np.concatenate([[0.0], np.cumsum(self.gain)])
        return self.leaves - int(np.argmax(total))


def greedy(size: int, gains: Gains, join: Join, until: int = 1) -> Merges:
    """Merge until this many are left; a row of the table of gains is computed again only when its component changes."""
    table = np.full((size, size), -np.inf)
    upper = np.triu_indices(size, 1)
    table[upper] = table.T[upper] = gains(*upper)
    node, steps = np.arange(size), []
    for step in range(size - until):
        i, j = sorted(divmod(int(np.argmax(table)), size))
        if table[i, j] == -np.inf:
            break
        steps.append((node[i], node[j], table[i, j]))
        join(i, j)
        node[i] = size + step
        table[j] = table[:, j] = -np.inf
        rest = np.flatnonzero(np.isfinite(table[i]))
        if len(rest):
            table[i, rest] = table[rest, i] = gains(np.full(len(rest), i), rest)
    left, right, gain = np.array(steps, dtype=float).reshape(-1, 3).T
    return Merges(size, left.astype(int), right.astype(int), gain)
