"""Processor time of linear classifiers with default parameters, in units of scikit-learn's LogisticRegression of the pooled rows.

    python benchmarks/linear_time.py [--turns 7]
    UNPOOLED_DATA=... python benchmarks/linear_time.py --real [--turns 3]

A line per size of the data: how many times as long each model takes, the median over turns and their range, and rounds. All run by turns
in one process, with one BLAS thread. "shared" is FedAvg without the clients' choices, "FedAvg" is with them. Since `gain_` compares
with each client alone, "by both" is FedAvg in units of scikit-learn's pooled fit plus its fits of each client's own rows. Since the
choices judge penalties by left-out rows, "by CV" is FedAvg in units of scikit-learn's LogisticRegressionCV (ten penalties, five
folds), up to 200,000 rows. The first line is the four heart hospitals, when $UNPOOLED_DATA has heart_disease_4hospitals.csv.gz.

--real takes the ten federations of classifier_tables instead, each of them twice: with the columns as the table has them, and standardised.
Both models get the same columns, and scikit-learn's solver as many iterations as it needs: in columns of unlike units these are thousands.
"FedAvg by 100" is FedAvg in units of the pooled fit with scikit-learn's default of 100 iterations, which often ends before the optimum.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from _alternate import alternate, ratio
from classifier_tables import TABLES
from heart_sites import COLUMNS, patients
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
OURS = ("shared", "FedAvg", "LogisticRegression")
ITERATIONS = 50_000  # of the pooled regression, at most


class Federation(NamedTuple):
    """The same rows pooled and by client."""

    x: np.ndarray
    y: np.ndarray
    clients: dict[str, tuple[np.ndarray, np.ndarray]]


def simulated(n: int, d: int, clients: int, classes: int) -> Federation:
    """Clients that label alike."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, d))
    y = (x @ rng.normal(size=(d, classes)) + rng.gumbel(size=(n, classes))).argmax(1)
    by = rng.integers(clients, size=n)
    return Federation(x, y, {str(i): (x[by == i], y[by == i]) for i in range(clients)})


def hospitals() -> Federation:
    """Training patients of the four heart hospitals, in standardised columns with indicators of categories."""
    train, _ = patients()
    columns = pd.get_dummies(train[list(COLUMNS)], columns=["cp", "restecg"], drop_first=True).astype(float)
    x = ((columns - columns.mean()) / columns.std()).to_numpy()
    y = (train.disease == "yes").to_numpy(int)
    by = train.hospital.to_numpy()
    return Federation(x, y, {str(name): (x[by == name], y[by == name]) for name in np.unique(by)})


def federations() -> Iterator[Federation]:
    try:
        yield hospitals()
    except FileNotFoundError as missing:
        print(f"without the heart hospitals: {missing}")
    yield from (simulated(*size) for size in SIZES)


def real(table: str, standardised: bool) -> Federation:
    """A federation of classifier_tables; missing values are the column's mean."""
    x, y, by = TABLES[table](np.random.default_rng(0))
    x = np.where(np.isnan(x), np.nanmean(x, axis=0), x)
    x = x[:, x.std(axis=0) > 0]
    if standardised:
        x = (x - x.mean(axis=0)) / x.std(axis=0)
    return Federation(x, y, {str(name): (x[by == name], y[by == name]) for name in np.unique(by)})


def alone(clients: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    """Each client's own regression, where it has two classes."""
    for x, y in clients.values():
        if len(np.unique(y)) > 1:
            LogisticRegression(max_iter=5000).fit(x, y)


def work(federation: Federation) -> dict[str, Callable[[], Any]]:
    """What is timed, by name."""
    x, y, data = federation
    found: dict[str, Callable[[], Any]] = {
        "pooled": lambda: LogisticRegression(max_iter=ITERATIONS).fit(x, y),
        "each alone": lambda: alone(data),
        "shared": lambda: baselines.FedAvg(random_state=0, personalize="none").fit(data),
        "FedAvg": lambda: baselines.FedAvg(random_state=0).fit(data),
        "LogisticRegression": lambda: up.LogisticRegression().fit(data),
    }
    if len(x) <= MOST_FOR_CV:
        found["CV"] = lambda: LogisticRegressionCV(Cs=10, cv=5, max_iter=5000).fit(x, y)
    return found


def real_tables(turns: int) -> None:
    """A line per table: processor time in units of the pooled regression of the same columns."""
    head = ["table", "rows", "columns", "clients", "classes", "columns are", "pooled s", *OURS, "FedAvg by 100"]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for table in TABLES:
        for standardised in (False, True):
            federation = real(table, standardised)
            fits = {name: fit for name, fit in work(federation).items() if name in ("pooled", *OURS)}
            fits["100"] = partial(LogisticRegression().fit, federation.x, federation.y)
            seconds = {name: spent.cpu for name, spent in alternate(fits, turns).items()}
            times = [ratio(seconds[name], seconds["pooled"]) for name in OURS]
            times.append(ratio(seconds["FedAvg"], seconds["100"]))
            size = (*federation.x.shape, len(federation.clients), len(np.unique(federation.y)))
            units = "standardised" if standardised else "as they are"
            print(
                "|",
                " | ".join(map(str, (table, *size, units, f"{np.median(seconds['pooled']):.4f}", *times))),
                "|",
                flush=True,
            )


def main(args: argparse.Namespace) -> None:
    if args.real:
        real_tables(args.turns)
        return
    head = ["rows", "columns", "clients", "classes", "pooled s", *OURS, "FedAvg by both", "FedAvg by CV", "rounds"]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for federation in federations():
        fits = work(federation)
        seconds = {name: spent.cpu for name, spent in alternate(fits, args.turns).items()}
        times = [ratio(seconds[name], seconds["pooled"]) for name in OURS]
        times.append(ratio(seconds["FedAvg"], seconds["pooled"] + seconds["each alone"]))
        by_cv = ratio(seconds["FedAvg"], seconds["CV"]) if "CV" in seconds else "-"
        rounds = ", ".join(str(fits[name]().n_iter_) for name in ("shared", "LogisticRegression"))
        size = (*federation.x.shape, len(federation.clients), len(np.unique(federation.y)))
        pooled = f"{np.median(seconds['pooled']):.4f}"
        print("|", " | ".join(map(str, (*size, pooled, *times, by_cv, rounds))), "|", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument(
        "--real", action="store_true", help="real federations, with columns as they are and standardised"
    )
    with threadpool_limits(1, user_api="blas"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main(parser.parse_args())
