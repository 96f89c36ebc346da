"""A table of mixed columns as numbers for a Gaussian mixture, and what the mixture says of a level. Nothing is sent.

A number stays a number, a positive one its logarithm; a binary column is 0 and 1, an ordered one the place of its level, a category one
column of zeros and ones per level. Covariances between these columns are what links categories with numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from unpooled.maths.imputation import Laws, cdf, mean

LEAST = 1e-9  # of a probability


class Embedding:
    """Which embedded columns stand for which column of the encoded table."""

    def __init__(self, kinds: list[str], levels: list[int], skewed: Sequence[int] = ()):
        """Kinds and numbers of levels of the columns, and which columns of numbers some candidates take the logarithm of."""
        self.kinds, self.levels, self.skewed = list(kinds), [int(n) for n in levels], [int(j) for j in skewed]

    @classmethod
    def of(cls, option: dict[str, Any]) -> Embedding:
        """The embedding that an option of a question describes."""
        return cls(option["kinds"], option["levels"], option["skewed"])

    @property
    def option(self) -> dict[str, Any]:
        """As it travels with a question."""
        return {"kinds": self.kinds, "levels": self.levels, "skewed": self.skewed}

    @cached_property
    def logarithmic(self) -> Embedding:
        """The same with logarithms of the skewed columns."""
        return Embedding(["positive" if j in self.skewed else k for j, k in enumerate(self.kinds)], self.levels)

    @cached_property
    def parts(self) -> list[slice]:
        """The embedded columns of each column."""
        widths = [n if kind == "category" else 1 for kind, n in zip(self.kinds, self.levels)]
        ends = np.cumsum(widths).tolist()
        return [slice(a, b) for a, b in zip([0, *ends[:-1]], ends)]

    @cached_property
    def column_of(self) -> np.ndarray:
        """The column that each embedded one stands for, (e,)."""
        return np.concatenate([np.full(p.stop - p.start, j) for j, p in enumerate(self.parts)])

    @cached_property
    def is_number(self) -> np.ndarray:
        """Which embedded columns hold numbers, (e,) bool."""
        numbers = [kind not in ("category", "binary", "ordered") for kind in self.kinds]
        return np.array(numbers)[self.column_of]

    @cached_property
    def discrete(self) -> list[int]:
        """The columns of levels."""
        return [j for j, kind in enumerate(self.kinds) if kind in ("category", "binary", "ordered")]

    @property
    def numbers(self) -> list[int]:
        """The columns of numbers."""
        return [j for j in range(len(self.kinds)) if j not in self.discrete]

    @property
    def plain(self) -> bool:
        """Whether the embedded table is the table itself."""
        return not {"category", "positive"} & set(self.kinds)

    def embed(self, x: np.ndarray) -> np.ndarray:
        """Encoded rows (n, d) as (n, e)."""
        if self.plain:
            return x
        return np.concatenate([self.embedded_column(x[:, j], j) for j in range(x.shape[1])], axis=1)

    def embedded_column(self, values: np.ndarray, j: int) -> np.ndarray:
        """Values (n,) of column j as (n, width)."""
        if self.kinds[j] == "positive":
            with np.errstate(invalid="ignore", divide="ignore"):
                return np.where(values > 0, np.log(values), np.nan)[:, None]
        if self.kinds[j] != "category":
            return values[:, None]
        there = ~np.isnan(values)[:, None]
        return np.where(there, values[:, None] == np.arange(self.levels[j]), np.nan)

    def balanced(self, scale: np.ndarray) -> np.ndarray:
        """The scales with one for all levels of a category, so that it weighs as much as a number."""
        out = np.array(scale)
        for kind, part in zip(self.kinds, self.parts):
            if kind == "category":
                out[part] = np.sqrt((scale[part] ** 2).sum())
        return out

    def deviation(self, scale: np.ndarray, j: int) -> float:
        """What an error of the probabilities of column j's levels is measured in: about 1 for the overall shares."""
        own = np.sqrt((scale[self.parts[j]] ** 2).sum())
        return float({"category": own, "binary": np.sqrt(2) * own}.get(self.kinds[j], 1.0))

    # ---- back ----

    def value(self, law: Laws, j: int) -> np.ndarray:
        """The mean of gaps in column j of numbers, in its own units, from their distribution in the embedded column: (c,)."""
        if self.kinds[j] == "positive":
            with np.errstate(over="ignore"):
                return (law.r * np.exp(law.means + law.scales**2 / 2)).sum(1)
        return mean(law)

    def natural(self, values: np.ndarray, j: int) -> np.ndarray:
        """Values of the embedded column of numbers in the column's own units."""
        return np.exp(values) if self.kinds[j] == "positive" else values

    def probabilities(self, laws: list[Laws], j: int) -> np.ndarray:
        """Probabilities (c, levels) of gaps in column j, from the distributions of its embedded columns."""
        if self.kinds[j] == "category":
            found = np.stack([mean(law) for law in laws], axis=1)
        elif self.kinds[j] == "binary":
            one = mean(laws[0])
            found = np.stack([1 - one, one], axis=1)
        else:
            edges = np.arange(self.levels[j] - 1) + 0.5
            below = [cdf(laws[0], np.full(len(laws[0].rows), edge)) for edge in edges]
            ends = np.stack([np.zeros(len(laws[0].rows)), *below, np.ones(len(laws[0].rows))], axis=1)
            found = np.diff(ends, axis=1)
        found = np.clip(found, LEAST, None)
        return found / found.sum(axis=1, keepdims=True)
