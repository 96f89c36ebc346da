"""Table 2 on EMNIST with the training that the library has by default: a rate found in the rounds, and clients that choose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _cells import Book, Key, Measure, grouped
from _clients import beside_alone, label_shares, with_seeds
from _clients import expected as expected_accuracy
from _expected import expected
from _methods import accuracy, device, row, together
from _picture import points
from table2_images import data

import unpooled as up
from unpooled import baselines

SEEDS = 4
METHODS: dict[str, Callable[..., Any]] = {
    "FedGMM": lambda **o: up.FedGMM(2, 2, embedding=48, starts=("tied",), **o),
    "FedAvg": lambda **o: baselines.FedAvg(**o),
    "FedEM": lambda **o: baselines.FedEM(2, **o),
    "FedProx": lambda **o: baselines.FedProx(mu=0.1, **o),
    "FedAvg+": lambda **o: baselines.FedAvgPlus(**o),
    "Local": lambda **o: baselines.LocalOnly(**o),
}
DIFFERS = (
    "data as in table2_images, and no grid: every method finds its rate in its own rounds, stops by held-out rows and lets each client "
    'choose what it keeps (lr="auto", personalize="auto"), at most 200 rounds. "mean gain", "worst client" and "lose over 1 point" compare '
    "what each client can expect with what it can expect of Local (_clients.py)."
)


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    book = Book(out, say)
    book.all(cells(small, seeds))
    return points(lines(book), out / "table2_default.png")


def lines(book: Book) -> list[dict]:
    """The table of what has been measured."""
    groups = grouped(with_seeds(book.so_far()), "method")
    alone = groups.get(("Local",), [])
    return [
        row(method, [f["accuracy"] for f in found], expected("table2", "femnist", method), rounds=found[0]["rounds"])
        | {"seeds": len(found)}
        | beside_alone(found, alone)
        for (method,), found in groups.items()
    ]


def cells(small: bool, seeds: int) -> Iterator[tuple[Key, Measure]]:
    for seed in range(seeds):
        for method in METHODS:
            yield {"method": method, "seed": seed}, partial(_measure, method, seed, small)


def _measure(method: str, seed: int, small: bool, book: Book) -> dict[str, Any]:
    train, valid, test = data(small, seed)
    rows = {name: tuple(np.concatenate(pair) for pair in zip(train[name], valid[name])) for name in train}
    options = {"max_iter": 20 if small else 200, "random_state": seed, "device": None if small else device()}
    learner = {"learner": "mlp", "hidden": (64,)} if small else {"learner": "cnn"}
    model = METHODS[method](classes=range(10 if small else 62), **options, **learner).fit(together(rows))
    shares = label_shares((train, valid, test), 62)
    found = {"accuracy": accuracy(model, test)[0], "rounds": len(model.history_)}
    return found | {"expected by client": expected_accuracy(model, test, shares)}
