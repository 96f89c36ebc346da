"""How well are gaps filled in? MixtureImputer over clients against the mean and scikit-learn's IterativeImputer on pooled rows.

15 % of the observed cells of four real tables are hidden at random; errors are root mean squares over hidden cells, in standard
deviations of the column. `python benchmarks/imputation.py [--seeds 5] [--tables heart beijing ...]` prints what was found and asked for.
Seeds count from 10, those before were used while the imputer was written; finished trials are kept in `--out` and not made again.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

import unpooled as up
from unpooled.datasets import shared
from unpooled.models.mixture_imputer import MixtureImputer

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments" / "fedem"))
from _kept import kept

HIDDEN = 0.15
FIRST_SEED = 10


class Table(NamedTuple):
    x: np.ndarray  # (n, d)
    clients: np.ndarray  # (n,)


def heart() -> Table:
    """920 patients of four hospitals: 13 findings and the diagnosis."""
    data = shared.heart_disease()
    return Table(np.column_stack([data.x, data.y]), data.groups)


def physionet() -> Table:
    """8000 patients of four kinds of intensive care: means over 48 hours of what was measured, as far as it varies."""
    data = shared.physionet()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a patient without a measurement has no mean
        means = np.nanmean(data.x, axis=1).astype(np.float64)
    return Table(means[:, np.nanstd(means, axis=0) > 0], data.groups)


def beijing() -> Table:
    """43824 hours of fine dust and weather, a client a year."""
    data = shared.beijing()
    weather = [data.columns.index(c) for c in ("DEWP", "TEMP", "PRES", "Iws", "Is", "Ir")]
    return Table(np.column_stack([data.y.astype(np.float64), data.x[:, weather]]), data.groups)


def oystercatcher() -> Table:
    """Years at 138 sites, twelve monthly counts as log(1 + count); ten clients hold the sites, years without a count are left out."""
    data = shared.oystercatcher()
    years = np.log1p(data.counts).reshape(len(data.sites), -1, 12)
    client = np.repeat(np.arange(len(data.sites)) % 10, years.shape[1])
    rows = years.reshape(-1, 12)
    seen = ~np.isnan(rows).all(axis=1)
    return Table(rows[seen], client[seen])


TABLES = {"heart": heart, "physionet": physionet, "beijing": beijing, "oystercatcher": oystercatcher}


def trial(table: Table, seed: int) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    hidden = (rng.random(table.x.shape) < HIDDEN) & ~np.isnan(table.x)
    x = np.where(hidden, np.nan, table.x)
    keep = ~np.isnan(x).all(axis=1)
    x, truth, hidden, clients = x[keep], table.x[keep], hidden[keep], table.clients[keep]
    scale = np.nanstd(x, axis=0)

    def rmse(filled: np.ndarray) -> float:
        return float(np.sqrt(np.mean(((filled - truth) / scale)[hidden] ** 2)))

    begin = time.process_time()
    fed = up.federate(x, by=clients, mode="one by one")  # merged, clients would be the pooled rows
    ours = MixtureImputer().fit(fed)
    seconds = time.process_time() - begin
    low, high = ours.interval(x, 0.9)
    pooled = MixtureImputer().fit(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        begin = time.process_time()
        iterative = IterativeImputer(random_state=0).fit_transform(x)
        peer_seconds = time.process_time() - begin
    mine = rmse(ours.transform(x))
    return {
        "rmse": mine,
        "to mean": mine / rmse(np.where(hidden, np.nanmean(x, axis=0), truth)),
        "to iterative": mine / rmse(iterative),
        "pooled difference": abs(mine - rmse(pooled.transform(x))),
        "largest cell difference": float(np.abs((ours.transform(x) - pooled.transform(x)) / scale).max()),
        "coverage": float(((truth >= low) & (truth <= high))[hidden].mean()),
        "components": ours.n_components_,
        "prior rows": ours.prior_,
        "rounds": ours.n_iter_,
        "cpu s": seconds,
        "iterative cpu s": peer_seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tables", nargs="*", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--out", type=Path, default=Path("out/imputation.jsonl"))
    given = parser.parse_args()
    means = {}
    for name in given.tables:
        table = TABLES[name]()
        seeds = range(FIRST_SEED, FIRST_SEED + given.seeds)
        trials = [kept(given.out, {"table": name, "seed": s}, trial, table, s) for s in seeds]
        print(
            f"{name}: {table.x.shape[0]} x {table.x.shape[1]}, {len(np.unique(table.clients))} clients, {given.seeds} seeds"
        )
        measured = [key for key in trials[0] if key not in ("table", "seed")]
        for key in measured:
            values = np.array([t[key] for t in trials])
            print(
                f"  {key:18s} mean {values.mean():10.4g}   from {values.min():10.4g} to {values.max():10.4g}",
                flush=True,
            )
        means[name] = {key: float(np.mean([t[key] for t in trials])) for key in measured}
    report(means)


def report(means: dict[str, dict[str, float]]) -> None:
    to_mean, to_iterative, coverage, apart = (
        np.array([m[key] for m in means.values()])
        for key in ("to mean", "to iterative", "coverage", "pooled difference")
    )
    print(
        f"over {', '.join(means)}"
        + (f"; not run: {', '.join(set(TABLES) - set(means))}" if len(means) < len(TABLES) else "")
    )
    print(
        f"below the mean's error on every table by 10 %: {bool((to_mean <= 0.9).all())} (largest ratio {to_mean.max():.3f})"
    )
    print(f"by 15 % at the median: {bool(np.median(to_mean) <= 0.85)} (median ratio {np.median(to_mean):.3f})")
    print(
        f"at or below IterativeImputer on all: {bool((to_iterative <= 1).all())} (largest ratio {to_iterative.max():.3f})"
    )
    print(f"same as pooled to 1e-6: {bool((apart < 1e-6).all())} (largest difference {apart.max():.1e})")
    inside = bool(((coverage > 0.85) & (coverage < 0.95)).all())
    print(f"90 % intervals cover 85 to 95 %: {inside} (from {coverage.min():.3f} to {coverage.max():.3f})")


if __name__ == "__main__":
    main()
