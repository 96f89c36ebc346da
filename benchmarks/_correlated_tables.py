"""Tables of correlated columns and few rows, for the development of `OpenMixture`; `open_mixture_offsets.py --development` fits them.

Drawn tables have a few factors behind 14 to 30 columns: classes differ in the means, the scales and (a little) in the loadings of the
factors, which are normal, of t tails or exponentiated. In those named "near" classes overlap. The others are parts of published tables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from unpooled.datasets import shared

Table = tuple[np.ndarray, np.ndarray]


class Drawn(NamedTuple):
    """How a table is drawn."""

    seed: int
    classes: int
    columns: int
    rows: int
    kind: str  # "normal", "t" or "lognormal"
    apart: float  # standard deviation of the means of the factors
    turned: float = 0.35  # standard deviation of what classes' loadings differ by
    noise: float = 0.05  # least noise of a column; the most is 0.4 more

    def load(self) -> Table:
        """The rows and their classes."""
        rng = np.random.default_rng(self.seed)
        n_factors = int(rng.integers(4, 9))
        loadings = rng.normal(size=(self.columns, n_factors)) * rng.uniform(0.3, 1.5, size=n_factors)
        y = rng.choice(self.classes, size=self.rows, p=rng.dirichlet(np.full(self.classes, 4.0)))
        own = [loadings + self.turned * rng.normal(size=loadings.shape) for _ in range(self.classes)]
        noise = rng.uniform(self.noise, self.noise + 0.4, size=self.columns)
        means = rng.normal(size=(self.classes, n_factors)) * self.apart
        x = np.empty((self.rows, self.columns))
        for k in range(self.classes):
            of_class = y == k
            n = of_class.sum()
            factors = self._factors(n, n_factors, rng) + means[k]
            x[of_class] = factors @ own[k].T + noise * rng.normal(size=(n, self.columns))
        return (np.exp(0.35 * x / x.std(0)), y) if self.kind == "lognormal" else (x, y)

    def _factors(self, n: int, n_factors: int, rng: np.random.Generator) -> np.ndarray:
        """(n, factors) about 0, with a scale of the class."""
        z = rng.normal(size=(n, n_factors)) * rng.uniform(0.7, 1.3)
        return z / np.sqrt(rng.chisquare(5, size=(n, 1)) / 5) if self.kind == "t" else z


def part(name: str, classes: int, rows: int, n_axes: int = 0, first: int = 0) -> Callable[[], Table]:
    """Random rows of some classes of a published table, on its first principal axes if `n_axes` says how many."""

    def load() -> Table:
        rng = np.random.default_rng(rows + first)
        data = shared.clustering(name)
        y = np.unique(data.y, return_inverse=True)[1]
        held = rng.permutation(np.flatnonzero((y >= first) & (y < first + classes)))[:rows]
        x = np.asarray(data.x, float)[held]
        x = x[:, x.std(0) > 1e-9]
        if n_axes:
            x = x - x.mean(0)
            x = x @ np.linalg.svd(x, full_matrices=False)[2][:n_axes].T
        return x, np.unique(y[held], return_inverse=True)[1]

    return load


DEVELOPMENT: dict[str, Callable[[], Table]] = {
    "normal 2 x 30": Drawn(1, 2, 30, 560, "normal", 0.8).load,
    "normal 3 x 20": Drawn(2, 3, 20, 500, "normal", 1.0).load,
    "normal 2 x 24": Drawn(3, 2, 24, 400, "normal", 1.0).load,
    "normal 4 x 16": Drawn(4, 4, 16, 700, "normal", 1.2).load,
    "t 2 x 28": Drawn(5, 2, 28, 550, "t", 0.9).load,
    "t 3 x 18": Drawn(6, 3, 18, 450, "t", 1.2).load,
    "lognormal 2 x 30": Drawn(7, 2, 30, 569, "lognormal", 0.9).load,
    "lognormal 3 x 14": Drawn(8, 3, 14, 300, "lognormal", 1.2).load,
    "lognormal 2 x 20": Drawn(9, 2, 20, 350, "lognormal", 1.0).load,
    "near normal 2 x 30": Drawn(11, 2, 30, 560, "normal", 0.8, 0.05, 0.3).load,
    "near normal 3 x 20": Drawn(12, 3, 20, 500, "normal", 1.1, 0.05, 0.3).load,
    "near t 2 x 24": Drawn(13, 2, 24, 500, "t", 1.0, 0.08, 0.2).load,
    "near t 2 x 30": Drawn(16, 2, 30, 600, "t", 1.1, 0.05, 0.3).load,
    "near lognormal 2 x 26": Drawn(14, 2, 26, 560, "lognormal", 1.0, 0.08, 0.2).load,
    "near lognormal 2 x 16": Drawn(15, 2, 16, 450, "lognormal", 1.0, 0.1, 0.2).load,
    "satimage 3": part("satimage", 3, 560, 30),
    "optdigits 2": part("optdigits", 2, 450, 25, 3),
    "optdigits 3": part("optdigits", 3, 600, 20, 5),
    "letter 3": part("letter", 3, 600),
    "anuran 2": part("anuran_species", 2, 500),
    "segment 3": part("segment", 3, 500, 12, 2),
    "pendigits 3": part("pendigits", 3, 500),
    "vehicle 4": part("vehicle", 4, 600),
}
