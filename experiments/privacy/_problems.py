"""Rows for the experiments: drawn mixtures, and published tables with bounds from knowledge of what the columns are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.datasets import shared

REPORTED = 80_000  # seeds of drawn mixtures that tables report; settings were found on seeds from 9,000 on


class Problem(NamedTuple):
    train: np.ndarray  # (n, d)
    test: np.ndarray
    bounds: np.ndarray  # (d, 2)
    k: int


def mixture(n: int, d: int, k: int, seed: int, *, wide: float = 10.0, condition: float = 20 / 3) -> Problem:
    """Means uniform in [-5, 5]^d, bounds at -wide and wide; variances along random axes spread by `condition`, 2 at most."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.full(k, 5.0))
    means = rng.uniform(-5, 5, (k, d))
    factors = []
    for _ in range(k):
        axes = np.linalg.qr(rng.normal(size=(d, d)))[0]
        variances = np.exp(rng.uniform(np.log(2 / condition), np.log(2.0), d))
        factors.append(axes * np.sqrt(variances))
    factors = np.array(factors)

    def draw(rows: int) -> np.ndarray:
        label = rng.choice(k, rows, p=weights)
        return means[label] + np.einsum("nij,nj->ni", factors[label], rng.normal(size=(rows, d)))

    return Problem(draw(n), draw(20_000), np.array([[-wide, wide]] * d), k)


TABLES = {
    "ccpp": ([[0, 40], [20, 90], [980, 1040], [0, 110], [400, 520]], 4),
    "beijing": ([[-50, 40], [-30, 50], [970, 1060]], 4),
    "s1": ([[0, 1e6], [0, 1e6]], 15),
}


def rows_of(name: str) -> np.ndarray:
    """The rows of a published table, complete ones alone."""
    if name == "s1":
        return shared.clustering("s1").x
    if name == "ccpp":
        data = shared.ccpp()
        return np.column_stack([data.x[:, [data.columns.index(c) for c in ("AT", "V", "AP", "RH")]], data.y])
    columns = shared.table("beijing_pm25")
    x = np.stack([columns[c].astype(float) for c in ("DEWP", "TEMP", "PRES")], 1)
    return x[~np.isnan(x).any(1)]


def split(name: str, seed: int) -> Problem:
    """Four fifths of a published table to fit, one fifth to judge."""
    x, (bounds, k) = rows_of(name), TABLES[name]
    order = np.random.default_rng(seed).permutation(len(x))
    cut = int(0.8 * len(x))
    return Problem(x[order[:cut]], x[order[cut:]], np.array(bounds, dtype=float), k)


class Regression(NamedTuple):
    x: np.ndarray
    y: np.ndarray
    bounds: np.ndarray  # (d + 1, 2), the target's last


def regression(name: str) -> Regression:
    """A published table with bounds of its columns and target."""
    if name == "gaussian 1e5 x 20":
        rng = np.random.default_rng(0)
        x = rng.normal(size=(100_000, 20))
        y = x @ rng.normal(size=20) / np.sqrt(20) + rng.normal(size=len(x))
        return Regression(x, y, np.array([[-6.0, 6.0]] * 20 + [[-8.0, 8.0]]))
    if name == "ccpp":
        x = rows_of("ccpp")
        return Regression(x[:, :4], x[:, 4], np.array(TABLES["ccpp"][0], dtype=float))
    if name == "parkinsons":
        data = shared.parkinsons()
        return Regression(data.x, data.y.astype(float), np.vstack([wide(data.x), [0, 80]]))
    columns = shared.table("seoul_bike_raw")
    numbers = [c for c in columns if columns[c].dtype.kind in "fi" and not c.startswith("Rented")]
    x = np.stack([columns[c].astype(float) for c in numbers], 1)
    y = next(columns[c].astype(float) for c in columns if c.startswith("Rented"))
    return Regression(x, y, np.vstack([wide(x), [0, 4000]]))


def wide(x: np.ndarray) -> np.ndarray:
    """Half as wide again as the values: a stand-in for knowledge, where columns are measurements that we do not know well."""
    low, high = x.min(0), x.max(0)
    return np.stack([low - 0.25 * (high - low), high + 0.25 * (high - low)], 1)
