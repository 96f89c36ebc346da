"""The eight methods of FedGMM's tables, tuned alike on validation rows, and how they are judged."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from _cells import Book, Key, Measure

import unpooled as up
from unpooled import baselines
from unpooled.data.federate import federate
from unpooled.errors import TooFewClients
from unpooled.local import Local

# rates are 10 to minus these; the first are the paper's
EXPONENTS, SMALL_EXPONENTS = ((0.5, 1, 1.5, 2, 2.5, 3), (0.5, 1.5))
GRID, SMALL_GRID = (tuple(10.0**-e for e in exponents) for exponents in (EXPONENTS, SMALL_EXPONENTS))
Rows = Mapping[str, tuple[np.ndarray, np.ndarray]]

PAPER = {"lr": 0.1, "personalize": "none"}  # as the paper's peers are trained, without the clients' own choices
PAPER_GMM = PAPER | {"tol": 0.0, "ridge": 1e-6, "reg_covar": 1e-6, "novelty_rows": "leave-one-out"}

METHODS: dict[str, Callable[..., Any]] = {
    "Local": lambda **o: baselines.LocalOnly(**PAPER | o),
    "FedAvg": lambda **o: baselines.FedAvg(**PAPER | o),
    "FedProx": lambda **o: baselines.FedProx(mu=0.1, **PAPER | o),
    "FedAvg+": lambda **o: baselines.FedAvgPlus(**PAPER | o),
    "ClusteredFL": lambda **o: baselines.ClusteredFL(**PAPER | o),
    "pFedMe": lambda **o: baselines.PFedMe(**PAPER | o),
    "FedEM": lambda **o: baselines.FedEM(3, **PAPER | o),
    "FedGMM (SGD)": lambda **o: up.FedGMM(3, 3, optimizer="sgd", **PAPER_GMM | o),
    "FedGMM": lambda **o: up.FedGMM(3, 3, **PAPER_GMM | o),
}
UNTUNED = ("FedGMM",)  # Newton has no rate


def device() -> str | None:
    """ "cuda" where there is a GPU; None is NumPy on the CPU."""
    import torch

    return "cuda" if torch.cuda.is_available() else None


def together(rows: Rows) -> Local:
    """Clients in this process; as many threads as OMP_NUM_THREADS says, so that parts of a table can run side by side."""
    stacks = {"stack_cells": 10**9, "stack_padding": 1.0} if device() else {}  # a GPU wants all clients at once
    return federate(rows, threads=int(os.environ.get("OMP_NUM_THREADS", 0)) or None, **stacks)


def accuracy(model: Any, rows: Rows) -> tuple[float, float]:
    """(mean over clients, mean over rows) of the accuracy of each client's own model."""
    hits = [(model.predict(x, client=name) == y).mean() for name, (x, y) in rows.items() if len(y)]
    sizes = [len(y) for _, y in rows.values() if len(y)]
    return float(np.mean(hits)), float(np.average(hits, weights=sizes))


def tuned(name: str, train: Rows, valid: Rows, options: dict, rounds: int, grid: tuple[float, ...]) -> float:
    """The rate of the grid with the best validation accuracy after `rounds`."""
    if name in UNTUNED:
        return GRID[1]
    scores = {lr: accuracy(METHODS[name](lr=lr, **options | {"max_iter": rounds}).fit(train), valid)[0] for lr in grid}
    return max(scores, key=lambda lr: scores[lr])


def fitted(name: str, train: Rows, options: dict) -> Any:
    return METHODS[name](**options).fit(together(train))


def image_cells(rates: Callable, measure: Callable, small: bool, seeds: int) -> Iterator[tuple[Key, Measure]]:
    """(method, tune) of every rate, (method, seed) with the best of them; on images FedGMM has one way to train."""
    for method in METHODS:
        if method != "FedGMM (SGD)":
            yield from rates(method, small)
            for seed in range(seeds):
                yield {"method": method, "seed": seed}, partial(measure, method, seed, small)


def tuning(
    key: Key, name: str, rows: Callable[[], tuple[Rows, Rows]], options: dict, small: bool, fit: Callable = fitted
) -> list[tuple[Key, Measure]]:
    """The cells of the grid: validation accuracy after 40 rounds at every rate, on (train, valid)."""

    def measure(exponent: float) -> dict[str, float]:
        train, valid = rows()
        short = options | {"lr": 10.0**-exponent, "max_iter": min(options["max_iter"], 40)}
        try:
            return {"accuracy": accuracy(fit(name, train, short), valid)[0]}
        except TooFewClients:  # models that are not finite are refused: at this rate it diverges
            return {"accuracy": 0.0}

    exponents = () if name not in METHODS else SMALL_EXPONENTS if small else EXPONENTS
    return [({**key, "tune": e}, lambda book, e=e: measure(e)) for e in exponents]


def best_rate(book: Book, cells: list[tuple[Key, Measure]]) -> float:
    scores = {key["tune"]: book.get(key, measure)["accuracy"] for key, measure in cells}
    return 10.0 ** -max(scores, key=lambda e: scores[e]) if scores else GRID[1]


def curve(name: str, train: Rows, test: Rows, options: dict, marks: Iterable[int]) -> dict[int, tuple[float, float]]:
    """Test accuracy (mean over clients, over rows) after each of these rounds, from one run; one that is done stays as it is."""
    fed, model, found = together(train), METHODS[name](**options), {}
    for moment in model.rounds(fed):
        done = len(moment.history)
        if done in marks or moment.done:
            model.history_ = moment.history
            model.finish(fed, moment.state)
            found[done] = accuracy(model, test)
    last = found.pop(done) if done not in marks else found[done]
    return found | {mark: last for mark in marks if done < mark <= options["max_iter"]}


def row(method: str, values: list[float], paper: float | None, **more: Any) -> dict:
    """A row of a table: our mean and spread over seeds beside the paper's figure, all in percent."""
    percent = 100 * np.asarray(values)
    return {"method": method, **more, "ours": float(percent.mean()), "spread": float(percent.std()), "paper": paper}
