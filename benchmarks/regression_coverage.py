"""Coverage and width of 90 % prediction intervals of BayesianRegression and FedBNR, on fresh seeds.

    python benchmarks/regression_coverage.py                        # sklearn's and synthetic tables
    UNPOOLED_DATA=<folder of the data> python benchmarks/regression_coverage.py --real

Three tables are printed: few rows (t mixtures against normal quantiles), recalibration (against the raw interval of the same fit), and
clients never seen (width relative to that for known clients). Seeds begin at 9,000: no setting was chosen on them.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn.datasets import load_diabetes, make_friedman1

import unpooled as up

FIRST_SEED = 9000
COVERAGE = 0.9
Z = norm.ppf(0.5 + COVERAGE / 2)
SMALL = {"n_frequencies": 50, "max_iter": 20}


def linear(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(1000, 4))
    return x, x @ [1.0, -0.5, 0.25, 0.0] + rng.normal(size=1000)


def heavy_tails(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(1000, 3))
    return x, np.sin(2 * x[:, 0]) + x[:, 1] + 0.3 * rng.standard_t(3, size=1000)


def uneven_noise(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, size=(1000, 2))
    return x, x[:, 0] ** 2 + (0.1 + 0.4 * (x[:, 1] > 0)) * rng.normal(size=1000)


def diabetes(seed: int) -> tuple[np.ndarray, np.ndarray]:
    return load_diabetes(return_X_y=True)


def friedman(seed: int) -> tuple[np.ndarray, np.ndarray]:
    return make_friedman1(800, noise=1.0, random_state=seed)


TABLES: dict[str, Callable[[int], tuple[np.ndarray, np.ndarray]]] = {
    "linear": linear,
    "heavy tails": heavy_tails,
    "uneven noise": uneven_noise,
    "diabetes": diabetes,
    "friedman1": friedman,
}


def real_tables() -> dict[str, Callable[[int], tuple[np.ndarray, np.ndarray]]]:
    """Up to 1,500 random rows of each published table."""
    from unpooled.datasets import shared

    def some(name: str) -> Callable[[int], tuple[np.ndarray, np.ndarray]]:
        data = getattr(shared, name)()

        def load(seed: int) -> tuple[np.ndarray, np.ndarray]:
            complete = np.flatnonzero(np.isfinite(data.x).all(1) & np.isfinite(data.y))
            rows = np.random.default_rng(seed).permutation(complete)[:1500]
            return data.x[rows], data.y[rows]

        return load

    return {name: some(name) for name in ("skillcraft", "parkinsons", "seoul_bike", "ccpp")}


def covered(y: np.ndarray, ends: tuple[np.ndarray, np.ndarray]) -> float:
    return float(np.mean((ends[0] <= y) & (y <= ends[1])))


def normal_ends(model: Any, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean, std = model.predict(x, return_std=True)
    return mean - Z * std, mean + Z * std


def few_rows(name: str, load: Callable, seeds: range, sizes: list[int]) -> None:
    """Coverage of BayesianRegression fitted to few rows."""
    for n in sizes:
        found = []
        for seed in seeds:
            x, y = load(seed)
            order = np.random.default_rng([seed, n]).permutation(len(y))
            fit, new = order[:n], order[n : n + 50]
            if np.ptp(y[fit]) == 0:
                continue
            model = up.BayesianRegression().fit(x[fit], y[fit])
            found.append((covered(y[new], normal_ends(model, x[new])), covered(y[new], model.interval(x[new]))))
        normal, ours = np.mean(found, 0)
        print(f"few rows     {name:14} n={n:2}  normal {normal:.3f}  t mixture {ours:.3f}", flush=True)


def recalibration(name: str, load: Callable, seeds: range) -> None:
    """Coverage and width of FedBNR's raw and recalibrated intervals, and of BayesianRegression's."""
    for label, make in (("FedBNR", lambda s: up.FedBNR(**SMALL, random_state=s)),
                        ("BayesianRegression", lambda s: up.BayesianRegression(recalibrate=True))):  # fmt: skip
        found = []
        for seed in seeds:
            x, y = load(seed)
            order = np.random.default_rng(seed).permutation(len(y))
            cut = int(0.6 * len(y))
            fit, new = order[:cut], order[cut:]
            model = make(seed).fit(x[fit], y[fit], by=np.arange(cut) % 10)
            ends = model.interval(x[new])
            model.histogram_ = model.histogram_[:, :0]
            raw = model.interval(x[new])
            width = np.mean(ends[1] - ends[0]) / np.mean(raw[1] - raw[0])
            found.append((covered(y[new], raw), covered(y[new], ends), width))
        raw, ours, width = np.mean(found, 0)
        farther = abs(ours - COVERAGE) - abs(raw - COVERAGE)
        seen = f"raw {raw:.3f}  recalibrated {ours:.3f}  farther {farther:+.3f}  width x{width:.2f}"
        print(f"recalibrated {name:14} {label:18}  {seen}", flush=True)


def new_clients(name: str, load: Callable, seeds: range) -> None:
    """Coverage for clients never seen that are like the others, and width relative to recalibrate=True."""
    for label, make in (("FedBNR", lambda r, s: up.FedBNR(**SMALL, recalibrate=r, random_state=s)),
                        ("BayesianRegression", lambda r, s: up.BayesianRegression(recalibrate=r))):  # fmt: skip
        found = []
        for seed in seeds:
            x, y = load(seed)
            client = np.random.default_rng(seed).integers(0, 40, size=len(y))
            fit = client < 30
            models = [make(r, seed).fit(x[fit], y[fit], by=client[fit]) for r in (True, "clients")]
            known, unseen = (model.interval(x[~fit]) for model in models)
            found.append((covered(y[~fit], unseen), np.mean(unseen[1] - unseen[0]) / np.mean(known[1] - known[0])))
        ours, width = np.mean(found, 0)
        print(
            f"new clients  {name:14} {label:18}  covered {ours:.3f}  width x{width:.2f} of known clients'", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--real", action="store_true", help="tables of UNPOOLED_DATA too")
    parser.add_argument("--seeds", type=int, default=10, help="fits per table")
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--few-rows", action="store_true", help="the first table alone")
    parser.add_argument(
        "--rows", type=int, nargs="+", default=[3, 5, 10, 20], help="numbers of rows of the first table"
    )
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    tables = TABLES | (real_tables() if args.real else {})
    for name, load in tables.items():
        few_rows(name, load, range(args.first_seed, args.first_seed + 10 * args.seeds), args.rows)
    if args.few_rows:
        return
    for part in (recalibration, new_clients):
        for name, load in tables.items():
            part(name, load, range(args.first_seed, args.first_seed + args.seeds))


if __name__ == "__main__":
    main()
