"""FedBNR with default parameters on eight tables: error against an exact Gaussian process and gradient boosting, coverage, bytes.

    UNPOOLED_DATA=<folder of the data> python benchmarks/fedbnr_tables.py

Up to 1,300 random rows of each table, 60 % of them fitted by ten clients; the rivals see the same rows pooled (the Gaussian process at most
800). Coverage is of 90 % intervals, recalibrated (the default) and raw. Seeds begin at 8,000: no setting was chosen on them or on these
tables.

    python benchmarks/fedbnr_tables.py --unseen

The rows of each table belong to 16 sites at random, which are alike, or have an offset of their own besides (a standard deviation of 0.3
of y's). Each quarter of the sites is left out in turn: coverage of its rows by `recalibrate="clients"` and the width of these intervals
over that of intervals for known sites.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator

import numpy as np
from sklearn.datasets import load_diabetes, make_friedman3
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.preprocessing import StandardScaler

import unpooled as up
from unpooled.datasets import shared

FIRST_SEED, ROWS, N_CLIENTS, GP_ROWS, SCALE_ROWS = 8000, 1300, 10, 800, 300
N_SITES, N_LEFT_OUT, OFFSETS = 16, 4, (0.0, 0.3)
Table = tuple[np.ndarray, np.ndarray]


def star98(seed: int) -> Table:
    from statsmodels.datasets import star98

    data = star98.load_pandas()
    above, below = data.endog.to_numpy(float).T
    return data.exog.to_numpy(float), above / (above + below)


def published(name: str) -> Callable[[int], Table]:
    def load(seed: int) -> Table:
        data = getattr(shared, name)()
        complete = np.isfinite(data.x).all(1) & np.isfinite(data.y)
        return data.x[complete], data.y[complete]

    return load


TABLES: dict[str, Callable[[int], Table]] = {
    "diabetes": lambda seed: load_diabetes(return_X_y=True),
    "friedman3": lambda seed: make_friedman3(ROWS, noise=0.1, random_state=seed),
    "star98": star98,
    **{name: published(name) for name in ("skillcraft", "parkinsons", "sml2010", "seoul_bike", "ccpp")},
}


def gaussian_process(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Predictions of an exact Gaussian process with a length scale per column, learned on 300 rows."""
    scale = StandardScaler().fit(x)
    kernel = ConstantKernel(1.0) * RBF(np.full(x.shape[1], np.sqrt(x.shape[1]))) + WhiteKernel(0.1)
    learned = GaussianProcessRegressor(kernel, normalize_y=True).fit(scale.transform(x[:SCALE_ROWS]), y[:SCALE_ROWS])
    model = GaussianProcessRegressor(learned.kernel_, optimizer=None, normalize_y=True)
    return model.fit(scale.transform(x[:GP_ROWS]), y[:GP_ROWS]).predict(scale.transform(new))


def rmse(y: np.ndarray, predicted: np.ndarray) -> float:
    return float(np.sqrt(np.mean((y - predicted) ** 2)))


def covered(y: np.ndarray, ends: tuple[np.ndarray, np.ndarray]) -> float:
    return float(np.mean((ends[0] <= y) & (y <= ends[1])))


def trials(load: Callable[[int], Table], seeds: range) -> Iterator[tuple[list[float], str]]:
    for seed in seeds:
        x, y = load(seed)
        order = np.random.default_rng(seed).permutation(len(y))[:ROWS]
        cut = int(0.6 * len(order))
        fit, new = order[:cut], order[cut:]
        fed = up.federate(x[fit], y[fit], by=np.arange(cut) % N_CLIENTS)
        model = up.FedBNR(random_state=seed).fit(fed)
        boosted = GradientBoostingRegressor(random_state=seed).fit(x[fit], y[fit]).predict(x[new])
        ends = model.interval(x[new])
        model.histogram_ = model.histogram_[:, :0]
        errors = [rmse(y[new], p) for p in (model.predict(x[new]), gaussian_process(x[fit], y[fit], x[new]), boosted)]
        megabytes = sum(row.bytes_up for row in fed.journal.exchanges) / 1e6
        yield [*errors, covered(y[new], ends), covered(y[new], model.interval(x[new])), megabytes], model.features_


def unseen(load: Callable[[int], Table], seed: int, offset: float) -> Iterator[tuple[float, float]]:
    """(coverage, width over that for known sites) of rows of sites never seen."""
    x, y = load(seed)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))[:ROWS]
    x, y, site = x[order], y[order], np.arange(len(order)) % N_SITES
    y = y + offset * y.std() * rng.standard_normal(N_SITES)[site]
    for first in range(0, N_SITES, N_LEFT_OUT):
        new = (site >= first) & (site < first + N_LEFT_OUT)
        fitted = (
            up.FedBNR(random_state=seed, recalibrate=how).fit(x[~new], y[~new], by=site[~new])
            for how in ("clients", True)
        )
        for_new, for_known = (model.interval(x[new]) for model in fitted)
        yield covered(y[new], for_new), float(np.mean(for_new[1] - for_new[0]) / np.mean(for_known[1] - for_known[0]))


def print_unseen(name: str, load: Callable[[int], Table], seeds: range) -> None:
    for offset in OFFSETS:
        found = [row for seed in seeds for row in unseen(load, seed, offset)]
        coverage, width = np.mean(found, 0)
        print(f"{name:11} sites never seen, offsets {offset}: covered {coverage:.3f}, width x{width:.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--unseen", action="store_true", help="sites never seen")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    for name, load in TABLES.items():
        if given.unseen:
            print_unseen(name, load, seeds)
            continue
        found = list(trials(load, seeds))
        ours, process, boosted, recalibrated, raw, megabytes = np.mean([numbers for numbers, _ in found], 0)
        ratio = ours / min(process, boosted)
        print(f"{name:11} RMSE {ours:9.4g}  process {process:9.4g}  boosting {boosted:9.4g}  ratio {ratio:.2f}  covered "
              f"{recalibrated:.3f} (raw {raw:.3f})  {megabytes:5.1f} MB up  {found[-1][1]}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
