"""Greedy agglomeration: always join the pair with the largest gain, whatever a gain is."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from unpooled.tree import message

Gains = Callable[[np.ndarray, np.ndarray], np.ndarray]  # (i, j), both (p,), to the gain of each pair
Join = Callable[[int, int], None]  # j becomes part of i


@message("open_mixture.Merges")
class Merges(NamedTuple):
    """A dendrogram: step s joins nodes `left[s]` and `right[s]` into node `leaves + s`."""

    leaves: int
    left: np.ndarray  # (s,) int
    right: np.ndarray  # (s,) int
    gain: np.ndarray  # (s,)

    def labels(self, clusters: int) -> np.ndarray:
        """(leaves,) the cluster of every leaf when joining stops at so many clusters."""
        return self.after(max(self.leaves - clusters, 0))

    def after(self, steps: int) -> np.ndarray:
        """(leaves,) the cluster of every leaf after so many steps, numbered by first appearance."""
        root = np.arange(self.leaves + len(self.left))
        for s in range(min(steps, len(self.left)) - 1, -1, -1):  # from the last join down, so that roots are final
            root[[self.left[s], self.right[s]]] = root[self.leaves + s]
        _, first, inverse = np.unique(root[: self.leaves], return_index=True, return_inverse=True)
        return np.argsort(np.argsort(first))[inverse]

    def best(self) -> int:
        """The number of clusters at which the gains add up to the most."""
        total = np.concatenate([[0.0], np.cumsum(self.gain)])
        return self.leaves - int(np.argmax(total))


def greedy(size: int, gains: Gains, join: Join, until: int = 1) -> Merges:
    """Join until so few are left; each row of the table of gains is computed at once, and again only when it changes."""
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
