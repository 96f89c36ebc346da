"""Does OpenMixture see clusters through offsets of sites?

    UNPOOLED_DATA=<folder of the data> python benchmarks/open_mixture_offsets.py

Ten tables of at most 1,200 rows are split over ten clients that are identical (rows at random) or skewed (each class over few clients,
Dirichlet 0.3). Every client's rows are moved by a random offset of 0, 0.25 or 0.5 standard deviations within classes, per column. Printed
are the adjusted Rand index over all rows, the number of clusters, the certainty of the true number, and for identical clients without
offsets the index of a pooled mixture with K by BIC. Seeds begin at 6,000: no setting was chosen on these tables or seeds.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable

import numpy as np
from sklearn.datasets import load_iris, load_wine
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

import unpooled as up
from unpooled.datasets import shared

FIRST_SEED, ROWS, N_CLIENTS, SKEW = 6000, 1200, 10, 0.3
OFFSETS = (0.0, 0.25, 0.5)
Table = tuple[np.ndarray, np.ndarray]


def generated(seed: int, k: int, d: int, apart: float) -> Callable[[], Table]:
    def load() -> Table:
        rng = np.random.default_rng(seed)
        means, scales = apart * rng.normal(size=(k, d)), rng.uniform(0.5, 1.5, size=(k, d))
        y = rng.integers(k, size=ROWS)
        return means[y] + scales[y] * rng.normal(size=(ROWS, d)), y

    return load


def published(name: str) -> Callable[[], Table]:
    def load() -> Table:
        data = shared.clustering(name)
        return np.asarray(data.x, float), np.asarray(data.y)

    return load


TABLES: dict[str, Callable[[], Table]] = {
    "iris": lambda: load_iris(return_X_y=True),
    "wine": lambda: load_wine(return_X_y=True),
    "generated 8 x 5": generated(FIRST_SEED, 8, 5, 2.0),
    "generated 12 x 8": generated(FIRST_SEED + 1, 12, 8, 1.5),
    "generated 5 x 3": generated(FIRST_SEED + 2, 5, 3, 3.0),
    **{name: published(name) for name in ("s1", "r15", "hepta", "lsun", "wdbc")},
}


def sample(load: Callable[[], Table], rng: np.random.Generator) -> Table:
    x, y = load()
    rows = rng.permutation(len(y))[:ROWS]
    return x[rows] / x[rows].std(0), np.unique(y[rows], return_inverse=True)[1]


def split(y: np.ndarray, skewed: bool, rng: np.random.Generator) -> np.ndarray:
    """The client of each row."""
    if not skewed:
        return rng.integers(N_CLIENTS, size=len(y))
    shares = rng.dirichlet(np.full(N_CLIENTS, SKEW), size=y.max() + 1)
    return np.array([rng.choice(N_CLIENTS, p=shares[k]) for k in y])


def within(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Standard deviation of each column within classes."""
    return np.sqrt(np.mean([x[y == k].var(0) for k in np.unique(y)], axis=0))


def fit(x: np.ndarray, y: np.ndarray, by: np.ndarray, seed: int) -> tuple[float, up.OpenMixture]:
    data = {f"c{c}": x[by == c] for c in range(N_CLIENTS) if (by == c).any()}
    model = up.OpenMixture(random_state=seed).fit(data)
    labels = np.concatenate([model.labels_[name] for name in data])
    truth = np.concatenate([y[by == c] for c in range(N_CLIENTS) if (by == c).any()])
    return adjusted_rand_score(truth, labels), model


def pooled(x: np.ndarray, y: np.ndarray, seed: int) -> float:
    """The index of a mixture of the pooled rows, its size and covariance type by BIC."""
    fits = [
        GaussianMixture(k, covariance_type=shape, n_init=2, random_state=seed).fit(x)
        for k in range(1, 2 * y.max() + 4)
        for shape in ("spherical", "diag", "full")
    ]
    best = min(fits, key=lambda model: model.bic(x))
    return adjusted_rand_score(y, best.predict(x))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--tables", nargs="*", default=list(TABLES), choices=list(TABLES))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    here = {n: t for n, t in TABLES.items() if "UNPOOLED_DATA" in os.environ or n in ("iris", "wine") or " " in n}
    for name in (n for n in given.tables if n in here):
        load = here[name]
        for seed in range(FIRST_SEED, FIRST_SEED + given.seeds):
            for skewed in (False, True):
                rng = np.random.default_rng([seed, skewed])
                x, y = sample(load, rng)
                by, scale = split(y, skewed, rng), within(x, y)
                unit = rng.normal(size=(N_CLIENTS, x.shape[1])) * scale
                said = f"{name:17} {'skewed' if skewed else 'identical':9} classes {y.max() + 1:2}"
                for offset in OFFSETS:
                    index, model = fit(x + offset * unit[by], y, by, seed)
                    certain = model.certainty_.get(str(y.max() + 1), 0.0)
                    said += f"  {offset}: {index:.3f} K {model.n_components_} ({certain:.2f})"
                said += "" if skewed else f"  pooled BIC {pooled(x, y, seed):.3f}"
                print(said, flush=True)


if __name__ == "__main__":
    main()
