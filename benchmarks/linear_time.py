"""Processor time of linear classifiers with default parameters, in units of scikit-learn's LogisticRegression of the pooled rows.

    python benchmarks/linear_time.py [--turns 7]

A line per size of the data: how many times as long each model takes, the median over turns and their range, and rounds. All run by turns
in one process, with one BLAS thread. "shared" is FedAvg without the clients' choices, "FedAvg" is with them. Since these choices judge
penalties by left-out rows, "FedAvg by CV" is FedAvg in units of scikit-learn's LogisticRegressionCV (ten penalties, five folds), up to
200,000 rows.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from _alternate import alternate, ratio
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from threadpoolctl import threadpool_limits

import unpooled as up
from unpooled import baselines

SIZES = (  # rows, columns, clients, classes
    (1_000, 10, 5, 2),
    (20_000, 20, 10, 2),
    (20_000, 20, 10, 5),
    (200_000, 20, 20, 2),
    (5_000, 50, 50, 2),
    (500_000, 20, 10, 5),
    (2_000_000, 20, 20, 2),
)
MOST_FOR_CV = 200_000  # rows: with more LogisticRegressionCV takes minutes


def federation(n: int, d: int, clients: int, classes: int) -> tuple[np.ndarray, np.ndarray, dict[str, tuple]]:
    """Rows, labels, and both by client; all clients label alike."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, d))
    y = (x @ rng.normal(size=(d, classes)) + rng.gumbel(size=(n, classes))).argmax(1)
    by = rng.integers(clients, size=n)
    return x, y, {str(i): (x[by == i], y[by == i]) for i in range(clients)}


def work(x: np.ndarray, y: np.ndarray, data: dict[str, tuple]) -> dict[str, Callable[[], Any]]:
    """What is timed, by name."""
    found: dict[str, Callable[[], Any]] = {
        "pooled": lambda: LogisticRegression(max_iter=5000).fit(x, y),
        "shared": lambda: baselines.FedAvg(random_state=0, personalize="none").fit(data),
        "FedAvg": lambda: baselines.FedAvg(random_state=0).fit(data),
        "LogisticRegression": lambda: up.LogisticRegression().fit(data),
    }
    if len(x) <= MOST_FOR_CV:
        found["CV"] = lambda: LogisticRegressionCV(Cs=10, cv=5, max_iter=5000).fit(x, y)
    return found


def main(args: argparse.Namespace) -> None:
    ours = ("shared", "FedAvg", "LogisticRegression")
    print(
        f"| rows | columns | clients | classes | pooled s | {' | '.join(ours)} | FedAvg by CV | rounds |\n|{'---|' * 10}"
    )
    for size in SIZES:
        fits = work(*federation(*size))
        seconds = alternate(fits, args.turns)
        times = [str(ratio(seconds[name].cpu, seconds["pooled"].cpu)) for name in ours]
        times.append(str(ratio(seconds["FedAvg"].cpu, seconds["CV"].cpu)) if "CV" in seconds else "-")
        rounds = ", ".join(str(fits[name]().n_iter_) for name in ("shared", "LogisticRegression"))
        pooled = f"{np.median(seconds['pooled'].cpu):.4f}"
        print("|", " | ".join([*map(str, size), pooled, *times, rounds]), "|", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--turns", type=int, default=7)
    with threadpool_limits(1, user_api="blas"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main(parser.parse_args())
