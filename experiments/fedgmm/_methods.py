"""The eight methods of FedGMM's tables, tuned alike on validation rows, and how they are judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import unpooled as up
from unpooled import baselines
from unpooled.local import federate

GRID = tuple(10.0**-e for e in (0.5, 1, 1.5, 2, 2.5, 3))  # the paper's
SMALL_GRID = (10.0**-0.5, 10.0**-1.5)
Rows = Mapping[str, tuple[np.ndarray, np.ndarray]]

METHODS: dict[str, Callable[..., Any]] = {
    "Local": lambda **o: baselines.LocalOnly(**o),
    "FedAvg": lambda **o: baselines.FedAvg(**o),
    "FedProx": lambda **o: baselines.FedProx(mu=0.1, **o),
    "FedAvg+": lambda **o: baselines.FedAvgPlus(**o),
    "ClusteredFL": lambda **o: baselines.ClusteredFL(**o),
    "pFedMe": lambda **o: baselines.PFedMe(**o),
    "FedEM": lambda **o: baselines.FedEM(3, **o),
    "FedGMM (SGD)": lambda **o: up.FedGMM(3, 3, optimizer="sgd", **o),
    "FedGMM": lambda **o: up.FedGMM(3, 3, **o),
}
UNTUNED = ("FedGMM",)  # Newton has no rate


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


def curve(name: str, train: Rows, test: Rows, options: dict, marks: tuple[int, ...]) -> dict[int, float]:
    """Test accuracy (mean over clients) after each of these rounds, from one run."""
    fed, model, found = federate(train), METHODS[name](**options), {}
    for moment in model.rounds(fed):
        done = len(moment.history)
        if done in marks:
            model.history_ = moment.history
            model.finish(fed, moment.state)
            found[done] = accuracy(model, test)[0]
    return found


def row(method: str, values: list[float], paper: float | None, **more: Any) -> dict:
    """A row of a table: our mean and spread over seeds beside the paper's figure, all in percent."""
    percent = 100 * np.asarray(values)
    return {"method": method, **more, "ours": float(percent.mean()), "spread": float(percent.std()), "paper": paper}
